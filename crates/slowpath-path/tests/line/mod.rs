// SPDX-License-Identifier: Apache-2.0
//! Two network namespaces joined by TUN devices, between which this process carries every packet and decides what
//! becomes of each. Packets are known by their UDP ports and the sequence number that test packets begin with.
#![allow(dead_code)]

use slowpath_path::serve::{Policy, ServeOptions};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, FromRawFd};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

static NEXT: AtomicU32 = AtomicU32::new(0);

/// Which way a packet goes: from a to b, or back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Toward {
    B,
    A,
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fate {
    /// How many of it arrive.
    pub copies: usize,
    /// So many later packets overtake it.
    pub behind: usize,
    /// Routers on its way.
    pub hops: u8,
}

impl Fate {
    pub const PASS: Fate = Fate {
        copies: 1,
        behind: 0,
        hops: 0,
    };
    pub const LOST: Fate = Fate {
        copies: 0,
        ..Fate::PASS
    };
}

/// Decides by direction and sequence number.
pub type Decision = Box<dyn FnMut(Toward, u32) -> Fate + Send>;

/// The two namespaces and the line between them.
pub struct Line {
    names: [String; 2],
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    /// UDP octets that went each way, IP headers included.
    pub octets: Arc<[Mutex<u64>; 2]>,
}

/// Why this machine cannot run such a test.
pub fn missing() -> Option<String> {
    // SAFETY: geteuid takes no argument and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        return Some("needs root".to_owned());
    }
    let found = std::path::Path::new("/dev/net/tun").exists();
    (!found).then(|| "there is no /dev/net/tun".to_owned())
}

fn ip(arguments: &[&str]) {
    let output = Command::new("ip")
        .args(arguments)
        .output()
        .expect("ip runs (Debian package iproute2)");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {arguments:?}: {error}");
}

impl Line {
    /// Addresses of the ends.
    pub const A4: &'static str = "10.99.0.1";
    pub const B4: &'static str = "10.99.0.2";
    pub const A6: &'static str = "fd99::1";
    pub const B6: &'static str = "fd99::2";

    pub fn new(decide: Decision) -> Self {
        let stem = format!(
            "sp-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        let names = [format!("{stem}-a"), format!("{stem}-b")];
        let mut files = Vec::new();
        for (name, v4, v6) in [
            (&names[0], Self::A4, Self::A6),
            (&names[1], Self::B4, Self::B6),
        ] {
            ip(&["netns", "add", name]);
            ip(&["-n", name, "link", "set", "lo", "up"]);
            files.push(inside(name, || open_tun("sp0")));
            ip(&["-n", name, "addr", "add", &format!("{v4}/24"), "dev", "sp0"]);
            ip(&[
                "-n",
                name,
                "addr",
                "add",
                &format!("{v6}/64"),
                "dev",
                "sp0",
                "nodad",
            ]);
            ip(&[
                "-n",
                name,
                "link",
                "set",
                "sp0",
                "up",
                "txqueuelen",
                "10000",
            ]);
        }
        let stop = Arc::new(AtomicBool::new(false));
        let decide = Arc::new(Mutex::new(decide));
        let octets: Arc<[Mutex<u64>; 2]> = Arc::default();
        let b = files.pop().expect("two");
        let a = files.pop().expect("two");
        let threads = [
            (Toward::B, a.try_clone(), b.try_clone()),
            (Toward::A, Ok(b), Ok(a)),
        ]
        .into_iter()
        .map(|(toward, from, to)| {
            let (from, to) = (from.expect("a descriptor"), to.expect("a descriptor"));
            let (stop, decide, octets) =
                (Arc::clone(&stop), Arc::clone(&decide), Arc::clone(&octets));
            thread::spawn(move || carry(toward, from, to, &stop, &decide, &octets))
        })
        .collect();
        Line {
            names,
            stop,
            threads,
            octets,
        }
    }

    /// Runs work in the namespace at which packets toward `end` arrive.
    pub fn at<T: Send>(&self, end: Toward, work: impl FnOnce() -> T + Send) -> T {
        let name = match end {
            Toward::A => &self.names[0],
            Toward::B => &self.names[1],
        };
        inside(name, work)
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        for name in &self.names {
            let _ = Command::new("ip").args(["netns", "del", name]).output();
        }
    }
}

/// Runs work on a thread in a namespace; threads that it starts stay there.
fn inside<T: Send>(name: &str, work: impl FnOnce() -> T + Send) -> T {
    let file = File::open(format!("/run/netns/{name}")).expect("the namespace is there");
    thread::scope(|scope| {
        let work = scope.spawn(move || {
            // SAFETY: setns takes two integers.
            let entered = unsafe { libc::setns(file.as_raw_fd(), libc::CLONE_NEWNET) };
            assert_eq!(entered, 0, "the namespace can be entered");
            work()
        });
        match work.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

fn open_tun(name: &str) -> File {
    const TUNSETIFF: libc::c_ulong = 0x4004_54ca;
    let file = File::options()
        .read(true)
        .write(true)
        .open("/dev/net/tun")
        .expect("TUN");
    let mut request = [0u8; 40];
    request[..name.len()].copy_from_slice(name.as_bytes());
    // IFF_TUN | IFF_NO_PI
    request[16..18].copy_from_slice(&0x1001u16.to_ne_bytes());
    // SAFETY: the request is a live ifreq of its full size; descriptors are plain numbers.
    unsafe {
        assert_eq!(
            libc::ioctl(file.as_raw_fd(), TUNSETIFF, request.as_mut_ptr()),
            0,
            "TUNSETIFF"
        );
        libc::fcntl(file.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK);
        File::from_raw_fd(libc::dup(file.as_raw_fd()))
    }
}

fn carry(
    toward: Toward,
    mut from: File,
    mut to: File,
    stop: &AtomicBool,
    decide: &Mutex<Decision>,
    octets: &[Mutex<u64>; 2],
) {
    let mut held: VecDeque<(usize, Vec<u8>)> = VecDeque::new();
    let mut buffer = vec![0; 65_536];
    while !stop.load(Ordering::Relaxed) {
        let Ok(length) = from.read(&mut buffer) else {
            let mut poll = libc::pollfd {
                fd: from.as_raw_fd(),
                events: libc::POLLIN,
                revents: 0,
            };
            // SAFETY: one live pollfd.
            unsafe { libc::poll(&mut poll, 1, 20) };
            continue;
        };
        let packet = &mut buffer[..length];
        let Some(sequence) = sequence(packet) else {
            let _ = to.write(packet);
            continue;
        };
        *octets[toward as usize].lock().expect("no panic") += length as u64;
        let fate = decide.lock().expect("no panic")(toward, sequence);
        route(packet, fate.hops);
        if fate.behind > 0 {
            held.push_back((fate.behind, packet.to_vec()));
            continue;
        }
        for _ in 0..fate.copies {
            let _ = to.write(packet);
        }
        for (left, _) in &mut held {
            *left -= 1;
        }
        while held.front().is_some_and(|(left, _)| *left == 0) {
            let (_, late) = held.pop_front().expect("it is there");
            let _ = to.write(&late);
        }
    }
}

/// The first word of a UDP payload between unprivileged ports.
fn sequence(packet: &[u8]) -> Option<u32> {
    let header = match packet.first()? >> 4 {
        4 if *packet.get(9)? == 17 => 20,
        6 if *packet.get(6)? == 17 => 40,
        _ => return None,
    };
    let word = packet.get(header + 8..header + 12)?;
    Some(u32::from_be_bytes(word.try_into().ok()?))
}

/// Takes routers off the TTL, with IPv4's checksum (RFC 1624).
fn route(packet: &mut [u8], hops: u8) {
    if packet[0] >> 4 == 6 {
        packet[7] -= hops;
        return;
    }
    packet[8] -= hops;
    packet[10..12].fill(0);
    let words = packet[..20]
        .chunks_exact(2)
        .map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    packet[10..12].copy_from_slice(&(!(sum as u16)).to_be_bytes());
}

/// An address of the line.
pub fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// An OWAMP server in open mode at end b.
pub fn open_server() -> ServeOptions {
    ServeOptions {
        owamp: vec![SocketAddr::new(address(Line::B4), 861)],
        policy: Policy {
            allow: vec!["10.99.0.0/24".parse().expect("a range")],
            ..Policy::default()
        },
        ..ServeOptions::default()
    }
}
