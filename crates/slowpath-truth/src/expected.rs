// SPDX-License-Identifier: Apache-2.0
//! What the one answer about a run must be: from what was injected, and from packets and the
//! applications' accounts. docs/reference/accuracy.md, "Answers", in code.
//!
//! Where an injection guarantees the limit, it is the expectation. Where the plan leaves open which of several
//! stages takes most, the packets decide ([`Course`](crate::truth::course::Course)), and what is nearly as much is accepted too.

use crate::judgement::Class;
use crate::plan::{Group, Pace, Plan, Traffic};
use crate::run::{Judged, Outcome};
use crate::truth::Label;
use slowpath_diagnose::InteractionKind;
use slowpath_model::Problem;
use slowpath_views::conclusion::{Conclusion, Limiter, Role};
use std::fmt;
use std::net::SocketAddr;

/// A stage that took so much of what the longest one took may be the answer as well.
const NEARLY: f64 = 0.8;

/// A queue that is a standing one: CoDel's target (RFC 8289 section 4.4), nanoseconds, and not less than
/// the RTT without it. Within this factor of it, packets at two interfaces and the kernel's RTT samples
/// may differ.
const QUEUE: u64 = 5_000_000;
const ABOUT: f64 = 1.5;

/// With u of the time in which something is unread, a bigger buffer gives 1 / u times the rate (the reader is busy
/// all the time). A quicker reader gives 1 / r times: the round trips remain, which take 1 - u of the time or, where
/// reading and round trips overlap, one for each full window. Where one gives this multiple of the other it is the
/// answer; between, both are right.
const CLEARLY: f64 = 2.0;

/// A tenth of the time is what makes a limit the answer (docs/reference/answers.md): around it, with and
/// without are right.
const TENTH: (f64, f64) = (0.08, 0.125);

/// An answer that took longer is a slow one (docs/reference/answers.md), and if answers took more of the time than a
/// limit of TCP they come before it. From here on, microseconds, what the accounts show may be on either side of
/// the 100 ms.
const SLOW: u64 = 80_000;

/// One answer that is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// What limits.
    pub limiter: Limiter,
    /// Who has to act.
    pub who: Role,
    /// Where: of the network, the peer that it leads to.
    pub address: SocketAddr,
    /// The process, of an application.
    pub pid: Option<u32>,
}

impl Expected {
    /// Whether the answer is this one.
    pub fn is(&self, answer: &Conclusion) -> bool {
        let pid = answer.act.process.as_ref().and_then(|process| process.pid);
        answer.limiter == self.limiter
            && answer.act.who == self.who
            && answer.act.address.as_deref() == Some(self.address.to_string().as_str())
            && self.pid.is_none_or(|expected| pid == Some(expected))
    }
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Expected {
            limiter,
            who,
            address,
            pid,
        } = self;
        write!(f, "{limiter:?}/{who:?} {address}")?;
        match pid {
            Some(pid) => write!(f, " process {pid}"),
            None => Ok(()),
        }
    }
}

/// The answers that are right about a run in which the oracle confirms what was injected; none where nothing
/// was, or two things.
pub fn expected(group: Group, plan: &Plan, outcome: &Outcome) -> Vec<Expected> {
    let run = Run { plan, outcome };
    match group {
        Group::Problem(problem) => run.problem(problem),
        Group::Interaction(InteractionKind::PipelinedProxy) => run.relayed(),
        // Requests are lost: what sends them again is a consequence.
        Group::Interaction(_) => run.network(),
        _ => Vec::new(),
    }
}

struct Run<'a> {
    plan: &'a Plan,
    outcome: &'a Outcome,
}

impl Run<'_> {
    fn problem(&self, problem: Problem) -> Vec<Expected> {
        match problem {
            Problem::SenderAppLimited => self.turn(),
            Problem::SendBufferLimited => self.sender(Limiter::SendBuffer),
            // Both ways to bring it about lose or delay segments, or mark them.
            Problem::FastRetransmit | Problem::Reordering | Problem::EcnMarked => self.network(),
            Problem::Timeout => self.cut(),
            Problem::SynRetransmit => self.opening(),
            Problem::CongestionWindowLimited => self.window(),
            // Nagle's algorithm holds what was written in pieces.
            Problem::DelayedAck => self.sender(Limiter::Application),
            Problem::SmallWrites => self.small_writes(),
            Problem::IdleBurst => self.sender(Limiter::Application),
            Problem::ReceiverWindowLimited | Problem::ZeroWindow | Problem::ReceiverAppSlow => {
                self.receiver()
            }
            Problem::AcceptQueueOverflow => {
                self.listener(Limiter::Application, Role::AcceptingApplication)
            }
            Problem::SynQueueOverflow => self.half_open(),
        }
    }

    /// The ends of the connection asked about: that which opened it, and the other.
    fn ends(&self) -> Option<(&Judged, &Judged)> {
        Some((self.outcome.ends.first()?, self.outcome.ends.get(1)?))
    }

    fn application(&self, limiter: Limiter, who: Role, of: &Judged) -> Expected {
        Expected {
            limiter,
            who,
            address: of.observed.tuple.local,
            pid: Some(std::process::id()),
        }
    }

    fn sender(&self, limiter: Limiter) -> Vec<Expected> {
        let sends = |(opener, _)| self.application(limiter, Role::SendingApplication, opener);
        self.ends().map(sends).into_iter().collect()
    }

    fn network(&self) -> Vec<Expected> {
        self.path(Limiter::Network, Role::Network)
    }

    fn path(&self, limiter: Limiter, who: Role) -> Vec<Expected> {
        let to = |(_, other): (&Judged, &Judged)| Expected {
            limiter,
            who,
            address: other.observed.tuple.local,
            pid: None,
        };
        self.ends().map(to).into_iter().collect()
    }

    /// A path that is cut loses what either end sends.
    fn cut(&self) -> Vec<Expected> {
        let mut right = self.network();
        if let (Some((opener, _)), false) = (self.ends(), self.plan.path.cuts_ms.is_empty()) {
            right.extend(self.network().into_iter().map(|expected| Expected {
                address: opener.observed.tuple.local,
                ..expected
            }));
        }
        right.extend(self.slow_answer(self.timeouts()));
        right
    }

    /// How long both ends waited for their timers of retransmission, microseconds.
    fn timeouts(&self) -> u64 {
        let truths = self.outcome.ends.iter().flat_map(|end| &end.truths);
        let timeouts = truths.filter(|(problem, _)| *problem == Problem::Timeout);
        timeouts.map(|(_, truth)| truth.time_us).sum()
    }

    /// The process that answers, if it takes about as long as makes an answer a slow one, and nearly as much of
    /// the time as the path, microseconds.
    fn slow_answer(&self, path: u64) -> Option<Expected> {
        let Traffic::Exchange { think_us, .. } = self.plan.traffic else {
            return None;
        };
        let (_, other) = self.ends()?;
        let took = other.course.own / 1_000;
        let near = think_us >= SLOW && took as f64 >= NEARLY * path as f64;
        near.then(|| self.application(Limiter::Application, Role::SendingApplication, other))
    }

    fn listener(&self, limiter: Limiter, who: Role) -> Vec<Expected> {
        let process = (who == Role::AcceptingApplication).then(std::process::id);
        vec![Expected {
            limiter,
            who,
            address: self.outcome.listener,
            pid: process,
        }]
    }

    /// What fills the queue of half-open connections; the accept queue, too, may have overflowed, with what was
    /// completed at once.
    fn half_open(&self) -> Vec<Expected> {
        let mut right = self.listener(Limiter::Failed, Role::ReceivingHost);
        let accept = Class::Problem(Problem::AcceptQueueOverflow);
        let mut others = self.outcome.others.iter();
        if others.any(|other| other.class == accept && other.truth.label != Label::False) {
            right.extend(self.listener(Limiter::Application, Role::AcceptingApplication));
        }
        right
    }

    /// A reader that leaves data unread for most of the time; or a buffer below what the path holds.
    fn receiver(&self) -> Vec<Expected> {
        let reads = |(_, other)| self.reader(other);
        self.ends().map(reads).unwrap_or_default()
    }

    fn reader(&self, end: &Judged) -> Vec<Expected> {
        let mut right = Vec::new();
        let of = |who| self.application(Limiter::Receiver, who, end);
        let unread = end.course.unread;
        let round_trips = end.course.round_trips.max(1.0 - unread);
        if CLEARLY * unread >= round_trips {
            right.push(of(Role::ReceivingApplication));
        }
        if unread < CLEARLY * round_trips {
            right.push(Expected {
                pid: None,
                ..of(Role::ReceivingHost)
            });
        }
        right
    }

    /// Bulk: the path, where segments were lost or late or its queue stands; else what the sending host
    /// knows of it.
    fn window(&self) -> Vec<Expected> {
        let Some((opener, _)) = self.ends() else {
            return Vec::new();
        };
        let course = &opener.course;
        let standing = course.queue as f64 / QUEUE.max(course.least_rtt) as f64;
        let mut right = Vec::new();
        if course.disturbed || standing >= 1.0 / ABOUT {
            right.extend(self.network());
        }
        if !course.disturbed && standing < ABOUT {
            right.push(Expected {
                pid: None,
                ..self.application(Limiter::Network, Role::SendingHost, opener)
            });
        }
        right
    }

    /// Messages that Nagle's algorithm holds; or bulk by small writes, which fills the path unless they are
    /// too many for the processor.
    fn small_writes(&self) -> Vec<Expected> {
        let mut right = Vec::new();
        let window = self.ends().and_then(|(opener, _)| {
            let of = |problem| opener.truths.iter().find(|(p, _)| *p == problem);
            Some(of(Problem::CongestionWindowLimited)?.1)
        });
        let bulk = matches!(self.plan.traffic, Traffic::Bulk { .. });
        let fills = bulk && window.is_some_and(|truth| truth.label != Label::False);
        if fills {
            right.extend(self.window());
        }
        if !bulk || window.is_none_or(|truth| truth.label != Label::True) {
            right.extend(self.sender(Limiter::Application));
        }
        right
    }

    /// The path dropped SYNs; of an exchange that lasted so long that their wait is about a tenth of its time or
    /// less, whoever took most of the rest.
    fn opening(&self) -> Vec<Expected> {
        let share = self.ends().map_or(0.0, |(opener, _)| opener.course.opening);
        let mut right = Vec::new();
        if share >= TENTH.0 {
            let waited = share * self.plan.length_ms as f64 * 1e3;
            right.extend(self.network());
            right.extend(self.slow_answer(waited as u64));
        }
        if share < TENTH.1 {
            right.extend(self.turn());
        }
        right
    }

    /// Whose turn took most of the time.
    fn turn(&self) -> Vec<Expected> {
        let Some((opener, other)) = self.ends() else {
            return Vec::new();
        };
        let (asks, answers) = (opener.course, other.course);
        let who = Role::SendingApplication;
        let stages = [
            (
                asks.own,
                self.application(Limiter::Application, who, opener),
            ),
            (
                answers.own,
                self.application(Limiter::Application, who, other),
            ),
            (
                asks.waited.saturating_sub(answers.own),
                self.application(Limiter::RoundTrips, who, opener),
            ),
        ];
        let most = stages.iter().map(|(time, _)| *time).max().unwrap_or(0);
        let near = stages
            .into_iter()
            .filter(|(time, _)| *time as f64 >= NEARLY * most as f64);
        near.map(|(_, expected)| expected).collect()
    }

    /// The first process's send buffer, that of the process in between, or the last process, which reads slowly.
    fn relayed(&self) -> Vec<Expected> {
        let (Some([relay, last]), [_, _, outgoing, end]) =
            (self.outcome.players, self.outcome.ends.as_slice())
        else {
            return Vec::new();
        };
        let through = self.plan.relay.as_ref();
        if self.plan.pace != Pace::Quick {
            let own = |expected: Expected| Expected {
                pid: expected.pid.map(|_| last),
                ..expected
            };
            return self.reader(end).into_iter().map(own).collect();
        }
        if through.is_some_and(|relay| relay.send_buffer.is_some()) {
            let who = Role::SendingApplication;
            let sends = self.application(Limiter::SendBuffer, who, outgoing);
            return vec![Expected {
                pid: Some(relay),
                ..sends
            }];
        }
        self.sender(Limiter::SendBuffer)
    }
}
