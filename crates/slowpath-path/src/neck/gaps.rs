// SPDX-License-Identifier: Apache-2.0
//! The neck from trains (Hu, Li, Mao, Steenkiste, Wang: "Locating Internet Bottlenecks", SIGCOMM 2004): where the time
//! between a train's two answers of a hop rises and stays.
//!
//! 1. A hop's *gap* is the time between the arrivals of its two answers; divided by the octets that the hop had between
//!    the two packets it is a time an octet, so that hops with shorter trains (packets expire on the way) compare.
//! 2. Gaps do not fall along a path except by noise (a router's slow answer, a queue on the way back): hops that break the
//!    order are pooled with their neighbours, by the median (isotonic regression): the paper's hills and valleys.
//! 3. Neighbouring levels whose rate differs by less than a tenth are one ([`LEAST_CHANGE`]).
//! 4. What is left are steps. The last one is the train's choke point: behind it nothing spread the train further.
//! 5. The same over the medians of all trains gives the finding; the share of trains that agree is its confidence, and less
//!    than half of them is no finding ([`LEAST_SHARE`]).
//!
//! A hop whose gaps scatter so much that a tenth would not stand out, as those of a router that answers at random times, takes
//! no part, unless all behind it do so: then it is the train that scatters. A hop without both answers has no gap: a step is then between the hops that have, and the link is an interval.

use super::links::Links;
use super::statistics::{median, quantile};
use std::collections::BTreeMap;

/// A step is one in which the rate falls by this share of what it was (the paper's confidence, section 3.2).
pub const LEAST_CHANGE: f64 = 0.1;
/// A choke point is one in at least this share of the trains.
pub const LEAST_SHARE: f64 = 0.5;
/// Trains with fewer gaps are not used.
pub const LEAST_GAPS: usize = 4;
/// A hop takes part only if its median is as exact as that, as a part of itself: a tenth has to stand out.
const MOST_ERROR: f64 = 0.1;
/// Trains that must have a hop's gap before it counts, where there are as many.
const LEAST_TRAINS_OF_HOP: usize = 3;

/// One hop's gap in one train.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gap {
    /// Between the two arrivals, ns; above 0.
    pub nanos: f64,
    /// Octets of IP from the end of the first packet to the end of the second one, as they came to the hop; above 0.
    pub octets: f64,
}

impl Gap {
    /// Time an octet, ns.
    fn slowness(self) -> f64 {
        self.nanos / self.octets
    }
}

/// One train: the gap of each hop that has one. Hop 0 is this host, with its times of sending.
pub type TrainGaps = BTreeMap<u8, Gap>;

/// What the trains say.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainsFinding {
    /// The link.
    pub links: Links,
    /// The share of the trains that agree.
    pub confidence: f64,
    /// Trains that had gaps enough.
    pub trains: usize,
    /// The rate behind the choke point: the train's octets by its gap, bits of IP a second; the median of the trains.
    pub rate_bps: f64,
    /// A tenth of the trains were below the first, nine tenths not above the second.
    pub rate_spread: (f64, f64),
    /// The last hop that enough trains have.
    pub last_hop: u8,
}

/// Levels of a monotone step function.
#[derive(Clone, Debug, PartialEq)]
struct Level {
    first: u8,
    last: u8,
    values: Vec<f64>,
    value: f64,
}

impl Level {
    fn joined(mut self, other: Level) -> Level {
        self.values.extend(other.values);
        Level {
            first: self.first,
            last: other.last,
            value: median(&self.values).unwrap_or(self.value),
            values: self.values,
        }
    }
}

/// The step function of points in the order of their hops.
fn levels(points: &BTreeMap<u8, f64>) -> Vec<Level> {
    let mut levels: Vec<Level> = Vec::new();
    for (hop, value) in points {
        let mut level = Level {
            first: *hop,
            last: *hop,
            values: vec![*value],
            value: *value,
        };
        while let Some(before) = levels.pop_if(|before| before.value > level.value) {
            level = before.joined(level);
        }
        levels.push(level);
    }
    loop {
        let rise = |pair: &[Level]| 1.0 - pair[0].value / pair[1].value;
        let least = levels
            .windows(2)
            .map(rise)
            .enumerate()
            .min_by(|a, b| a.1.total_cmp(&b.1));
        let Some((at, _)) = least.filter(|(_, rise)| *rise < LEAST_CHANGE) else {
            return levels;
        };
        let next = levels.remove(at + 1);
        let level = levels.remove(at);
        levels.insert(at, level.joined(next));
    }
}

/// The last step: between which hops, and the level's hops behind it.
fn choke_point(points: &BTreeMap<u8, f64>) -> Option<(Links, Level)> {
    let mut levels = levels(points);
    let last = levels.pop()?;
    let before = levels.pop()?;
    let links = Links::between(before.last, last.first)?;
    Some((links, last))
}

/// The finding of all trains; `None`: no hop behind which the trains were slower than they were sent, or too few
/// trains agree.
#[must_use]
pub fn find(trains: &[TrainGaps]) -> Option<TrainsFinding> {
    let used: Vec<&TrainGaps> = trains
        .iter()
        .filter(|gaps| gaps.len() >= LEAST_GAPS.min(hops(trains)))
        .collect();
    let medians = medians(&used);
    let (links, behind) = choke_point(&medians)?;
    let points = |gaps: &TrainGaps| -> BTreeMap<u8, f64> {
        let exact = gaps.iter().filter(|(hop, _)| medians.contains_key(hop));
        exact.map(|(hop, gap)| (*hop, gap.slowness())).collect()
    };
    let agrees = |gaps: &&&TrainGaps| {
        choke_point(&points(gaps)).is_some_and(|(own, _)| own.common(links).is_some())
    };
    let confidence = used.iter().filter(agrees).count() as f64 / used.len() as f64;
    if confidence < LEAST_SHARE {
        return None;
    }
    let rate = |gaps: &&TrainGaps| {
        let behind = gaps.range(behind.first..=behind.last);
        let slowness: Vec<f64> = behind.map(|(_, gap)| gap.slowness()).collect();
        median(&slowness).map(|nanos| 8e9 / nanos)
    };
    let rates: Vec<f64> = used.iter().filter_map(rate).collect();
    Some(TrainsFinding {
        links,
        confidence,
        trains: used.len(),
        rate_bps: median(&rates)?,
        rate_spread: (quantile(&rates, 0.1)?, quantile(&rates, 0.9)?),
        last_hop: behind.last,
    })
}

/// The median time an octet of each hop that enough trains have, and that is exact enough.
fn medians(trains: &[&TrainGaps]) -> BTreeMap<u8, f64> {
    let mut of_hops: BTreeMap<u8, Vec<f64>> = BTreeMap::new();
    for (hop, gap) in trains.iter().flat_map(|gaps| gaps.iter()) {
        of_hops.entry(*hop).or_default().push(gap.slowness());
    }
    let enough = LEAST_TRAINS_OF_HOP.min(trains.len());
    let of_hop = |(hop, values): (u8, Vec<f64>)| {
        let middle = median(&values).filter(|_| values.len() >= enough)?;
        // This host's sending has no noise of a router's, and the first step is far from it.
        let is_exact = hop == 0 || error_of_median(&values, middle) <= MOST_ERROR * middle;
        Some((hop, middle, is_exact))
    };
    let all: Vec<(u8, f64, bool)> = of_hops.into_iter().filter_map(of_hop).collect();
    let exact = all.iter().filter(|it| it.2).map(|it| it.0);
    let last_exact = exact.max().unwrap_or(0);
    // What scatters from a hop on to the end of the path is the train, in others' traffic, and not a router's answers.
    let taking_part = all.into_iter().filter(|it| it.2 || it.0 > last_exact);
    taking_part.map(|it| (it.0, it.1)).collect()
}

/// The standard error of a median, from the median absolute deviation: 1.4826 of it are a standard deviation of a normal
/// distribution, and a median's error is √(π/2) = 1.2533 times that of a mean.
fn error_of_median(values: &[f64], middle: f64) -> f64 {
    let deviations: Vec<f64> = values.iter().map(|value| (value - middle).abs()).collect();
    let deviation = median(&deviations).unwrap_or(0.0);
    1.4826 * 1.2533 * deviation / (values.len() as f64).sqrt()
}

/// The rate at which trains came to the last hop that has gaps, bits a second: what to load a path with whose choke point
/// is not known.
#[must_use]
pub fn rate_at_the_end(trains: &[TrainGaps]) -> Option<f64> {
    let used: Vec<&TrainGaps> = trains.iter().collect();
    let end = medians(&used);
    end.values().next_back().map(|slowness| 8e9 / slowness)
}

/// Hops that have a gap in any train, this host among them.
fn hops(trains: &[TrainGaps]) -> usize {
    let hops: std::collections::BTreeSet<u8> =
        trains.iter().flat_map(|t| t.keys()).copied().collect();
    hops.len()
}

#[cfg(test)]
#[path = "gaps/tests.rs"]
mod tests;
