// SPDX-License-Identifier: Apache-2.0
//! One end of a connection whose other end was recorded elsewhere.
//!
//! What came cannot be named by its number among what the other end sent: that is in another file. A one-sided end keeps what identifies its packets on both ways
//! instead, and the runs of what came have the place in that list for a number. [`join`](crate::join) makes connections of two such ends.

use super::{Connection, End, Moment};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// One end without its peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OneSided {
    /// Who connected, and to whom, as this end sees it: on the way they may be translated.
    pub addresses: [SocketAddr; 2],
    /// 0: it connected; 1: it accepted.
    pub side: usize,
    /// Initial sequence numbers of the end that connected and of the other, as far as they were observed: both ends have the same, wherever they were recorded.
    pub initial: [Option<u32>; 2],
    /// Sysctls of its namespace that are not the kernel's defaults.
    pub sysctls: BTreeMap<String, String>,
    /// The same of its socket.
    pub socket: BTreeMap<String, String>,
    /// Bytes of the largest IP packet of its device.
    pub mtu: u32,
    /// Its runs: a packet's number is its place in `came`, those merged into it follow. Checks leave numbers out.
    pub end: End,
    /// What it sent, in that order, SYN or SYN-ACK first.
    pub sent: Vec<Packet>,
    /// What came to it, in the order in which it was handled.
    pub came: Vec<Packet>,
}

/// A packet as both ends know it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Packet {
    /// The run that sent it; of what came 0, since the run says which packet it is.
    pub run: u64,
    /// IP's identification; of what is larger than the path takes, the first one's.
    pub id: u16,
    /// The sequence number that it begins with.
    pub begins: u32,
    /// Sequence numbers that it takes.
    pub length: u32,
    /// What has no identification of its own is distinguished by it: of a SYN-ACK a number made of its header, of what was sent without a socket what it acknowledges; otherwise 0.
    pub mark: u32,
}

/// How two one-sided ends became one connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Joint {
    /// How each end's clock maps to the recording's time.
    pub clocks: [Clock; 2],
    /// The two clocks are no further from what this says, in nanoseconds; only if packets bound it both ways.
    pub within: Option<u64>,
}

/// What a clock is to another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clock {
    /// To be added for the other one's time, in nanoseconds, at `since`.
    pub offset: i64,
    /// How much more that is each second later, in nanoseconds.
    pub drift: i32,
    /// By this clock.
    pub since: Moment,
}

impl Clock {
    /// The other one's time.
    pub fn moment(&self, at: Moment) -> Moment {
        let later = i128::from(at.0) - i128::from(self.since.0);
        let drift = later * i128::from(self.drift) / 1_000_000_000;
        let moved = i128::from(at.0) + i128::from(self.offset) + drift;
        Moment(moved.clamp(0, u64::MAX.into()) as u64)
    }
}

impl Connection {
    /// When something was at one end, by the recording's clock: ends that were recorded on two machines have their own.
    pub fn moment(&self, end: usize, at: Moment) -> Moment {
        let clock = self.joint.as_ref().and_then(|joint| joint.clocks.get(end));
        clock.map_or(at, |clock| clock.moment(at))
    }
}
