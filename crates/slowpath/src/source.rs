// SPDX-License-Identifier: Apache-2.0
//! Where live connections come from: the agent, or a script in tests.

pub use slowpath_agent::{
    BudgetState, Capabilities, Feature, FeatureState, HistoryPoint, LiveListener, PollReport,
    ProgramCost,
};

use slowpath_model::{IntervalVerdict, LossCounters, Micros, Owner, Problem, Snapshot};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

/// A connection as it is now.
#[derive(Clone, Copy, Debug)]
pub struct Live<'a> {
    /// Its statistics when last emitted.
    pub snapshot: &'a Snapshot,
    /// Its owner, or why it is unknown.
    pub owner: &'a Owner,
    /// The peer behind address translation, where it is another one.
    pub real_peer: Option<SocketAddr>,
    /// The verdict on its latest interval; `None` before the second poll.
    pub latest: Option<&'a IntervalVerdict>,
    /// Time observed since it was first seen.
    pub observed: Micros,
    /// Time of each problem since it was first seen, indexed by its number.
    pub problem_time: &'a [Micros; Problem::ALL.len()],
    /// Its recent past, oldest first.
    pub history: &'a VecDeque<HistoryPoint>,
}

impl Live<'_> {
    /// The share of the time observed that a problem took, 0..=1.
    pub fn life_share(&self, problem: Problem) -> f64 {
        crate::tally::share(self.problem_time[problem as usize], self.observed)
    }
}

/// A connection, kept.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct Kept {
    pub snapshot: Snapshot,
    pub owner: Owner,
    pub real_peer: Option<SocketAddr>,
    pub latest: Option<IntervalVerdict>,
    pub observed: Micros,
    pub problem_time: [Micros; Problem::ALL.len()],
    pub history: VecDeque<HistoryPoint>,
}

impl Kept {
    /// As it was.
    pub fn live(&self) -> Live<'_> {
        Live {
            snapshot: &self.snapshot,
            owner: &self.owner,
            real_peer: self.real_peer,
            latest: self.latest.as_ref(),
            observed: self.observed,
            problem_time: &self.problem_time,
            history: &self.history,
        }
    }
}

impl From<Live<'_>> for Kept {
    fn from(live: Live<'_>) -> Self {
        Kept {
            snapshot: live.snapshot.clone(),
            owner: live.owner.clone(),
            real_peer: live.real_peer,
            latest: live.latest.cloned(),
            observed: live.observed,
            problem_time: *live.problem_time,
            history: live.history.clone(),
        }
    }
}

/// A poll that failed; the agent's error in words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SourceError(pub String);

/// A stream of polls over the connections of this machine.
pub trait Source {
    /// Looks now.
    ///
    /// # Errors
    /// [`SourceError`] when the kernel or the log refuses.
    fn poll(&mut self) -> Result<PollReport, SourceError>;
    /// How long until the next poll is due.
    fn until_next_poll(&self) -> Duration;
    /// The connections that live.
    fn connections(&self) -> Box<dyn Iterator<Item = Live<'_>> + '_>;
    /// The connections that closed at the last poll, with their final verdict.
    fn recently_closed(&self) -> Box<dyn Iterator<Item = Live<'_>> + '_>;
    /// The listening sockets that were looked at, those that closed before the last poll
    /// included.
    fn listeners(&self) -> Box<dyn Iterator<Item = &LiveListener> + '_> {
        Box::new(std::iter::empty())
    }
    /// What can be seen here.
    fn capabilities(&self) -> &Capabilities;
    /// What was lost so far.
    fn losses(&self) -> LossCounters;
    /// Has the kernel count what each BPF program costs, while the source lives.
    ///
    /// # Errors
    /// What the kernel says.
    fn measure_programs(&mut self) -> std::io::Result<()>;
    /// How the CPU budget is met, if there is one.
    fn budget(&self) -> Option<BudgetState> {
        None
    }
    /// What each BPF program has cost so far; empty where the kernel does not count.
    fn programs(&self) -> Vec<ProgramCost>;
}
