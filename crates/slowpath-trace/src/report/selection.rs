// SPDX-License-Identifier: Apache-2.0
//! Which connections of a capture are kept while it is analysed.
//!
//! An analysed connection takes some kilobytes, and ten in JSON. So of connections that were never
//! answered, of which a scan or a flood of SYNs has any number, a list of all connections holds
//! only the worst; the others are counted, and they are among the groups of failures.

use super::overview::Digest;
use super::{ConnectionSelector, RankedConnection};
use crate::engine::Finished;
use crate::tcp::{Ending, Side};
use crate::verdict::{Judged, TraceProblem};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Unanswered connections that a list of all connections holds: 5 MB of JSON.
pub const UNANSWERED: usize = 512;

/// Which connections an analysis keeps.
#[derive(Clone, Debug)]
pub struct Keep {
    others: usize,
    unanswered: usize,
    selected: Vec<ConnectionSelector>,
}

impl Keep {
    /// The worst `count`.
    #[must_use]
    pub fn worst(count: usize) -> Self {
        Keep {
            others: count,
            unanswered: count,
            selected: Vec::new(),
        }
    }

    /// All but unanswered ones beyond the [worst](UNANSWERED).
    #[must_use]
    pub fn all() -> Self {
        Keep {
            others: usize::MAX,
            unanswered: UNANSWERED,
            selected: Vec::new(),
        }
    }

    /// Also those that it selects by their ends; numbers are not known before the end of the capture.
    #[must_use]
    pub fn and(mut self, which: ConnectionSelector) -> Self {
        self.selected.push(which);
        self
    }
}

/// What connections are ranked by, the worst first: what their worst problem cost, then their
/// data, then their first frame.
pub(super) type Rank = (Reverse<Option<Duration>>, Reverse<u64>, u64);

pub(super) fn rank(judged: &Judged, digest: &Digest, first_frame: u64) -> Rank {
    let both = [Side::Client, Side::Server];
    let bytes = both.iter().map(|s| judged.report.sent_by(*s).data.bytes);
    (
        Reverse(digest.cost()),
        Reverse(bytes.sum::<u64>()),
        first_frame,
    )
}

/// Which bound a connection counts for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// Selected by its ends.
    Selected,
    /// Its `ending` is `unanswered`, and nothing else was found.
    Unanswered,
    /// Any other.
    Other,
}

/// The ranks of the worst connections so far. Workers ask it, so that what is not among
/// the worst is dropped where it was made.
struct Worst {
    keep: usize,
    ranks: Mutex<BinaryHeap<Rank>>,
}

impl Worst {
    fn new(keep: usize) -> Self {
        Worst {
            keep,
            ranks: Mutex::default(),
        }
    }

    /// Whether a connection is among the worst so far; a later one may displace it.
    fn takes(&self, rank: Rank) -> bool {
        if self.keep == usize::MAX {
            return true;
        }
        let mut ranks = self.ranks.lock().unwrap_or_else(PoisonError::into_inner);
        if ranks.len() < self.keep {
            ranks.push(rank);
            return true;
        }
        match ranks.peek_mut() {
            Some(mut best) if rank < *best => {
                *best = rank;
                true
            }
            _ => false,
        }
    }
}

/// What workers ask.
pub(super) struct Choice<'a> {
    selected: &'a [ConnectionSelector],
    unanswered: Worst,
    others: Worst,
}

impl<'a> Choice<'a> {
    pub(super) fn new(keep: &'a Keep) -> Self {
        Choice {
            selected: &keep.selected,
            unanswered: Worst::new(keep.unanswered),
            others: Worst::new(keep.others),
        }
    }

    /// Where a connection counts, and whether it is to be kept so far.
    pub(super) fn takes(&self, judged: &Judged, rank: Rank) -> (Class, bool) {
        let report = &judged.report;
        // Not yet numbered: numbers begin with 1.
        let selects = |s: &ConnectionSelector| s.selects(0, report.client, report.server);
        if self.selected.iter().any(selects) {
            return (Class::Selected, true);
        }
        let mut findings = judged.verdicts.findings.iter();
        if report.ending == Ending::Unanswered
            && findings.all(|f| f.problem == TraceProblem::Unanswered)
        {
            (Class::Unanswered, self.unanswered.takes(rank))
        } else {
            (Class::Other, self.others.takes(rank))
        }
    }
}

/// Connections with their ranks.
#[derive(Default)]
struct List(Vec<(Rank, Finished<Box<Judged>>)>);

impl List {
    /// Keeps the worst.
    fn cut(&mut self, keep: usize) {
        self.0.sort_unstable_by_key(|(rank, _)| *rank);
        self.0.truncate(keep);
    }

    fn add(&mut self, rank: Rank, finished: Finished<Box<Judged>>, keep: usize) {
        self.0.push((rank, finished));
        if self.0.len() > keep.saturating_mul(2).saturating_add(256) {
            self.cut(keep);
        }
    }
}

/// What is kept.
pub(super) struct Selection<'a> {
    keep: &'a Keep,
    selected: List,
    unanswered: List,
    others: List,
    /// Unanswered connections, kept or not.
    count: u64,
}

impl<'a> Selection<'a> {
    pub(super) fn new(keep: &'a Keep) -> Self {
        Selection {
            keep,
            selected: List::default(),
            unanswered: List::default(),
            others: List::default(),
            count: 0,
        }
    }

    /// Adds a connection, if its worker kept it.
    pub(super) fn add(&mut self, class: Class, rank: Rank, kept: Option<Finished<Box<Judged>>>) {
        self.count += u64::from(class == Class::Unanswered);
        let Some(finished) = kept else { return };
        match class {
            Class::Selected => self.selected.add(rank, finished, usize::MAX),
            Class::Unanswered => (self.unanswered).add(rank, finished, self.keep.unanswered),
            Class::Other => self.others.add(rank, finished, self.keep.others),
        }
    }

    /// The connections, worst first, and how many unanswered ones are not among them though all
    /// were to be kept.
    pub(super) fn ranked(mut self, number: impl Fn(u64) -> u64) -> (Vec<RankedConnection>, u64) {
        self.unanswered.cut(self.keep.unanswered);
        let unlisted = match self.keep.others {
            usize::MAX => self.count - self.unanswered.0.len() as u64,
            _ => 0,
        };
        let mut all = self.others;
        all.0.extend(self.unanswered.0);
        all.0.extend(self.selected.0);
        all.cut(self.keep.others);
        let ranked = all.0.into_iter().map(|(_, finished)| RankedConnection {
            number: number(finished.first_frame),
            finished,
        });
        (ranked.collect(), unlisted)
    }
}
