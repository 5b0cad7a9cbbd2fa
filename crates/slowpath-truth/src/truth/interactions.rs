// SPDX-License-Identifier: Apache-2.0
//! Interactions: problems that explain each other.

use super::delayed_ack::{DELAYED, PROMPT};
use super::{Label, Truth};
use crate::plan::PathSettings;
use crate::repair::{Cause, Repair, repairs};
use crate::stream::{Sent, Stream};
use slowpath_diagnose::InteractionKind;
use slowpath_model::Problem;

/// What lasts so long, of a hundred parts of the time, limits a connection; what lasts less than
/// the other does not.
const LIMITS: u64 = 35;
const NO_LIMIT: u64 = 10;

/// A lost segment and the three after it that raise duplicate ACKs (RFC 5681 section 3.2).
const ENOUGH: u64 = 4;

/// What was the case of the interactions that one end of a connection can suffer from;
/// `problems` is what was the case of its problems.
pub fn of_end(
    stream: &Stream,
    path: &PathSettings,
    problems: &[(Problem, Truth)],
) -> [(InteractionKind, Truth); 3] {
    let repairs = repairs(stream);
    [
        (
            InteractionKind::TimeoutThenDelayedAck,
            delayed_after_timeout(stream, &repairs),
        ),
        (
            InteractionKind::TooFewForFastRetransmit,
            too_few(stream, &repairs),
        ),
        (
            InteractionKind::SendBufferBelowBdp,
            below_bdp(stream, path, problems),
        ),
    ]
}

/// What the timer sent again was the only segment under way, and its ACK left the receiver 35 ms or more
/// after it had come.
fn delayed_after_timeout(stream: &Stream, repairs: &[Repair]) -> Truth {
    let (mut events, mut unclear) = (0, 0);
    for repair in repairs {
        let timer = match repair.cause {
            Cause::Timer => true,
            Cause::Unclear => false,
            Cause::Fast | Cause::Probe => continue,
        };
        let number = stream.sent.partition_point(|s| s.at < repair.at);
        let Some(sent) = stream.sent.get(number) else {
            continue;
        };
        let Some(arrived) = sent.arrived else {
            continue;
        };
        let answered = stream.answered.partition_point(|a| a.at < arrived);
        let mut answers = stream.answered[answered..].iter();
        let Some(answer) = answers.find(|a| a.ack >= sent.end) else {
            continue;
        };
        // Something else came meanwhile, or was sent: the ACK is not only this segment's.
        let only_one = stream.sent.get(number + 1).is_none_or(|s| s.at > answer.at);
        let wait = answer.at - arrived;
        if answer.data || !only_one || wait < PROMPT {
            continue;
        }
        if timer && wait >= DELAYED {
            events += 1;
        } else {
            unclear += 1;
        }
    }
    Truth::counted(events, unclear)
}

/// When the timer sent something again, three segments or fewer were under way, the kernel had
/// no more to send, and the application's writes are shorter than four segments on average.
fn too_few(stream: &Stream, repairs: &[Repair]) -> Truth {
    let bytes = stream.written.last().map_or(0, |step| step.total);
    let writes = stream.written.len() as u64;
    if bytes >= ENOUGH * stream.mss * writes {
        return Truth::labelled(Label::False);
    }
    let few = |repair: &&Repair| {
        let before = stream.sent.iter().filter(|s| s.at < repair.at);
        let flight: Vec<&Sent> = before.filter(|s| s.end > repair.start).collect();
        let mut starts: Vec<u64> = flight.iter().map(|s| s.start).collect();
        starts.sort_unstable();
        starts.dedup();
        let next = flight.iter().map(|s| s.end).max().unwrap_or(0);
        let written = stream.written.partition_point(|step| step.at < repair.at);
        let accepted = written
            .checked_sub(1)
            .map_or(0, |i| stream.written[i].total);
        (starts.len() as u64) < ENOUGH && accepted <= next
    };
    let first = repairs.iter().filter(|r| r.first).filter(few);
    let count = |cause| first.clone().filter(|r| r.cause == cause).count() as u64;
    Truth::counted(count(Cause::Timer), count(Cause::Unclear))
}

/// The send buffer limits, and held at most less than the path's bandwidth-delay product.
fn below_bdp(stream: &Stream, path: &PathSettings, problems: &[(Problem, Truth)]) -> Truth {
    let limited = problems
        .iter()
        .find(|(p, _)| *p == Problem::SendBufferLimited);
    let Some((_, limited)) = limited else {
        return Truth::labelled(Label::False);
    };
    let observed_us = (stream.to - stream.from) / 1_000;
    let held = stream
        .states()
        .iter()
        .map(|(_, s)| s.accepted.saturating_sub(s.una))
        .max();
    let small = 10 * held.unwrap_or(0) < 9 * path.bdp();
    let label = match limited.label {
        Label::False => Label::False,
        _ if small && 100 * limited.time_us >= LIMITS * observed_us => Label::True,
        _ => Label::Undecided,
    };
    Truth {
        time_us: limited.time_us,
        ..Truth::labelled(label)
    }
}

/// What a relay's connections had, as far as it matters.
#[derive(Clone, Copy, Debug)]
pub struct Sides<'a> {
    /// The sender of what comes in.
    pub source: &'a [(Problem, Truth)],
    /// The relay where it receives.
    pub incoming: &'a [(Problem, Truth)],
    /// The relay where it sends.
    pub outgoing: &'a [(Problem, Truth)],
    /// How long, microseconds.
    pub observed_us: u64,
}

/// *Backed up*: what comes in is not read, and what goes out is limited. *Starved*: what goes
/// out is not limited, all that comes in is read, and its sender is limited.
pub fn relayed(sides: &Sides<'_>) -> Truth {
    let time = |truths: &[(Problem, Truth)], problems: &[Problem]| {
        let those = truths.iter().filter(|(p, _)| problems.contains(p));
        those.map(|(_, truth)| truth.time_us).max().unwrap_or(0)
    };
    let parts = |time: u64| 100 * time / sides.observed_us.max(1);
    let limits = [
        Problem::SendBufferLimited,
        Problem::ReceiverWindowLimited,
        Problem::CongestionWindowLimited,
        Problem::ZeroWindow,
    ];
    let out = parts(time(sides.outgoing, &limits));
    let source = parts(time(sides.source, &limits));
    let unread = parts(time(sides.incoming, &[Problem::ReceiverAppSlow]));
    let label = if unread >= LIMITS && out >= LIMITS {
        Label::True
    } else if unread < NO_LIMIT && out < NO_LIMIT {
        match source {
            LIMITS.. => Label::True,
            0..NO_LIMIT => Label::False,
            _ => Label::Undecided,
        }
    } else {
        Label::Undecided
    };
    Truth {
        time_us: time(sides.outgoing, &limits).max(time(sides.source, &limits)),
        ..Truth::labelled(label)
    }
}
