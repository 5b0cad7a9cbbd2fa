// SPDX-License-Identifier: Apache-2.0
//! Two hosts with two routers and a delay between them, and captures at both hosts.
//!
//! ```text
//!   client ── veth ── router near ══ delay line ══ router far ── veth ── server
//!    host0            sp0: drops of the             sp0: drops of the          host0
//!  (captured)         server's data, NAT            client's data           (captured)
//! ```

#![allow(dead_code, reason = "each test uses its part")]

use slowpath_testbed::{
    DropRule, Dropper, LinkOptions, Namespace, Need, PINNED_SYSCTLS, Side, Testbed,
    missing_requirements,
};
use slowpath_trace::live::{Counters, Request, capture};
use slowpath_trace::read::Input;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;

pub const CLIENT: &str = "10.78.1.2";
pub const SERVER: &str = "10.78.2.2";
/// Of the near router towards the far one: what a masqueraded client has.
pub const OUTSIDE: &str = "10.77.0.1";

/// Why these tests cannot run here, printed.
pub fn skipped(test: &str, programs: &[&str]) -> bool {
    let lacking = |program: &&&str| {
        let run = Command::new(program)
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        run.is_err()
    };
    let reason = missing_requirements(&[Need::Namespaces]).or_else(|| {
        let program = programs.iter().find(lacking)?;
        Some(format!("{program} is not installed"))
    });
    if let Some(reason) = &reason {
        println!("SKIPPED {test}: {reason}");
    }
    reason.is_some()
}

/// The network of one test.
pub struct Network {
    // Before the namespaces: its delay line ends first.
    routers: Testbed,
    pub client: Namespace,
    pub server: Namespace,
}

impl Network {
    /// `delay_ms` one way. `joined`: the hosts' segments pass their interfaces as they leave TCP, up
    /// to 64 KiB each, and are cut on the delay line.
    pub fn new(delay_ms: u32, joined: bool) -> Network {
        static NEXT: AtomicU32 = AtomicU32::new(9_000);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let host = |end: &str| {
            let name = format!("sp-{}-{number}-{end}", std::process::id());
            let namespace = Namespace::new(&name).expect("makes a namespace");
            for (sysctl, value, _) in PINNED_SYSCTLS {
                namespace.sysctl(sysctl, value).expect("is set");
            }
            namespace
        };
        let mut routers = Testbed::new("path").expect("makes the routers");
        let line = LinkOptions {
            delay_ms,
            ..LinkOptions::default()
        };
        routers.add_link(&line).expect("joins the routers");
        let network = Network {
            routers,
            client: host("c"),
            server: host("s"),
        };
        for (side, host, net, via) in [
            (Side::A, &network.client, 1, 2),
            (Side::B, &network.server, 2, 1),
        ] {
            let router = network.routers.namespace(side);
            let far = 3 - net;
            router
                .ip(&format!(
                    "link add host0 type veth peer name host0 netns {}\n\
                     link set host0 up\n\
                     addr add 10.78.{net}.1/24 dev host0\n\
                     route add 10.78.{far}.0/24 via 10.77.0.{via}\n",
                    host.name()
                ))
                .expect("joins a host");
            router.sysctl("net.ipv4.ip_forward", "1").expect("forwards");
            let segments = if joined { "" } else { "gso_max_segs 1" };
            host.ip(&format!(
                "link set host0 up {segments}\n\
                 addr add 10.78.{net}.2/24 dev host0\n\
                 route add default via 10.78.{net}.1\n"
            ))
            .expect("has a network");
        }
        network
    }

    /// The router beside the client ([`Side::A`]) or the server.
    pub fn router(&self, side: Side) -> &Namespace {
        self.routers.namespace(side)
    }

    /// Drops what `from` sent, between the routers.
    pub fn drop_data(&self, from: Side, rule: DropRule) -> Dropper {
        let at = match from {
            Side::A => Side::B,
            Side::B => Side::A,
        };
        Dropper::attach(self.router(at), "sp0", rule).expect("attaches")
    }

    /// Gives nftables' rules to a router.
    pub fn nft(&self, side: Side, rules: &str) {
        let mut nft = self.router(side).command("nft").expect("enters");
        let spawned = nft.args(["-f", "-"]).stdin(Stdio::piped()).spawn();
        let mut nft = spawned.expect("nft starts");
        let mut input = nft.stdin.take().expect("is a pipe");
        input.write_all(rules.as_bytes()).expect("is read");
        drop(input);
        assert!(nft.wait().expect("ends").success(), "{rules}");
    }

    /// Packets that the router's only counting rule has counted.
    pub fn counted(&self, side: Side) -> u64 {
        let mut nft = self.router(side).command("nft").expect("enters");
        let output = nft.args(["list", "ruleset"]).output().expect("nft runs");
        let text = String::from_utf8(output.stdout).expect("is text");
        let (_, rest) = text.split_once("counter packets ").expect("counts");
        let number: String = rest.chars().take_while(char::is_ascii_digit).collect();
        number.parse().expect("is a number")
    }

    /// Sends `up` bytes, waits for `down` bytes, `times` over, `pause` between.
    /// Both ends have read to the end when this returns.
    pub fn exchange(&self, load: Load) -> SocketAddr {
        let listener = self
            .server
            .run(|| TcpListener::bind((SERVER, 0)))
            .expect("enters")
            .expect("listens");
        let to = listener.local_addr().expect("is bound");
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let (mut socket, _) = listener.accept().expect("accepts");
                let mut buffer = vec![0; load.up];
                for _ in 0..load.times {
                    socket.read_exact(&mut buffer).expect("reads");
                    socket.write_all(&vec![2; load.down]).expect("writes");
                }
                // The client closes first; what it sends more is nothing.
                assert_eq!(socket.read(&mut [0]).expect("reads"), 0);
            });
            let work = || {
                let mut socket = TcpStream::connect(to).expect("connects");
                let from = socket.local_addr().expect("is bound");
                let mut buffer = vec![0; load.down];
                for _ in 0..load.times {
                    socket.write_all(&vec![1; load.up]).expect("writes");
                    socket.read_exact(&mut buffer).expect("reads");
                    std::thread::sleep(load.pause);
                }
                socket.shutdown(std::net::Shutdown::Write).expect("closes");
                assert_eq!(socket.read(&mut [0]).expect("reads"), 0);
                from
            };
            self.client.run(work).expect("enters")
        })
    }
}

/// What a connection carries.
#[derive(Clone, Copy)]
pub struct Load {
    pub up: usize,
    pub down: usize,
    pub times: usize,
    /// Between a response and the next request.
    pub pause: std::time::Duration,
}

/// One transfer from the client, and a byte back when all has come.
pub fn upload(bytes: usize) -> Load {
    Load {
        up: bytes,
        down: 1,
        times: 1,
        pause: std::time::Duration::ZERO,
    }
}

/// A request, and one transfer from the server.
pub fn download(bytes: usize) -> Load {
    Load {
        up: 1,
        down: bytes,
        ..upload(1)
    }
}

/// A running capture by slowpath itself, into a file.
pub struct Recording {
    file: PathBuf,
    stop: Arc<AtomicBool>,
    counters: Arc<Counters>,
    thread: JoinHandle<io::Result<u64>>,
}

impl Recording {
    /// Everything that passes `interface`, from now on.
    pub fn start(at: &Namespace, interface: &str, file: &Path) -> Recording {
        let stop = Arc::new(AtomicBool::new(false));
        let request = Request {
            filter: Some("tcp".parse().expect("is a filter")),
            ..Request::new(interface)
        };
        let (input, counters) = at
            .run(|| capture(&request, Arc::clone(&stop)))
            .expect("enters")
            .expect("captures");
        let Input::Stream(_, mut stream) = input else {
            panic!("a capture is a stream");
        };
        let mut out = File::create(file).expect("makes a file");
        Recording {
            file: file.to_owned(),
            stop,
            counters,
            thread: std::thread::spawn(move || io::copy(&mut stream, &mut out)),
        }
    }

    /// Ends it. What passed before is in the file.
    pub fn finish(self) -> PathBuf {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("ends").expect("is written");
        assert_eq!(self.counters.dropped(), 0);
        self.file
    }
}

/// One record of a pcap file.
pub struct Record {
    /// Nanoseconds since the epoch.
    pub time: i64,
    pub frame: Vec<u8>,
}

impl Record {
    /// The TCP sequence number of an Ethernet frame with IPv4.
    pub fn sequence(&self) -> u32 {
        let at = 14 + usize::from(self.frame[14] & 15) * 4 + 4;
        u32::from_be_bytes(self.frame[at..at + 4].try_into().expect("four bytes"))
    }

    /// Bytes of the IP packet by its header.
    pub fn length(&self) -> u16 {
        u16::from_be_bytes([self.frame[16], self.frame[17]])
    }
}

/// The records of one of our captures: little-endian pcap with nanoseconds.
pub fn records(file: &Path) -> Vec<Record> {
    let bytes = std::fs::read(file).expect("is read");
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four"));
    assert_eq!(word(0), 0xa1b2_3c4d);
    let (mut at, mut records) = (24, Vec::new());
    while at < bytes.len() {
        let length = word(at + 8) as usize;
        records.push(Record {
            time: i64::from(word(at)) * 1_000_000_000 + i64::from(word(at + 4)),
            frame: bytes[at + 16..at + 16 + length].to_vec(),
        });
        at += 16 + length;
    }
    records
}

/// Gives the capture another clock: each time `t` becomes `clock(t, first)`.
pub fn reclock(file: &Path, clock: impl Fn(i64, i64) -> i64) {
    let mut bytes = std::fs::read(file).expect("is read");
    let all = records(file);
    let (mut at, first) = (24, all[0].time);
    for record in all {
        let time = clock(record.time, first);
        let words = [time / 1_000_000_000, time % 1_000_000_000].map(|w| w as u32);
        bytes[at..at + 4].copy_from_slice(&words[0].to_le_bytes());
        bytes[at + 4..at + 8].copy_from_slice(&words[1].to_le_bytes());
        at += 16 + record.frame.len();
    }
    std::fs::write(file, bytes).expect("is written");
}
