// SPDX-License-Identifier: Apache-2.0
//! Sums by application, in a table of bounded size: which applications have labels of their own.
//!
//! An application here is a [`LabelSet`]: the name, and the labels that were asked for.
//!
//! 1. It gets labels of its own with its first problem while less than half of the places are
//!    taken; with [`HEAVY`] of problem time while any is free.
//! 2. When none is free, one that has more than twice the problem time of the lightest that has a
//!    place, and [`HEAVY`], takes that place: a tenth of the places in a minute at most
//!    ([`Applications::end_round`]). Of two alike none ever displaces the other.
//! 3. Problem time halves every hour, so that places go to those that have problems now.
//! 4. What belongs to no place is added to `other`. Those without a place are counted by
//!    [`HeavyHitters`].
//!
//! **What a displaced application had goes with it**: its series end. In `other` it would be a jump
//! that no connection had, and a rate is made of jumps. When it comes back its series begin at
//! zero, which Prometheus takes for the restart of a counter. That takes a sample in between that
//! lacks the series or is lower than the last one: so a displaced application stays out for
//! [`ABSENCE`] rounds.

use super::heavy_hitters::HeavyHitters;
use super::histogram::Histogram;
use super::labels::{LabelSet, Labelled, OwnerLabels};
use rustc_hash::FxHashMap;
use slowpath_diagnose::Totals;
use slowpath_model::{Micros, Problem};
use std::sync::Arc;

/// Applications without labels whose time is counted.
const CANDIDATES: usize = 1_024;

/// Problem time with which an application gets one of the last places, or another's.
const HEAVY: Micros = Micros(60_000_000);

/// How many times the time of the lightest application another must have to displace it.
const TIMES_LIGHTEST: u64 = 2;

/// One in this many places may change hands in a round.
const CHANGED_PART: usize = 10;

/// Rounds (of a minute) for which a displaced application stays out: Prometheus forgets a series
/// that it met no more within five minutes (`--query.lookback-delta`).
const ABSENCE: u64 = 5;

/// Rounds after which problem time counts half.
const HALF_LIFE: u64 = 60;

/// The name of what has no name of its own.
pub const OTHER: &str = "other";

/// The name of what belongs to no known process.
const UNKNOWN: &str = "unknown";

/// What stands before the command of a process that is one of these names.
const PROCESS: &str = "process:";

/// Upper bounds of the buckets of [`ApplicationTotals::rtt`]: from a rack to a satellite, each four
/// or five times the one before. They are few because every application has them.
pub const APPLICATION_RTT_BOUNDS: [Micros; 6] =
    Micros::each([500, 2_000, 10_000, 50_000, 200_000, 1_000_000]);

/// Upper bounds of the buckets of [`ApplicationTotals::answers`]: from a cache to a batch job.
pub const ANSWER_BOUNDS: [Micros; 7] = Micros::each([
    1_000, 5_000, 25_000, 100_000, 500_000, 2_500_000, 10_000_000,
]);

/// Time and events of problems, indexed by the problem's number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProblemTotals {
    /// Time, from the findings; a coarse finding counts its interval whole.
    pub time: [Micros; Problem::ALL.len()],
    /// Events.
    pub events: [u64; Problem::ALL.len()],
}

impl ProblemTotals {
    pub(super) fn add(&mut self, problem: Problem, time: Micros, events: u64) {
        let i = problem as usize;
        self.time[i] += time;
        self.events[i] = self.events[i].saturating_add(events);
    }

    /// What a connection had, the time that no problem took left out.
    pub(super) fn of(totals: &Totals) -> Self {
        let mut charges = ProblemTotals {
            time: totals.problem_time,
            events: totals.problem_events,
        };
        charges.time[Problem::SenderAppLimited as usize] = Micros::ZERO;
        charges
    }

    fn merge(&mut self, others: &ProblemTotals) {
        for problem in Problem::ALL {
            let i = problem as usize;
            self.add(problem, others.time[i], others.events[i]);
        }
    }

    pub(super) fn is_zero(&self) -> bool {
        self.time.iter().all(|t| *t == Micros::ZERO) && self.events.iter().all(|e| *e == 0)
    }

    fn weight(&self) -> u64 {
        self.time.iter().map(|time| time.0).sum()
    }
}

/// Which end of a connection answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answers {
    /// The application, to peers that connected to it.
    Given,
    /// Peers, to the application that connected to them.
    Awaited,
}

/// What the connections of one application did while it had labels of its own.
#[derive(Clone, Debug)]
pub struct ApplicationTotals {
    /// Its problems.
    pub problems: ProblemTotals,
    /// Segments with payload sent, those sent again included.
    pub segments_sent: u64,
    /// Segments sent again.
    pub segments_retransmitted: u64,
    /// The smoothed RTT of each connection at each poll that found it changed.
    pub rtt: Histogram,
    answers: [Histogram; 2],
}

impl Default for ApplicationTotals {
    fn default() -> Self {
        ApplicationTotals {
            problems: ProblemTotals::default(),
            segments_sent: 0,
            segments_retransmitted: 0,
            rtt: Histogram::new(&APPLICATION_RTT_BOUNDS),
            answers: [(); 2].map(|()| Histogram::new(&ANSWER_BOUNDS)),
        }
    }
}

impl ApplicationTotals {
    /// How long answers took.
    pub fn answers(&self, which: Answers) -> &Histogram {
        &self.answers[which as usize]
    }

    pub(super) fn answers_mut(&mut self, which: Answers) -> &mut Histogram {
        &mut self.answers[which as usize]
    }
}

/// What is remembered with a connection of where its sums go.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Charge {
    /// Its problems have been charged to its owner; later ones are when they happen.
    pub(super) done: bool,
    /// The place, if `epoch` is the table's.
    place: Option<u16>,
    epoch: u32,
}

/// One that has labels of its own.
#[derive(Clone, Debug)]
struct Named {
    set: LabelSet,
    /// Problem time, halved every hour.
    weight: u64,
    totals: Box<ApplicationTotals>,
}

/// Sums by application, in a table of bounded size.
#[derive(Clone, Debug)]
pub struct Applications {
    labels: OwnerLabels,
    limit: usize,
    named: Vec<Named>,
    /// Where each is in `named`.
    places: FxHashMap<LabelSet, u16>,
    candidates: HeavyHitters<LabelSet>,
    /// Those that were displaced lately, and in which round.
    displaced: FxHashMap<LabelSet, u64>,
    other: Box<ApplicationTotals>,
    retired: ProblemTotals,
    retirements: u64,
    folded: u64,
    round: u64,
    /// What connections remember of places holds within one epoch.
    epoch: u32,
    unknown: Arc<str>,
}

impl Applications {
    pub(super) fn new(limit: usize, labels: OwnerLabels) -> Self {
        Applications {
            labels,
            limit: limit.min(usize::from(u16::MAX)),
            named: Vec::new(),
            places: FxHashMap::default(),
            candidates: HeavyHitters::new(CANDIDATES),
            displaced: FxHashMap::default(),
            other: Box::default(),
            retired: ProblemTotals::default(),
            retirements: 0,
            folded: 0,
            round: 0,
            epoch: 1,
            unknown: Arc::from(UNKNOWN),
        }
    }

    /// A copy to read: without what only decides who gets a place.
    pub(super) fn snapshot(&self) -> Self {
        Applications {
            named: self.named.clone(),
            other: self.other.clone(),
            retired: self.retired,
            retirements: self.retirements,
            folded: self.folded,
            ..Applications::new(self.limit, self.labels)
        }
    }

    /// More places, or no more than are taken.
    pub(super) fn set_limit(&mut self, limit: usize) {
        self.limit = limit.min(usize::from(u16::MAX));
    }

    /// Places.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Those that have labels of their own, in no order.
    pub fn named(&self) -> impl ExactSizeIterator<Item = (&LabelSet, &ApplicationTotals)> {
        self.named.iter().map(|named| (&named.set, &*named.totals))
    }

    /// What belongs to no place.
    pub fn other(&self) -> &ApplicationTotals {
        &self.other
    }

    /// The problems of those that lost their places, until they did: with these, the sums over all
    /// applications are those of the host.
    pub fn retired(&self) -> &ProblemTotals {
        &self.retired
    }

    /// How often one lost its place.
    pub fn retirements(&self) -> u64 {
        self.retirements
    }

    /// How often a problem went to `other`.
    pub fn folded(&self) -> u64 {
        self.folded
    }

    fn set_of(&self, whose: &Labelled<'_>) -> LabelSet {
        let name = whose.owner.name().unwrap_or(&self.unknown).clone();
        let is_reserved = matches!(&*name, OTHER | UNKNOWN);
        let of_process = whose.owner.application.is_none() && whose.owner.process().is_some();
        if is_reserved && of_process {
            let name = Arc::from(format!("{PROCESS}{name}"));
            return LabelSet::of(name, whose, self.labels);
        }
        if &*name == OTHER {
            // Rules may put whom they like among the others.
            return LabelSet::named(name);
        }
        LabelSet::of(name, whose, self.labels)
    }

    pub(super) fn charge(&mut self, whose: &Labelled<'_>, charges: &ProblemTotals) {
        let set = self.set_of(whose);
        let weight = charges.weight();
        let known = self.places.get(&set);
        if let Some(named) = known.and_then(|place| self.named.get_mut(usize::from(*place))) {
            named.weight = named.weight.saturating_add(weight);
            named.totals.problems.merge(charges);
        } else if &*set.application == OTHER {
            self.other.problems.merge(charges);
        } else if let Some(weight) = self.admits(&set, weight) {
            self.candidates.remove(&set);
            self.name(set, weight);
            if let Some(named) = self.named.last_mut() {
                named.totals.problems.merge(charges);
            }
        } else {
            self.folded += 1;
            self.other.problems.merge(charges);
        }
    }

    /// The weight of an application without a place, if it gets a free one now.
    fn admits(&mut self, set: &LabelSet, weight: u64) -> Option<u64> {
        let free = self.named.len() < self.limit && !self.displaced.contains_key(set);
        if free && self.named.len() < self.limit / 2 {
            return Some(weight);
        }
        let weight = self.candidates.add(set, weight);
        (free && weight >= HEAVY.0).then_some(weight)
    }

    /// What connections remember of places holds no more. 0 is the epoch of none.
    fn begin_epoch(&mut self) {
        self.epoch = self.epoch.wrapping_add(1).max(1);
    }

    /// Gives a place, with nothing in it so far.
    fn name(&mut self, set: LabelSet, weight: u64) {
        // Connections that went to `other` may be this application's.
        self.begin_epoch();
        self.places.insert(set.clone(), self.named.len() as u16);
        self.named.push(Named {
            set,
            weight,
            totals: Box::default(),
        });
    }

    /// Where the sums of a connection go that are no problems.
    pub(super) fn totals_of(
        &mut self,
        whose: &Labelled<'_>,
        charge: &mut Charge,
    ) -> &mut ApplicationTotals {
        if charge.epoch != self.epoch {
            charge.place = self.places.get(&self.set_of(whose)).copied();
            // An owner that is unknown now may be found before the epoch ends.
            let known = whose.owner.name().is_some();
            charge.epoch = if known { self.epoch } else { 0 };
        }
        let place = charge.place.map(usize::from);
        match place.and_then(|place| self.named.get_mut(place)) {
            Some(named) => &mut named.totals,
            None => &mut self.other,
        }
    }

    /// The work of each minute: the heaviest get the places of the lightest.
    pub(super) fn end_round(&mut self) {
        self.round += 1;
        let since = self.round.saturating_sub(ABSENCE);
        self.displaced.retain(|_, round| *round > since);
        if self.round.is_multiple_of(HALF_LIFE) {
            self.candidates.halve();
            for named in &mut self.named {
                named.weight /= 2;
            }
        }
        if self.named.len() >= self.limit {
            for _ in 0..self.limit.div_ceil(CHANGED_PART) {
                if !self.displace() {
                    break;
                }
            }
        }
        // Owners may have changed, too.
        self.begin_epoch();
    }

    /// Whether the heaviest application without a place took that of the lightest.
    fn displace(&mut self) -> bool {
        let lightest = self.named.iter().enumerate();
        let Some((place, lightest)) = lightest.min_by_key(|(_, n)| (n.weight, &n.set)) else {
            return false;
        };
        let fits = |set: &LabelSet| !self.displaced.contains_key(set);
        let Some((heaviest, weight)) = self.candidates.heaviest(fits) else {
            return false;
        };
        let least = lightest.weight.saturating_mul(TIMES_LIGHTEST);
        if weight < HEAVY.0 || weight <= least {
            return false;
        }
        let heaviest = heaviest.clone();
        self.candidates.remove(&heaviest);
        let old = self.named.swap_remove(place);
        self.places.remove(&old.set);
        if let Some(moved) = self.named.get(place) {
            self.places.insert(moved.set.clone(), place as u16);
        }
        self.retired.merge(&old.totals.problems);
        self.retirements += 1;
        self.candidates.add(&old.set, old.weight);
        self.displaced.insert(old.set, self.round);
        self.name(heaviest, weight);
        true
    }
}
