// SPDX-License-Identifier: Apache-2.0
//! Problems, their shares of an interval, and the verdict on an interval.

use crate::{ConnectionId, Micros, MonoNanos};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The stage of data delivery that limits a connection (SNAP Table 2, first column).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// The application that generates the data.
    SenderApp,
    /// The socket's send buffer.
    SendBuffer,
    /// The network.
    Network,
    /// The receiver.
    Receiver,
    /// The application that takes the data, or the connection, at the receiving end.
    ReceiverApp,
}

impl Stage {
    /// The name, as in JSON and in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Stage::SenderApp => "sender_app",
            Stage::SendBuffer => "send_buffer",
            Stage::Network => "network",
            Stage::Receiver => "receiver",
            Stage::ReceiverApp => "receiver_app",
        }
    }
}

/// What limits a connection. The first six are SNAP's Table 2; the others go past it. The
/// last two are about listening sockets: no rule for connections finds them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[repr(u8)]
pub enum Problem {
    /// The application does not generate data fast enough: none of the other problems.
    SenderAppLimited = 0,
    /// The send buffer is full while the network could carry more.
    SendBufferLimited = 1,
    /// Segments were lost and repaired by fast retransmission.
    FastRetransmit = 2,
    /// Segments were lost and a retransmission timer expired.
    Timeout = 3,
    /// The receiver waited before it acknowledged.
    DelayedAck = 4,
    /// The receiver's announced window was full.
    ReceiverWindowLimited = 5,
    /// The congestion window was full while data waited and the receiver had room: the
    /// network's own speed, or a window that grows too slowly.
    CongestionWindowLimited = 6,
    /// Writes far below a segment, or data held back until more of it is written (Nagle).
    SmallWrites = 7,
    /// Segments were lost in the burst sent after an idle time.
    IdleBurst = 8,
    /// The receiver's announced window was zero; part of `ReceiverWindowLimited`.
    ZeroWindow = 9,
    /// Segments overtook each other on the path.
    Reordering = 10,
    /// The network marked segments (ECN) instead of dropping them.
    EcnMarked = 11,
    /// The application at this, the receiving, end does not read what has arrived.
    ReceiverAppSlow = 12,
    /// A SYN or its answer had to be sent again.
    SynRetransmit = 13,
    /// A listening socket's queue of accepted connections was full.
    AcceptQueueOverflow = 14,
    /// A listening socket's queue of half-open connections was full.
    SynQueueOverflow = 15,
}

/// Which of several problems in one interval goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Precedence {
    /// The problem with more time goes first.
    Own,
    /// It names more closely what another finding, which it is part of, says: that one
    /// goes first.
    Detail,
    /// It is what remains when nothing explains it: every explanation goes first.
    Residue,
}

impl Problem {
    /// All problems by their number: SNAP's in the order of the stages that data passes,
    /// then the others.
    pub const ALL: [Problem; 16] = [
        Problem::SenderAppLimited,
        Problem::SendBufferLimited,
        Problem::FastRetransmit,
        Problem::Timeout,
        Problem::DelayedAck,
        Problem::ReceiverWindowLimited,
        Problem::CongestionWindowLimited,
        Problem::SmallWrites,
        Problem::IdleBurst,
        Problem::ZeroWindow,
        Problem::Reordering,
        Problem::EcnMarked,
        Problem::ReceiverAppSlow,
        Problem::SynRetransmit,
        Problem::AcceptQueueOverflow,
        Problem::SynQueueOverflow,
    ];

    /// How many are SNAP's own, its Table 2: the first of [`Problem::ALL`].
    pub const OF_SNAP: usize = 6;

    /// The name used in output and in the log: the variant's name.
    pub const fn name(self) -> &'static str {
        match self {
            Problem::SenderAppLimited => "SenderAppLimited",
            Problem::SendBufferLimited => "SendBufferLimited",
            Problem::FastRetransmit => "FastRetransmit",
            Problem::Timeout => "Timeout",
            Problem::DelayedAck => "DelayedAck",
            Problem::ReceiverWindowLimited => "ReceiverWindowLimited",
            Problem::CongestionWindowLimited => "CongestionWindowLimited",
            Problem::SmallWrites => "SmallWrites",
            Problem::IdleBurst => "IdleBurst",
            Problem::ZeroWindow => "ZeroWindow",
            Problem::Reordering => "Reordering",
            Problem::EcnMarked => "EcnMarked",
            Problem::ReceiverAppSlow => "ReceiverAppSlow",
            Problem::SynRetransmit => "SynRetransmit",
            Problem::AcceptQueueOverflow => "AcceptQueueOverflow",
            Problem::SynQueueOverflow => "SynQueueOverflow",
        }
    }

    /// The problem of that name, whatever its case.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|p| p.name().eq_ignore_ascii_case(name))
    }

    /// Where the problem lies.
    pub const fn stage(self) -> Stage {
        match self {
            Problem::SenderAppLimited | Problem::SmallWrites => Stage::SenderApp,
            Problem::SendBufferLimited => Stage::SendBuffer,
            Problem::FastRetransmit
            | Problem::Timeout
            | Problem::CongestionWindowLimited
            | Problem::IdleBurst
            | Problem::Reordering
            | Problem::EcnMarked
            | Problem::SynRetransmit => Stage::Network,
            Problem::DelayedAck
            | Problem::ReceiverWindowLimited
            | Problem::ZeroWindow
            | Problem::SynQueueOverflow => Stage::Receiver,
            Problem::ReceiverAppSlow | Problem::AcceptQueueOverflow => Stage::ReceiverApp,
        }
    }

    /// Whether it is counted, beside its duration.
    pub const fn has_events(self) -> bool {
        match self {
            Problem::SenderAppLimited
            | Problem::SendBufferLimited
            | Problem::ReceiverWindowLimited
            | Problem::CongestionWindowLimited
            | Problem::ReceiverAppSlow => false,
            Problem::FastRetransmit
            | Problem::Timeout
            | Problem::DelayedAck
            | Problem::SmallWrites
            | Problem::IdleBurst
            | Problem::ZeroWindow
            | Problem::Reordering
            | Problem::EcnMarked
            | Problem::SynRetransmit
            | Problem::AcceptQueueOverflow
            | Problem::SynQueueOverflow => true,
        }
    }

    /// Whether it is one of SNAP's own.
    pub const fn is_of_snap(self) -> bool {
        (self as usize) < Self::OF_SNAP
    }

    /// Whether a listening socket has it, and not a connection.
    pub const fn is_of_listener(self) -> bool {
        matches!(
            self,
            Problem::AcceptQueueOverflow | Problem::SynQueueOverflow
        )
    }

    /// How its time lies to that of others, where one of several has to be named.
    pub const fn precedence(self) -> Precedence {
        match self {
            Problem::CongestionWindowLimited => Precedence::Residue,
            Problem::IdleBurst | Problem::ZeroWindow => Precedence::Detail,
            _ => Precedence::Own,
        }
    }

    /// The problem that dominates, of those found with their times: the one with most
    /// time, of equal ones the earlier of [`Problem::ALL`], those of the first
    /// [`Precedence`] first; `SenderAppLimited` of none.
    pub fn dominating(found: impl IntoIterator<Item = (Problem, Micros)>) -> Problem {
        found
            .into_iter()
            .min_by_key(|(problem, time)| {
                (
                    problem.precedence(),
                    std::cmp::Reverse(*time),
                    *problem as u8,
                )
            })
            .map_or(Problem::SenderAppLimited, |(problem, _)| problem)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A set of problems.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "Vec<Problem>", into = "Vec<Problem>")]
pub struct ProblemSet(u32);

impl ProblemSet {
    /// No problem.
    pub const EMPTY: ProblemSet = ProblemSet(0);

    /// The same set with `problem` in it.
    #[must_use]
    pub const fn with(self, problem: Problem) -> Self {
        ProblemSet(self.0 | 1 << problem as u8)
    }

    /// Puts `problem` in.
    pub const fn insert(&mut self, problem: Problem) {
        self.0 |= 1 << problem as u8;
    }

    /// Whether `problem` is in.
    pub const fn contains(self, problem: Problem) -> bool {
        self.0 & (1 << problem as u8) != 0
    }

    /// Whether nothing is in.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Every problem that rules look for in a connection.
    pub fn of_connections() -> Self {
        let all = Problem::ALL.into_iter();
        all.filter(|p| !p.is_of_listener()).collect()
    }

    /// What is in, in the order of [`Problem::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Problem> {
        Problem::ALL.into_iter().filter(move |p| self.contains(*p))
    }

    /// One bit a problem, at the position of its number; for the log.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// The set with those bits; bits that no problem has are dropped.
    pub fn from_bits(bits: u32) -> Self {
        Problem::ALL
            .into_iter()
            .filter(|p| bits & (1 << *p as u8) != 0)
            .collect()
    }
}

impl FromIterator<Problem> for ProblemSet {
    fn from_iter<I: IntoIterator<Item = Problem>>(problems: I) -> Self {
        problems.into_iter().fold(Self::EMPTY, Self::with)
    }
}

impl From<Vec<Problem>> for ProblemSet {
    fn from(problems: Vec<Problem>) -> Self {
        problems.into_iter().collect()
    }
}

impl From<ProblemSet> for Vec<Problem> {
    fn from(set: ProblemSet) -> Self {
        set.iter().collect()
    }
}

/// How much of an interval a problem took.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Share {
    /// The time was measured; never more than the interval.
    Measured(Micros),
    /// That it happened is known, not how long it lasted; the interval counts whole.
    Coarse,
}

impl Share {
    /// The time it stands for in an interval of that length.
    pub fn time_of(self, interval: Micros) -> Micros {
        match self {
            Share::Measured(time) => time.min(interval),
            Share::Coarse => interval,
        }
    }

    /// The fraction of an interval of that length, in 0..=1; 0 of an empty interval.
    pub fn fraction_of(self, interval: Micros) -> f64 {
        if interval == Micros::ZERO {
            return 0.0;
        }
        self.time_of(interval).0 as f64 / interval.0 as f64
    }
}

/// One problem found in an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Which problem.
    pub problem: Problem,
    /// How much of the interval.
    pub share: Share,
    /// How often ([`Problem::has_events`]); `None` for problems that have a duration only.
    pub events: Option<u64>,
}

/// What changed between two snapshots, and the gauges at the second: the evidence of a
/// verdict. A counter that went backwards or that the kernel lacks is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deltas {
    /// SentBytes: payload bytes sent.
    pub bytes_sent: Option<u64>,
    /// Payload bytes acknowledged.
    pub bytes_acked: Option<u64>,
    /// Payload bytes received.
    pub bytes_received: Option<u64>,
    /// Segments retransmitted for whatever reason.
    pub retransmitted: Option<u64>,
    /// #FastRetrans: entries to fast recovery.
    pub fast_recoveries: Option<u64>,
    /// #Timeout: expirations of the retransmission timer.
    pub timeouts: Option<u64>,
    /// SumRTT.
    pub rtt_sum: Option<Micros>,
    /// #SampleRTT.
    pub rtt_count: Option<u64>,
    /// Delayed ACKs.
    pub delayed_acks: Option<u64>,
    /// Time with data outstanding.
    pub busy: Option<Micros>,
    /// RwinLimitTime.
    pub rwnd_limited: Option<Micros>,
    /// Time limited by the send buffer.
    pub sndbuf_limited: Option<Micros>,
    /// WriteBytes.
    pub bytes_written: Option<u64>,
    /// Send calls.
    pub writes: Option<u64>,
    /// ReadBytes.
    pub bytes_read: Option<u64>,
    /// Receive calls.
    pub reads: Option<u64>,
    /// Cwin at the end, segments.
    pub cwnd: u32,
    /// Rwin at the end, bytes.
    pub send_window: Option<u32>,
    /// CurAppWQueue at the end, bytes.
    pub send_queue: u32,
    /// Bytes received and not read at the end.
    pub receive_queue: u32,
    /// Smoothed RTT at the end.
    pub srtt: Option<Micros>,
    /// The RTT baseline used for delayed ACKs.
    pub baseline_rtt: Option<Micros>,
    /// Sending MSS, bytes.
    pub send_mss: u32,
    /// Send-buffer limit, bytes of truesize.
    pub send_buffer: Option<u32>,
    /// Losses found by the timer with too few segments in flight for duplicate ACKs, and
    /// nothing more to send. Not in the log's rows: interactions are.
    pub thin_timeouts: Option<u64>,
    /// Delayed ACKs of what the timer sent again by itself. Not in the log's rows either.
    pub acks_after_timeout: Option<u64>,
}

/// The verdict on one connection over one polling interval.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IntervalVerdict {
    /// Which connection.
    pub connection: ConnectionId,
    /// The interval's beginning.
    pub from: MonoNanos,
    /// The interval's end.
    pub to: MonoNanos,
    /// The problem that took most ([`Problem::dominating`]); `SenderAppLimited` if
    /// `findings` is empty.
    pub dominating: Problem,
    /// Every problem found, `SenderAppLimited` never among them; largest share first.
    pub findings: Vec<Finding>,
    /// Problems that could not be measured in this interval.
    pub unmeasured: ProblemSet,
    /// The evidence.
    pub deltas: Deltas,
}

impl IntervalVerdict {
    /// The interval's length.
    pub fn interval(&self) -> Micros {
        self.to.since(self.from)
    }

    /// The finding of that problem, if it was found.
    pub fn finding(&self, problem: Problem) -> Option<&Finding> {
        self.findings.iter().find(|f| f.problem == problem)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problem_numbers_are_their_positions() {
        for (i, p) in Problem::ALL.into_iter().enumerate() {
            assert_eq!(p as usize, i);
            assert_eq!(Problem::from_name(p.name()), Some(p));
        }
    }

    #[test]
    fn unknown_bits_are_dropped() {
        let set = ProblemSet::EMPTY
            .with(Problem::Timeout)
            .with(Problem::DelayedAck);
        assert_eq!(ProblemSet::from_bits(set.bits() | 0xffff_0000), set);
        assert!(!set.contains(Problem::FastRetransmit));
    }

    #[test]
    fn a_share_never_exceeds_its_interval() {
        let interval = Micros::from_millis(500);
        assert_eq!(
            Share::Measured(Micros::from_millis(900)).time_of(interval),
            interval
        );
        assert_eq!(Share::Coarse.fraction_of(interval), 1.0);
        assert_eq!(Share::Coarse.fraction_of(Micros::ZERO), 0.0);
    }
}
