// SPDX-License-Identifier: Apache-2.0
//! Losses one by one: the delay beside them, their order and their times.

use crate::signature::plan::{Size, Traffic};
use crate::signature::statistics::{Count, Period, Stretch, at_least, chi_squared, larger, period};
use crate::signature::tables::{Packet, PacketCell, Segment};
use std::collections::BTreeMap;

/// Losses are one event if at most this number of packets between them came.
const JOINED_PACKETS: usize = 2;

/// If they are also no further from each other than this, ns.
const JOINED_NS: i64 = 30_000_000;

/// Packets that came, of which delays are compared with those beside losses.
const MOST_OTHERS: usize = 4_000;

/// The shortest period in time that is looked for, s.
const LEAST_PERIOD: f64 = 0.02;

/// A packet of any segment, in the order of sending.
#[derive(Clone, Copy, Debug)]
struct Sent {
    size: Size,
    packet: Packet,
    /// The delay beyond the shortest of its size and cycle.
    wait: Option<i64>,
}

/// Packets of a cycle of both sizes in the order of sending.
fn merged(segments: &[&Segment]) -> Vec<Sent> {
    let mut all = Vec::new();
    for segment in segments {
        let same = segments.iter().filter(|other| other.cell == segment.cell);
        let packets = same.flat_map(|same| &same.packets);
        let least = packets.filter_map(|packet| packet.delay_ns).min();
        all.extend(segment.packets.iter().map(|&packet| {
            Sent {
                size: segment.cell.size,
                packet,
                wait: packet
                    .delay_ns
                    .zip(least)
                    .map(|(delay, least)| delay - least),
            }
        }));
    }
    all.sort_by_key(|sent| sent.packet.sent_ns);
    all
}

fn by_cycle<'a>(segments: impl Iterator<Item = &'a Segment>) -> Vec<Vec<Sent>> {
    let mut cycles: BTreeMap<u32, Vec<&Segment>> = BTreeMap::new();
    for segment in segments {
        cycles.entry(segment.cycle).or_default().push(segment);
    }
    cycles.values().map(|segments| merged(segments)).collect()
}

fn single(segments: &[Segment]) -> impl Iterator<Item = &Segment> {
    segments
        .iter()
        .filter(|segment| segment.cell.traffic == Traffic::Single)
}

/// Whether packets beside a loss waited longer than others: the p-value, the probability that one beside a loss did, and
/// events. `None`: too few.
pub(super) fn waits(segments: &[Segment]) -> Option<(f64, f64, u64)> {
    let (mut beside, mut others) = (Vec::new(), Vec::new());
    for cycle in by_cycle(single(segments)) {
        let mut before: Vec<Option<i64>> = vec![None; cycle.len()];
        let mut after = before.clone();
        let mut last = None;
        for (index, sent) in cycle.iter().enumerate() {
            before[index] = last;
            last = sent.wait.or(last);
        }
        last = None;
        for (index, sent) in cycle.iter().enumerate().rev() {
            after[index] = last;
            last = sent.wait.or(last);
        }
        let mut lost_before = false;
        for (index, sent) in cycle.iter().enumerate() {
            // Of several losses in a row the neighbours are the same.
            let fresh = !(sent.packet.lost() && lost_before);
            lost_before = sent.packet.lost();
            let (Some(before), Some(after)) = (before[index], after[index]) else {
                continue;
            };
            let value = before.max(after) as f64;
            match sent.packet.lost() {
                true if fresh => beside.push(value),
                true => {}
                false => others.push(value),
            }
        }
    }
    let stride = others.len().div_ceil(MOST_OTHERS).max(1);
    let others: Vec<f64> = others.into_iter().step_by(stride).collect();
    let (p, wins) = larger(&others, &beside);
    (beside.len() >= 5).then_some((p, wins, beside.len() as u64))
}

/// A period in the order of packets: of all, or of full ones only, whichever is the clearer. Packets that are left out
/// elsewhere count in the order.
pub(super) fn period_in_packets(segments: &[Segment]) -> Option<Period> {
    let cycles = by_cycle(segments.iter());
    let orders = [None, Some(Size::Full)]
        .into_iter()
        .filter_map(|only: Option<Size>| {
            let stretch = |cycle: &Vec<Sent>| {
                let of: Vec<&Sent> = cycle
                    .iter()
                    .filter(|sent| only.is_none_or(|size| sent.size == size))
                    .collect();
                let place = |sent: &Sent| f64::from(sent.packet.order[usize::from(only.is_some())]);
                let first = of.first().map_or(0.0, |sent| place(sent));
                let lost = of.iter().filter(|sent| sent.packet.lost());
                Stretch {
                    events: lost.map(|sent| place(sent) - first).collect(),
                    trials: of.iter().map(|sent| place(sent) - first).collect(),
                    length: of.last().map_or(0.0, |sent| place(sent) - first),
                }
            };
            let stretches: Vec<Stretch> = cycles.iter().map(stretch).collect();
            period(&stretches, 2.0)
        });
    let best = orders.max_by(|a, b| a.concentration.total_cmp(&b.concentration))?;
    // Of the two orders.
    Some(Period {
        p: (2.0 * best.p).min(1.0),
        ..best
    })
}

/// A period in time, s.
pub(super) fn period_in_time(segments: &[Segment]) -> Option<Period> {
    let all: Vec<Sent> = by_cycle(segments.iter()).concat();
    let start = all.iter().map(|sent| sent.packet.sent_ns).min()?;
    let end = all.iter().map(|sent| sent.packet.sent_ns).max()?;
    let seconds = |nanos: i64| (nanos - start) as f64 / 1e9;
    let mut events = Vec::new();
    let mut last: Option<(usize, i64)> = None;
    for (index, sent) in all
        .iter()
        .enumerate()
        .filter(|(_, sent)| sent.packet.lost())
    {
        let at = sent.packet.sent_ns;
        let same = last.is_some_and(|(before, time)| {
            index - before <= JOINED_PACKETS + 1 && at - time <= JOINED_NS
        });
        if !same {
            events.push(seconds(at));
        }
        last = Some((index, at));
    }
    let trials = all
        .iter()
        .map(|sent| seconds(sent.packet.sent_ns))
        .collect();
    let stretch = Stretch {
        events,
        trials,
        length: seconds(end),
    };
    period(&[stretch], LEAST_PERIOD)
}

/// Whether losses follow each other more often than independent ones.
pub(super) fn neighbours(segments: &[Segment]) -> f64 {
    let shares = shares(segments);
    let (mut pairs, mut expected) = (0, 0.0);
    for segment in segments {
        let share = shares[&segment.cell].share();
        let both = segment
            .packets
            .windows(2)
            .filter(|pair| pair[0].lost() && pair[1].lost());
        pairs += both.count() as u64;
        expected += segment.packets.len().saturating_sub(1) as f64 * share * share;
    }
    at_least(pairs, expected)
}

/// Whether the share differs from cycle to cycle more than by chance.
pub(super) fn dispersion(segments: &[Segment]) -> f64 {
    let shares = shares(segments);
    let mut cycles: BTreeMap<u32, (f64, f64, f64)> = BTreeMap::new();
    for segment in segments {
        let (count, share) = (segment.count(), shares[&segment.cell].share());
        let sum = cycles.entry(segment.cycle).or_default();
        sum.0 += count.lost as f64;
        sum.1 += count.sent as f64 * share;
        sum.2 += count.sent as f64 * share * (1.0 - share);
    }
    let terms = cycles.values().filter(|sum| sum.2 > 0.0);
    let statistic = terms
        .map(|(lost, expected, variance)| (lost - expected).powi(2) / variance)
        .sum();
    chi_squared(statistic, cycles.len().saturating_sub(1) as f64)
}

fn shares(segments: &[Segment]) -> BTreeMap<PacketCell, Count> {
    let mut cells: BTreeMap<PacketCell, Count> = BTreeMap::new();
    for segment in segments {
        let cell = cells.entry(segment.cell).or_default();
        *cell = cell.and(segment.count());
    }
    cells
}
