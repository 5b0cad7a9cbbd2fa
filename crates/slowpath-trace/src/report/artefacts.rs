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
}

impl Artefacts {
    /// Those of one connection.
    #[must_use]
    pub fn of(report: &ConnectionReport) -> Self {
        let mut sum = Artefacts::default();
        for side in [Side::Client, Side::Server] {
            let order = &report.sent_by(side).order;
            sum += Artefacts {
                captured_twice: order.captured_twice,
                uncaptured: order.capture_losses,
                uncaptured_bytes: order.capture_lost_bytes,
            };
        }
        sum
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
        lines
    }
}

impl AddAssign for Artefacts {
    fn add_assign(&mut self, other: Artefacts) {
        self.captured_twice += other.captured_twice;
        self.uncaptured += other.uncaptured;
        self.uncaptured_bytes += other.uncaptured_bytes;
    }
}
