// SPDX-License-Identifier: Apache-2.0
//! n-reordering (RFC 4737 section 5.3).

use serde::Serialize;

/// The largest n that is looked at. A packet that is later still counts as this late.
pub const MOST_REORDERING: usize = 100;

/// How many packets were n-reordered.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Reordering {
    /// n.
    pub n: usize,
    /// Packets before which at least n packets arrived, one after the other, that were sent later (m).
    pub packets: u64,
    /// Packets that arrived, without duplicates (l).
    pub received: u64,
    /// m / (l − n), in percent: as owamp 3 printed it.
    pub percent: f64,
    /// m / l, in percent: as owamp since 3.2 prints it.
    pub percent_of_received: f64,
}

impl Reordering {
    /// Of counts; a sample that is too short for n has no such share and reads 0.
    #[must_use]
    pub fn new(n: usize, packets: u64, received: u64) -> Self {
        let share = |of: u64| {
            if of == 0 {
                0.0
            } else {
                100.0 * packets as f64 / of as f64
            }
        };
        Reordering {
            n,
            packets,
            received,
            percent: share(received.saturating_sub(n as u64)),
            percent_of_received: share(received),
        }
    }
}

/// The sequence numbers that arrived last.
#[derive(Clone, Debug)]
pub(super) struct Arrivals {
    ring: [u32; MOST_REORDERING],
    /// Where the next one goes.
    next: usize,
    /// How many are in it.
    filled: usize,
}

impl Arrivals {
    pub(super) fn new() -> Self {
        Arrivals {
            ring: [0; MOST_REORDERING],
            next: 0,
            filled: 0,
        }
    }

    /// Takes an arrival: the largest n by which it is n-reordered, 0 for a packet in order.
    pub(super) fn arrive(&mut self, sequence: u32) -> usize {
        let before = (1..=self.filled)
            .map(|back| self.ring[(self.next + MOST_REORDERING - back) % MOST_REORDERING]);
        let extent = before.take_while(|&earlier| sequence < earlier).count();
        self.ring[self.next] = sequence;
        self.next = (self.next + 1) % MOST_REORDERING;
        self.filled = (self.filled + 1).min(MOST_REORDERING);
        extent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_is_as_late_as_packets_overtook_it_in_a_row() {
        let mut arrivals = Arrivals::new();
        // 2 comes behind 3, 4 and 5; 7 behind 8; nothing else is late.
        let extents: Vec<usize> = [0, 1, 3, 4, 5, 2, 6, 8, 7]
            .into_iter()
            .map(|sequence| arrivals.arrive(sequence))
            .collect();
        assert_eq!(extents, [0, 0, 0, 0, 0, 3, 0, 0, 1]);
    }
}
