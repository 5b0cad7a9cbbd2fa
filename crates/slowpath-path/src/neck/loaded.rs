// SPDX-License-Identifier: Apache-2.0
//! The neck from round trips: which hops are further away while the path is loaded.
//!
//! Load above the rate of the narrowest link fills the queue before it. Every hop behind that queue answers later by the time
//! that the queue takes, hops before it do not; answers of routers come back by an empty way.
//!
//! 1. A hop's *added delay* is its round trip under load less its median round trip without.
//! 2. For each link the hops before it are taken to have no added delay, those behind it their median; the link with the
//!    least sum of absolute deviations of the hops' medians from that is the change.
//! 3. The added delay behind it must be at least [`LEAST_ADDED`].
//! 4. The nearest hop behind the link differs from all before it, and the nearest before it from all behind it, by the
//!    rank-sum test (behind the first link: loaded from idle). The larger p-value, times the number of links it could
//!    have been, must be below [`SIGNIFICANT`].
//! 5. The share of bursts that show the same change by themselves is the confidence; less than half is no finding.
//!
//! Where load shows no change, others may fill the queue without it and leave it no room: then the same is done with what
//! all round trips, with and without load, exceed the tenth of them that is the shortest.

use super::links::Links;
use super::statistics::{median, quantile, rank_sum};
use std::collections::{BTreeMap, BTreeSet};

/// Less added delay than this is noise of stamps and schedulers, ns.
pub const LEAST_ADDED: f64 = 1_000_000.0;
/// The p-value of the change, times the number of possible ones, is below this.
pub const SIGNIFICANT: f64 = 0.05;
/// A change is one in at least this share of the bursts.
pub const LEAST_SHARE: f64 = 0.5;
/// Answers under load that a hop needs before it counts, and as many without.
const LEAST_ANSWERS: usize = 3;

/// A hop's round trips, ns.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RoundTrips {
    /// Without our load: the number of the burst that followed, and the round trip.
    pub idle: Vec<(u32, f64)>,
    /// Under load: the burst's number, and the round trip.
    pub loaded: Vec<(u32, f64)>,
}

impl RoundTrips {
    /// The median without load.
    #[must_use]
    pub fn median_idle(&self) -> Option<f64> {
        median(&values(&self.idle))
    }

    /// The median under load.
    #[must_use]
    pub fn median_loaded(&self) -> Option<f64> {
        median(&values(&self.loaded))
    }
}

/// The values of numbered samples.
fn values(samples: &[(u32, f64)]) -> Vec<f64> {
    samples.iter().map(|it| it.1).collect()
}

/// Numbered delays of each hop.
type Delays = BTreeMap<u8, Vec<(u32, f64)>>;

/// What round trips under load say.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadedFinding {
    /// The link.
    pub links: Links,
    /// The share of bursts that agree.
    pub confidence: f64,
    /// Bursts that had answers enough.
    pub bursts: usize,
    /// The added delay behind the link, ns: the median of the hops' medians.
    pub added_nanos: f64,
    /// The p-value of the change, times the number of links it could have been.
    pub p_value: f64,
    /// The last hop that has answers enough.
    pub last_hop: u8,
    /// The queue is there without our load.
    pub of_others: bool,
}

/// A change of added delay.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Change {
    before: u8,
    after: u8,
    added: f64,
}

/// The best change of hops' added delays; hop 0 is this host, which has none.
fn change(added: &BTreeMap<u8, f64>) -> Option<Change> {
    let points: Vec<(u8, f64)> = std::iter::once((0, 0.0))
        .chain(added.iter().map(|(hop, value)| (*hop, *value)))
        .collect();
    let split = |at: usize| {
        let (before, behind) = points.split_at(at);
        let values: Vec<f64> = behind.iter().map(|it| it.1).collect();
        let level = median(&values)?;
        let cost: f64 = before.iter().map(|it| it.1.abs()).sum::<f64>()
            + values
                .iter()
                .map(|value| (value - level).abs())
                .sum::<f64>();
        let change = Change {
            before: before.last()?.0,
            after: behind.first()?.0,
            added: level,
        };
        Some((cost, change))
    };
    let all = (1..points.len()).filter_map(split);
    let best = all.min_by(|a, b| a.0.total_cmp(&b.0))?.1;
    (best.added >= LEAST_ADDED).then_some(best)
}

/// The finding; `None`: no queue was filled that some hops are before and others behind, or too few bursts agree.
#[must_use]
pub fn find(hops: &BTreeMap<u8, RoundTrips>) -> Option<LoadedFinding> {
    let idle = |hop: u8| {
        let trips = hops.get(&hop)?;
        let median = trips.median_idle()?;
        Some(trips.idle.iter().map(|it| it.1 - median).collect())
    };
    let of_load = find_in(&added(hops), &idle);
    of_load.or_else(|| {
        // Behind the first link there is nothing to compare with.
        let of_others = find_in(&variable(hops), &|_| None)?;
        Some(LoadedFinding {
            of_others: true,
            ..of_others
        })
    })
}

/// The finding of delays; `idle` has those of a hop without load.
fn find_in(delays: &Delays, idle: &dyn Fn(u8) -> Option<Vec<f64>>) -> Option<LoadedFinding> {
    let medians = of_each(delays, |samples| median(&values(samples)));
    let change = change(&medians)?;
    let of_hops = |hops: std::ops::RangeInclusive<u8>| -> Vec<f64> {
        let samples = delays.range(hops).flat_map(|it| it.1);
        samples.map(|it| it.1).collect()
    };
    let (before, after) = (change.before, change.after);
    let p_value = match before {
        0 => rank_sum(&idle(after)?, &of_hops(after..=after)),
        _ => {
            let nearest_behind = rank_sum(&of_hops(0..=before), &of_hops(after..=after));
            let nearest_before = rank_sum(&of_hops(before..=before), &of_hops(after..=u8::MAX));
            nearest_behind.max(nearest_before)
        }
    };
    let p_value = (p_value * medians.len() as f64).min(1.0);
    let links = Links::between(change.before, change.after)?;
    let (agreeing, bursts) = votes(delays, links);
    let confidence = agreeing as f64 / bursts.max(1) as f64;
    let last_hop = *medians.keys().next_back()?;
    (p_value < SIGNIFICANT && confidence >= LEAST_SHARE).then_some(LoadedFinding {
        links,
        confidence,
        bursts,
        added_nanos: change.added,
        p_value,
        last_hop,
        of_others: false,
    })
}

/// What round trips under load exceed the median of those without by.
fn added(hops: &BTreeMap<u8, RoundTrips>) -> Delays {
    let of_hop = |(hop, trips): (&u8, &RoundTrips)| {
        let enough = trips.idle.len().min(trips.loaded.len()) >= LEAST_ANSWERS;
        let idle = trips.median_idle().filter(|_| enough)?;
        let added = |(burst, trip): &(u32, f64)| (*burst, trip - idle);
        Some((*hop, trips.loaded.iter().map(added).collect()))
    };
    hops.iter().filter_map(of_hop).collect()
}

/// What all round trips exceed the tenth by that is the shortest.
fn variable(hops: &BTreeMap<u8, RoundTrips>) -> Delays {
    let of_hop = |(hop, trips): (&u8, &RoundTrips)| {
        let all = [trips.idle.as_slice(), trips.loaded.as_slice()].concat();
        let least = quantile(&values(&all), 0.1).filter(|_| all.len() >= LEAST_ANSWERS)?;
        let more = all.iter().map(|(burst, trip)| (*burst, trip - least));
        Some((*hop, more.collect()))
    };
    hops.iter().filter_map(of_hop).collect()
}

/// Bursts whose own change has a link in common, of those that have hops on both sides.
fn votes(added: &Delays, links: Links) -> (usize, usize) {
    let bursts: BTreeSet<u32> = added.values().flatten().map(|it| it.0).collect();
    let (mut agreeing, mut voting) = (0, 0);
    for burst in bursts {
        let of_burst = of_each(added, |samples| {
            let own = samples.iter().filter(|it| it.0 == burst);
            median(&own.map(|it| it.1).collect::<Vec<f64>>())
        });
        // Without a hop behind the link it has no vote.
        if of_burst.range(links.most..).next().is_none() {
            continue;
        }
        voting += 1;
        let own = change(&of_burst).and_then(|own| Links::between(own.before, own.after));
        agreeing += usize::from(own.is_some_and(|own| own.common(links).is_some()));
    }
    (agreeing, voting)
}

fn of_each(added: &Delays, value: impl Fn(&[(u32, f64)]) -> Option<f64>) -> BTreeMap<u8, f64> {
    let of_hop = |(hop, samples): (&u8, &Vec<(u32, f64)>)| Some((*hop, value(samples)?));
    added.iter().filter_map(of_hop).collect()
}

#[cfg(test)]
#[path = "loaded/tests.rs"]
mod tests;
