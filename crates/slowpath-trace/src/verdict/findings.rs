// SPDX-License-Identifier: Apache-2.0
//! From a line to findings, in the words and the form of the classifier of live connections.

use super::limit::{Limit, Line};
use super::{DelayedAcks, Losses, PathRate, Think};
use crate::message::Messages;
use crate::tcp::{ConnectionReport, Moment, Side};
use slowpath_diagnose::Thresholds;
use slowpath_model::{Deltas, Finding, Micros, Problem, ProblemSet, Share};
use std::time::Duration;

/// What else was found: none of the classifier's six problems.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Observation {
    /// The congestion window, pacing or the path's rate held the sender back.
    CongestionWindowLimited,
    /// The receiver's window was closed; part of `ReceiverWindowLimited`.
    ZeroWindow,
    /// Nagle's rule held small segments until ACKs that came in time.
    SmallWrites,
    /// Losses that a tail loss probe found.
    TailLossProbe,
    /// A SYN or SYN-ACK had to be sent again.
    SynRetransmit,
    /// More than ten segments at once after an idle time.
    IdleBurst,
    /// Segments overtook each other.
    Reordering,
    /// Congestion was marked instead of dropped.
    EcnMarked,
}

impl Observation {
    /// All, in the order of their declaration.
    pub const ALL: [Observation; 8] = [
        Observation::CongestionWindowLimited,
        Observation::ZeroWindow,
        Observation::SmallWrites,
        Observation::TailLossProbe,
        Observation::SynRetransmit,
        Observation::IdleBurst,
        Observation::Reordering,
        Observation::EcnMarked,
    ];

    /// The word for it in output.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Observation::CongestionWindowLimited => "CongestionWindowLimited",
            Observation::ZeroWindow => "ZeroWindow",
            Observation::SmallWrites => "SmallWrites",
            Observation::TailLossProbe => "TailLossProbe",
            Observation::SynRetransmit => "SynRetransmit",
            Observation::IdleBurst => "IdleBurst",
            Observation::Reordering => "Reordering",
            Observation::EcnMarked => "EcnMarked",
        }
    }
}

/// An observation, with how long it lasted or how often it was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observed {
    /// Which.
    pub observation: Observation,
    /// How long; `None` where it has no duration.
    pub time: Option<Duration>,
    /// How often; `None` where it has a duration only.
    pub events: Option<u64>,
}

/// The verdict on one direction: what limited the data of one side.
#[derive(Clone, Debug, PartialEq)]
pub struct DirectionVerdict {
    /// What the sender waited for, from the connection's first segment to its last.
    pub line: Line,
    /// The problem with the largest share; `SenderAppLimited` if there are no findings. As the
    /// classifier of live connections says it.
    pub dominating: Problem,
    /// Every problem found, `SenderAppLimited` never among them; largest share first.
    pub findings: Vec<Finding>,
    /// Problems that this capture cannot show.
    pub unmeasured: ProblemSet,
    /// Problems that were inferred rather than observed.
    pub inferred: ProblemSet,
    /// The evidence, in the classifier's form. What packets do not show is `None`; `cwnd` is
    /// the most that was under way, in segments: the congestion window was not smaller.
    pub deltas: Deltas,
    /// What else was found.
    pub observed: Vec<Observed>,
    /// Where losses come from.
    pub losses: Losses,
    /// What the path delivered.
    pub path: PathRate,
    /// Delayed ACKs, by the oracle's rule.
    pub delayed_acks: DelayedAcks,
    /// Messages.
    pub messages: Messages,
    /// What this side's application took to answer.
    pub think: Think,
}

impl DirectionVerdict {
    /// The finding of that problem, if it was found.
    #[must_use]
    pub fn finding(&self, problem: Problem) -> Option<&Finding> {
        self.findings.iter().find(|f| f.problem == problem)
    }

    /// The frames that decided a finding: beginning and end of its longest interval.
    #[must_use]
    pub fn proof(&self, problem: Problem) -> Option<(Moment, Moment)> {
        self.proof_of(|limit| limit.problem() == Some(problem))
    }

    /// The same of some limits.
    pub(super) fn proof_of(&self, of: impl Fn(Limit) -> bool) -> Option<(Moment, Moment)> {
        (Limit::ALL.into_iter().filter(|l| of(*l)))
            .filter_map(|l| self.line.longest(l))
            .max_by_key(|i| i.duration())
            // An interval's begin may be known from a later frame than its end.
            .map(|i| {
                if i.from.frame <= i.to.frame {
                    (i.from, i.to)
                } else {
                    (i.to, i.from)
                }
            })
    }
}

/// What is counted beside the line.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub fast_recoveries: u64,
    pub timeouts: u64,
    pub probes: u64,
    pub delayed_acks: u64,
    pub held_acks: u64,
    pub small_writes: u64,
    pub most_in_flight: u64,
    pub full_segment: u64,
    pub window: Option<u64>,
    pub path_rtt: Option<Duration>,
    pub windows_unknown: bool,
    pub lateness_unknown: bool,
    pub turn_unknown: bool,
}

/// Round trips that a window may be full before it limits: hosts offer little at first and more
/// with what arrives (Linux: ten segments, and two more for each, `tcp_grow_window`), so that one
/// or two are part of any slow start.
const PASSING: u32 = 3;

/// Findings, largest share first.
pub(super) fn findings(line: &Line, counts: &Counts) -> Vec<Finding> {
    let shares = line.shares();
    let interval = shares.total();
    let least = interval.mul_f64(Thresholds::default().min_share);
    let mut found = Vec::new();
    for problem in Problem::ALL.into_iter().take(Problem::OF_SNAP) {
        let time = shares.of_problem(problem);
        let events = match problem {
            Problem::SenderAppLimited => continue,
            Problem::FastRetransmit => Some(counts.fast_recoveries),
            Problem::Timeout => Some(counts.timeouts),
            Problem::DelayedAck => Some(counts.held_acks),
            _ => None,
        };
        // As in slowpath-diagnose: losses count whenever they happened, durations from 1 %.
        let counted = matches!(problem, Problem::FastRetransmit | Problem::Timeout)
            && events.is_some_and(|e| e > 0);
        let passing = problem == Problem::ReceiverWindowLimited
            && shares.of(Limit::ZeroWindow) < least
            && counts.path_rtt.is_some_and(|rtt| time < rtt * PASSING);
        if counted || time > Duration::ZERO && time >= least && !passing {
            found.push(Finding {
                problem,
                share: Share::Measured(Micros::from(time)),
                events,
            });
        }
    }
    let interval = Micros::from(interval);
    found.sort_by_key(|f: &Finding| std::cmp::Reverse(f.share.time_of(interval)));
    found
}

/// Problems of a sender that an ACK or a window let go.
const LET_GO: [Problem; 5] = [
    Problem::SendBufferLimited,
    Problem::DelayedAck,
    Problem::ReceiverWindowLimited,
    Problem::ZeroWindow,
    Problem::SmallWrites,
];

/// Problems that need what this capture does not have, and that were not found for all that.
pub(super) fn unmeasured(
    report: &ConnectionReport,
    side: Side,
    counts: &Counts,
    found: &[Finding],
) -> ProblemSet {
    let mut set = ProblemSet::EMPTY;
    if report.sent_by(side.peer()).packets == 0 || report.sent_by(side).packets == 0 {
        for problem in &Problem::ALL[1..Problem::OF_SNAP] {
            set.insert(*problem);
        }
    }
    if counts.windows_unknown {
        set.insert(Problem::ReceiverWindowLimited);
    }
    let unknown = counts.path_rtt.is_none() || counts.lateness_unknown;
    if unknown && report.sent_by(side).data.packets > 0 {
        set.insert(Problem::DelayedAck);
    }
    if counts.turn_unknown && report.sent_by(side).data.packets > 0 {
        for problem in LET_GO {
            set.insert(problem);
        }
    }
    let found = |problem: &Problem| match problem {
        Problem::SmallWrites => counts.small_writes > 0,
        Problem::ZeroWindow => (found.iter()).any(|f| f.problem == Problem::ReceiverWindowLimited),
        _ => found.iter().any(|f| f.problem == *problem),
    };
    let missing = set.iter().filter(|problem| !found(problem));
    missing.fold(ProblemSet::EMPTY, ProblemSet::with)
}

/// The evidence.
pub(super) fn deltas(
    report: &ConnectionReport,
    side: Side,
    line: &Line,
    counts: &Counts,
) -> Deltas {
    let (mine, theirs) = (report.sent_by(side), report.sent_by(side.peer()));
    let micros = |d: Duration| Micros::from(d);
    let bytes32 = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
    let full = counts.full_segment.max(1);
    let shares = line.shares();
    let idle = [Limit::Opening, Limit::SenderApp, Limit::Closed];
    let busy = shares
        .total()
        .saturating_sub(idle.into_iter().map(|l| shares.of(l)).sum());
    Deltas {
        bytes_sent: Some(mine.data.bytes),
        bytes_acked: Some(mine.data.acked_bytes),
        bytes_received: Some(theirs.data.unique_bytes),
        retransmitted: Some(mine.retransmitted.packets),
        fast_recoveries: Some(counts.fast_recoveries),
        timeouts: Some(counts.timeouts),
        rtt_sum: Some(micros(mine.rtt.acked.total())),
        rtt_count: Some(mine.rtt.acked.count()),
        delayed_acks: Some(counts.delayed_acks),
        busy: Some(micros(busy)),
        rwnd_limited: (!counts.windows_unknown)
            .then(|| micros(shares.of_problem(Problem::ReceiverWindowLimited))),
        sndbuf_limited: Some(micros(shares.of(Limit::SendBuffer))),
        cwnd: bytes32(counts.most_in_flight / full),
        send_window: counts.window.map(bytes32),
        srtt: mine.rtt.smoothed.map(micros),
        baseline_rtt: counts.path_rtt.map(micros),
        send_mss: bytes32(full),
        ..Deltas::default()
    }
}

/// What else was found.
pub(super) fn observed(
    report: &ConnectionReport,
    side: Side,
    line: &Line,
    counts: &Counts,
    syn_wait: Duration,
) -> Vec<Observed> {
    let mine = report.sent_by(side);
    let shares = line.shares();
    let timed = |limit, events: Option<u64>| {
        let time = shares.of(limit);
        (
            (time > Duration::ZERO || events.is_some_and(|e| e > 0)).then_some(Some(time)),
            events,
        )
    };
    let counted = |events: u64| ((events > 0).then_some(None), Some(events));
    let theirs = report.sent_by(side.peer());
    let mut found = Vec::new();
    for observation in Observation::ALL {
        let (time, events) = match observation {
            Observation::CongestionWindowLimited => timed(Limit::CongestionWindow, None),
            Observation::ZeroWindow => {
                let (time, _) = timed(Limit::ZeroWindow, None);
                (time, Some(theirs.window.closed))
            }
            Observation::SmallWrites => timed(Limit::SmallWrites, Some(counts.small_writes)),
            Observation::TailLossProbe => timed(Limit::TailLossProbe, Some(counts.probes)),
            Observation::SynRetransmit => {
                let events = mine.retransmitted.syns;
                ((events > 0).then_some(Some(syn_wait)), Some(events))
            }
            Observation::IdleBurst => counted(mine.flight.idle_bursts),
            Observation::Reordering => counted(mine.order.out_of_order),
            Observation::EcnMarked => counted(mine.ecn.codepoints[3] + theirs.ecn.echoes),
        };
        if let Some(time) = time {
            found.push(Observed {
                observation,
                time,
                events,
            });
        }
    }
    found
}
