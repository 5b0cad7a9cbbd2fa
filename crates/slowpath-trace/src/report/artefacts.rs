// SPDX-License-Identifier: Apache-2.0
//! What the capturing did to the packets of all connections: it took some twice, and missed others.

use crate::tcp::{ConnectionReport, Side};
use slowpath_text::{bytes, plural};
use std::ops::AddAssign;

/// Marks that the capturing left on the connections' packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Artefacts {
    /// Packets captured more than once: copies, without the first.
    pub captured_twice: u64,
    /// ACKs of data that was never captured, though the hosts have it.
    pub uncaptured: u64,
    /// Bytes of that data.
    pub uncaptured_bytes: u64,
    /// Connections that were captured on both sides of a translator: as two, or with two numberings.
    pub captured_on_both_sides: u64,
    /// The numbers of the first two that are one.
    pub both_sides: Option<(u64, u64)>,
}

impl Artefacts {
    /// Those of one connection.
    #[must_use]
    pub fn of(report: &ConnectionReport) -> Self {
        let mut sum = Artefacts {
            captured_on_both_sides: u64::from(report.renumbered),
            ..Artefacts::default()
        };
        for side in [Side::Client, Side::Server] {
            let order = &report.sent_by(side).order;
            sum += Artefacts {
                captured_twice: order.captured_twice,
                uncaptured: order.capture_losses,
                uncaptured_bytes: order.capture_lost_bytes,
                ..Artefacts::default()
            };
        }
        sum
    }

    /// Pairs of connections that are one, by their first frames; `number` gives the number of a
    /// connection.
    pub(super) fn translated(&mut self, pairs: &[(u64, u64)], number: impl Fn(u64) -> u64) {
        self.captured_on_both_sides += pairs.len() as u64;
        self.both_sides = pairs.first().map(|(a, b)| (number(*a), number(*b)));
    }

    /// A line for each of them.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if self.captured_twice > 0 {
            lines.push(format!(
                "captured twice: {} (two interfaces, a mirror port, or both sides of a router); copies are no retransmissions",
                plural(self.captured_twice, "packet")
            ));
        }
        if self.uncaptured > 0 {
            lines.push(format!(
                "the capture missed packets: {} for data that it does not have, {}",
                plural(self.uncaptured, "ACK"),
                bytes(self.uncaptured_bytes)
            ));
        }
        if self.captured_on_both_sides > 0 {
            let pair = |(one, other)| format!("; #{one} and #{other} are one");
            lines.push(format!(
                "captured on both sides of a device that translates addresses or sequence numbers: {}{}",
                plural(self.captured_on_both_sides, "connection"),
                self.both_sides.map(pair).unwrap_or_default()
            ));
        }
        lines
    }
}

impl AddAssign for Artefacts {
    fn add_assign(&mut self, other: Artefacts) {
        self.captured_twice += other.captured_twice;
        self.uncaptured += other.uncaptured;
        self.uncaptured_bytes += other.uncaptured_bytes;
        self.captured_on_both_sides += other.captured_on_both_sides;
        self.both_sides = self.both_sides.or(other.both_sides);
    }
}
