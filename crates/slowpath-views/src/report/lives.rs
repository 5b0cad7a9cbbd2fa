// SPDX-License-Identifier: Apache-2.0
//! What the log knows of each connection within a time range.

use crate::filter::Filter;
use crate::selection::selects_summary;
use crate::tally::trouble;
use slowpath_model::{
    ConnectionId, ConnectionSummary, Coverage, InteractionInterval, ListenerInterval, LossCounters,
    Micros, Problem, ProblemInterval, ProblemSet, WallMicros,
};
use std::cmp::Reverse;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// What was read from a log.
#[derive(Clone, Debug, Default)]
pub struct Records {
    /// Connection summaries; of one connection the latest counts.
    pub summaries: Vec<ConnectionSummary>,
    /// Problem intervals.
    pub problems: Vec<ProblemInterval>,
    /// Intervals in which a listener turned connections away.
    pub listeners: Vec<ListenerInterval>,
    /// Problems that explain each other.
    pub interactions: Vec<InteractionInterval>,
    /// Coverage records.
    pub coverage: Vec<Coverage>,
    /// What could not be read, in words.
    pub unread: Vec<String>,
}

/// A time range; both ends are in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportRange {
    /// Its beginning.
    pub from: WallMicros,
    /// Its end.
    pub to: WallMicros,
}

impl ReportRange {
    /// Whether the moment lies in it.
    pub fn contains(self, at: WallMicros) -> bool {
        self.from <= at && at <= self.to
    }

    /// Its length.
    pub fn length(self) -> Micros {
        Micros(self.to.0.saturating_sub(self.from.0).max(0) as u64)
    }
}

/// The connections of the range, each once: those that the filter selects, most trouble first, and the
/// others. A summary covers a whole life; of a life that began before the range, the time observed
/// and the problem intervals within the range are put into it instead.
pub fn lives(
    records: Records,
    range: ReportRange,
    filter: &Filter,
) -> (Vec<ConnectionSummary>, Vec<ConnectionSummary>) {
    let mut latest: HashMap<ConnectionId, ConnectionSummary> = HashMap::new();
    for summary in records.summaries {
        match latest.entry(summary.connection) {
            Entry::Vacant(entry) => {
                entry.insert(summary);
            }
            Entry::Occupied(mut entry) => {
                let kept = entry.get();
                if (summary.closed, summary.last_observed) > (kept.closed, kept.last_observed) {
                    entry.insert(summary);
                }
            }
        }
    }
    let mut inside: HashMap<ConnectionId, Vec<ProblemInterval>> = HashMap::new();
    for problem in records.problems {
        if range.contains(problem.end) {
            inside.entry(problem.connection).or_default().push(problem);
        }
    }
    let lives = latest
        .into_values()
        .filter(|s| s.last_observed >= range.from && s.first_observed <= range.to)
        .map(|mut s| {
            if !range.contains(s.first_observed) || !range.contains(s.last_observed) {
                let inside = inside.remove(&s.connection).unwrap_or_default();
                cut(&mut s, range, &inside);
            }
            s
        });
    let (mut selected, mut others): (Vec<_>, Vec<_>) =
        lives.partition(|s| selects_summary(filter, s));
    for lives in [&mut selected, &mut others] {
        lives.sort_by_key(|s| (Reverse(trouble(&s.problem_time)), s.connection));
    }
    (selected, others)
}

/// Makes the summary one of the part of its life within the range.
fn cut(s: &mut ConnectionSummary, range: ReportRange, inside: &[ProblemInterval]) {
    let overlap = ReportRange {
        from: range.from.max(s.first_observed),
        to: range.to.min(s.last_observed),
    };
    let part = crate::tally::share(overlap.length(), s.observed);
    s.observed = overlap.length().min(s.observed);
    s.problem_time = Default::default();
    s.problem_events = Default::default();
    for interval in inside {
        let begun = interval.end - interval.duration;
        let before = ReportRange {
            from: begun,
            to: range.from.max(begun),
        };
        // Of an interval that began before the range, the part within it.
        let within = 1.0 - crate::tally::share(before.length(), interval.duration);
        for finding in &interval.findings {
            let i = finding.problem as usize;
            let time = finding.share.time_of(interval.duration).0 as f64 * within;
            s.problem_time[i] += Micros(time as u64);
            s.problem_events[i] += finding.events.unwrap_or(0);
        }
    }
    for time in &mut s.problem_time {
        *time = (*time).min(s.observed);
    }
    let left = s.observed.saturating_sub(trouble(&s.problem_time));
    s.problem_time[Problem::SenderAppLimited as usize] = left;
    // When it was idle is not in the log: as much of this time as of its life, and not while it had a problem.
    let idle = |idle: Micros| Micros((idle.0 as f64 * part) as u64).min(left);
    s.life.idle = s.life.idle.map(idle);
    let busy = |busy: Micros| Micros((busy.0 as f64 * part) as u64);
    s.stats.busy = s.stats.busy.map(busy);
}

/// Sums of the range's coverage records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Covered {
    /// Time in which the agent looked.
    pub time: Micros,
    /// Polls made.
    pub polls: u64,
    /// Most sockets that one poll met.
    pub sockets: u64,
    /// Sockets alive that polls did not meet, summed.
    pub missed: u64,
    /// Most connections without a known owner.
    pub owners_unknown: u64,
    /// Losses within the range.
    pub losses: LossCounters,
    /// Problems that could not be measured in some stretch.
    pub unmeasured: ProblemSet,
}

/// Sums coverage records. Losses count from the agent's start in each record: what
/// grew from one to the next was lost in between; a count that fell began anew.
pub fn covered(coverage: &[Coverage], range: ReportRange) -> Covered {
    let mut all: Vec<_> = coverage.iter().collect();
    all.sort_by_key(|c| c.end);
    let mut sum = Covered::default();
    let mut before = LossCounters::default();
    for c in all {
        if range.contains(c.end) {
            sum.time += c.duration;
            sum.polls += c.polls;
            sum.sockets = sum.sockets.max(c.sockets);
            sum.missed += c.missed;
            sum.owners_unknown = sum.owners_unknown.max(c.owners_unknown);
            let l = &mut sum.losses;
            let grown = |now: u64, then: u64| now.checked_sub(then).unwrap_or(now);
            l.storage_failed += grown(c.losses.storage_failed, before.storage_failed);
            l.snapshots_dropped += grown(c.losses.snapshots_dropped, before.snapshots_dropped);
            l.closes_dropped += grown(c.losses.closes_dropped, before.closes_dropped);
            l.calls_dropped += grown(c.losses.calls_dropped, before.calls_dropped);
            l.records_dropped += grown(c.losses.records_dropped, before.records_dropped);
            for problem in c.unmeasured.iter() {
                sum.unmeasured.insert(problem);
            }
        }
        before = c.losses;
    }
    sum.time = sum.time.min(range.length());
    sum
}
