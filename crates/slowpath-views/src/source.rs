// SPDX-License-Identifier: Apache-2.0
//! Where live connections come from: the agent of this machine, or a script in tests.

pub use slowpath_model::{Capabilities, Feature, FeatureState, HistoryPoint, ProcessState};

use slowpath_model::{
    IntervalVerdict, ListenerInterval, ListenerSnapshot, ListenerVerdict, LossCounters, Micros,
    MonoNanos, Origin, Owner, Problem, Snapshot, WallMicros,
};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

/// A connection as it is now.
#[derive(Clone, Copy, Debug)]
pub struct LiveConnection<'a> {
    /// Its statistics when last emitted.
    pub snapshot: &'a Snapshot,
    /// Its owner, or why it is unknown.
    pub owner: &'a Owner,
    /// The peer behind address translation, where it is another one.
    pub real_peer: Option<SocketAddr>,
    /// The verdict on its latest interval; `None` before the second poll.
    pub latest: Option<&'a IntervalVerdict>,
    /// Time observed since the first snapshot.
    pub observed: Micros,
    /// Time of each problem since the first snapshot, indexed by its number.
    pub problem_time: &'a [Micros; Problem::ALL.len()],
    /// Its recent past, oldest first.
    pub history: &'a VecDeque<HistoryPoint>,
}

impl LiveConnection<'_> {
    /// Whether this end accepted it; of one that is older than the observation, whether its port is the lower one.
    pub fn is_accepted(&self) -> bool {
        let tuple = self.snapshot.tuple;
        match self.snapshot.origin {
            Origin::Accepted => true,
            Origin::Opened => false,
            Origin::Unknown => tuple.local.port() < tuple.remote.port(),
        }
    }

    /// The share of the time observed that a problem took, 0..=1.
    pub fn life_share(&self, problem: Problem) -> f64 {
        crate::tally::share(self.problem_time[problem as usize], self.observed)
    }
}

/// A connection, kept.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct OwnedConnection {
    pub snapshot: Snapshot,
    pub owner: Owner,
    pub real_peer: Option<SocketAddr>,
    pub latest: Option<IntervalVerdict>,
    pub observed: Micros,
    pub problem_time: [Micros; Problem::ALL.len()],
    pub history: VecDeque<HistoryPoint>,
}

impl OwnedConnection {
    /// As it was.
    pub fn live(&self) -> LiveConnection<'_> {
        LiveConnection {
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

impl From<LiveConnection<'_>> for OwnedConnection {
    fn from(live: LiveConnection<'_>) -> Self {
        OwnedConnection {
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

/// A listening socket as it is now.
#[derive(Clone, Copy, Debug)]
pub struct LiveListener<'a> {
    /// What was last observed of it.
    pub snapshot: &'a ListenerSnapshot,
    /// A process that holds it, or why none is known.
    pub owner: &'a Owner,
    /// Processes that hold it; empty as long as it has had no problem.
    pub holders: &'a [Owner],
    /// The verdict on the latest round, if there was anything to report.
    pub latest: Option<&'a ListenerVerdict>,
}

impl LiveListener<'_> {
    /// The latest verdict as the log keeps it, if there is one, its interval ending at `end`.
    pub fn interval(&self, end: WallMicros) -> Option<ListenerInterval> {
        Some(self.latest?.interval_record(self.snapshot, self.owner, end))
    }
}

/// Closed connections that a source shows at once.
pub const MOST_CLOSED: usize = 65_536;

/// What one poll observed and cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PollReport {
    /// When the poll began.
    pub at: MonoNanos,
    /// Connections that live.
    pub sockets: u64,
    /// Snapshots emitted because something had changed.
    pub emitted: u64,
    /// Connections alive that the poll did not meet.
    pub missed: u64,
    /// Connections that closed and are not among [`Source::recently_closed`]: too many at once.
    pub unshown: u64,
    /// CPU time of this poll in all threads of the process, user and system.
    pub cpu: Micros,
    /// Views should look now: the counts above add up until this is set.
    pub refresh: bool,
}

/// How a CPU budget is met at present. Shares are of one core, 0..=1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BudgetState {
    /// The budget's lower end.
    pub low: f64,
    /// The budget's upper end.
    pub high: f64,
    /// CPU of the agent's process in the past five seconds.
    pub used: f64,
    /// CPU of BPF programs in other processes' contexts; `None` where it cannot be known.
    pub programs: Option<f64>,
    /// Polls a second.
    pub polls: f64,
    /// Times a second that a connection which changes all the time and had no problem in the
    /// past minute is judged.
    pub quiet_rate: f64,
    /// The same of one that had a problem.
    pub problem_rate: f64,
    /// The same of one that had problems for a quarter of the minute.
    pub worst_rate: f64,
    /// Polls left out because they would have passed the upper end.
    pub left_out: u64,
    /// It cannot be met.
    pub exceeded: bool,
}

/// What one BPF program has cost so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramCost {
    /// The probe it belongs to.
    pub probe: &'static str,
    /// Its name.
    pub program: String,
    /// How often it ran.
    pub runs: u64,
    /// For how long in all, in nanoseconds.
    pub nanos: u64,
    /// Whether it runs within a poll, so that its time is in the poll's.
    pub within_polls: bool,
}

/// Limits of this host that advice depends on; what is not known is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostLimits {
    /// Bytes that all TCP sockets may take: the high mark of `net.ipv4.tcp_mem` (tcp(7)).
    pub tcp_memory: Option<u64>,
    /// The largest automatic send buffer in bytes: the last of `net.ipv4.tcp_wmem`.
    pub send_buffer_max: Option<u32>,
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
    fn connections(&self) -> Box<dyn Iterator<Item = LiveConnection<'_>> + '_>;
    /// The connections that closed at the last poll, with their final verdict.
    fn recently_closed(&self) -> Box<dyn Iterator<Item = LiveConnection<'_>> + '_>;
    /// The listening sockets that were looked at, those that closed before the last poll
    /// included.
    fn listeners(&self) -> Box<dyn Iterator<Item = LiveListener<'_>> + '_> {
        Box::new(std::iter::empty())
    }
    /// The name of the network namespace with that inode number, if it has one.
    fn namespace_name(&self, _inode: u32) -> Option<String> {
        None
    }
    /// Limits of the host that the connections are on.
    fn host_limits(&self) -> HostLimits {
        HostLimits::default()
    }
    /// What keeps a process from working; `None` if it is gone or cannot be read.
    fn process_state(&self, _pid: u32) -> Option<ProcessState> {
        None
    }
    /// How long a process has waited for a processor since it began, ready to run or out of its CPU quota; `None` if
    /// it is gone or that cannot be read.
    fn processor_wait(&self, _pid: u32) -> Option<Micros> {
        None
    }
    /// What can be measured here.
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
