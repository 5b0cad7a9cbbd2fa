// SPDX-License-Identifier: Apache-2.0
//! Connections that a capture has twice: before and after a device that translates addresses or
//! rewrites sequence numbers (NAT, load balancers, firewalls), as a router's or a container host's
//! capture of all interfaces shows them.
//!
//! Two connections are one if they differ in an end, begin within [`NEAR`] of each other, and
//! 1. have the same initial sequence numbers, both sides' (RFC 6528 makes them random); or
//! 2. have the same timestamp values in both SYNs, and an address differs. Hosts that have one clock for
//!    all connections give the same values to connections that they open at once: with the same
//!    addresses these are two.

use crate::segment::Endpoint;
use crate::tcp::ConnectionReport;
use crate::verdict::InitialNumbers;

/// A device passes a SYN on before a timer sends it again: Linux's TCP_RTO_MIN, ns.
const NEAR: i64 = 200_000_000;

/// Connections remembered.
const MOST: usize = 1 << 20;

/// A connection that was opened.
#[derive(Clone, Copy, Debug)]
pub(super) struct Opened {
    first_frame: u64,
    time: i64,
    initial: InitialNumbers,
    ends: [Endpoint; 2],
}

impl Opened {
    pub(super) fn of(
        report: &ConnectionReport,
        initial: Option<InitialNumbers>,
        first_frame: u64,
    ) -> Option<Self> {
        Some(Opened {
            first_frame,
            time: report.first.time.0,
            initial: initial?,
            ends: [report.client, report.server],
        })
    }

    fn is_other_side_of(&self, other: &Opened) -> bool {
        let same_numbers = self.initial.sequences == other.initial.sequences;
        let addresses = |o: &Opened| o.ends.map(|end| end.address);
        let same_times = self.initial.timestamps.is_some()
            && self.initial.timestamps == other.initial.timestamps
            && addresses(self) != addresses(other);
        self.ends != other.ends
            && self.time.abs_diff(other.time) < NEAR.unsigned_abs()
            && (same_numbers || same_times)
    }
}

/// The connections that were opened, to find those that are the same.
#[derive(Clone, Debug, Default)]
pub(super) struct Translated(Vec<Opened>);

impl Translated {
    pub(super) fn add(&mut self, opened: Option<Opened>) {
        if self.0.len() < MOST {
            self.0.extend(opened);
        }
    }

    /// The first frames of pairs that are one connection, each in order, the first pair first.
    pub(super) fn pairs(mut self) -> Vec<(u64, u64)> {
        let mut pairs = Vec::new();
        let mut find = |all: &[Opened]| {
            let both = all.windows(2).filter_map(|w| match w {
                [a, b] if a.is_other_side_of(b) => Some((a.first_frame, b.first_frame)),
                _ => None,
            });
            pairs.extend(both.map(|(a, b)| (a.min(b), a.max(b))));
        };
        (self.0).sort_unstable_by_key(|o| (o.initial.sequences, o.time, o.first_frame));
        find(&self.0);
        (self.0).sort_unstable_by_key(|o| (o.initial.timestamps, o.time, o.first_frame));
        find(&self.0);
        pairs.sort_unstable();
        pairs.dedup();
        pairs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(frame: u64, ms: i64, sequence: u32, timestamp: u32, last: u8) -> Option<Opened> {
        Some(Opened {
            first_frame: frame,
            time: ms * 1_000_000,
            initial: InitialNumbers {
                sequences: [sequence, 77],
                timestamps: Some([timestamp, 5]),
            },
            ends: [[10, 0, 0, last], [192, 0, 2, 1]].map(|address| Endpoint {
                address: address.into(),
                port: 80,
            }),
        })
    }

    fn pairs(all: [Option<Opened>; 2]) -> Vec<(u64, u64)> {
        let mut translated = Translated::default();
        for connection in all {
            translated.add(connection);
        }
        translated.pairs()
    }

    #[test]
    fn both_sides_of_a_translator_are_one_connection() {
        let inside = opened(1, 0, 1000, 50, 1);
        assert_eq!(pairs([inside, opened(2, 1, 1000, 50, 2)]), [(1, 2)]);
        // It rewrites the sequence numbers as well.
        assert_eq!(pairs([inside, opened(2, 1, 9000, 50, 2)]), [(1, 2)]);
        // No timestamps survive, but the numbers do.
        assert_eq!(pairs([inside, opened(2, 1, 1000, 60, 2)]), [(1, 2)]);
    }

    #[test]
    fn connections_opened_at_once_are_several() {
        let one = opened(1, 0, 1000, 50, 1);
        // The same host's clock.
        assert_eq!(pairs([one, opened(2, 0, 9000, 50, 1)]), []);
        assert_eq!(pairs([one, opened(2, 0, 9000, 51, 2)]), []);
        // The same numbers much later.
        assert_eq!(pairs([one, opened(2, 1_000, 1000, 50, 2)]), []);
        assert_eq!(pairs([one, None]), []);
    }
}
