// SPDX-License-Identifier: Apache-2.0
//! Where the capture was made: at one of the ends, or between them.
//!
//! An exchange of packets shows here how far each end is: from the client's SYN or data to
//! the server's ACK of it is the way to the server and back, from the server's to the client's ACK
//! the other half. The rules, the first that fits:
//!
//! 1. *Checksums*: most of one side's segments have wrong ones and none of the other's:
//!    that side's network card computes them, and the capture was made before it, on that host.
//! 2. *Halves*: one is at most an eighth of both combined, which are 1 ms at least: the
//!    capture is at the near end, or so near that it makes no difference.
//! 3. Both halves combined are less than 1 ms: a host's own time to answer is as long as the
//!    path. The side with super-segments, if one only has them, is where segments are
//!    joined or cut: at that end. Else *unknown*.
//! 4. Both halves are more than an eighth: *between* the ends.
//! 5. One half or none: *unknown*; TTLs as they left their hosts (64, 128, 255) from one
//!    side only say which end is on the same network.

use super::limit::between;
use crate::segment::{Segment, Timestamp};
use crate::tcp::{ConnectionReport, Side};
use std::time::Duration;

/// An end is here if its half is at most this part of both.
const NEAR: u32 = 8;

/// Paths shorter than this are as long as a host's own time.
const SHORT_PATH: Duration = Duration::from_millis(1);

/// Checked segments of a side before its checksums say anything.
const CHECKED: u64 = 3;

/// TTLs and hop limits as hosts send them (RFC 1700 says 64; Windows 128; Solaris, and what
/// RFC 5082 protects, 255).
const INITIAL_TTL: [u8; 3] = [64, 128, 255];

/// Where the capture was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VantagePoint {
    /// At that side's host.
    At(Side),
    /// Between the two.
    Between,
    /// The capture does not show.
    Unknown,
}

/// What shows the place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// Rule 1: wrong checksums, left to that side's network card.
    Checksums,
    /// Rule 2 or 4: the two halves of the round trip.
    Halves,
    /// Rule 3: super-segments of one side.
    SuperSegments,
    /// Rule 5: nothing but TTLs, or not even they.
    Nothing,
}

/// Where the capture was made, and how that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vantage {
    /// The place.
    pub place: VantagePoint,
    /// What shows it.
    pub basis: Basis,
    /// Shortest time from here to the client and back.
    pub to_client: Option<Duration>,
    /// Shortest time from here to the server and back.
    pub to_server: Option<Duration>,
    /// Segments of client and server with payload whose checksum was checked, and of these wrong ones.
    pub checksums: [(u64, u64); 2],
    /// TTL or hop limit of the client's and of the server's latest segment.
    pub ttl: [Option<u8>; 2],
    /// Super-segments of client and server.
    pub super_segments: [u64; 2],
}

impl Vantage {
    /// Whether a side's segments come as they left it: no router has passed them on.
    #[must_use]
    pub fn is_on_network_of(&self, side: Side) -> bool {
        self.ttl[side as usize].is_some_and(|ttl| INITIAL_TTL.contains(&ttl))
    }

    /// Whether what this side sends is observed before any part of the path can lose it.
    #[must_use]
    pub fn is_sender(&self, side: Side) -> bool {
        self.place == VantagePoint::At(side)
    }
}

/// Gathers the evidence.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Gathered {
    checksums: [(u64, u64); 2],
    ttl: [Option<u8>; 2],
    /// Shortest times to client and server and back.
    halves: [Option<Duration>; 2],
}

impl Gathered {
    /// A segment of `side`.
    pub(super) fn segment(&mut self, side: Side, s: &Segment<'_>) {
        self.ttl[side as usize] = Some(s.ttl);
        if s.length > 0
            && let Some(right) = s.checksum_ok
        {
            let (checked, wrong) = &mut self.checksums[side as usize];
            *checked += 1;
            *wrong += u64::from(!right);
        }
    }

    /// A segment of `side` answered after that time: it is so far away.
    pub(super) fn answered(&mut self, side: Side, after: Duration) {
        let half = &mut self.halves[side as usize];
        *half = Some(half.map_or(after, |h| h.min(after)));
    }

    pub(super) fn judge(mut self, report: &ConnectionReport) -> Vantage {
        let handshake = &report.handshake;
        let passed = |from: Timestamp, to: Timestamp| Duration::from_nanos(between(from, to));
        let sent_once = |side| {
            let sent = report.sent_by(side);
            sent.control.syns > 0 && sent.retransmitted.syns == 0
        };
        if sent_once(Side::Client) && sent_once(Side::Server) {
            if let (Some(syn), Some(syn_ack)) = (handshake.syn, handshake.syn_ack) {
                self.answered(Side::Server, passed(syn.time, syn_ack.time));
            }
            if let (Some(syn_ack), Some(ack)) = (handshake.syn_ack, handshake.ack) {
                self.answered(Side::Client, passed(syn_ack.time, ack.time));
            }
        }
        let super_segments =
            [Side::Client, Side::Server].map(|s| report.sent_by(s).data.super_segments);
        let (place, basis) = self.place(super_segments);
        Vantage {
            place,
            basis,
            to_client: self.halves[Side::Client as usize],
            to_server: self.halves[Side::Server as usize],
            checksums: self.checksums,
            ttl: self.ttl,
            super_segments,
        }
    }

    fn place(&self, super_segments: [u64; 2]) -> (VantagePoint, Basis) {
        const SIDES: [Side; 2] = [Side::Client, Side::Server];
        for side in SIDES {
            let (checked, wrong) = self.checksums[side as usize];
            let (_, others) = self.checksums[side.peer() as usize];
            if checked >= CHECKED && 2 * wrong > checked && others == 0 {
                return (VantagePoint::At(side), Basis::Checksums);
            }
        }
        let [Some(client), Some(server)] = self.halves else {
            return (VantagePoint::Unknown, Basis::Nothing);
        };
        let path = client + server;
        if path < SHORT_PATH {
            return match super_segments {
                [0, 0] => (VantagePoint::Unknown, Basis::Nothing),
                [_, 0] => (VantagePoint::At(Side::Client), Basis::SuperSegments),
                [0, _] => (VantagePoint::At(Side::Server), Basis::SuperSegments),
                _ => (VantagePoint::Unknown, Basis::Nothing),
            };
        }
        for (side, half) in SIDES.into_iter().zip([client, server]) {
            if half * NEAR <= path {
                return (VantagePoint::At(side), Basis::Halves);
            }
        }
        (VantagePoint::Between, Basis::Halves)
    }
}
