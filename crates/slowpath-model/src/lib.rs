// SPDX-License-Identifier: Apache-2.0
//! The words every other crate of slowpath shares.
//!
//! What enters: nothing; this crate does no I/O and reads no clock.
//! What leaves: typed values. [`Snapshot`] is what the kernel observer
//! (`slowpath-observe`) produce for one connection at one moment;
//! [`IntervalVerdict`] is what the classifier (`slowpath-diagnose`) makes of two of
//! them; [`ProblemInterval`], [`ConnectionSummary`] and [`Coverage`] are what the log
//! (`slowpath-store`) keeps.
//!
//! What is promised: units are in the types ([`Micros`], [`MonoNanos`], [`WallMicros`])
//! or in the field's doc (bytes, segments); kernel scalings are already undone; a
//! statistic that a kernel may lack is an `Option`, never a zero.

mod capabilities;
mod command_line;
mod connection;
mod foreign;
mod history;
mod host_name;
mod interaction;
mod listener;
mod owner;
mod problem;
mod process_state;
mod record;
mod spelling;
mod stats;
pub mod tcp_info;
mod turns;
mod units;
mod url_secrets;
mod waits;

pub use capabilities::{Capabilities, Feature, FeatureState};
pub use command_line::{join_arguments, split_arguments};
pub use connection::{ConnectionId, FourTuple, Origin, normalise};
pub use foreign::{Foreign, clean, clean_lines, steers};
pub use history::HistoryPoint;
pub use host_name::HostName;
pub use interaction::{InteractionEvidence, InteractionInterval, InteractionKind, ProxyFlow};
pub use listener::{
    ListenCounters, ListenSettings, ListenerDeltas, ListenerId, ListenerInterval, ListenerSnapshot,
    ListenerVerdict,
};
pub use owner::{
    Cgroup, CgroupSource, Claim, Closer, Container, Holder, Owner, Ownership, Process,
    ProcessStart, UnknownOwner, UnknownOwners,
};
pub use problem::{
    Deltas, Finding, IntervalVerdict, Precedence, Problem, ProblemSet, Share, Stage,
};
pub use process_state::ProcessState;
pub use record::{
    ClockState, ClockStatus, ConnectionSummary, Coverage, LifeFacts, LossCounters, PathHop,
    ProblemInterval, TrafficInterval,
};
pub use spelling::{did_you_mean, nearest};
pub use stats::{
    CALL_HISTOGRAM_BUCKETS, CaState, CallStats, Ending, Failure, RecoveryStats, RtoStats, RttSums,
    Snapshot, SocketFacts, TcpState, TcpStats, Tier, call_bucket,
};
pub use turns::{
    AnswerSums, AnswerTimes, LATEST_TURNS, LifeAnswers, LifeTurns, Turn, TurnEnd, TurnSums,
    TurnTimes, Turns,
};
pub use units::{Micros, MonoNanos, WallMicros};
pub use url_secrets::without_url_secrets;
pub use waits::{EpisodeWaits, Multipath, OpeningWaits, QueueWaits, WaitSums, Waits};
