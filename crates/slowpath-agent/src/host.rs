// SPDX-License-Identifier: Apache-2.0
//! What the core asks of the machine while it handles an input, and where its records go.
//!
//! A connection that opens and closes within one poll is logged before that poll ends, with
//! its process and its real peer: these questions cannot wait for a later input, so they
//! are calls, and everything else is an input or a step (`agent_core`).

use rustc_hash::FxHashMap;
use slowpath_model::{
    ConnectionSummary, Coverage, FourTuple, InteractionInterval, ListenerInterval, PathHop,
    ProblemInterval, ProcessStart, TrafficInterval,
};
use slowpath_observe::conntrack::Answer;

/// A record for the log.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Record<'a> {
    /// An interval in which a connection had a problem.
    Problem(&'a ProblemInterval),
    /// Likewise, the connection's first in this segment of the log, behind its summary: not even
    /// a kill may separate the addresses from the interval.
    FirstProblem(&'a ConnectionSummary, &'a ProblemInterval),
    /// A connection, when it closed or as it is now.
    Summary(&'a ConnectionSummary),
    /// Likewise, with what it carried since the last such record.
    Traffic(&'a ConnectionSummary, &'a TrafficInterval),
    /// The routers on the path of a connection, behind its summary if it still lives.
    Hops(Option<&'a ConnectionSummary>, &'a [PathHop]),
    /// What was observed and lost over one round.
    Coverage(&'a Coverage),
    /// An interval in which a listener had a problem.
    Listener(&'a ListenerInterval),
    /// Problems that explain each other, over a stretch of time.
    Interaction(&'a InteractionInterval),
}

/// What `/proc` says of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProcessFacts {
    /// Its command name (`comm`).
    pub(crate) command: String,
    pub(crate) start: ProcessStart,
    /// The path of its program; `None` if that may not be read.
    pub(crate) executable: Option<String>,
    /// Its arguments, separated by spaces; `None` if there are none.
    pub(crate) command_line: Option<String>,
    /// The path of its cgroup.
    pub(crate) cgroup: Option<String>,
}

/// The machine that the core runs on: the real one, or a test's script.
pub(crate) trait Host {
    /// Whether a log is kept; without one the core makes no records.
    fn logs(&self) -> bool;

    /// The segment of the log that the next record belongs to, counted from 1; 0 without a
    /// log. The addresses of a segment's connections are read from that segment.
    fn log_segment(&self) -> u32;

    /// Takes a record for the log; `false` if there is no space for it, or no log.
    fn record(&mut self, record: Record<'_>) -> bool;

    /// What `/proc` says of the process that has this pid now; `None` if there is none, or
    /// it ends meanwhile.
    fn process(&mut self, pid: u32) -> Option<ProcessFacts>;

    /// The path of every cgroup of the unified hierarchy by its number
    /// (`kernfs_node.id`); empty where that hierarchy is not mounted.
    fn cgroup_paths(&mut self) -> FxHashMap<u64, String>;

    /// The peer of a connection behind address translation.
    fn real_peer(&mut self, netns: u32, tuple: &FourTuple) -> Answer;
}
