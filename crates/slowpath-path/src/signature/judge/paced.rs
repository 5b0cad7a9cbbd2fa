// SPDX-License-Identifier: Apache-2.0
//! Packets at a rate: whether our own rate filled a queue, and whether a policer took what exceeded its own.

use super::Reason;
use crate::signature::plan::{Size, Traffic};
use crate::signature::statistics::{Count, median};
use crate::signature::tables::{Segment, rate};
use std::collections::BTreeMap;

/// A sender below this part of its rate did not keep it.
const KEPT: f64 = 0.9;

/// Below this part of the rate that was sent a path did not carry it.
const CARRIED: f64 = 0.93;

/// Fewer waiting packets than this may be the noise of stamps and wake-ups.
const QUEUE: f64 = 3.0;

/// What one segment shows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// How much later than its first ones the packets of its second half came, ns.
    pub(super) rise_ns: f64,
    /// At which rate what was left came, from the first loss on, bit/s.
    pub(super) carried_bps: f64,
    /// Octets sent before the first loss beyond what that rate carried in the time.
    pub(super) burst: f64,
}

impl Shape {
    fn queue(&self, bytes: u32) -> f64 {
        self.rise_ns / 1e9 * self.carried_bps / 8.0 / f64::from(bytes)
    }
}

/// `None` where too little came.
pub(super) fn shape(segment: &Segment) -> Option<Shape> {
    let packets = &segment.packets;
    let came: Vec<i64> = packets
        .iter()
        .filter_map(|packet| packet.delay_ns)
        .collect();
    let base = *came.get(..10)?.iter().min()?;
    let late: Vec<f64> = came[came.len() / 2..]
        .iter()
        .map(|delay| (delay - base) as f64)
        .collect();
    let first_loss = packets.iter().position(|packet| packet.lost());
    let after = first_loss.unwrap_or(0);
    let arrivals: Vec<i64> = packets[after..]
        .iter()
        .filter_map(|p| p.arrival_ns())
        .collect();
    let span = arrivals.last()? - arrivals.first()?;
    let carried_bps = rate(arrivals.len(), segment.cell.bytes, span)?;
    let before = f64::from(segment.cell.bytes) * after as f64;
    let passed = (packets[after].sent_ns - packets[0].sent_ns) as f64 / 1e9;
    (arrivals.len() >= 8).then_some(Shape {
        rise_ns: median(&late)?,
        carried_bps,
        burst: before - carried_bps / 8.0 * passed,
    })
}

/// Splits off the paced segments that say nothing of the path's loss: their sender did not keep the rate, or they
/// themselves filled a queue to the brim.
pub(super) fn set_aside(segments: &[Segment]) -> (Vec<Segment>, Vec<Reason>) {
    let mut by_rate: BTreeMap<u64, Vec<&Segment>> = BTreeMap::new();
    let mut kept = Vec::new();
    for segment in segments {
        match segment.cell.traffic {
            Traffic::Paced => by_rate
                .entry(segment.cell.rate_bps)
                .or_default()
                .push(segment),
            _ => kept.push(segment.clone()),
        }
    }
    let mut reasons = Vec::new();
    for (rate_bps, of_rate) in by_rate {
        let sent: Vec<f64> = of_rate
            .iter()
            .filter_map(|segment| segment.sent_rate())
            .collect();
        let sent = median(&sent).unwrap_or(0.0);
        if sent < KEPT * rate_bps as f64 {
            reasons.push(Reason::SlowSender {
                rate_bps,
                sent_bps: sent as u64,
            });
            continue;
        }
        let shapes: Vec<Shape> = of_rate
            .iter()
            .filter_map(|segment| shape(segment))
            .collect();
        let middle = |of: &dyn Fn(&Shape) -> f64| {
            median(&shapes.iter().map(of).collect::<Vec<_>>()).unwrap_or(0.0)
        };
        let bytes = of_rate[0].cell.bytes;
        let carried = middle(&|shape| shape.carried_bps);
        let lossy = of_rate.iter().any(|segment| segment.count().lost > 0);
        if lossy && middle(&|shape| shape.queue(bytes)) >= QUEUE && carried < CARRIED * sent {
            reasons.push(Reason::Overload {
                rate_bps,
                carried_bps: carried as u64,
            });
            continue;
        }
        kept.extend(of_rate.into_iter().cloned());
    }
    kept.sort_by_key(|segment| (segment.cycle, segment.cell));
    (kept, reasons)
}

/// A policer, by what paced packets show.
#[derive(Clone, Copy, Debug)]
pub(super) struct Policer {
    /// bit/s
    pub(super) rate: f64,
    /// Octets.
    pub(super) burst: f64,
}

/// Rates of lossy cells of one policer differ by no more than this.
const SAME_RATE: f64 = 1.3;

/// Finds the rate above which all is lost and below which nothing is:
///
/// 1. at a rate that loses, what comes has, from the first loss on, less than that rate;
/// 2. it has the same rate in every such cell;
/// 3. cells below that rate lose nearly nothing.
pub(super) fn policer(segments: &[Segment]) -> Option<Policer> {
    let mut by_rate: BTreeMap<u64, (Count, Vec<Shape>)> = BTreeMap::new();
    let mut single = Count::default();
    for segment in segments
        .iter()
        .filter(|segment| segment.cell.size == Size::Full)
    {
        match segment.cell.traffic {
            Traffic::Paced => {
                let cell = by_rate.entry(segment.cell.rate_bps).or_default();
                cell.0 = cell.0.and(segment.count());
                // Without a loss the rate that came is the sender's.
                cell.1
                    .extend(shape(segment).filter(|_| segment.count().lost > 0));
            }
            Traffic::Single => single = single.and(segment.count()),
            Traffic::Train => {}
        }
    }
    let (mut rates, mut bursts, mut below) = (Vec::new(), Vec::new(), single);
    let mut most = 0.0_f64;
    for (&rate_bps, (count, shapes)) in &by_rate {
        let carried = median(
            &shapes
                .iter()
                .map(|shape| shape.carried_bps)
                .collect::<Vec<_>>(),
        );
        match carried.filter(|&carried| carried < 0.97 * rate_bps as f64 && count.share() > 0.01) {
            Some(carried) => {
                rates.push(carried);
                bursts.extend(shapes.iter().map(|shape| shape.burst.max(0.0)));
                most = most.max(count.share());
            }
            None if rates.is_empty() => below = below.and(*count),
            // A faster cell than one that loses does not.
            None => return None,
        }
    }
    let (least, largest) = (
        rates.iter().copied().reduce(f64::min)?,
        rates.iter().copied().reduce(f64::max)?,
    );
    let same = largest <= SAME_RATE * least;
    (same && below.share() < 0.1 * most).then_some(Policer {
        rate: median(&rates)?,
        burst: median(&bursts)?,
    })
}
