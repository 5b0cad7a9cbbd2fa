// SPDX-License-Identifier: Apache-2.0
//! What a packet trace can find wrong with a connection, and what was found.

use crate::tcp::{Moment, Side};
use slowpath_model::Problem;
use std::cmp::Reverse;
use std::time::Duration;

/// What a packet trace can find wrong. Of two findings with the same time the one declared
/// first goes first: a cause before what it leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum TraceProblem {
    /// No answer of any kind came to a SYN.
    Unanswered,
    /// A SYN was answered by a RST.
    Refused,
    /// A RST cut the connection while something was under way, or answered a segment of a
    /// connection that its sender did not know.
    Reset,
    /// A SYN or its answer had to be sent again.
    SynRetransmit,
    /// The handshake took 3 s or more although nothing was sent again.
    SlowHandshake,
    /// The receiver's window was closed; part of `ReceiverWindowLimited`.
    ZeroWindow,
    /// The receiver's window was full.
    ReceiverWindowLimited,
    /// Segments were lost and a retransmission timer expired.
    Timeout,
    /// Segments were lost and a probe found it.
    TailLossProbe,
    /// Segments were lost and repaired by fast retransmission.
    FastRetransmit,
    /// The receiver waited before it acknowledged, and something waited for that.
    DelayedAck,
    /// The send buffer was full while the network could carry more.
    SendBufferLimited,
    /// The application kept the other side waiting.
    SenderAppLimited,
    /// Nagle's rule held small segments.
    SmallWrites,
    /// Segments overtook each other.
    Reordering,
}

impl TraceProblem {
    /// All, in the order of their declaration.
    pub const ALL: [TraceProblem; 15] = [
        TraceProblem::Unanswered,
        TraceProblem::Refused,
        TraceProblem::Reset,
        TraceProblem::SynRetransmit,
        TraceProblem::SlowHandshake,
        TraceProblem::ZeroWindow,
        TraceProblem::ReceiverWindowLimited,
        TraceProblem::Timeout,
        TraceProblem::TailLossProbe,
        TraceProblem::FastRetransmit,
        TraceProblem::DelayedAck,
        TraceProblem::SendBufferLimited,
        TraceProblem::SenderAppLimited,
        TraceProblem::SmallWrites,
        TraceProblem::Reordering,
    ];

    /// The word for it in output: the live problem's where there is one.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            TraceProblem::Unanswered => "Unanswered",
            TraceProblem::Refused => "Refused",
            TraceProblem::Reset => "Reset",
            TraceProblem::SynRetransmit => "SynRetransmit",
            TraceProblem::SlowHandshake => "SlowHandshake",
            TraceProblem::ZeroWindow => "ZeroWindow",
            TraceProblem::ReceiverWindowLimited => "ReceiverWindowLimited",
            TraceProblem::Timeout => "Timeout",
            TraceProblem::TailLossProbe => "TailLossProbe",
            TraceProblem::FastRetransmit => "FastRetransmit",
            TraceProblem::DelayedAck => "DelayedAck",
            TraceProblem::SendBufferLimited => "SendBufferLimited",
            TraceProblem::SenderAppLimited => "SenderAppLimited",
            TraceProblem::SmallWrites => "SmallWrites",
            TraceProblem::Reordering => "Reordering",
        }
    }

    /// The problem of the live classifier with the same meaning.
    #[must_use]
    pub const fn live(self) -> Option<Problem> {
        match self {
            TraceProblem::SynRetransmit => Some(Problem::SynRetransmit),
            TraceProblem::ZeroWindow => Some(Problem::ZeroWindow),
            TraceProblem::ReceiverWindowLimited => Some(Problem::ReceiverWindowLimited),
            TraceProblem::Timeout => Some(Problem::Timeout),
            TraceProblem::FastRetransmit => Some(Problem::FastRetransmit),
            TraceProblem::DelayedAck => Some(Problem::DelayedAck),
            TraceProblem::SendBufferLimited => Some(Problem::SendBufferLimited),
            TraceProblem::SenderAppLimited => Some(Problem::SenderAppLimited),
            TraceProblem::SmallWrites => Some(Problem::SmallWrites),
            TraceProblem::Reordering => Some(Problem::Reordering),
            TraceProblem::Unanswered
            | TraceProblem::Refused
            | TraceProblem::Reset
            | TraceProblem::SlowHandshake
            | TraceProblem::TailLossProbe => None,
        }
    }

    /// The problem of the same meaning that the live classifier finds in a direction.
    #[must_use]
    pub fn of_live(problem: Problem) -> Option<TraceProblem> {
        Self::ALL.into_iter().find(|p| p.live() == Some(problem))
    }

    /// The connection was never opened, or was cut.
    #[must_use]
    pub const fn is_failure(self) -> bool {
        matches!(
            self,
            TraceProblem::Unanswered | TraceProblem::Refused | TraceProblem::Reset
        )
    }

    /// It is about the connection, or its handshake, and not about the data of a side.
    #[must_use]
    pub const fn is_of_connection(self) -> bool {
        self.is_failure()
            || matches!(
                self,
                TraceProblem::SynRetransmit | TraceProblem::SlowHandshake
            )
    }

    /// It is worth knowing, but nothing was wrong: no time was lost, or the sender chose so.
    #[must_use]
    pub const fn is_harmless(self) -> bool {
        matches!(self, TraceProblem::SmallWrites | TraceProblem::Reordering)
    }
}

impl std::fmt::Display for TraceProblem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

/// Something that was found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TraceFinding {
    /// What.
    pub problem: TraceProblem,
    /// Whose data it is about, or who sent the SYN or the RST; `None`: the connection.
    pub from: Option<Side>,
    /// The time that it cost; `None`: it has none, or packets do not show it.
    pub time: Option<Duration>,
    /// That time's part of the connection's, in 0..=1.
    pub share: f64,
    /// How often; `None` where it has a duration only.
    pub events: Option<u64>,
    /// The first and the last frame that show it.
    pub frames: Option<(Moment, Moment)>,
}

impl TraceFinding {
    /// By what findings of one connection are ordered, the worst first: connections that
    /// failed, then by time, then what has none.
    pub(super) fn rank(&self) -> (Reverse<bool>, bool, Reverse<Option<Duration>>, TraceProblem) {
        (
            Reverse(self.problem.is_failure()),
            self.problem.is_harmless(),
            Reverse(self.time),
            self.problem,
        )
    }
}
