// SPDX-License-Identifier: Apache-2.0
//! Timelines of segments, written down like packetdrill's: who, when, what.

// Each test file uses its part.
#![allow(dead_code)]

use slowpath_trace::engine::Follow;
use slowpath_trace::segment::{Endpoint, Flags, Segment, Timestamp};
use slowpath_trace::tcp::{self, Side};
use slowpath_trace::verdict::{Judged, Options, Trial};

/// Bytes of a full segment: MSS 1,012 less 12 for timestamps, without which numbers are round.
pub const FULL: u32 = 1_000;

/// When timelines begin, in nanoseconds.
const START: i64 = 1_700_000_000_000_000_000;

/// A SYN's options after the MSS: SACK permitted, window scale 0.
const SYN_OPTIONS: &[u8] = &[4, 2, 3, 3, 0];

/// One segment, numbers relative: 0 is the SYN.
#[derive(Clone, Debug)]
pub struct Line {
    pub at_us: i64,
    pub side: Side,
    pub sequence: u32,
    pub length: u32,
    pub ack: u32,
    pub flags: u16,
    pub window: u16,
    pub ip_id: Option<u16>,
    pub sack: Vec<(u32, u32)>,
    pub ttl: u8,
    pub checksum_ok: Option<bool>,
    /// Bytes on the wire, if the frame is padded.
    pub wire_length: Option<u32>,
}

pub fn initial(side: Side) -> u32 {
    match side {
        Side::Client => 0xffff_f000,
        Side::Server => 77_000,
    }
}

pub fn endpoint(side: Side) -> Endpoint {
    let (last, port) = match side {
        Side::Client => (1, 40_000),
        Side::Server => (2, 80),
    };
    Endpoint {
        address: [192, 0, 2, last].into(),
        port,
    }
}

/// A connection as it passes one place.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    pub lines: Vec<Line>,
    /// The MSS that both offer, if it is not 1,000.
    pub mss: Option<u16>,
}

impl Timeline {
    fn push(&mut self, at_us: i64, side: Side, sequence: u32, length: u32, ack: u32, flags: u16) {
        let ip_id = u16::try_from(self.lines.len() % 60_000).expect("fits") + 1;
        self.lines.push(Line {
            at_us,
            side,
            sequence,
            length,
            ack,
            flags,
            window: 60_000,
            ip_id: Some(ip_id),
            sack: Vec::new(),
            ttl: 60,
            checksum_ok: None,
            wire_length: None,
        });
    }

    /// The handshake, begun at 0: SYN-ACK and ACK after these times.
    pub fn handshake(syn_ack_us: i64, ack_us: i64) -> Self {
        let mut t = Timeline::default();
        t.push(0, Side::Client, 0, 0, 0, Flags::SYN);
        t.push(syn_ack_us, Side::Server, 0, 0, 1, Flags::SYN | Flags::ACK);
        t.push(syn_ack_us + ack_us, Side::Client, 1, 0, 1, Flags::ACK);
        t
    }

    /// A segment without data.
    pub fn bare(&mut self, at_us: i64, side: Side, sequence: u32, ack: u32, flags: u16) {
        self.push(at_us, side, sequence, 0, ack, flags);
    }

    /// The client sends data; the first byte is number 1.
    pub fn data(&mut self, at_us: i64, sequence: u32, length: u32) -> &mut Line {
        let push = if length < FULL { Flags::PSH } else { 0 };
        self.push(at_us, Side::Client, sequence, length, 1, Flags::ACK | push);
        self.lines.last_mut().expect("just added")
    }

    /// The server acknowledges.
    pub fn ack(&mut self, at_us: i64, ack: u32) -> &mut Line {
        self.push(at_us, Side::Server, 1, 0, ack, Flags::ACK);
        self.lines.last_mut().expect("just added")
    }

    /// The server answers with data.
    pub fn answer(&mut self, at_us: i64, sequence: u32, length: u32, ack: u32) -> &mut Line {
        self.push(
            at_us,
            Side::Server,
            sequence,
            length,
            ack,
            Flags::ACK | Flags::PSH,
        );
        self.lines.last_mut().expect("just added")
    }

    /// Gives each segment to `take`, in the order of the times.
    pub fn feed(&self, mut take: impl FnMut(&Segment<'_>)) {
        let mut lines: Vec<&Line> = self.lines.iter().collect();
        lines.sort_by_key(|l| l.at_us);
        for (index, line) in lines.into_iter().enumerate() {
            let mut options = Vec::new();
            if line.flags & Flags::SYN != 0 {
                let [high, low] = self.mss.unwrap_or(1_000).to_be_bytes();
                options.extend_from_slice(&[2, 4, high, low]);
                options.extend_from_slice(SYN_OPTIONS);
            }
            if !line.sack.is_empty() {
                let length = u8::try_from(2 + 8 * line.sack.len()).expect("at most four");
                options.extend_from_slice(&[1, 1, 5, length]);
                let of = initial(line.side.peer());
                for (left, right) in &line.sack {
                    options.extend(of.wrapping_add(*left).to_be_bytes());
                    options.extend(of.wrapping_add(*right).to_be_bytes());
                }
            }
            take(&Segment {
                time: Timestamp(START + line.at_us * 1_000),
                frame: index as u64 + 1,
                source: endpoint(line.side),
                destination: endpoint(line.side.peer()),
                sequence: initial(line.side).wrapping_add(line.sequence),
                acknowledgement: initial(line.side.peer()).wrapping_add(line.ack),
                flags: Flags(line.flags),
                window: line.window,
                urgent: 0,
                length: line.length,
                captured: 0,
                options: &options,
                checksum_ok: line.checksum_ok,
                ecn: 0,
                ttl: line.ttl,
                ip_id: line.ip_id,
                wire_length: line.wire_length.unwrap_or(54 + line.length),
            });
        }
    }

    pub fn judge(&self) -> Judged {
        self.judge_until(None)
    }

    /// Of a capture that goes on until that time, without more of the connection.
    pub fn judge_until(&self, end_us: impl Into<Option<i64>>) -> Judged {
        let mut trial: Option<Trial> = None;
        self.feed(|s| {
            trial
                .get_or_insert_with(|| Trial::new(s, &tcp::Options::default(), &Options::default()))
                .segment(s);
        });
        let mut trial = trial.expect("there are segments");
        if let Some(end_us) = end_us.into() {
            trial.silent_until(Timestamp(START + end_us * 1_000));
        }
        trial.finish()
    }

    /// The same observed elsewhere: the client's segments pass there later by `client_us`, the server's
    /// earlier by `server_us`.
    pub fn captured_at(&self, client_us: i64, server_us: i64) -> Self {
        let mut moved = self.clone();
        for line in &mut moved.lines {
            line.at_us += match line.side {
                Side::Client => client_us,
                Side::Server => -server_us,
            };
        }
        moved
    }
}
