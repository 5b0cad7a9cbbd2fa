// SPDX-License-Identifier: Apache-2.0
//! From two snapshots to measures, and from measures to the verdict.

use crate::measure::Measure;
use crate::rules::{
    congestion_window,
    delayed_ack::delayed_ack,
    ecn_marked::ecn_marked,
    fast_retransmit::fast_retransmit,
    idle_burst::idle_burst,
    receiver_app::receiver_app,
    receiver_window::receiver_window,
    reordering::reordering,
    send_buffer::send_buffer,
    small_writes::small_writes,
    syn_retransmit::syn_retransmit,
    timeout::{OfSyn, timeout},
    zero_window::zero_window,
};
use crate::{Thresholds, delta};
use slowpath_model::{
    Finding, IntervalVerdict, Micros, MonoNanos, Origin, Problem, ProblemSet, Share, Snapshot,
};

/// What every rule says of one connection over one interval, before thresholds. Measured
/// times and events of adjacent intervals add up to those of the whole, as long as the RTT
/// baseline stays and no rule had to fall back on sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measures {
    /// The interval's beginning.
    pub from: MonoNanos,
    /// The interval's end.
    pub to: MonoNanos,
    /// SendBufferLimited.
    pub send_buffer: Measure,
    /// FastRetransmit.
    pub fast_retransmit: Measure,
    /// Timeout.
    pub timeout: Measure,
    /// DelayedAck.
    pub delayed_ack: Measure,
    /// ReceiverWindowLimited.
    pub receiver_window: Measure,
    /// CongestionWindowLimited.
    pub congestion_window: Measure,
    /// SmallWrites.
    pub small_writes: Measure,
    /// IdleBurst.
    pub idle_burst: Measure,
    /// ZeroWindow.
    pub zero_window: Measure,
    /// Reordering.
    pub reordering: Measure,
    /// EcnMarked.
    pub ecn_marked: Measure,
    /// ReceiverAppSlow.
    pub receiver_app: Measure,
    /// SynRetransmit.
    pub syn_retransmit: Measure,
    /// The path's own RTT, as used for delayed ACKs.
    pub baseline_rtt: Option<Micros>,
    /// Delayed ACKs observed, the harmless ones of an exchange included.
    pub delayed_acks: Option<u64>,
    /// Delayed ACKs that held unsent data or a writer back.
    pub held_acks: Option<u64>,
    /// The most that CongestionWindowLimited can have lasted, if the kernel reports it.
    pub congestion_window_bound: Option<Micros>,
}

/// Applies every rule to the interval between two snapshots of one connection.
///
/// `peer_baseline` is the lowest RTT known from other connections to the same remote
/// address. An interval without length has nothing in it: keep `before` and try with the
/// next snapshot.
pub fn measure(
    before: &Snapshot,
    after: &Snapshot,
    peer_baseline: Option<Micros>,
    thresholds: &Thresholds,
) -> Measures {
    let mut measures = Measures {
        from: before.at,
        to: after.at.max(before.at),
        send_buffer: Measure::Absent,
        fast_retransmit: Measure::Absent,
        timeout: Measure::Absent,
        delayed_ack: Measure::Absent,
        receiver_window: Measure::Absent,
        congestion_window: Measure::Absent,
        small_writes: Measure::Absent,
        idle_burst: Measure::Absent,
        zero_window: Measure::Absent,
        reordering: Measure::Absent,
        ecn_marked: Measure::Absent,
        receiver_app: Measure::Absent,
        syn_retransmit: Measure::Absent,
        baseline_rtt: None,
        delayed_acks: None,
        held_acks: None,
        congestion_window_bound: None,
    };
    if measures.interval() == Micros::ZERO {
        return measures;
    }
    let (b, a) = (&before.stats, &after.stats);
    let acks = delayed_ack(b, a, peer_baseline, thresholds);
    measures.send_buffer = send_buffer(before, after);
    measures.fast_retransmit = fast_retransmit(b, a);
    measures.delayed_ack = acks.measure;
    measures.receiver_window = receiver_window(before, after);
    measures.reordering = reordering(before, after);
    measures.ecn_marked = ecn_marked(before, after);
    measures.small_writes = small_writes(before, after, acks.held_time);
    let mut of_syn = OfSyn::default();
    // Most connections never wait: for them the other rules need not look.
    if !(before.waits.quiet() && after.waits.quiet()) {
        measures.congestion_window = congestion_window::congestion_window(before, after);
        measures.congestion_window_bound = congestion_window::bound(b, a);
        measures.idle_burst = idle_burst(before, after);
        measures.zero_window = zero_window(before, after);
        measures.receiver_app = receiver_app(before, after);
        measures.syn_retransmit = syn_retransmit(before, after);
        if after.origin == Origin::Opened {
            of_syn = OfSyn {
                here: measures.syn_retransmit.events().unwrap_or(0),
                ever: after.waits.opening().map_or(0, |o| o.syn_retransmits),
            };
        }
    }
    measures.timeout = timeout(b, a, of_syn);
    measures.baseline_rtt = acks.baseline;
    measures.delayed_acks = acks.observed;
    measures.held_acks = acks.held;
    measures
}

impl Measures {
    /// The interval's length.
    pub fn interval(&self) -> Micros {
        self.to.since(self.from)
    }

    /// What the rule for `problem` says; nothing for `SenderAppLimited`, which is what the
    /// others leave, and for those of listening sockets.
    pub fn of(&self, problem: Problem) -> Measure {
        match problem {
            Problem::SenderAppLimited => Measure::Absent,
            Problem::SendBufferLimited => self.send_buffer,
            Problem::FastRetransmit => self.fast_retransmit,
            Problem::Timeout => self.timeout,
            Problem::DelayedAck => self.delayed_ack,
            Problem::ReceiverWindowLimited => self.receiver_window,
            Problem::CongestionWindowLimited => self.congestion_window,
            Problem::SmallWrites => self.small_writes,
            Problem::IdleBurst => self.idle_burst,
            Problem::ZeroWindow => self.zero_window,
            Problem::Reordering => self.reordering,
            Problem::EcnMarked => self.ecn_marked,
            Problem::ReceiverAppSlow => self.receiver_app,
            Problem::SynRetransmit => self.syn_retransmit,
            Problem::AcceptQueueOverflow | Problem::SynQueueOverflow => Measure::Absent,
        }
    }

    /// Each rule's problem and measure, in the order of [`Problem::ALL`].
    fn rules(&self) -> [(Problem, &Measure); 13] {
        [
            (Problem::SendBufferLimited, &self.send_buffer),
            (Problem::FastRetransmit, &self.fast_retransmit),
            (Problem::Timeout, &self.timeout),
            (Problem::DelayedAck, &self.delayed_ack),
            (Problem::ReceiverWindowLimited, &self.receiver_window),
            (Problem::CongestionWindowLimited, &self.congestion_window),
            (Problem::SmallWrites, &self.small_writes),
            (Problem::IdleBurst, &self.idle_burst),
            (Problem::ZeroWindow, &self.zero_window),
            (Problem::Reordering, &self.reordering),
            (Problem::EcnMarked, &self.ecn_marked),
            (Problem::ReceiverAppSlow, &self.receiver_app),
            (Problem::SynRetransmit, &self.syn_retransmit),
        ]
    }

    /// The problems whose rule could not be applied.
    pub fn unmeasured(&self) -> ProblemSet {
        self.rules()
            .into_iter()
            .filter(|(_, measure)| **measure == Measure::Unmeasured)
            .map(|(problem, _)| problem)
            .collect()
    }

    /// Whether any rule has a finding.
    pub fn any(&self, thresholds: &Thresholds) -> bool {
        self.rules().into_iter().any(|(problem, measure)| {
            !matches!(measure, Measure::Absent | Measure::Unmeasured)
                && self.finding(problem, thresholds).is_some()
        })
    }

    /// The finding on `problem`, if it is more than a statistic: its share is clipped to
    /// the interval, and the sum of the two exclusive chronographs is, too.
    pub fn finding(&self, problem: Problem, thresholds: &Thresholds) -> Option<Finding> {
        let interval = self.interval();
        let (share, events) = match self.of(problem) {
            Measure::Unmeasured | Measure::Absent => return None,
            Measure::Coarse { events } => (Share::Coarse, events),
            Measure::Measured { events, .. } => (Share::Measured(self.clipped(problem)), events),
        };
        let counted = is_found_by_events(problem) && events.is_some_and(|e| e > 0);
        if interval == Micros::ZERO
            || !(counted || thresholds.is_notable(share.time_of(interval), interval))
        {
            return None;
        }
        Some(Finding {
            problem,
            share,
            events,
        })
    }

    fn clipped(&self, problem: Problem) -> Micros {
        let interval = self.interval().0;
        let time = |m: Measure| m.time().map_or(0, |t| t.0);
        let (buffer, window) = (time(self.send_buffer), time(self.receiver_window));
        let both = u128::from(buffer) + u128::from(window);
        let scaled = |part: u64| {
            if both > u128::from(interval) {
                // At most `interval`, as `part` is at most `both`.
                (u128::from(part) * u128::from(interval) / both) as u64
            } else {
                part
            }
        };
        Micros(match problem {
            Problem::SendBufferLimited => scaled(buffer),
            Problem::ReceiverWindowLimited => scaled(window),
            Problem::CongestionWindowLimited => time(self.congestion_window)
                .min(self.congestion_window_bound.map_or(interval, |t| t.0))
                .min(interval),
            other => time(self.of(other)).min(interval),
        })
    }

    /// The verdict, with the evidence from the two snapshots that were measured.
    pub fn verdict(
        &self,
        before: &Snapshot,
        after: &Snapshot,
        thresholds: &Thresholds,
    ) -> IntervalVerdict {
        let interval = self.interval();
        let mut findings = Vec::new();
        let mut unmeasured = ProblemSet::EMPTY;
        for (problem, measure) in self.rules() {
            match measure {
                Measure::Absent => {}
                Measure::Unmeasured => unmeasured.insert(problem),
                Measure::Coarse { .. } | Measure::Measured { .. } => {
                    findings.extend(self.finding(problem, thresholds));
                }
            }
        }
        // Stable: equal shares stay in the order of `Problem::ALL`.
        findings.sort_by_key(|f: &Finding| std::cmp::Reverse(f.share.time_of(interval)));
        IntervalVerdict {
            connection: after.id,
            from: self.from,
            to: self.to,
            dominating: Problem::dominating(
                (findings.iter()).map(|f| (f.problem, f.share.time_of(interval))),
            ),
            findings,
            unmeasured,
            deltas: delta::deltas(before, after, self.baseline_rtt, self.delayed_acks),
        }
    }
}

/// Whether one event is a finding, however short: a loss, or what is taken for one.
const fn is_found_by_events(problem: Problem) -> bool {
    matches!(
        problem,
        Problem::FastRetransmit
            | Problem::Timeout
            | Problem::IdleBurst
            | Problem::Reordering
            | Problem::EcnMarked
            | Problem::SynRetransmit
    )
}

/// The verdict on the interval between two snapshots of one connection: [`measure`], then
/// thresholds. Allocates only if there is a finding.
pub fn classify(
    before: &Snapshot,
    after: &Snapshot,
    peer_baseline: Option<Micros>,
    thresholds: &Thresholds,
) -> IntervalVerdict {
    measure(before, after, peer_baseline, thresholds).verdict(before, after, thresholds)
}
