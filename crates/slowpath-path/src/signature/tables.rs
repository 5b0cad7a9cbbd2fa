// SPDX-License-Identifier: Apache-2.0
//! Packets by what they were sent as.

use super::plan::{SessionPlan, Size, TRAIN, Traffic};
use super::statistics::Count;
use serde::Serialize;
use std::ops::Range;

/// How some packets were sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct PacketCell {
    /// How they followed each other.
    pub traffic: Traffic,
    /// How large they were.
    pub size: Size,
    /// Octets of a packet from the IP header on.
    pub bytes: u32,
    /// Packets of a train; 1: none.
    pub train: u32,
    /// Bit/s while they were sent; 0 of trains: as fast as the host could.
    pub rate_bps: u64,
}

/// A packet that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Its place in its segment, from 0.
    pub index: u32,
    /// Its place among all packets of the direction in the order of sending, and among those of its size.
    pub order: [u32; 2],
    /// When it left, ns by the sender's clock from any moment on.
    pub sent_ns: i64,
    /// How long it took, ns by both clocks as they are; `None`: it was lost.
    pub delay_ns: Option<i64>,
}

impl Packet {
    /// Whether it did not come.
    #[must_use]
    pub fn lost(&self) -> bool {
        self.delay_ns.is_none()
    }

    /// When it came, by the receiver's clock.
    #[must_use]
    pub fn arrival_ns(&self) -> Option<i64> {
        Some(self.sent_ns.saturating_add(self.delay_ns?))
    }
}

/// The packets of one part of one cycle, in the order of sending, without those that the sender left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// How they were sent.
    pub cell: PacketCell,
    /// In which cycle.
    pub cycle: u32,
    /// Each.
    pub packets: Vec<Packet>,
}

impl Segment {
    /// Packets and losses.
    #[must_use]
    pub fn count(&self) -> Count {
        Count {
            sent: self.packets.len() as u64,
            lost: self.packets.iter().filter(|packet| packet.lost()).count() as u64,
        }
    }

    /// Its trains, each by itself; single packets and paced are one.
    pub fn trains(&self) -> impl Iterator<Item = &[Packet]> {
        let train = self.cell.train;
        self.packets
            .chunk_by(move |a, b| train <= 1 || a.index / train == b.index / train)
    }

    /// From the first packet that left to the last.
    #[must_use]
    pub fn time(&self) -> Option<Range<i64>> {
        Some(self.packets.first()?.sent_ns..self.packets.last()?.sent_ns)
    }

    /// The rate at which it was really sent, bit/s.
    #[must_use]
    pub fn sent_rate(&self) -> Option<f64> {
        let time = self.time()?;
        rate(self.packets.len(), self.cell.bytes, time.end - time.start)
    }
}

/// Bit/s of packets of which the first and the last are `nanos` from each other.
pub(super) fn rate(packets: usize, bytes: u32, nanos: i64) -> Option<f64> {
    let bits = 8.0 * f64::from(bytes) * packets.checked_sub(1)? as f64;
    (nanos > 0).then(|| bits / (nanos as f64 / 1e9))
}

/// All of one direction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// Its segments.
    pub segments: Vec<Segment>,
    /// Lost packets that an end itself dropped (SO_RXQ_OVFL): which ones is not known.
    pub lost_here: u64,
    /// Packets that the sender left out: they are in no segment.
    pub skipped: u64,
}

impl Observed {
    /// Gives packets their places in the order of sending.
    pub(super) fn number(&mut self) {
        let mut packets: Vec<(Size, &mut Packet)> = self
            .segments
            .iter_mut()
            .flat_map(|segment| {
                let size = segment.cell.size;
                segment.packets.iter_mut().map(move |packet| (size, packet))
            })
            .collect();
        packets.sort_by_key(|(_, packet)| packet.sent_ns);
        let mut of_size = [0u32; 2];
        for (all, (size, packet)) in (0u32..).zip(packets) {
            let place = &mut of_size[usize::from(size == Size::Full)];
            packet.order = [all, *place];
            *place += 1;
        }
    }
}

/// A packet of a session, before it is known to which segment it belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbered {
    /// Its number in the session.
    pub sequence: u32,
    /// As [`Packet::sent_ns`].
    pub sent_ns: i64,
    /// As [`Packet::delay_ns`].
    pub delay_ns: Option<i64>,
}

/// Sorts a session's packets into its segments. Of copies the first in the order given counts.
#[must_use]
pub fn segments(plan: &SessionPlan, packets: &[Numbered]) -> Vec<Segment> {
    let mut packets = packets.to_vec();
    // Stable: copies stay in their order.
    packets.sort_by_key(|packet| packet.sequence);
    packets.dedup_by_key(|packet| packet.sequence);
    let mut segments: Vec<Segment> = Vec::new();
    let mut last = None;
    for packet in packets {
        let Some((cycle, part, index)) = plan.place(packet.sequence) else {
            continue;
        };
        if last != Some((cycle, part)) {
            let of = plan.parts[part];
            segments.push(Segment {
                cell: PacketCell {
                    traffic: of.traffic,
                    size: plan.size,
                    bytes: plan.bytes,
                    train: if of.traffic == Traffic::Train {
                        TRAIN
                    } else {
                        1
                    },
                    rate_bps: of.rate_bps,
                },
                cycle,
                packets: Vec::new(),
            });
            last = Some((cycle, part));
        }
        if let Some(segment) = segments.last_mut() {
            segment.packets.push(Packet {
                index,
                order: [0; 2],
                sent_ns: packet.sent_ns,
                delay_ns: packet.delay_ns,
            });
        }
    }
    segments
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signature::Plan;
    use std::time::Duration;

    #[test]
    fn packets_come_into_their_segments_and_copies_count_once() {
        let plan = Plan::new(Duration::from_secs(60), (42, 1_500), 50_000_000, 1).expect("a plan");
        let numbered = |sequence: u32, delay_ns| Numbered {
            sequence,
            sent_ns: i64::from(sequence) * 1_000,
            delay_ns,
        };
        // The last single ones, the first two of a train, a copy of one.
        let packets = [
            numbered(486, Some(5)),
            numbered(488, Some(6)),
            numbered(487, None),
            numbered(488, Some(9)),
        ];
        let segments = segments(&plan.full, &packets);
        assert_eq!(segments.len(), 2);
        assert_eq!(segments[0].cell.traffic, Traffic::Single);
        assert_eq!(segments[0].count(), Count { sent: 1, lost: 0 });
        assert_eq!(segments[1].cell.train, 50);
        assert_eq!(segments[1].count(), Count { sent: 2, lost: 1 });
        assert_eq!(segments[1].packets[1].delay_ns, Some(6));
    }
}
