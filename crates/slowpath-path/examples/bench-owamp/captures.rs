// SPDX-License-Identifier: Apache-2.0
//! What tcpdump recorded at each host, by packet.

use crate::hosts::Hosts;
use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

/// A test packet of open mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Packet {
    /// From and to.
    pub ports: (u16, u16),
    /// Its number.
    pub sequence: u32,
}

/// A capture that runs.
pub struct Capture {
    child: Child,
    file: tempfile::NamedTempFile,
}

impl Capture {
    pub fn start(hosts: &Hosts, side: usize) -> Self {
        let file = tempfile::NamedTempFile::new().expect("a scratch file");
        let mut child = hosts
            .command(side, "tcpdump")
            .args([
                "-i",
                "sp0",
                "-B",
                "65536",
                "-s",
                "96",
                "--time-stamp-precision=nano",
                "-Z",
                "root",
                "-w",
            ])
            .arg(file.path())
            .arg("udp")
            .stderr(Stdio::piped())
            .spawn()
            .expect("tcpdump runs (Debian package tcpdump)");
        let stderr = child.stderr.take().expect("piped");
        let mut lines = BufReader::new(stderr).lines();
        while let Some(Ok(line)) = lines.next() {
            if line.contains("listening on") {
                break;
            }
        }
        // It goes on writing there at its end.
        std::thread::spawn(move || lines.for_each(drop));
        Capture { child, file }
    }

    /// Ends it: when each packet passed, ns since 1970.
    pub fn finish(mut self) -> HashMap<Packet, i64> {
        std::thread::sleep(std::time::Duration::from_millis(500));
        // SAFETY: kill takes two integers; the child is ours and not yet waited for.
        unsafe { libc::kill(self.child.id() as libc::pid_t, libc::SIGINT) };
        self.child.wait().expect("it ends");
        parse(&std::fs::read(self.file.path()).expect("it wrote"))
    }
}

/// A pcap file of nanoseconds, of Ethernet frames with IPv4.
pub fn parse(bytes: &[u8]) -> HashMap<Packet, i64> {
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four"));
    assert_eq!(word(0), 0xa1b2_3c4d, "a capture in nanoseconds");
    let mut packets = HashMap::new();
    let mut at = 24;
    while at + 16 <= bytes.len() {
        let time = i64::from(word(at)) * 1_000_000_000 + i64::from(word(at + 4));
        let length = word(at + 8) as usize;
        let Some(frame) = bytes.get(at + 16..at + 16 + length) else {
            break;
        };
        if let Some(packet) = packet(frame) {
            packets.entry(packet).or_insert(time);
        }
        at += 16 + length;
    }
    packets
}

fn packet(frame: &[u8]) -> Option<Packet> {
    let half = |at: usize| Some(u16::from_be_bytes(frame.get(at..at + 2)?.try_into().ok()?));
    let udp = 34;
    (half(12)? == 0x0800 && frame[23] == 17).then_some(())?;
    Some(Packet {
        ports: (half(udp)?, half(udp + 2)?),
        sequence: u32::from_be_bytes(frame.get(udp + 8..udp + 12)?.try_into().ok()?),
    })
}
