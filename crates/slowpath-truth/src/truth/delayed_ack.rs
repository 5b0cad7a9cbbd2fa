// SPDX-License-Identifier: Apache-2.0
//! DelayedAck: the receiver had the data and waited before it said so.

use super::{Label, Truth};
use crate::app::Span;
use crate::stream::{State, Stream};

/// An acknowledgement without data that leaves the receiver so long after the data came is
/// delayed: Linux delays by 40 ms at least (TCP_DELACK_MIN), a busy host by some.
pub(super) const DELAYED: u64 = 35_000_000;

/// What leaves sooner is not delayed; between the two, a busy host and a delay look alike.
pub(super) const PROMPT: u64 = 8_000_000;

/// A wait of the receiver for a segment that was the only one under way when its ACK came.
struct Wait {
    /// From the segment's arrival to the departure of its ACK.
    over: Span,
    /// From the segment's departure to the arrival of its ACK.
    cycle: Span,
    /// Unsent data or a refused writer waited with it.
    held: bool,
}

/// Every such wait beyond [`PROMPT`].
fn waits(stream: &Stream) -> Vec<Wait> {
    let states = stream.states();
    let before = |at: u64| -> State {
        let last = states.partition_point(|(span, _)| span.from < at);
        last.checked_sub(1)
            .map_or(State::default(), |i| states[i].1)
    };
    let mut waits = Vec::new();
    let mut answers = stream.answered.iter().peekable();
    let mut highest = 0;
    for &(came, start, end) in &stream.arrivals {
        // In order and new: an ACK of what fills or leaves a gap is never delayed.
        let in_order = start == highest;
        highest = highest.max(end);
        while answers.next_if(|a| a.at < came || a.ack < end).is_some() {}
        let Some(answer) = answers.peek() else { break };
        let wait = answer.at.saturating_sub(came);
        if !in_order || answer.data || wait < PROMPT || answer.at > stream.to {
            continue;
        }
        // As it reached the sender.
        let heard = stream.heard.partition_point(|h| h.at < answer.at);
        let heard = stream.heard[heard..].iter().find(|h| h.ack == answer.ack);
        let sent = stream.sent.partition_point(|s| s.at < came);
        let sent = stream.sent[..sent].iter().rfind(|s| s.start == start);
        let (Some(heard), Some(sent)) = (heard, sent) else {
            continue;
        };
        let state = before(heard.at);
        if state.una == start && state.next == end {
            waits.push(Wait {
                over: Span {
                    from: came,
                    to: answer.at,
                },
                cycle: Span {
                    from: sent.at,
                    to: heard.at,
                },
                held: state.unsent() > 0 || state.wanting,
            });
        }
    }
    waits
}

/// The round trips of segments whose ACK was delayed, and the receiver's part of each.
pub(super) fn delays(stream: &Stream) -> Vec<(Span, Span)> {
    let waits = waits(stream).into_iter();
    let delayed = waits.filter(|wait| wait.over.length() >= PROMPT);
    delayed.map(|wait| (wait.cycle, wait.over)).collect()
}

/// Delayed ACKs of the only segment under way, that held something back (data that Nagle's
/// algorithm keeps, a waiting writer) or, where the receiver never sends data, any.
pub(super) fn delayed_ack(stream: &Stream) -> Truth {
    let one_way = !stream.is_exchange();
    let (mut time, mut events, mut unclear) = (0, 0, 0);
    for wait in waits(stream) {
        if !one_way && !wait.held {
            continue;
        }
        if wait.over.length() >= DELAYED {
            events += 1;
            time += wait.over.length();
        } else {
            unclear += 1;
        }
    }
    let mut truth = Truth::counted(events, unclear);
    truth.time_us = time / 1_000;
    // As for all that lasts: less than this is too little to be missed.
    if events > 0 && time < ((stream.to - stream.from) / 50).max(40_000_000) {
        truth.label = Label::Undecided;
    }
    truth
}
