// SPDX-License-Identifier: Apache-2.0
//! Networks for the tests of the emulator, and sockets that see whole packets.

#![allow(dead_code, reason = "not every test file uses all of it")]

use slowpath_lab::emulator::{Host, Lab, LabError, Options};
use slowpath_netsim::scenario::{Scenario, Substrate};
use socket2::{Domain, Protocol, Socket, Type};
use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

/// Where test datagrams go.
pub const PORT: u16 = 4000;

/// Long enough for whatever is on its way.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// Brings the network of a scenario up; `None`, with the reason, where that is not possible.
pub fn up(test: &str, text: &str) -> Option<Lab> {
    let files = |_: &str| Err(std::io::ErrorKind::NotFound.into());
    let scenario = Scenario::parse_for(text, &files, Substrate::Emulator).expect("possible");
    match Lab::up(&scenario, &Options::default()) {
        Ok(lab) => Some(lab),
        Err(error @ (LabError::NotPermitted | LabError::NoTun(_))) => {
            println!("SKIPPED {test}: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Hosts a and b with routers r1 ... rn between them, and more lines of TOML.
pub fn row(routers: usize, link: &str, more: &str) -> String {
    let names: Vec<String> = (1..=routers).map(|n| format!("r{n}")).collect();
    let nodes: Vec<&str> = std::iter::once("a")
        .chain(names.iter().map(String::as_str))
        .chain(["b"])
        .collect();
    let links: Vec<String> = nodes
        .windows(2)
        .map(|pair| format!("{{ ends = [\"{}\", \"{}\"] }}", pair[0], pair[1]))
        .collect();
    format!(
        "[topology]\nkind = \"custom\"\nhosts = [\"a\", \"b\"]\nswitches = {names:?}\n\
         links = {{ {link} }}\nlink = [{}]\n[switch]\nbuffer = \"1000 packets\"\n{more}",
        links.join(", ")
    )
}

/// A UDP socket in a host.
pub fn udp(host: &Host) -> UdpSocket {
    let bound = host.run(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, PORT)));
    let socket = bound.expect("enters").expect("binds");
    socket.set_read_timeout(Some(PATIENCE)).expect("sets");
    socket
}

/// A socket in a host that sees whole IPv4 packets of a protocol.
pub fn raw(host: &Host, protocol: Protocol) -> Socket {
    let open = || Socket::new(Domain::IPV4, Type::RAW, Some(protocol));
    let socket = host.run(open).expect("enters").expect("opens");
    socket.set_read_timeout(Some(PATIENCE)).expect("sets");
    socket.set_recv_buffer_size(16 << 20).expect("sets");
    socket
}

/// A packet socket in a host that sees what comes and goes, from the IP header on.
pub fn packets(host: &Host) -> Socket {
    let open = || {
        let all = u16::from_ne_bytes((libc::ETH_P_ALL as u16).to_be_bytes());
        let protocol = Protocol::from(i32::from(all));
        Socket::new(Domain::PACKET, Type::DGRAM, Some(protocol))
    };
    let socket = host.run(open).expect("enters").expect("opens");
    socket.set_read_timeout(Some(PATIENCE)).expect("sets");
    socket.set_recv_buffer_size(16 << 20).expect("sets");
    socket
}

/// The next packet of a raw socket.
pub fn packet(socket: &Socket) -> Vec<u8> {
    let mut buffer = [0; 2048];
    let mut reader = socket;
    let length = reader.read(&mut buffer).expect("arrives in time");
    buffer[..length].to_vec()
}

pub fn to(host: &Host) -> SocketAddr {
    (host.ipv4(), PORT).into()
}

/// RFC 1071 from the definition: the sum over a correct header is all ones.
pub fn header_is_correct(packet: &[u8]) -> bool {
    let words = packet[..20].chunks(2);
    let sum: u32 = words.map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum();
    (sum & 0xffff) + (sum >> 16) == 0xffff
}
