// SPDX-License-Identifier: Apache-2.0
//! Where the capture was made: at one of the ends, or between them.
//!
//! An exchange of packets shows here how far each end is: from the client's SYN or data to
//! the server's ACK of it is the way to the server and back, from the server's to the client's ACK
//! the other half. The rules, the first that fits:
//!
//! 1. *Checksums*: most of one side's segments have wrong ones and none of the other's:
//!    that side's network card computes them, and the capture was made before it, on that host.
//! 2. *Unpadded frames*: Ethernet frames have 60 bytes at least without their checksum (IEEE 802.3
//!    section 3.2.8), to which the sending card pads them. Those of one side are shorter, as only
//!    their own host sees them, and the other side's are padded; the TTL is as a host sends it: a router's
//!    own capture has unpadded frames too.
//! 3. *Halves*: one is at most an eighth of both combined, which are 1 ms at least: the
//!    capture is at the near end, or so near that it makes no difference.
//! 4. Both halves combined are less than 1 ms: a host's own time to answer is as long as the
//!    path. The side with super-segments, if one only has them, is where segments are
//!    joined or cut: at that end. Else *unknown*.
//! 5. Both halves are more than an eighth: *between* the ends.
//! 6. One half or none: *unknown*; TTLs as they left their hosts (64, 128, 255) from one
//!    side only say which end is on the same network.
//!
//! Beside the place: *one-sided*, if one side's packets only are there, and they acknowledge
//! others; *private network*, if one end only has an address that no one routes to from outside (RFC 1918,
//! RFC 6598, RFC 4193): the capture was made on its side of an address translator.

use super::agreed::InitialNumbers;
use super::limit::between;
use crate::segment::{Segment, Timestamp};
use crate::tcp::{ConnectionReport, Side};
use std::net::IpAddr;
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

/// The shortest Ethernet frame, without its frame check sequence (IEEE 802.3 section 3.2.8).
const SHORTEST_FRAME: u32 = 60;

/// Headers of Ethernet, IPv4 and TCP without options.
const ETHERNET_IPV4_TCP: u32 = 54;

/// Payload with which a frame is not short.
const SHORT_PAYLOAD: u32 = SHORTEST_FRAME - ETHERNET_IPV4_TCP;

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
    /// Rule 2: one side's frames are shorter than Ethernet's, the other's are padded.
    Unpadded,
    /// Rule 3 or 5: the two halves of the round trip.
    Halves,
    /// Rule 4: super-segments of one side.
    SuperSegments,
    /// Rule 6: nothing but TTLs, or not even they.
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
    /// Short Ethernet frames of client and server: as they left the host, and padded.
    pub short_frames: [(u64, u64); 2],
    /// What this side sent only was captured.
    pub one_sided: Option<Side>,
    /// The capture was made in the private network of that end, or at it.
    pub private: Option<Side>,
    /// The numbers with which both began, by which the same connection is recognised on the other
    /// side of a translator.
    pub initial: Option<InitialNumbers>,
}

impl Vantage {
    /// Whether a side's segments come as they left it: no router has passed them on.
    #[must_use]
    pub fn is_on_network_of(&self, side: Side) -> bool {
        self.ttl[side as usize].is_some_and(|ttl| INITIAL_TTL.contains(&ttl))
    }

    /// Shortest time from here to that side and back.
    #[must_use]
    pub fn half(&self, side: Side) -> Option<Duration> {
        match side {
            Side::Client => self.to_client,
            Side::Server => self.to_server,
        }
    }

    /// Shortest round trip of the whole path, both halves of it.
    #[must_use]
    pub fn path(&self) -> Option<Duration> {
        Some(self.to_client? + self.to_server?)
    }

    /// The round trip of the whole path, of one from here to the other end of what `sender` sends and
    /// back: with the other half, if that is known.
    #[must_use]
    pub fn of_path(&self, sender: Side, rtt: Option<Duration>) -> Option<Duration> {
        Some(rtt? + self.half(sender).unwrap_or_default())
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
    /// Short frames: unpadded, and padded.
    short_frames: [(u64, u64); 2],
    /// Shortest times to client and server and back.
    halves: [Option<Duration>; 2],
}

impl Gathered {
    /// A segment of `side`.
    pub(super) fn segment(&mut self, side: Side, s: &Segment<'_>) {
        self.ttl[side as usize] = Some(s.ttl);
        if s.length < SHORT_PAYLOAD && s.ip_id.is_some() {
            self.short(side, s);
        }
        if s.length > 0
            && let Some(right) = s.checksum_ok
        {
            let (checked, wrong) = &mut self.checksums[side as usize];
            *checked += 1;
            *wrong += u64::from(!right);
        }
    }

    /// An IPv4 segment whose Ethernet frame may be shorter than the shortest on the wire. Other
    /// links have other headers: none gives these lengths to a segment without options and
    /// payload, but a Linux cooked capture (version 2) that of a padded one, on both sides.
    #[inline]
    fn short(&mut self, side: Side, s: &Segment<'_>) {
        let frame = ETHERNET_IPV4_TCP + s.options.len() as u32 + s.length;
        let (unpadded, padded) = &mut self.short_frames[side as usize];
        if frame < SHORTEST_FRAME && s.wire_length == frame {
            *unpadded += 1;
        } else if frame == ETHERNET_IPV4_TCP && s.wire_length == SHORTEST_FRAME {
            *padded += 1;
        }
    }

    /// A segment of `side` answered after that time: it is so far away.
    pub(super) fn answered(&mut self, side: Side, after: Duration) {
        let half = &mut self.halves[side as usize];
        *half = Some(half.map_or(after, |h| h.min(after)));
    }

    pub(super) fn judge(
        mut self,
        report: &ConnectionReport,
        initial: Option<InitialNumbers>,
    ) -> Vantage {
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
        let sides = [Side::Client, Side::Server];
        let one_sided = |side: &Side| {
            report.sent_by(side.peer()).packets == 0 && report.sent_by(*side).control.acks > 0
        };
        let private = |side: &Side| {
            let [own, other] = [*side, side.peer()].map(|s| report.endpoint(s).address);
            is_private(own) && !is_private(other) && !other.is_loopback()
        };
        Vantage {
            place,
            basis,
            to_client: self.halves[Side::Client as usize],
            to_server: self.halves[Side::Server as usize],
            checksums: self.checksums,
            ttl: self.ttl,
            super_segments,
            short_frames: self.short_frames,
            one_sided: sides.into_iter().find(one_sided),
            private: sides.into_iter().find(private),
            initial,
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
        for side in SIDES {
            let (own, other) = (side as usize, side.peer() as usize);
            let left_its_host = self.ttl[own].is_some_and(|ttl| INITIAL_TTL.contains(&ttl));
            if let ((1.., 0), (0, 1..)) = (self.short_frames[own], self.short_frames[other])
                && left_its_host
            {
                return (VantagePoint::At(side), Basis::Unpadded);
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

/// Addresses of networks that others reach by translation only: RFC 1918, RFC 6598 section 7 (carriers'
/// translators), RFC 4193.
fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            let [a, b, ..] = v4.octets();
            v4.is_private() || a == 100 && b & 0xc0 == 64
        }
        IpAddr::V6(v6) => v6.is_unique_local(),
    }
}
