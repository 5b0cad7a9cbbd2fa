// SPDX-License-Identifier: Apache-2.0
//! A connection and its judges, fed with the same segments.

use super::agreed::Agreed;
use super::delayed::Oracle;
use super::findings::{self, Counts, DirectionVerdict};
use super::limit::between;
use super::loss::Losses;
use super::opening::Opening;
use super::problem::TraceFinding;
use super::ranking::{self, Evidence};
use super::rate::Delivery;
use super::sender::Sender;
use super::spread::Spread;
use super::think::Think;
use super::vantage::{Gathered, Vantage};
use crate::engine::Follow;
use crate::message::Collector;
use crate::segment::{Flags, Segment, Timestamp};
use crate::tcp::{
    self, Connection, ConnectionReport, Event, Events, Kind, Marks, Moment, Side, Spurious,
};
use slowpath_model::{Problem, ProblemSet};
use std::time::Duration;

/// How much is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Intervals of each direction's line.
    pub intervals: usize,
    /// Waits of each direction's delayed-ACK oracle.
    pub waits: usize,
    /// Messages of each direction: the slowest.
    pub messages: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            intervals: 1 << 14,
            waits: 1 << 12,
            messages: 64,
        }
    }
}

/// The verdicts on one connection.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdicts {
    /// Where the capture was made.
    pub vantage: Vantage,
    /// What limited the client's data.
    pub from_client: DirectionVerdict,
    /// What limited the server's data.
    pub from_server: DirectionVerdict,
    /// ICMP that reported the destination of a segment as unreachable: the first such frame.
    pub unreachable: Option<Moment>,
    /// What was found in both directions and of the connection, worst first.
    pub findings: Vec<TraceFinding>,
}

impl Verdicts {
    /// What limited the data that `side` sent.
    #[must_use]
    pub fn sent_by(&self, side: Side) -> &DirectionVerdict {
        match side {
            Side::Client => &self.from_client,
            Side::Server => &self.from_server,
        }
    }

    /// Whether anything was found that something waited for, or that failed.
    #[must_use]
    pub fn is_troubled(&self) -> bool {
        self.findings.iter().any(|f| !f.problem.is_harmless())
    }
}

/// A connection's figures and the verdicts on it.
#[derive(Clone, Debug)]
pub struct Judged {
    /// The figures.
    pub report: ConnectionReport,
    /// The verdicts.
    pub verdicts: Verdicts,
}

#[derive(Clone, Debug)]
struct Flow {
    sender: Sender,
    oracle: Oracle,
    messages: Collector,
    spread: Spread,
    delivery: Delivery,
    think: Think,
}

/// Judges one connection from what its [`Connection`] reports of each segment. Give it
/// every segment by [`Judge::segment`] before the connection gets it with this as its sink.
#[derive(Clone, Debug)]
pub struct Judge {
    flows: [Flow; 2],
    gathered: Gathered,
    agreed: Agreed,
    evidence: Evidence,
    now: Moment,
    silent_until: Option<Timestamp>,
    begun: bool,
    opened: bool,
    /// When the handshake ended, if it was captured.
    handshake: Option<Moment>,
}

impl Judge {
    /// A judge of a connection of which nothing was observed yet.
    #[must_use]
    pub fn new(options: &Options) -> Self {
        let flow = || Flow {
            sender: Sender::new(options.intervals),
            oracle: Oracle::new(options.waits),
            messages: Collector::new(options.messages),
            spread: Spread::default(),
            delivery: Delivery::default(),
            think: Think::default(),
        };
        Judge {
            flows: [flow(), flow()],
            gathered: Gathered::default(),
            agreed: Agreed::default(),
            evidence: Evidence::default(),
            now: Moment::default(),
            silent_until: None,
            begun: false,
            opened: false,
            handshake: None,
        }
    }

    /// A segment, before the connection shows what it was.
    pub fn segment(&mut self, side: Side, s: &Segment<'_>) {
        self.gathered.segment(side, s);
        if s.flags.any(Flags::SYN)
            && let Some((payloads, sack)) = self.agreed.syn(side, s)
        {
            for (flow, payloads) in self.flows.iter_mut().zip(payloads) {
                flow.sender.agreed(payloads, sack);
            }
        }
    }

    fn begin(&mut self, event: &Event<'_>) {
        self.begun = true;
        self.now = Moment {
            frame: event.frame,
            time: event.time,
        };
        self.opened = !event.flags.any(Flags::SYN);
        for flow in &mut self.flows {
            flow.sender.begin(self.now, !self.opened);
        }
    }

    /// ICMP reported the destination of one of its segments as unreachable; `refused`: the host
    /// itself did, of the port.
    pub fn unreachable(&mut self, at: Moment, refused: bool) {
        self.evidence.unreachable.get_or_insert((at, refused));
    }

    /// Nothing more of the connection was captured up to that time.
    pub fn silent_until(&mut self, time: Timestamp) {
        self.silent_until = Some(time);
    }

    /// The connection is over.
    #[must_use]
    pub fn finish(mut self, report: &ConnectionReport) -> Verdicts {
        let end = self.now;
        for flow in &mut self.flows {
            flow.sender.finish(end);
            flow.sender.begin_at(report.first);
        }
        let vantage = self.gathered.judge(report, self.agreed.initial());
        let [client, server] = self.flows;
        let opening = &self.evidence.opening;
        let silent_until = self.silent_until.unwrap_or(end.time);
        let mut verdicts = Verdicts {
            vantage,
            from_client: client.verdict(report, (Side::Client, &vantage), end, opening),
            from_server: server.verdict(report, (Side::Server, &vantage), end, opening),
            unreachable: self.evidence.unreachable.map(|(at, _)| at),
            findings: Vec::new(),
        };
        verdicts.findings = ranking::findings(report, &verdicts, &self.evidence, silent_until);
        verdicts
    }
}

impl Flow {
    fn verdict(
        self,
        report: &ConnectionReport,
        (side, vantage): (Side, &Vantage),
        end: Moment,
        opening: &Opening,
    ) -> DirectionVerdict {
        let messages = self.messages.finish(end, &self.sender);
        let sender = self.sender;
        let nanos = |n: i64| Duration::from_nanos(u64::try_from(n).unwrap_or(0));
        let counts = Counts {
            fast_recoveries: sender.counts.fast_recoveries,
            timeouts: sender.counts.timeouts,
            probes: sender.counts.probes,
            delayed_acks: sender.counts.delayed_acks,
            held_acks: sender.counts.held_acks,
            small_writes: sender.counts.small_writes,
            most_in_flight: u64::try_from(sender.counts.most_in_flight).unwrap_or(0),
            full_segment: u64::try_from(sender.full_segment()).unwrap_or(1),
            window: sender.limiting_window(),
            path_rtt: sender.path_rtt().map(nanos),
            windows_unknown: sender.windows_unknown(),
            lateness_unknown: sender.lateness_unknown(),
            turn_unknown: sender.turn_unknown() && !vantage.is_sender(side),
        };
        let timers = sender.counts.timeouts;
        let all_inferred = timers > 0 && timers == sender.counts.inferred_timeouts;
        let line = sender.into_line();
        let found = findings::findings(&line, &counts);
        let syn_wait = opening.of(side).map_or(Duration::ZERO, |attempt| {
            Duration::from_nanos(between(attempt.first.time, attempt.last.time))
        });
        let mut inferred = ProblemSet::EMPTY;
        if found
            .iter()
            .any(|f| f.problem == Problem::SendBufferLimited)
        {
            inferred.insert(Problem::SendBufferLimited);
        }
        if all_inferred {
            inferred.insert(Problem::Timeout);
        }
        DirectionVerdict {
            dominating: found
                .first()
                .map_or(Problem::SenderAppLimited, |f| f.problem),
            unmeasured: findings::unmeasured(report, side, &counts, &found),
            inferred,
            deltas: findings::deltas(report, side, &line, &counts),
            observed: findings::observed(report, side, &line, &counts, syn_wait),
            losses: Losses::judge(report.sent_by(side), &self.spread),
            path: self.delivery.finish(side, vantage, &self.spread),
            delayed_acks: self.oracle.finish(),
            messages,
            think: self.think,
            findings: found,
            line,
        }
    }
}

impl Events for Judge {
    fn event(&mut self, event: &Event<'_>) {
        if !self.begun {
            self.begin(event);
        }
        self.now = Moment {
            frame: event.frame,
            time: event.time.max(self.now.time),
        };
        let now = self.now;
        let [client, server] = &mut self.flows;
        let (fwd, rev) = match event.side {
            Side::Client => (client, server),
            Side::Server => (server, client),
        };
        if !self.opened && !event.flags.any(Flags::SYN | Flags::RST) {
            self.opened = true;
            self.handshake = Some(now);
            fwd.sender.opened(now);
            rev.sender.opened(now);
        }
        self.evidence.segment(event, now);
        if let Some(rtt) = event.rtt {
            self.gathered.answered(event.side, rtt);
            // With more under way the next segment would have let go an ACK that was kept back
            // (RFC 9293 section 3.8.6.3): the delay is a queue's.
            if !event.marks.any(Marks::DELAYED_ACK) || rev.delivery.is_more_under_way(event) {
                rev.spread.add(rtt);
            }
        }
        if event.kind == Kind::HardwareDuplicate {
            return;
        }
        if event.marks.any(Marks::TURN)
            && let Some(asked) = rev.sender.waits_for_answer(self.handshake)
            && fwd.sender.window() != Some(0)
        {
            fwd.think.answered(asked, now, fwd.sender.turn());
        }
        let sent = fwd.sender.sent(event, now);
        fwd.delivery.sent(event, now, sent, &fwd.sender);
        fwd.oracle.sent(event, now);
        fwd.messages.sent(event, now, sent, &fwd.sender);
        rev.sender.received(event, now);
        rev.delivery.received(event, now, &rev.sender);
        rev.oracle.received(event, now);
        rev.messages.received(event, now, &rev.sender);
        if event.kind == Kind::Reset {
            fwd.sender.reset(now);
            rev.sender.reset(now);
        }
    }
}

/// Follows a connection and judges it.
#[derive(Clone, Debug)]
pub struct Trial {
    connection: Connection,
    judge: Judge,
}

impl Trial {
    /// Of a connection whose first captured segment is `first`, which is still to be given
    /// to [`Follow::segment`].
    #[must_use]
    pub fn new(first: &Segment<'_>, tcp: &tcp::Options, options: &Options) -> Self {
        Self::of(Connection::new(first, tcp), options)
    }

    /// Of a connection that was just made.
    #[must_use]
    pub fn of(connection: Connection, options: &Options) -> Self {
        Trial {
            connection,
            judge: Judge::new(options),
        }
    }

    /// Takes the next segment, and hands it to another sink as well.
    pub fn segment_with<E: Events>(&mut self, s: &Segment<'_>, other: &mut E) {
        let side = if s.source == self.connection.client() {
            Side::Client
        } else {
            Side::Server
        };
        self.judge.segment(side, s);
        let mut both = Tee(&mut self.judge, other);
        self.connection.segment_of(side, s, &mut both);
    }
}

/// Two sinks at once.
struct Tee<'a, A, B>(&'a mut A, &'a mut B);

impl<A: Events, B: Events> Events for Tee<'_, A, B> {
    const WANTED: bool = A::WANTED || B::WANTED;

    fn event(&mut self, event: &Event<'_>) {
        self.0.event(event);
        self.1.event(event);
    }

    fn spurious(&mut self, proof: &Spurious) {
        self.0.spurious(proof);
        self.1.spurious(proof);
    }
}

impl Follow for Trial {
    type Report = Judged;

    fn segment(&mut self, segment: &Segment<'_>) {
        self.segment_with(segment, &mut tcp::Ignore);
    }

    #[inline]
    fn prefetch(&self) {
        self.connection.prefetch_outstanding();
        for flow in &self.judge.flows {
            flow.sender.prefetch();
            flow.spread.prefetch();
        }
    }

    fn unreachable(&mut self, at: Moment, refused: bool) {
        self.judge.unreachable(at, refused);
    }

    fn silent_until(&mut self, time: Timestamp) {
        self.judge.silent_until(time);
    }

    fn finish(self) -> Judged {
        let report = self.connection.finish();
        let verdicts = self.judge.finish(&report);
        Judged { report, verdicts }
    }
}
