// SPDX-License-Identifier: Apache-2.0
//! Captures in memory: read, changed, written and judged again.

use slowpath_trace::decode::{DecodeOptions, Link};
use slowpath_trace::engine::{self, Began, Finished};
use slowpath_trace::read::{self, Input, Inputs};
use slowpath_trace::segment::{Endpoint, Segment};
use slowpath_trace::tcp::{self, Connection};
use slowpath_trace::verdict::{Judged, Options, Trial};
use std::io::Cursor;
use std::net::IpAddr;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// What a frame's TCP segment says, and where its headers lie.
#[derive(Clone, Copy, Debug)]
pub struct Headers {
    pub source: Endpoint,
    pub destination: Endpoint,
    /// Of the source's address; the destination's follows.
    addresses: usize,
    /// Of the source's port; the destination's follows.
    ports: usize,
}

/// A frame as it was captured.
#[derive(Clone, Debug)]
pub struct Frame {
    /// Nanoseconds since 1970.
    pub time: i64,
    pub data: Vec<u8>,
    pub wire_length: u32,
    /// `None`: no TCP.
    pub tcp: Option<Headers>,
}

/// A capture of frames that all begin with the same kind of header.
#[derive(Clone, Debug)]
pub struct Capture {
    pub name: String,
    link: u32,
    pub frames: Vec<Frame>,
}

/// A connection and what was said of it.
pub type Connected = Finished<Judged>;

fn find(within: &[u8], from: usize, bytes: &[u8]) -> Option<usize> {
    let found = within[from..].windows(bytes.len()).position(|w| w == bytes);
    found.map(|at| from + at)
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

impl Headers {
    fn of(s: &Segment<'_>, data: &[u8]) -> Option<Self> {
        let ends = [s.source, s.destination];
        let both = ends.map(|e| octets(e.address)).concat();
        let addresses = find(data, 0, &both)?;
        let mut header = ends.map(|e| e.port.to_be_bytes()).concat();
        header.extend(s.sequence.to_be_bytes());
        let ports = find(data, addresses + both.len(), &header)?;
        Some(Headers {
            source: s.source,
            destination: s.destination,
            addresses,
            ports,
        })
    }
}

impl Frame {
    /// The same from the other end: addresses and ports exchanged. Checksums stay right.
    pub fn mirrored(&self) -> Frame {
        let mut frame = self.clone();
        if let Some(tcp) = &mut frame.tcp {
            let length = octets(tcp.source.address).len();
            frame.data[tcp.addresses..][..2 * length].rotate_left(length);
            frame.data[tcp.ports..][..4].rotate_left(2);
            (tcp.source, tcp.destination) = (tcp.destination, tcp.source);
        }
        frame
    }

    /// The same behind a router: a hop less to go, and the checksum that follows from it (RFC
    /// 1624 section 3).
    pub fn routed(&self) -> Frame {
        let mut frame = self.clone();
        let Some(tcp) = frame.tcp else {
            return frame;
        };
        if tcp.source.address.is_ipv6() {
            frame.data[tcp.addresses - 1] -= 1;
            return frame;
        }
        frame.data[tcp.addresses - 4] -= 1;
        let sum = &mut frame.data[tcp.addresses - 2..tcp.addresses];
        let old = u32::from(u16::from_be_bytes([sum[0], sum[1]]));
        let new = old + 0x100;
        let folded = (new & 0xffff) + (new >> 16);
        sum.copy_from_slice(&(folded as u16).to_be_bytes());
        frame
    }

    /// The same with so much added to its sequence number, and to what it acknowledges: SACK blocks too.
    /// Its checksum follows (RFC 1624 section 3).
    pub fn renumbered(&self, sequence: u32, acknowledgement: u32) -> Frame {
        let mut frame = self.clone();
        let Some(tcp) = frame.tcp else {
            return frame;
        };
        let header = &mut frame.data[tcp.ports..];
        let length = usize::from(header[12] >> 4) * 4;
        let length = length.min(header.len());
        let header = &mut header[..length];
        let mut added = vec![(4, sequence)];
        if header[13] & 0x10 != 0 {
            added.push((8, acknowledgement));
            let edges = sack_edges(header);
            added.extend(edges.into_iter().map(|at| (at, acknowledgement)));
        }
        for (at, add) in added {
            let before: [u8; 4] = header[at..at + 4].try_into().expect("four");
            let after = u32::from_be_bytes(before).wrapping_add(add).to_be_bytes();
            header[at..at + 4].copy_from_slice(&after);
            let sum = u16::from_be_bytes([header[16], header[17]]);
            let mut sum = u32::from(!sum);
            // At an odd place the bytes belong to words the other way round.
            let word = |[a, b]: [u8; 2]| match at % 2 {
                0 => u16::from_be_bytes([a, b]),
                _ => u16::from_be_bytes([b, a]),
            };
            for n in [0, 2] {
                sum += u32::from(!word([before[n], before[n + 1]]));
                sum += u32::from(word([after[n], after[n + 1]]));
            }
            sum = (sum & 0xffff) + (sum >> 16);
            sum = (sum & 0xffff) + (sum >> 16);
            header[16..18].copy_from_slice(&(!(sum as u16)).to_be_bytes());
        }
        frame
    }

    /// Its time moved.
    pub fn later(mut self, nanos: i64) -> Frame {
        self.time += nanos;
        self
    }
}

/// Where the SACK blocks of a TCP header have their edges, as far as they were captured.
fn sack_edges(header: &[u8]) -> Vec<usize> {
    let mut at = 20;
    while at + 1 < header.len() {
        match (header[at], usize::from(header[at + 1])) {
            (0, _) => break,
            (1, _) => at += 1,
            (5, length) => {
                let end = (at + length).min(header.len());
                return (at + 2..end.saturating_sub(3)).step_by(4).collect();
            }
            (_, length) => at += length.max(2),
        }
    }
    Vec::new()
}

impl Capture {
    /// Reads a file; `None` if its frames begin with several kinds of headers.
    pub fn read(path: &Path) -> Option<Self> {
        let mut capture = read::open(path).expect("opens");
        let mut link = None;
        let mut frames = Vec::new();
        while let Some(packet) = capture.next().expect("reads") {
            if link.is_some_and(|l| l != packet.link()) {
                return None;
            }
            link = Some(packet.link());
            let tcp = packet.segment().ok();
            frames.push(Frame {
                time: packet.time().0,
                data: packet.data().to_vec(),
                wire_length: packet.wire_length(),
                tcp: tcp.and_then(|s| Headers::of(&s, packet.data())),
            });
        }
        Some(Capture {
            name: path.file_name()?.to_string_lossy().into_owned(),
            link: number(link?)?,
            frames,
        })
    }

    /// The same with other frames.
    pub fn with(&self, frames: Vec<Frame>) -> Self {
        Capture {
            name: self.name.clone(),
            link: self.link,
            frames,
        }
    }

    /// The same with each frame changed.
    pub fn map(&self, change: impl Fn(&Frame) -> Frame) -> Self {
        self.with(self.frames.iter().map(change).collect())
    }

    /// As a file: pcap with nanoseconds.
    fn pcap(&self) -> Vec<u8> {
        let mut file = Vec::new();
        for word in [0xa1b2_3c4d_u32, 0x0004_0002, 0, 0, 1 << 18, self.link] {
            file.extend(word.to_le_bytes());
        }
        for frame in &self.frames {
            let seconds = u32::try_from(frame.time / 1_000_000_000).expect("before 2106");
            let nanos = u32::try_from(frame.time % 1_000_000_000).expect("not before 1970");
            let length = u32::try_from(frame.data.len()).expect("fits");
            for word in [seconds, nanos, length, frame.wire_length] {
                file.extend(word.to_le_bytes());
            }
            file.extend(&frame.data);
        }
        file
    }

    /// Its connections, in the order of their first frames, as `slowpath trace` judges them.
    pub fn judge(&self) -> Vec<Connected> {
        let file = Cursor::new(self.pcap());
        let input = Input::Stream(self.name.clone(), Box::new(file));
        let begin = |first: &Segment<'_>, began: Began| {
            let options = tcp::Options::default();
            let connection = match began {
                Began::Fresh => Connection::new(first, &options),
                Began::OnReusedPorts => Connection::on_reused_ports(first, &options),
            };
            Trial::of(connection, &Options::default())
        };
        let options = engine::Options {
            threads: 1,
            decode: DecodeOptions::default(),
            ..engine::Options::default()
        };
        let mut found = Vec::new();
        let summary = engine::run(
            Inputs::new(vec![input]).expect("there is one"),
            &options,
            begin,
            |finished| found.push(finished),
            |_| ControlFlow::Continue(()),
        )
        .expect("reads");
        assert_eq!(summary.totals.all().frames, self.frames.len() as u64);
        found.sort_by_key(|f: &Connected| f.first_frame);
        found
    }
}

/// The number of a link type in pcap files.
fn number(link: Link) -> Option<u32> {
    Some(match link {
        Link::Null => 0,
        Link::Ethernet => 1,
        Link::Ppp => 9,
        Link::Fddi => 10,
        Link::Raw => 101,
        Link::Hdlc => 104,
        Link::Sll => 113,
        Link::Nflog => 239,
        Link::Sll2 => 276,
        Link::Unsupported(_) => return None,
    })
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        println!("SKIPPED {}: it is not here", folder.display());
        return Vec::new();
    };
    let mut files: Vec<PathBuf> = entries.map(|e| e.expect("is listed").path()).collect();
    let name = |p: &Path| p.file_name().map(|n| n.to_string_lossy().into_owned());
    files.retain(|p| {
        let name = name(p).unwrap_or_default();
        let endings = [".json", ".md", ".py", ".toml"];
        p.is_file() && !endings.iter().any(|e| name.ends_with(e))
    });
    files.sort();
    files
}

/// The captures with labels, ours and those of others that are beside the project, each with
/// what is said of it.
pub fn judged() -> &'static [(Capture, Vec<Connected>)] {
    static ALL: OnceLock<Vec<(Capture, Vec<Connected>)>> = OnceLock::new();
    ALL.get_or_init(|| {
        let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
        let ours = files(&here.join("../../captures"));
        let others = files(&here.join("../../../shared/captures/verdicts"));
        assert!(!ours.is_empty());
        let all = ours.iter().chain(&others);
        let read = all.filter_map(|path| Capture::read(path));
        let judged = read.map(|capture| {
            let judged = capture.judge();
            (capture, judged)
        });
        judged.collect()
    })
}
