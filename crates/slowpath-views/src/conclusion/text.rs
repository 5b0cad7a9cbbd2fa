// SPDX-License-Identifier: Apache-2.0
//! The answer in a sentence. Each figure is of the connection that the answer cost most, of
//! the time observed; a gauge as it was in the last interval with the problem, where there is one.

use super::end::{End, round_trips};
use super::judged::Judged;
use super::turns::Turns;
use super::{Act, ActingProcess, Because, Conclusion, Limiter, Refusing, Role};
use slowpath_model::{Failure, Micros, Origin, Owner, Problem};
use slowpath_text::{bit_rate, bytes, percent, plural};

/// Nothing was to do.
pub(super) fn of_nothing(idle: usize) -> Conclusion {
    Conclusion {
        limiter: Limiter::Nothing,
        share: None,
        alarm: false,
        act: Act {
            who: Role::None,
            process: None,
            address: None,
        },
        because: Vec::new(),
        connections: idle,
        others: 0,
        idle,
        text: match idle {
            0 => "nothing: there was no connection".to_owned(),
            1 => "nothing: the connection was idle".to_owned(),
            n => format!("nothing: all {n} connections were idle"),
        },
        evidence: None,
    }
}

/// Connections that no one waits for any more, named behind the answer.
pub(super) fn of_given_up(count: usize) -> Option<String> {
    let connections = plural(count as u64, "connection");
    (count > 0).then(|| {
        format!(
            "{connections} more had no answer for 100 s, or wait for nothing but the ACK of a FIN"
        )
    })
}

/// A listener turned connections away.
pub(super) fn of_listener(listener: &Refusing<'_>, others: usize, idle: usize) -> Conclusion {
    let (queue, who, limiter) = match listener.problem {
        Problem::SynQueueOverflow => ("half-open", Role::ReceivingHost, Limiter::Failed),
        _ => ("accept", Role::AcceptingApplication, Limiter::Application),
    };
    let turned_away = match listener.events {
        0 => "connections were turned away".to_owned(),
        1 => "1 connection attempt was turned away".to_owned(),
        n => format!("{n} connection attempts were turned away"),
    };
    let text = match listener.problem {
        Problem::SynQueueOverflow => format!(
            "the receiver: the queue of half-open connections to {} was full; {turned_away}",
            listener.local
        ),
        _ => format!(
            "the accepting application: {} does not accept what arrives on {} in time; its {queue} queue was full, {turned_away}",
            named(Some(listener.owner), "the listening process"),
            listener.local
        ),
    };
    Conclusion {
        limiter,
        share: None,
        alarm: true,
        act: Act {
            who,
            process: ActingProcess::of(listener.owner),
            address: Some(listener.local.to_string()),
        },
        because: vec![Because {
            problem: listener.problem.name(),
            share: 1.0,
            time_us: listener.time.0,
        }],
        connections: 0,
        others,
        idle,
        text,
        evidence: None,
    }
}

/// The sentence about one group: `judged` is its worst connection, `connections` how many it has, and how
/// many of all had anything to do.
pub(super) fn of(judged: &Judged<'_>, share: Option<f64>, connections: (usize, usize)) -> String {
    let stage = match judged.limiter {
        Limiter::Application => "the application",
        Limiter::SendBuffer => "the send buffer",
        Limiter::Network => "the network",
        Limiter::Receiver => "the receiver",
        Limiter::RoundTrips => "round trips",
        Limiter::Failed => "connections that failed",
        Limiter::Nothing => "nothing",
    };
    let (about, working) = connections;
    if let Some(failure) = judged.failure {
        return failed(judged, failure, about, working);
    }
    let share = share.map_or_else(String::new, |s| format!(", {}", percent(s)));
    let of = match about {
        1 => String::new(),
        n => format!(" of {}", plural(n as u64, "connection")),
    };
    format!("{stage}{share}{of}: {}", reason(judged))
}

/// `12 of 15 connections to 10.0.0.2:80 were refused: ...`
fn failed(judged: &Judged<'_>, failure: Failure, about: usize, working: usize) -> String {
    let accepted = judged
        .sender
        .is_some_and(|end| end.origin == Origin::Accepted);
    let to = judged.address.map_or_else(String::new, |a| match failure {
        Failure::ResetHere => format!(" at {a}"),
        Failure::NotSent => judged
            .sender
            .map_or_else(String::new, |end| format!(" to {}", end.tuple.remote)),
        _ if accepted => format!(" from {}", a.ip()),
        _ => format!(" to {a}"),
    });
    let (count, were) = match (about, working) {
        (1, 1) => ("the connection".to_owned(), "was"),
        (1, all) => (format!("1 of {all} connections"), "was"),
        (n, all) if n == all => (format!("all {n} connections"), "were"),
        (n, all) => (format!("{n} of {all} connections"), "were"),
    };
    let owner = named(judged.owner, "the peer's application");
    let why = match failure {
        Failure::Refused => "refused: nothing listens there".to_owned(),
        Failure::NotSent => {
            "not sent: each SYN was dropped on this host, by its own firewall, routes or queueing \
             discipline (nft list ruleset, ip route get, tc -s qdisc)"
                .to_owned()
        }
        Failure::Unanswered => {
            "never answered: what was sent, or its answer, is dropped".to_owned()
        }
        Failure::Unreachable => {
            "reported as unreachable (ICMP): no route, or a firewall".to_owned()
        }
        Failure::ResetByPeer => {
            let lost = judged.sender.map_or(0, |end| end.undelivered());
            let lost = match lost {
                0 => "what was sent was not answered".to_owned(),
                lost => format!("{} were not delivered", bytes(lost.into())),
            };
            format!("reset by {owner}: {lost}")
        }
        Failure::ResetHere => format!("reset by {owner}, which had not read what arrived"),
        Failure::Abandoned => format!("given up by {owner} before anything answered"),
    };
    format!("failed connections: {count}{to} {were} {why}")
}

fn reason(judged: &Judged<'_>) -> String {
    match judged.limiter {
        Limiter::SendBuffer => send_buffer(judged),
        Limiter::Network => network(judged),
        Limiter::Receiver => receiver(judged),
        Limiter::RoundTrips => round_trip(judged),
        Limiter::Application => application(judged),
        Limiter::Failed | Limiter::Nothing => String::new(),
    }
}

fn named(owner: Option<&Owner>, otherwise: &str) -> String {
    owner
        .and_then(ActingProcess::of)
        .map_or_else(|| otherwise.to_owned(), |process| process.to_string())
}

fn send_buffer(judged: &Judged<'_>) -> String {
    let owner = named(judged.owner, "the sending application");
    let size = judged
        .sender
        .and_then(|end| {
            let deltas = end.tally.deltas_of(Problem::SendBufferLimited);
            deltas.send_buffer.or(end.stats.send_buffer)
        })
        .map_or_else(String::new, |size| {
            format!(" ({} of memory)", bytes(size.into()))
        });
    format!("the send buffer{size} of {owner} is full while the network could carry more")
}

fn network(judged: &Judged<'_>) -> String {
    let Some(sender) = judged.sender else {
        return "the path limits".to_owned();
    };
    if let Some(turns) = &judged.turns {
        let again = judged.receiver.map_or(0, |end| end.sent_again()) + sender.sent_again();
        return format!(
            "{} waited {} in all for {} to be sent again: a small message that is lost waits for a timer (the tail loss \
             probe's, or the RTO)",
            plural(turns.answers, "exchange"),
            judged.time,
            plural(again, "segment")
        );
    }
    if sender.stats.bytes_acked == 0 {
        return "SYNs are not answered".to_owned();
    }
    if !sender.sent() {
        let segment = sender.stats.send_mss;
        return format!(
            "the connection opened, and nothing sent on it was acknowledged: data or ACKs are dropped; \
             if only full segments are ({segment} B), the path's MTU is smaller than this host knows"
        );
    }
    let losses = losses(&sender);
    let trips = round_trips(&sender);
    let queue = trips.map_or(Micros::ZERO, |(mean, least)| mean.saturating_sub(least));
    let full = trips.is_some_and(|(_, least)| queue >= super::connection::QUEUE.max(least));
    let rate = sender
        .acknowledged_rate()
        .map_or_else(String::new, |rate| format!("{}, ", bit_rate(rate)));
    if judged.who == Role::SendingHost && full {
        return format!(
            "{queue} of queue ({rate}this host's own queueing discipline or device, `tc -s qdisc`)"
        );
    }
    match (full, losses) {
        (true, None) => format!("the path is full ({rate}{queue} of queue)"),
        (true, Some(losses)) => {
            format!("the path is full ({rate}{queue} of queue); {losses} are its overflow")
        }
        (false, Some(losses)) => {
            format!("the congestion window stays small after {losses} on the path")
        }
        (false, None) if sender.time(Problem::EcnMarked) > Micros::ZERO => {
            format!("the path is full ({rate}marked by ECN before a queue builds up)")
        }
        (false, None) if sender.waits_below_window() => format!(
            "{rate}while {} are under way, less than the congestion window ({}) allows: this host's own \
             device or queueing discipline takes no more (`tc -s qdisc`), or TCP paces",
            plural(sender.stats.in_flight.into(), "segment"),
            sender.stats.cwnd
        ),
        (false, None) => format!(
            "the congestion window ({}) is the limit, and the path has no queue: it began small, \
             was reduced before, or is paced",
            plural(congestion_window(&sender).into(), "segment")
        ),
    }
}

/// The congestion window when it limited last.
fn congestion_window(sender: &End<'_>) -> u32 {
    let deltas = sender.tally.deltas_of(Problem::CongestionWindowLimited);
    match deltas.cwnd {
        0 => sender.stats.cwnd,
        cwnd => cwnd,
    }
}

/// Losses, timers and overtaken segments, in words.
fn losses(sender: &End<'_>) -> Option<String> {
    let deltas = &sender.tally.deltas;
    let mut words = Vec::new();
    let events = |problem: Problem| sender.tally.totals.problem_events[problem as usize];
    let lost = deltas.retransmitted.unwrap_or(0);
    let timeouts = events(Problem::Timeout);
    if lost > 0 {
        words.push(plural(lost, "retransmission"));
    }
    if timeouts > 0 {
        words.push(plural(timeouts, "timeout"));
    }
    if sender.time(Problem::Reordering) > Micros::ZERO {
        words.push("overtaken segments".to_owned());
    }
    if words.is_empty() && sender.time(Problem::Timeout) > Micros::ZERO {
        words.push("an unanswered timeout".to_owned());
    }
    (!words.is_empty()).then(|| words.join(", "))
}

fn receiver(judged: &Judged<'_>) -> String {
    if let Some(end) = judged.receiver.filter(|_| judged.waits_for_processor()) {
        return format!(
            "{} waited for a processor for {} of {}, while what arrived was unread: its CPU quota is used up, \
             or others keep that host's processors busy",
            named(judged.owner, "the receiving application"),
            end.starved,
            end.tally.totals.observed.max(end.starved),
        );
    }
    match judged.who {
        Role::ReceivingApplication => {
            let owner = named(judged.owner, "the receiving application");
            match judged.address {
                Some(address) if judged.owner.and_then(Owner::process).is_none() => {
                    format!("{owner} at {address} does not read what has arrived")
                }
                _ => format!("{owner} does not read what has arrived"),
            }
        }
        _ => {
            let window = judged
                .sender
                .and_then(|end| {
                    let deltas = end.tally.deltas_of(Problem::ReceiverWindowLimited);
                    deltas.send_window.or(end.stats.send_window)
                })
                .map_or_else(String::new, |w| format!(" ({})", bytes(w.into())));
            let at = judged
                .address
                .map_or_else(String::new, |a| format!(" of {}", a.ip()));
            let reads = match judged.receiver {
                Some(_) => "its application reads what arrives, so that its buffer is too small",
                None => "its buffer is small for this path, or its application reads slowly",
            };
            format!("the receive window{at}{window} is full: {reads}")
        }
    }
}

fn round_trip(judged: &Judged<'_>) -> String {
    let least = judged.sender.and_then(|end| end.stats.min_rtt);
    match least.filter(|rtt| rtt.0 > 0) {
        Some(rtt) => format!(
            "{} sends one message after another, each a round trip of {rtt}: at most {:.0} a \
             second; batch or pipeline them, or come nearer",
            named(judged.owner, "the asking application"),
            (1e6 / rtt.0 as f64).max(1.0)
        ),
        None => "one message after another, each a round trip".to_owned(),
    }
}

fn application(judged: &Judged<'_>) -> String {
    let owner = named(judged.owner, "the application");
    let paced = judged.sender.filter(|end| end.paced().is_some());
    if let Some(most) = paced.and_then(|end| end.facts.max_pacing_rate) {
        return format!(
            "{owner} paces itself at {} (SO_MAX_PACING_RATE)",
            bit_rate(most as f64)
        );
    }
    if judged.receiver.is_some_and(|end| end.stopped) {
        return format!("{owner} is stopped, by a signal or a debugger, and what arrived waits");
    }
    if let Some(turns) = &judged.turns {
        return turn(judged, turns, &owner);
    }
    if judged.alarm {
        return format!(
            "{owner} writes messages in pieces, which wait for the acknowledgement of the piece \
             before: write them at once, or set TCP_NODELAY"
        );
    }
    format!("{owner} sends no faster; nothing else limits")
}

/// `postgres[12] took 301ms to answer (120 answers)`
fn turn(judged: &Judged<'_>, turns: &Turns, owner: &str) -> String {
    let address = judged.address.map_or_else(String::new, |a| a.to_string());
    let owner = match judged.owner.and_then(ActingProcess::of) {
        Some(_) => owner,
        None => &address,
    };
    if turns.answers_decide() {
        let Some(answer) = turns.answer else {
            return format!("{owner} takes most of the time to answer");
        };
        return match turns.answers {
            0 => format!("{owner} has not answered for {answer}"),
            n => format!("{owner} took {answer} to answer ({})", plural(n, "answer")),
        };
    }
    format!("{owner} asks no faster; answers come in time, and nothing else limits")
}
