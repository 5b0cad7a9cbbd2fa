// SPDX-License-Identifier: Apache-2.0
//! IP identifications as packets' numbers. A TCP socket gives a packet its next identification and goes on by the packet's segments (`ip_select_ident_segs`): what comes
//! with an identification further on shows that segments in between were lost.

use std::collections::BTreeMap;

/// A packet that came.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub id: u16,
    pub segments: u8,
    /// In the backlog.
    pub waited: bool,
    pub data: bool,
}

/// One end's packets that arrived, as its peer observed them.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    /// By distance from the first identification: the number, and how many packets were one (merged in the backlog).
    known: BTreeMap<i64, (u32, u16)>,
    /// The number of the packet after the last one that came.
    pub next: u32,
    /// Its distance.
    reached: i64,
    base: u16,
    /// Packets are a segment each.
    single: bool,
}

/// Each arrival's distance; identifications wrap.
fn distances(base: u16, ids: impl Iterator<Item = u16>) -> impl Iterator<Item = i64> {
    ids.scan(0i64, move |last, id| {
        let before = base.wrapping_add(*last as u16);
        *last += i64::from(id.wrapping_sub(before) as i16);
        Some(*last)
    })
}

impl Numbers {
    /// `first` is the number of the packet with the identification `base`; arrivals in their order.
    /// With segmentation left to the device a gap is taken for one lost packet, and data merged in the backlog for one packet: how many there were is not known.
    pub(super) fn new(base: u16, first: u32, arrivals: &[Arrival]) -> (Numbers, Vec<i64>) {
        let places: Vec<i64> = distances(base, arrivals.iter().map(|it| it.id)).collect();
        let single = arrivals.iter().all(|it| it.waited || it.segments == 1);
        let mut order: Vec<(i64, &Arrival)> = places.iter().copied().zip(arrivals).collect();
        order.sort_unstable_by_key(|(place, _)| *place);
        let mut numbers = Numbers {
            next: first,
            base,
            single,
            ..Numbers::default()
        };
        for (place, arrival) in order {
            if place < numbers.reached {
                continue;
            }
            numbers.next += numbers.lost(place);
            // An acknowledgment is a segment.
            let several = single || (arrival.waited && !arrival.data);
            let count = if several {
                u16::from(arrival.segments)
            } else {
                1
            };
            numbers.known.insert(place, (numbers.next, count));
            numbers.next += u32::from(count);
            numbers.reached = place + i64::from(arrival.segments);
        }
        (numbers, places)
    }

    fn lost(&self, place: i64) -> u32 {
        let gap = u32::try_from(place - self.reached).unwrap_or(0);
        if self.single { gap } else { gap.min(1) }
    }

    pub(super) fn get(&self, place: i64) -> Option<(u32, u16)> {
        self.known.get(&place).copied()
    }

    /// How many packets there had been in all when the next one would have had each of these identifications, in their order.
    pub(super) fn totals(&self, next: impl Iterator<Item = u16>) -> impl Iterator<Item = u32> {
        distances(self.base, next).map(|place| {
            if place >= self.reached {
                return self.next + self.lost(place);
            }
            let before = self.known.range(..place).next_back();
            before.map_or(0, |(_, (number, count))| number + u32::from(*count))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrival(id: u16, segments: u8, waited: bool) -> Arrival {
        Arrival {
            id,
            segments,
            waited,
            data: false,
        }
    }

    fn found(arrivals: &[Arrival], base: u16) -> (Numbers, Vec<(u32, u16)>) {
        let (numbers, places) = Numbers::new(base, 1, arrivals);
        let found = places.iter().map(|place| numbers.get(*place).unwrap());
        let found = found.collect();
        (numbers, found)
    }

    #[test]
    fn a_gap_is_lost_packets_and_identifications_wrap() {
        let arrivals = [65_534, 65_535, 1, 0, 3].map(|id| arrival(id, 1, false));
        let (numbers, found) = found(&arrivals, 65_534);
        assert_eq!(found, [(1, 1), (2, 1), (4, 1), (3, 1), (6, 1)]);
        let totals: Vec<u32> = numbers.totals([0, 4, 6].into_iter()).collect();
        assert_eq!((numbers.next, totals), (7, vec![3, 7, 9]));
    }

    #[test]
    fn segments_that_the_device_makes_are_one_packet() {
        let arrivals = [
            arrival(10, 3, false),
            arrival(20, 2, false),
            arrival(22, 2, true),
        ];
        let (_, found) = found(&arrivals, 10);
        // Seven segments count as one packet, for lack of knowledge; acknowledgments are two.
        assert_eq!(found, [(1, 1), (3, 1), (4, 2)]);
    }

    #[test]
    fn packets_merged_in_the_backlog_are_several() {
        let arrivals = [
            arrival(10, 1, false),
            arrival(11, 3, true),
            arrival(14, 1, false),
        ];
        let (_, found) = found(&arrivals, 10);
        assert_eq!(found, [(1, 1), (2, 3), (5, 1)]);
    }
}
