// SPDX-License-Identifier: Apache-2.0
//! A connection that nothing in TCP limits: whose turn it was, or the application's own pace.
//!
//! 1. Where turns are observed: the one that took most time ([`turns`](super::turns)): an application's, or
//!    *RoundTrips*.
//! 2. Else *RoundTrips* if both ends send, and the exchanges (the fewer of reads and writes) times the least
//!    RTT are half of the active time. Several under way at once would exceed it.
//! 3. *Application* otherwise.

use super::end::{End, Times};
use super::judged::{Judged, SEQUENTIAL};
use super::turns::Turns;
use super::{Limiter, Role};
use slowpath_model::{Micros, Origin};
use std::net::SocketAddr;

/// From this RTT on one exchange after another is slow: the limit of what users feel as
/// instantaneous is 0.1 s, which ten of them take (Nielsen, Usability Engineering, section 5.5).
const FAR: Micros = Micros(10_000);

/// An answer that took so long keeps its asker waiting: the limit of what users feel as instantaneous
/// (Nielsen, Usability Engineering, section 5.5).
const SLOW_ANSWER: Micros = Micros(100_000);

/// Where no answer came at all it may be that none was asked for: the limit of an uninterrupted flow of thought
/// (Nielsen, the same section).
const NO_ANSWER: Micros = Micros(1_000_000);

/// Nothing but the application's own pace, or nothing at all.
pub(super) fn pace<'a>(
    near: &(End<'a>, Times),
    far: Option<&(End<'a>, Times)>,
    peer: SocketAddr,
) -> Judged<'a> {
    let sends = match far {
        Some(far) if !near.0.moved() || near.0.tally.deltas.bytes_acked == Some(0) => far,
        _ => near,
    };
    let turns = Turns::of(&near.0, far.map(|(end, _)| end));
    // An answer that is awaited is no idleness.
    let answering = turns.map_or(Micros::ZERO, |t| t.answering);
    let active = near.1.active.max(answering);
    let busy = far.map_or(near.1.work, |(_, far)| far.work.max(near.1.work));
    let turned = turns.map_or(busy, |t| t.answering + t.round_trips);
    let own = Judged {
        limiter: Limiter::Application,
        alarm: false,
        who: Role::SendingApplication,
        owner: Some(sends.0.owner),
        address: Some(sends.0.tuple.local),
        time: active,
        work: active,
        active,
        given_up: false,
        awaited: turned.max(busy).min(active),
        because: Vec::new(),
        sender: Some(sends.0),
        receiver: None,
        only_opening: false,
        failure: None,
        turns: None,
        asked_by: None,
    };
    let ends = [Some(near.0), far.map(|(end, _)| *end)];
    if let Some(stopped) = ends.into_iter().flatten().find(|end| end.stopped) {
        let life = stopped.tally.totals.observed;
        return Judged {
            alarm: true,
            who: Role::ReceivingApplication,
            owner: Some(stopped.owner),
            address: Some(stopped.tuple.local),
            time: life,
            work: life,
            active: life,
            awaited: life,
            sender: None,
            receiver: Some(stopped),
            ..own
        };
    }
    let moved = near.0.moved() || far.is_some_and(|f| f.0.moved());
    if active == Micros::ZERO || !(moved || answering > Micros::ZERO) {
        return Judged {
            limiter: Limiter::Nothing,
            who: Role::None,
            owner: None,
            address: None,
            ..own
        };
    }
    match turns {
        Some(turns) => whose_turn(near, far, peer, turns, own),
        None => match sequential(&near.0, near.1.active) {
            Some(share) => round_trips_of(near, peer, share, own),
            None => own,
        },
    }
}

/// The turn that took most time: an end's, or the round trip's.
fn whose_turn<'a>(
    near: &(End<'a>, Times),
    far: Option<&(End<'a>, Times)>,
    peer: SocketAddr,
    turns: Turns,
    own: Judged<'a>,
) -> Judged<'a> {
    let far = far.map(|(end, _)| *end);
    let (asking, answering) = match turns.near_asks {
        true => (Some(near.0), far),
        false => (far, Some(near.0)),
    };
    let all = own.active.max(turns.answering + turns.round_trips);
    let at = |end: Option<End<'a>>| end.map_or(peer, |end| end.tuple.local);
    let of = |end: Option<End<'a>>, time: Micros| Judged {
        owner: end.map(|end| end.owner),
        address: Some(at(end)),
        sender: end,
        time,
        work: all,
        active: all,
        turns: Some(turns),
        ..own.clone()
    };
    let share = |time| crate::tally::share(time, all);
    if turns.answers_decide() {
        let least = if turns.answers > 0 {
            SLOW_ANSWER
        } else {
            NO_ANSWER
        };
        let slow = turns.answer.is_some_and(|answer| answer >= least);
        return Judged {
            alarm: slow && share(turns.answering) >= SEQUENTIAL.0,
            ..of(answering, turns.answering)
        };
    }
    if turns.round_trips > turns.asking && share(turns.round_trips) >= SEQUENTIAL.0 {
        let least = asking.and_then(|end| end.stats.min_rtt);
        return Judged {
            limiter: Limiter::RoundTrips,
            alarm: least.is_some_and(|rtt| rtt >= FAR),
            sender: asking.or(answering),
            ..of(asking, turns.round_trips)
        };
    }
    of(asking, turns.asking)
}

/// Calls that wait for one round trip after another.
fn round_trips_of<'a>(
    near: &(End<'a>, Times),
    peer: SocketAddr,
    share: f64,
    own: Judged<'a>,
) -> Judged<'a> {
    let asks = near.0.origin != Origin::Accepted;
    Judged {
        limiter: Limiter::RoundTrips,
        alarm: near.0.stats.min_rtt.is_some_and(|rtt| rtt >= FAR),
        owner: asks.then_some(near.0.owner),
        address: Some(if asks { near.0.tuple.local } else { peer }),
        time: Micros((near.1.active.0 as f64 * share) as u64),
        sender: Some(near.0),
        ..own
    }
}

/// The part of the active time that round trips took, one after another.
fn sequential(end: &End<'_>, active: Micros) -> Option<f64> {
    if !end.sent() || !end.received() || active == Micros::ZERO {
        return None;
    }
    let deltas = &end.tally.deltas;
    let (writes, reads) = (deltas.writes?, deltas.reads?);
    let exchanges = writes.min(reads);
    // A message may take a few writes, not the other way round.
    if exchanges < 2 || exchanges * 4 < writes.max(reads) {
        return None;
    }
    let least = end.stats.min_rtt?;
    let share = exchanges as f64 * least.0 as f64 / active.0 as f64;
    (SEQUENTIAL.0..=SEQUENTIAL.1)
        .contains(&share)
        .then_some(share.min(1.0))
}
