// SPDX-License-Identifier: Apache-2.0
//! What was really the case, one file a problem: docs/reference/accuracy.md in code.
//!
//! What enters: a [`Stream`], that is packets at both ends and the applications' own accounts.
//! What leaves: whether the problem was there, was not, or cannot be said. Nothing of the
//! verdict's code and none of the kernel's counters enter.

pub mod course;
mod delayed_ack;
pub mod interactions;
pub mod listener;
mod losses;
mod network;
mod receiver;
mod waiting;
mod writes;

use crate::stream::{State, Stream};
use serde::Serialize;
use slowpath_model::{Problem, ProblemSet};

/// Whether a problem was there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Label {
    /// It was: not to find it is a miss.
    True,
    /// It was not: to find it is wrong.
    False,
    /// Too little of it, or not to be decided: neither counts.
    Undecided,
}

/// What the oracle says of one problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Truth {
    /// Whether it was there.
    pub label: Label,
    /// How long, microseconds, where that is known.
    pub time_us: u64,
    /// How often, where it is counted.
    pub events: u64,
    /// Where it lasted longest: microseconds after the connection began, and how long.
    pub longest_us: (u64, u64),
}

impl Truth {
    /// Of something that lasts, so long: there from 2 % of the observation and 40 ms on (ten
    /// ticks of the kernel's clock), not there below a tenth of a millisecond (a stretch of one
    /// shows as a tick of four now and then). What is `doubtful` may
    /// make a `False` undecided.
    fn lasting(stream: &Stream, clear: u64, doubtful: u64) -> Self {
        let observed = stream.to - stream.from;
        let label = if clear >= (observed / 50).max(40_000_000) {
            Label::True
        } else if clear + doubtful < 100_000 {
            Label::False
        } else {
            Label::Undecided
        };
        Truth {
            label,
            time_us: clear / 1_000,
            events: 0,
            longest_us: (0, 0),
        }
    }

    /// Of a state of the sender that lasts. While the congestion window is full as well, it is
    /// doubtful.
    fn state(stream: &Stream, holds: impl Fn(&State) -> bool) -> Self {
        let full = |state: &State| state.repairing || window_is_full(state, stream.mss);
        let clear = stream.time(|state| !full(state) && holds(state));
        let doubtful = stream.time(|state| full(state) && holds(state));
        let mut truth = Truth::lasting(stream, clear, doubtful);
        let states = stream.states();
        let held = states.iter().filter(|(_, s)| !full(s) && holds(s));
        let longest = held.map(|(span, _)| span).max_by_key(|span| span.length());
        if let Some(span) = longest {
            let began = span.from - stream.from;
            truth.longest_us = (began / 1_000, span.length() / 1_000);
        }
        truth
    }

    /// Of something that is counted: there from the first one on.
    fn counted(events: u64, unclear: u64) -> Self {
        let label = match (events, unclear) {
            (0, 0) => Label::False,
            (0, _) => Label::Undecided,
            _ => Label::True,
        };
        Truth {
            events,
            ..Truth::labelled(label)
        }
    }

    /// Of which no more is said.
    pub(crate) fn labelled(label: Label) -> Self {
        Truth {
            label,
            time_us: 0,
            events: 0,
            longest_us: (0, 0),
        }
    }
}

/// Segments of the initial window (RFC 6928; Linux's TCP_INIT_CWND).
const INITIAL_WINDOW: u64 = 10;

/// Whether what is under way may fill the congestion window: that began with ten segments and
/// grew by no more than what was acknowledged (RFC 5681 section 3.1); in slow start half of it
/// counts as full (`tcp_is_cwnd_limited`; RFC 7661 section 4.1).
fn window_is_full(state: &State, mss: u64) -> bool {
    2 * (state.flight() + mss) > INITIAL_WINDOW * mss + state.una
}

/// What was the case of every problem that has an oracle, for the sending end of `stream`;
/// `back` is the other direction.
pub fn truths(stream: &Stream, back: &Stream) -> Vec<(Problem, Truth)> {
    let losses = losses::Losses::of(stream);
    let mut truths = vec![
        (Problem::SendBufferLimited, waiting::send_buffer(stream)),
        (Problem::FastRetransmit, losses.fast),
        (Problem::Timeout, losses.timeout),
        (Problem::DelayedAck, delayed_ack::delayed_ack(stream)),
        (
            Problem::ReceiverWindowLimited,
            waiting::receiver_window(stream),
        ),
        (
            Problem::CongestionWindowLimited,
            waiting::congestion_window(stream),
        ),
        (Problem::SmallWrites, writes::small_writes(stream)),
        (Problem::IdleBurst, losses.idle_burst),
        (Problem::ZeroWindow, waiting::zero_window(stream)),
        (Problem::Reordering, network::reordering(stream)),
        (Problem::EcnMarked, network::marks(stream)),
        (Problem::ReceiverAppSlow, receiver::slow_application(back)),
        (Problem::SynRetransmit, network::opening(stream)),
    ];
    let label = application(truths.iter().map(|(_, truth)| truth.label));
    truths.insert(0, (Problem::SenderAppLimited, Truth::labelled(label)));
    truths
}

/// The application is the limit when nothing else is.
fn application(others: impl Iterator<Item = Label> + Clone) -> Label {
    let any = |label| others.clone().any(|other| other == label);
    if any(Label::True) {
        Label::False
    } else if any(Label::Undecided) {
        Label::Undecided
    } else {
        Label::True
    }
}

/// Problems of which packets do not show what decides about them at this end: `SmallWrites` by the
/// number of writes, and `SenderAppLimited` where only such a problem, or `ReceiverAppSlow`,
/// excludes it. `truths` are those of the same stream.
pub fn hidden(stream: &Stream, truths: &[(Problem, Truth)]) -> ProblemSet {
    let held = writes::held_back(stream).label;
    let mut hidden = ProblemSet::EMPTY.with(Problem::ReceiverAppSlow);
    let differs = |problem, label| {
        truths
            .iter()
            .any(|(p, t)| *p == problem && t.label != label)
    };
    if differs(Problem::SmallWrites, held) {
        hidden.insert(Problem::SmallWrites);
    }
    let shown = truths.iter().filter_map(|(problem, truth)| match problem {
        Problem::SenderAppLimited | Problem::ReceiverAppSlow => None,
        Problem::SmallWrites => Some(held),
        _ => Some(truth.label),
    });
    if differs(Problem::SenderAppLimited, application(shown)) {
        hidden.insert(Problem::SenderAppLimited);
    }
    hidden
}
