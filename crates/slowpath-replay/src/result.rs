// SPDX-License-Identifier: Apache-2.0
//! What a replay left of each connection: whether it was exact, and if not where it differed; states, what runs decided.

use slowpath_recording::fields::{Field, SocketFields};
use slowpath_recording::{Moment, Outcome};
use std::path::PathBuf;
use std::time::Duration;

/// What a replay left.
#[derive(Debug, Default)]
pub struct Replayed {
    /// For each connection that was asked for, in that order.
    pub results: Vec<Result>,
    /// Captures of the hosts of the end that connected, and of the other. The connection at place *n* has the port 10,000 + *n* there.
    pub captures: Option<[PathBuf; 2]>,
    /// State after runs; of a replay that diverged also of both ends where it did.
    pub probes: Vec<Probe>,
    /// Of each connection that was asked for, by end: what its runs left, if that was wanted.
    pub reported: Vec<[Vec<RunReport>; 2]>,
    /// The functions of TCP that the chosen runs called: before each run a line that names it, then a line a call, indented by depth.
    pub functions: String,
    /// What the kernel's process took, start included.
    pub wall: Duration,
}

/// One connection's replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Result {
    /// `None`: every run left what it had left then.
    pub difference: Option<Difference>,
    /// Runs that were made, by end.
    pub runs: [u64; 2],
    /// Packets that were sent, by end.
    pub packets: [u64; 2],
}

/// Where a replay went astray.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// 0: the end that connected.
    pub end: u8,
    /// Which of its runs, from 0.
    pub run: u64,
    /// How.
    pub how: DifferenceKind,
    /// What the recording says.
    pub expected: u32,
    /// What the replay found.
    pub found: u32,
}

/// How a replay can differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DifferenceKind {
    /// The state that the run left.
    State,
    /// What a call returned, or the memory that a packet takes.
    Result,
    /// A timer fired that was not armed.
    Timer,
    /// A packet came in that the other end has not sent.
    Packet,
    /// A decision that was recorded was not asked for.
    Decision,
    /// All runs are as they were as far as checks show; some are missing, or one behind the last check that a file keeps left another state.
    Digest,
    /// A call cannot be made in this state.
    Call,
    /// It did not come to it.
    NotReplayed,
    /// Before the run that field of the socket was something else than the light recorder observed.
    Observed(Field),
}

impl std::fmt::Display for DifferenceKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            DifferenceKind::State => "another state",
            DifferenceKind::Result => "another result",
            DifferenceKind::Timer => "a timer that was not armed",
            DifferenceKind::Packet => "a packet that was not sent",
            DifferenceKind::Decision => "a decision that was not asked for",
            DifferenceKind::Digest => "a recording with runs missing, or another state behind the last check that it keeps",
            DifferenceKind::Call => "a call that could not be made",
            DifferenceKind::NotReplayed => "not replayed",
            DifferenceKind::Observed(field) => return write!(f, "another {} before it", field.name()),
        })
    }
}

/// What a run decided and left: `struct lab_done`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunReport {
    /// [`slowpath_recording::Run::check`].
    pub check: u32,
    /// Mixed from the headers of the packets it sent, without their timestamps, and from the state it left, without what only clocks decide (round trips, timeout).
    /// Two runs with the same are the same for the network.
    pub effect: u32,
    /// What it decided, all comparisons of clocks among it; and whether something else would have come out had it not been given.
    pub decided: Vec<(Outcome, bool)>,
}

/// The state of an end after a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Place in what was asked for.
    pub connection: u32,
    /// 0: the end that connected.
    pub end: u8,
    /// Which of its runs.
    pub run: u64,
    /// When.
    pub at: Moment,
    /// The fields that checks cover.
    pub fields: Box<SocketFields>,
    /// In the order of [`MORE`](slowpath_recording::fields::MORE); empty if they were not wanted.
    pub more: Box<[i64]>,
}
