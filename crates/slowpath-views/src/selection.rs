// SPDX-License-Identifier: Apache-2.0
//! Which live connections a view shows: a filter, and the processes of one command.

use crate::filter::{Filter, Subject};
use crate::listeners;
use crate::source::LiveConnection;
use slowpath_model::{
    ConnectionSummary, ListenerInterval, Micros, Origin, Problem, ProblemSet, Tier,
};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Processes that may become more while a view shows their connections; clones share them.
#[derive(Clone, Debug, Default)]
pub struct ProcessSet {
    pids: Arc<Mutex<BTreeSet<u32>>>,
}

impl ProcessSet {
    /// These processes.
    pub fn of<I: IntoIterator<Item = u32>>(pids: I) -> Self {
        ProcessSet {
            pids: Arc::new(Mutex::new(pids.into_iter().collect())),
        }
    }

    /// Adds processes.
    pub fn append(&self, mut pids: BTreeSet<u32>) {
        self.lock().append(&mut pids);
    }

    /// Whether the process is one of them.
    pub fn contains(&self, pid: u32) -> bool {
        self.lock().contains(&pid)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<u32>> {
        self.pids.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a view shows.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// The filter.
    pub filter: Filter,
    /// The processes of the command looked at; `None` for every process.
    pub family: Option<ProcessSet>,
}

impl Selection {
    /// Whether the view shows the connection. `problem` in a filter is about the latest
    /// interval.
    pub fn selects(&self, live: LiveConnection<'_>) -> bool {
        self.in_family(live) && self.filtered(live)
    }

    /// Whether the view shows a listener.
    pub fn selects_listener(&self, interval: &ListenerInterval) -> bool {
        let owner = interval.owner.pid();
        let mine = |family: &ProcessSet| owner.is_some_and(|pid| family.contains(pid));
        self.family.as_ref().is_none_or(mine) && listeners::selected(&self.filter, interval)
    }

    fn filtered(&self, live: LiveConnection<'_>) -> bool {
        let problems = live
            .latest
            .iter()
            .flat_map(|v| v.findings.iter().map(|f| f.problem).chain([v.dominating]))
            .collect();
        self.filter.selects(&Subject {
            local: live.snapshot.tuple.local,
            remote: live.snapshot.tuple.remote,
            state: live.snapshot.stats.state,
            owner: live.owner,
            problems,
        })
    }

    /// Whether the connection may be the command's without proof: it began while we observed
    /// (where the tier knows), the filter selects it, and its owner is unknown.
    pub fn undecided(&self, live: LiveConnection<'_>) -> bool {
        let before_us = live.snapshot.origin == Origin::Unknown && live.snapshot.tier == Tier::Bpf;
        self.family.is_some() && live.owner.process().is_none() && !before_us && self.filtered(live)
    }

    fn in_family(&self, live: LiveConnection<'_>) -> bool {
        self.family
            .as_ref()
            .is_none_or(|f| live.owner.pid().is_some_and(|pid| f.contains(pid)))
    }
}

/// Whether a filter selects what the log keeps of a connection; `problem` in it is about its
/// whole life.
pub fn selects_summary(filter: &Filter, summary: &ConnectionSummary) -> bool {
    let problems: ProblemSet = Problem::ALL
        .into_iter()
        .filter(|p| summary.problem_time[*p as usize] > Micros::ZERO)
        .collect();
    filter.selects(&Subject {
        local: summary.tuple.local,
        remote: summary.tuple.remote,
        state: summary.stats.state,
        owner: &summary.owner,
        problems,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scripted::NoNames;
    use crate::scripted::{INTERVAL, finding, live, verdict};
    use slowpath_model::Share;

    #[test]
    fn a_command_shows_its_own_connections_only() {
        let mine = live(7, "curl", "10.0.0.1:4000", "10.0.0.2:80");
        let mut unowned = mine.clone();
        unowned.owner = Default::default();
        let selection = Selection {
            family: Some(ProcessSet::of([7])),
            ..Selection::default()
        };
        assert!(selection.selects(mine.live()));
        assert!(!selection.selects(unowned.live()));
        assert!(selection.undecided(unowned.live()) && !selection.undecided(mine.live()));
        assert!(!selection.selects(live(8, "curl", "10.0.0.1:4001", "10.0.0.2:80").live()));
    }

    #[test]
    fn problems_are_those_of_the_latest_interval() {
        let filter = Filter::parse("problem Timeout", &NoNames).unwrap();
        let selection = Selection {
            filter,
            family: None,
        };
        let mut connection = live(7, "curl", "10.0.0.1:4000", "10.0.0.2:80");
        assert!(!selection.selects(connection.live()));
        connection.latest = Some(verdict(
            7,
            INTERVAL,
            vec![finding(Problem::Timeout, Share::Coarse)],
        ));
        assert!(selection.selects(connection.live()));
    }
}
