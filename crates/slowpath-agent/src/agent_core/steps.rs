// SPDX-License-Identifier: Apache-2.0
//! The steps of a poll: one table of when each is due and what it counts as in the budget.

use super::AgentCore;
use crate::budget::program_cost::Sample;
use crate::pace::Work;
use crate::real_peers;
use slowpath_model::Micros;

/// Sockets searched in one piece under a CPU budget: two milliseconds.
const SEARCHED: usize = 2_500;

/// One step of a poll, for the caller to carry out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Hand over the snapshots of connections that changed, or of `all`.
    Observe {
        /// Changed or not: afterwards those that were not met have closed.
        all: bool,
    },
    /// Ask for the real peers of `most` new connections.
    RealPeers {
        /// At most.
        most: usize,
    },
    /// Scan descriptors for who holds which socket.
    Owners,
    /// Scan the listening sockets.
    Listeners {
        /// Those without anything to show, too.
        all: bool,
    },
    /// Log the summaries whose turn it is.
    Summaries,
    /// Search for connections that the polls do not meet.
    Search {
        /// The number of sockets to search next; `None`: all.
        sockets: Option<usize>,
    },
    /// The work of each minute.
    Round,
    /// Measure what BPF programs cost in others' contexts.
    ProgramCost(Sample),
}

/// A row of the table.
struct Rule {
    /// What the step waits for in a CPU budget; `None`: it does not wait.
    work: Option<Work>,
    /// It is done even after an earlier step failed.
    after_failure: bool,
    /// The step, if it is due.
    due: fn(&mut AgentCore) -> Option<Step>,
}

const fn rule(work: Work, due: fn(&mut AgentCore) -> Option<Step>) -> Rule {
    Rule {
        work: Some(work),
        after_failure: false,
        due,
    }
}

/// What a poll does, in this order.
const STEPS: [Rule; 8] = [
    Rule {
        work: None,
        after_failure: false,
        due: |core| {
            let all = core.reconciler.wants_sweep(core.poll.closes_dropped);
            let all = all && core.admits(Work::Sweep);
            Some(Step::Observe { all })
        },
    },
    Rule {
        after_failure: true,
        ..rule(Work::RealPeers, |core| {
            let most = match core.pace {
                Some(_) => real_peers::FEW_ASKED,
                None => real_peers::MAX_ASKED,
            };
            let wanted = core.tracker.real_peers.is_wanted();
            wanted.then_some(Step::RealPeers { most })
        })
    },
    rule(Work::Owners, |core| {
        let wanted = core.tracker.owners_wanted();
        let due = core.owner_scans.is_due(core.now(), wanted);
        due.then_some(Step::Owners)
    }),
    rule(Work::Listeners, |core| {
        let all = core.listeners.due(core.now())?;
        Some(Step::Listeners { all })
    }),
    rule(Work::Summaries, |core| {
        let rotates = core.pace.is_some() && core.logs;
        let due = rotates && core.rotation.is_due(core.now(), core.tracker.capacity());
        due.then_some(Step::Summaries)
    }),
    rule(Work::Search, |core| {
        let due = core.coverage.is_due(core.now()) && !core.reconciler.has_searched();
        let sockets = core.pace.as_ref().map(|_| SEARCHED);
        due.then_some(Step::Search { sockets })
    }),
    rule(Work::Round, |core| {
        let due = core.coverage.is_due(core.now()) && core.reconciler.has_searched();
        due.then_some(Step::Round)
    }),
    Rule {
        work: None,
        after_failure: false,
        due: |core| {
            let sampler = &core.pace.as_ref()?.program_cost;
            sampler.due(core.now()).map(Step::ProgramCost)
        },
    },
];

impl AgentCore {
    /// The next step of the poll under way; `None` when nothing more is to be done.
    pub(crate) fn next_step(&mut self) -> Option<Step> {
        while let Some(rule) = STEPS.get(self.poll.next_step) {
            self.poll.next_step += 1;
            if self.poll.failed && !rule.after_failure {
                continue;
            }
            if let Some(step) = (rule.due)(self)
                && rule.work.is_none_or(|work| self.admits(work))
            {
                return Some(step);
            }
        }
        None
    }

    /// The step was carried out, or failed, and took so much CPU time of this thread.
    pub(crate) fn done(&mut self, step: Step, cost: Micros) {
        let now = self.now();
        match step {
            Step::Owners => self.owner_scans.took(now, cost),
            Step::Listeners { .. } => self.listeners.took(now, cost),
            _ => {}
        }
        let work = match step {
            // Sampling the connections that were due is the poll proper.
            Step::Observe { .. } if !self.poll.observed.walked => return,
            Step::Observe { all } => all.then_some(Work::Sweep),
            Step::RealPeers { .. } => Some(Work::RealPeers),
            Step::Owners => Some(Work::Owners),
            Step::Listeners { .. } => Some(Work::Listeners),
            Step::Summaries => Some(Work::Summaries),
            Step::Search { .. } => Some(Work::Search),
            Step::Round => Some(Work::Round),
            Step::ProgramCost(_) => None,
        };
        self.poll.work += cost;
        if let (Some(pace), Some(work)) = (&mut self.pace, work) {
            pace.did(work, now, cost);
        }
    }
}
