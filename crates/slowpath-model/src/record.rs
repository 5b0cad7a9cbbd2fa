// SPDX-License-Identifier: Apache-2.0
//! What the log keeps: problem intervals, connection summaries, coverage.

use crate::{
    ConnectionId, Deltas, Finding, FourTuple, LifeTurns, Micros, Origin, Owner, Problem,
    ProblemSet, SocketFacts, TcpStats, Tier, UnknownOwners, WallMicros,
};
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};

/// An interval in which a connection had at least one problem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProblemInterval {
    /// Which connection.
    pub connection: ConnectionId,
    /// The interval's end.
    pub end: WallMicros,
    /// The interval's length.
    pub duration: Micros,
    /// Every problem found, largest share first; never empty.
    pub findings: Vec<Finding>,
    /// Problems that could not be measured.
    pub unmeasured: ProblemSet,
    /// The evidence.
    pub deltas: Deltas,
}

/// One connection over the time it was observed; written when it closes and, as a
/// checkpoint that a later one replaces, while it lives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionSummary {
    /// Which connection.
    pub connection: ConnectionId,
    /// Its addresses.
    pub tuple: FourTuple,
    /// Which end opened it.
    pub origin: Origin,
    /// Its owner, or why it is unknown.
    pub owner: Owner,
    /// The peer behind address translation on this host, where conntrack knows another one
    /// than the socket does.
    pub real_peer: Option<SocketAddr>,
    /// Which tier observed it.
    pub tier: Tier,
    /// When it was first observed.
    #[serde(rename = "first_seen")]
    pub first_observed: WallMicros,
    /// When it was last observed.
    #[serde(rename = "last_seen")]
    pub last_observed: WallMicros,
    /// Whether it has closed.
    pub closed: bool,
    /// Time observed: the sum of its intervals.
    pub observed: Micros,
    /// Polls that contributed.
    pub polls: u64,
    /// Time each problem took, indexed by the problem's number
    /// ([`Problem::ALL`]); `SenderAppLimited` is what the others left.
    pub problem_time: [Micros; Problem::ALL.len()],
    /// Events of each problem, indexed likewise.
    pub problem_events: [u64; Problem::ALL.len()],
    /// Problems that could not be measured in some interval.
    pub unmeasured: ProblemSet,
    /// Its statistics when last observed.
    pub stats: TcpStats,
    /// Bytes and calls written by the application, where observed.
    pub bytes_written: Option<u64>,
    /// Send calls, where observed.
    pub writes: Option<u64>,
    /// Bytes read by the application, where observed.
    pub bytes_read: Option<u64>,
    /// Receive calls, where observed.
    pub reads: Option<u64>,
    /// What an answer needs besides.
    #[serde(default)]
    pub life: LifeFacts,
}

/// What a connection carried over a stretch of about an hour at most, healthy or not: what losses
/// are counted against. The stretches of a connection follow each other without a gap while one
/// agent observes it. One that carried nothing has no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrafficInterval {
    /// Which connection.
    pub connection: ConnectionId,
    /// The stretch's end.
    pub end: WallMicros,
    /// The stretch's length, by the monotonic clock.
    pub duration: Micros,
    /// Segments with payload sent, retransmissions included; `None`, as of the others: the counter
    /// went backwards, as the kernel's does at 2^32.
    pub data_segments_out: Option<u64>,
    /// Segments with payload received.
    pub data_segments_in: Option<u64>,
    /// Segments retransmitted for whatever reason.
    pub retransmitted: Option<u64>,
}

/// A router on the path of a connection that lost segments, from a trace with its own addresses and
/// ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathHop {
    /// Which connection.
    pub connection: ConnectionId,
    /// When the trace's answers were no longer awaited; all its hops have this.
    pub end: WallMicros,
    /// For how long they were.
    pub duration: Micros,
    /// How many hops from this host, from 1.
    pub ttl: u16,
    /// The router's address; `None`: none answered, and a later one did.
    pub router: Option<IpAddr>,
}

/// What the log keeps of a connection for answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LifeFacts {
    /// The part of the time observed in which nothing changed; `None` in logs that lack it.
    pub idle: Option<Micros>,
    /// What else the kernel knows of its socket.
    pub socket: SocketFacts,
    /// Requests and answers; `None` if they are not observed.
    pub turns: Option<LifeTurns>,
}

/// Losses on the way from the kernel to the log, each since the agent's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LossCounters {
    /// Sockets for which no storage could be had (out of memory).
    pub storage_failed: u64,
    /// Snapshots that found the snapshot area full.
    pub snapshots_dropped: u64,
    /// Final records that found their ring full.
    pub closes_dropped: u64,
    /// Call records that found their ring full.
    pub calls_dropped: u64,
    /// Records that the spool could not take (disk full, unwritable).
    pub records_dropped: u64,
}

/// What was observed, and what was missed, over one stretch of time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Coverage {
    /// The stretch's end.
    pub end: WallMicros,
    /// The stretch's length.
    pub duration: Micros,
    /// Polls made.
    pub polls: u64,
    /// Sockets observed by the last poll.
    pub sockets: u64,
    /// Sockets that were alive and that the last poll did not see.
    pub missed: u64,
    /// Sockets that polls met twice and counted once.
    pub repeats: u64,
    /// Snapshots emitted because something had changed.
    pub emitted: u64,
    /// Connections opened.
    pub opened: u64,
    /// Connections closed.
    pub closed: u64,
    /// Connections whose owner is unknown.
    pub owners_unknown: u64,
    /// The same by reason; those that closed in this stretch are counted too.
    pub unknown_owners: UnknownOwners,
    /// Losses, since the agent's start.
    pub losses: LossCounters,
    /// CPU time of the agent, user and system.
    pub cpu: Micros,
    /// Problems that this tier on this kernel cannot measure.
    pub unmeasured: ProblemSet,
    /// The host's wall clock at the end; `None`: not known, as in logs from before this field.
    #[serde(default)]
    pub clock: Option<ClockStatus>,
}

/// How good the host's wall clock is, as the kernel states it (adjtimex(2)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockStatus {
    /// What the kernel's clock is doing.
    pub state: ClockState,
    /// Whether something disciplines it: `STA_UNSYNC` is not set.
    pub synchronised: bool,
    /// The kernel's bound of its error (`maxerror`): what the time daemon set, grown by 500 ppm since
    /// (`second_overflow`); 16 s where nothing sets it (`NTP_PHASE_LIMIT`).
    pub max_error: Micros,
}

/// The state of the kernel's clock: what adjtimex(2) returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClockState {
    /// `TIME_OK`: synchronised, no leap second near.
    Ok = 0,
    /// `TIME_INS`: a leap second will be inserted at the end of the UTC day.
    Insert = 1,
    /// `TIME_DEL`: one will be deleted.
    Delete = 2,
    /// `TIME_OOP`: one is being inserted.
    InProgress = 3,
    /// `TIME_WAIT`: one has been inserted or deleted.
    Waiting = 4,
    /// `TIME_ERROR`: not synchronised.
    Error = 5,
}

impl ClockState {
    /// Every state, at the place of its number.
    pub const ALL: [ClockState; 6] = [
        ClockState::Ok,
        ClockState::Insert,
        ClockState::Delete,
        ClockState::InProgress,
        ClockState::Waiting,
        ClockState::Error,
    ];

    /// Their names, in the same order.
    pub const NAMES: [&str; 6] = ["ok", "insert", "delete", "in_progress", "waiting", "error"];

    /// The state with the kernel's number.
    pub fn from_kernel(number: i32) -> Option<Self> {
        ClockState::ALL.get(usize::try_from(number).ok()?).copied()
    }
}
