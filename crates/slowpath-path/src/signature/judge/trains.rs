// SPDX-License-Identifier: Apache-2.0
//! Trains: where in a train losses begin, and what the path carried before and after.

use crate::signature::plan::{BODY, Size, Traffic};
use crate::signature::statistics::{Count, median};
use crate::signature::tables::{Packet, Segment, rate};

/// What the trains that lost packets show, each number the middle one of the trains.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trains {
    /// Trains.
    pub(super) trains: u64,
    /// Of these, with losses.
    pub(super) lossy: u64,
    /// The place of the first loss, from 0.
    pub(super) onset: f64,
    /// The part of the lossy trains whose first loss is near that.
    pub(super) constant: f64,
    /// The part that came from the first loss on, of packets that directly follow each other.
    pub(super) passed: f64,
    /// By the delays of packets after the first loss: whether lost packets had been in the queue.
    pub(super) entered: Entered,
    /// The rate at which packets came after the first loss, bit/s.
    pub(super) after_bps: Option<f64>,
}

/// Where packets were lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entered {
    /// Before the queue: it was full.
    No,
    /// Behind it, or there is none: something else dropped them.
    Yes,
    /// Delays do not say.
    Unclear,
}

/// Of one train.
struct Train {
    onset: f64,
    passed: f64,
    /// Growth of the delay before the first loss, ns.
    grown: Option<f64>,
    errors: Option<Errors>,
    after_bps: Option<f64>,
}

/// How far delays after the first loss are from what a queue would give, ns, summed over packets.
#[derive(Clone, Copy, Debug, Default)]
struct Errors {
    /// If the lost packets had been in it.
    entered: f64,
    /// If not.
    refused: f64,
    /// How far these two are from each other.
    between: f64,
    packets: f64,
}

/// Delays that differ by less than this may be noise, ns.
const NOISE: f64 = 150_000.0;

/// The fewest packets before the first loss that give the bottleneck's rate.
const FEWEST: usize = 5;

fn train(packets: &[Packet], cell_train: u32, bytes: u32) -> Option<Train> {
    let place = |packet: &Packet| packet.index % cell_train;
    let body = packets.partition_point(|packet| place(packet) < BODY);
    let first = packets[..body].iter().position(Packet::lost)?;
    let came = packets[first..].iter().filter(|packet| !packet.lost());
    let in_body = came.clone().filter(|packet| place(packet) < BODY).count();
    let delay = |packet: &Packet| packet.delay_ns.map(|delay| delay as f64);
    let before = packets[..first]
        .last()
        .zip(packets.get(1))
        .filter(|_| first >= FEWEST);
    let grown = before.and_then(|(last, second)| Some(delay(last)? - delay(second)?));
    let after_bps = (|| {
        let mut body = packets[first..body].iter().rev();
        let span = body.find_map(Packet::arrival_ns)? - packets[..first].last()?.arrival_ns()?;
        rate(in_body + 1, bytes, span).filter(|_| in_body >= 3)
    })();
    Some(Train {
        onset: f64::from(place(&packets[first])),
        passed: in_body as f64 / (body - first) as f64,
        grown,
        errors: errors(packets, first),
        after_bps,
    })
}

/// Follows the queue of a bottleneck whose rate the packets before the first loss show.
fn errors(packets: &[Packet], first: usize) -> Option<Errors> {
    let (second, last) = (packets.get(1)?, packets[..first].last()?);
    if first < FEWEST {
        return None;
    }
    let arrivals = (last.arrival_ns()? - second.arrival_ns()?) as f64;
    let line = arrivals / f64::from(last.index - second.index);
    // What a packet takes that finds the queue empty.
    let base = packets[0].delay_ns? as f64;
    let mut errors = Errors::default();
    let (mut entered, mut refused) = (base, base);
    for (before, packet) in packets.iter().zip(&packets[1..]) {
        let passed = (packet.sent_ns - before.sent_ns) as f64;
        let next = |delay: f64| (delay - passed + line).max(base);
        entered = next(entered);
        match packet.delay_ns {
            Some(delay) => {
                refused = next(refused);
                if packet.index > last.index {
                    errors.entered += (delay as f64 - entered).abs();
                    errors.refused += (delay as f64 - refused).abs();
                    errors.between += (entered - refused).abs();
                    errors.packets += 1.0;
                }
            }
            None => refused = (refused - passed).max(base - line),
        }
    }
    Some(errors)
}

fn entered(lossy: &[Train]) -> Entered {
    let mut sum = Errors::default();
    for errors in lossy.iter().filter_map(|train| train.errors) {
        sum.entered += errors.entered;
        sum.refused += errors.refused;
        sum.between += errors.between;
        sum.packets += errors.packets;
    }
    let grown: Vec<f64> = lossy.iter().filter_map(|train| train.grown).collect();
    let level = median(&grown).is_some_and(|grown| grown < NOISE);
    if sum.between < NOISE * sum.packets.max(1.0) {
        // No queue to be full.
        return if level {
            Entered::Yes
        } else {
            Entered::Unclear
        };
    }
    match (sum.entered, sum.refused) {
        (entered, refused) if refused < 0.5 * entered => Entered::No,
        (entered, refused) if entered < 0.5 * refused => Entered::Yes,
        _ => Entered::Unclear,
    }
}

fn full(segments: &[Segment]) -> impl Iterator<Item = &Segment> {
    segments
        .iter()
        .filter(|segment| segment.cell.traffic == Traffic::Train && segment.cell.size == Size::Full)
}

/// `None`: no train lost anything.
pub(super) fn shape(segments: &[Segment]) -> Option<Trains> {
    let all = full(segments)
        .map(|segment| segment.trains().count() as u64)
        .sum();
    let lossy: Vec<Train> = full(segments)
        .flat_map(|segment| {
            let of = move |packets| train(packets, segment.cell.train, segment.cell.bytes);
            segment.trains().filter_map(of)
        })
        .collect();
    let values =
        |of: &dyn Fn(&Train) -> Option<f64>| lossy.iter().filter_map(of).collect::<Vec<_>>();
    let onset = median(&values(&|train| Some(train.onset)))?;
    let near = lossy
        .iter()
        .filter(|train| (train.onset - onset).abs() <= 3.0_f64.max(onset / 4.0));
    Some(Trains {
        trains: all,
        lossy: lossy.len() as u64,
        onset,
        constant: near.count() as f64 / lossy.len() as f64,
        passed: median(&values(&|train| Some(train.passed)))?,
        entered: entered(&lossy),
        after_bps: median(&values(&|train| train.after_bps)),
    })
}

/// Losses of full packets by their place in the train.
pub(super) fn by_place(segments: &[Segment]) -> Vec<(f64, Count)> {
    let mut places: Vec<(f64, Count)> = Vec::new();
    for segment in full(segments) {
        for packet in &segment.packets {
            let place = (packet.index % segment.cell.train) as usize;
            if place >= BODY as usize {
                continue;
            }
            if places.len() <= place {
                places.resize_with(place + 1, Default::default);
            }
            places[place].0 = place as f64;
            places[place].1 = places[place].1.and(Count {
                sent: 1,
                lost: packet.lost().into(),
            });
        }
    }
    places
}
