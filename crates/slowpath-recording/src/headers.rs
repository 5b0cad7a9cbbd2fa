// SPDX-License-Identifier: Apache-2.0
//! What two captures of one connection have in common: the sequence of headers at one end.
//!
//! A capture of the runtime is the oracle of a replay, and is used for nothing else. Sequence numbers count from each direction's first one,
//! timestamps from each direction's first value; addresses, ports, IP identifications, flow labels, times to live and checksums are left out.

use crate::Moment;
use crate::network;
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// `pcap` with nanoseconds.
const MAGIC: u32 = 0xa1b2_3c4d;
/// Packets begin with IP.
const LINKTYPE_RAW: u32 = 101;
/// Packets begin with an Ethernet header, which ends with the type of what follows.
const LINKTYPE_ETHERNET: u32 = 1;
const ETHERNET: usize = 14;
const ETHERTYPES: [[u8; 2]; 2] = [[0x08, 0x00], [0x86, 0xdd]];
const SYN: u8 = 0x02;

/// One packet at one end, without what differs between any two connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Since 1970-01-01 UTC, by the capture.
    pub at: Moment,
    /// From the end that connected.
    pub forward: bool,
    /// Counted from the direction's first.
    pub sequence: u32,
    /// Counted from the other direction's first; `None` without ACK.
    pub acknowledgment: Option<u32>,
    /// The byte of flags, and NS.
    pub flags: u16,
    /// As it stands in the header.
    pub window: u16,
    /// Bytes of payload.
    pub payload: u32,
    /// ECN bits of IP.
    pub ecn: u8,
    /// SACK blocks, counted as acknowledgments are.
    pub sack: Vec<[u32; 2]>,
    /// Other options as they are, without timestamps.
    pub options: Vec<(u8, Vec<u8>)>,
    /// `TSval` counted from the direction's first, `TSecr` from the other direction's (0 stays 0).
    pub timestamps: Option<[u32; 2]>,
}

impl Header {
    /// Everything but the time and timestamps.
    pub fn is_like(&self, other: &Header) -> bool {
        Header {
            at: other.at,
            timestamps: other.timestamps,
            ..self.clone()
        } == *other
    }
}

/// A capture that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CaptureError {
    /// Not such a file.
    #[error("the capture is not pcap with nanoseconds, and raw IP or Ethernet")]
    Format,
    /// It ends inside a packet.
    #[error("the capture is cut after packet {0}")]
    Cut(u64),
}

/// Who connected, and to whom.
pub type Pair = [SocketAddr; 2];

/// The connections of a capture that a host made, each with its packets in their order. A connection that has no SYN there
/// is left out, as are packets of anything else than TCP right behind IP, and those that the capture cut inside their headers.
///
/// # Errors
/// It is no such capture.
pub fn read(capture: &[u8]) -> Result<BTreeMap<Pair, Vec<Header>>, CaptureError> {
    let word = |at: usize| Some(u32::from_le_bytes(*capture.get(at..)?.first_chunk()?));
    let ethernet = word(20) == Some(LINKTYPE_ETHERNET);
    if word(0) != Some(MAGIC) || !(ethernet || word(20) == Some(LINKTYPE_RAW)) {
        return Err(CaptureError::Format);
    }
    let mut found: BTreeMap<Pair, Building> = BTreeMap::new();
    let (mut place, mut count) = (24, 0);
    while place < capture.len() {
        let cut = CaptureError::Cut(count);
        let (Some(seconds), Some(ns), Some(kept)) = (word(place), word(place + 4), word(place + 8))
        else {
            return Err(cut);
        };
        let data = capture
            .get(place + 16..)
            .and_then(|rest| rest.get(..kept as usize));
        let data = data.ok_or(cut)?;
        place += 16 + data.len();
        count += 1;
        let at = Moment(u64::from(seconds) * 1_000_000_000 + u64::from(ns));
        let data = match data.split_at_checked(ETHERNET) {
            _ if !ethernet => data,
            Some((link, rest)) if ETHERTYPES.iter().any(|it| link.ends_with(it)) => rest,
            _ => continue,
        };
        let Some(packet) = Packet::read(data) else {
            continue;
        };
        let (from, to) = (packet.from, packet.to);
        let opens = packet.flags & u16::from(SYN) != 0 && packet.acknowledgment.is_none();
        let (pair, forward) = if opens || found.contains_key(&[from, to]) {
            ([from, to], true)
        } else if found.contains_key(&[to, from]) {
            ([to, from], false)
        } else {
            continue;
        };
        found.entry(pair).or_default().add(at, forward, &packet);
    }
    Ok(found
        .into_iter()
        .map(|(pair, it)| (pair, it.headers))
        .collect())
}

struct Packet {
    from: SocketAddr,
    to: SocketAddr,
    sequence: u32,
    acknowledgment: Option<u32>,
    flags: u16,
    window: u16,
    payload: u32,
    ecn: u8,
    options: Vec<(u8, Vec<u8>)>,
}

impl Packet {
    fn read(data: &[u8]) -> Option<Self> {
        let short = |at: usize| Some(u16::from_be_bytes(*data.get(at..)?.first_chunk()?));
        let word = |at: usize| Some(u32::from_be_bytes(*data.get(at..)?.first_chunk()?));
        let network = network::read(data)?;
        let ip = network.header;
        let header = usize::from(*data.get(ip + 12)? >> 4) * 4;
        let flags = short(ip + 12)? & 0x1ff;
        if header < 20 {
            return None;
        }
        let mut rest = data.get(ip + 20..ip + header)?;
        let mut options = Vec::new();
        while let [kind, tail @ ..] = rest {
            match kind {
                0 => break,
                1 => rest = tail,
                _ => {
                    let length = usize::from(*tail.first()?);
                    let body = rest.get(2..length)?;
                    options.push((*kind, body.to_vec()));
                    rest = &rest[length..];
                }
            }
        }
        Some(Packet {
            from: SocketAddr::from((network.from, short(ip)?)),
            to: SocketAddr::from((network.to, short(ip + 2)?)),
            sequence: word(ip + 4)?,
            acknowledgment: (flags & 0x10 != 0).then_some(word(ip + 8)?),
            flags,
            window: short(ip + 14)?,
            payload: network.payload.checked_sub(header as u32)?,
            ecn: network.ecn,
            options,
        })
    }
}

#[derive(Default)]
struct Building {
    /// By direction, forward first.
    sequence: [Option<u32>; 2],
    timestamp: [Option<u32>; 2],
    headers: Vec<Header>,
}

impl Building {
    fn add(&mut self, at: Moment, forward: bool, packet: &Packet) {
        let (own, other) = (usize::from(!forward), usize::from(forward));
        let base = *self.sequence[own].get_or_insert(packet.sequence);
        let peer = self.sequence[other].unwrap_or(0);
        let mut header = Header {
            at,
            forward,
            sequence: packet.sequence.wrapping_sub(base),
            acknowledgment: packet
                .acknowledgment
                .map(|number| number.wrapping_sub(peer)),
            flags: packet.flags,
            window: packet.window,
            payload: packet.payload,
            ecn: packet.ecn,
            sack: Vec::new(),
            options: Vec::new(),
            timestamps: None,
        };
        for (kind, body) in &packet.options {
            let word = |at: usize| {
                let bytes = body.get(at..).and_then(|rest| rest.first_chunk());
                bytes.map_or(0, |bytes| u32::from_be_bytes(*bytes))
            };
            match kind {
                5 => {
                    header.sack = (0..body.len() / 8)
                        .map(|n| [8 * n, 8 * n + 4].map(|at| word(at).wrapping_sub(peer)))
                        .collect();
                }
                8 => {
                    let value = word(0);
                    let first = *self.timestamp[own].get_or_insert(value);
                    let echo = match (word(4), self.timestamp[other]) {
                        (0, _) | (_, None) => 0,
                        (echo, Some(theirs)) => echo.wrapping_sub(theirs).wrapping_add(1),
                    };
                    header.timestamps = Some([value.wrapping_sub(first), echo]);
                }
                _ => header.options.push((*kind, body.clone())),
            }
        }
        self.headers.push(header);
    }
}

/// How two sequences of headers compare.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// Packets that are the same, from the first on.
    pub same: usize,
    /// Packets of the longer one.
    pub packets: usize,
    /// Of the same ones: timestamps that differ.
    pub timestamps: usize,
    /// Of the same ones: the largest difference of their times, in nanoseconds, after that of the first is taken away.
    pub most_separate: u64,
}

impl Comparison {
    /// Whether every header is the same.
    pub fn is_exact(&self) -> bool {
        self.same == self.packets
    }
}

/// One direction of a connection at one end, as both captures have it.
#[derive(Clone, Debug)]
pub struct Way {
    /// 0: the end that connected.
    pub end: usize,
    /// What the end that connected sent.
    pub forward: bool,
    /// Of the runtime.
    pub runtime: Vec<Header>,
    /// Of the replay.
    pub replay: Vec<Header>,
    /// How they compare.
    pub comparison: Comparison,
}

impl Way {
    /// Whether there is something, and every header is the same.
    pub fn is_exact(&self) -> bool {
        self.comparison.is_exact() && self.comparison.packets > 0
    }
}

/// The first header that is not the same.
impl std::fmt::Display for Way {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let at = self.comparison.same;
        write!(
            f,
            "end {}, forward {}, header {at} of {} and {}: replayed {:?}, recorded {:?}",
            self.end,
            self.forward,
            self.runtime.len(),
            self.replay.len(),
            self.replay.get(at),
            self.runtime.get(at)
        )
    }
}

/// Compares what captures of both ends have of a connection: each direction at each end, of the runtime and of its replay.
pub fn ways(runtime: [&[Header]; 2], replay: [&[Header]; 2]) -> Vec<Way> {
    let one = |end: usize, forward: bool| {
        let of = |all: &[Header]| -> Vec<Header> {
            let way = all.iter().filter(|header| header.forward == forward);
            way.cloned().collect()
        };
        let [runtime, replay] = [runtime[end], replay[end]].map(of);
        let comparison = compare(&runtime, &replay);
        Way {
            end,
            forward,
            runtime,
            replay,
            comparison,
        }
    };
    let all = [(0, true), (0, false), (1, true), (1, false)];
    all.map(|(end, forward)| one(end, forward)).into()
}

/// Compares a runtime's headers with a replay's.
pub fn compare(runtime: &[Header], replay: &[Header]) -> Comparison {
    let mut found = Comparison {
        packets: runtime.len().max(replay.len()),
        ..Comparison::default()
    };
    let start = match (runtime.first(), replay.first()) {
        (Some(a), Some(b)) => a.at.0.wrapping_sub(b.at.0),
        _ => 0,
    };
    for (a, b) in runtime.iter().zip(replay) {
        if !a.is_like(b) {
            break;
        }
        found.same += 1;
        found.timestamps += usize::from(a.timestamps != b.timestamps);
        let separate = a.at.0.wrapping_sub(b.at.0).wrapping_sub(start) as i64;
        found.most_separate = found.most_separate.max(separate.unsigned_abs());
    }
    found
}
