// SPDX-License-Identifier: Apache-2.0
//! Whose turn it was on a connection that nothing in TCP limited: the asking end's, the answering
//! end's, or the round trip's.
//!
//! 1. The end that opened the connection asks; where that is not known, the one with the higher port.
//! 2. The answering end's turns are its own, where its socket is on this machine; else the asking end's waits, less
//!    the least RTT for each answer.
//! 3. What the asking end waited beyond the answering end's turns is the network's: the round trip. Where both ends are
//!    here, what it waited beyond a least RTT for each exchange, too, passed on the way. What of that is beyond the time of as
//!    many usual exchanges (the median) befell some of them only, such as those that waited until what was lost was sent again.
//! 4. An end that was met later than the other was observed for a part only, of the time and of the turns, and is left out.
//! 5. What is sent on a connection on which nothing ever came back asks for nothing, once there were more
//!    writes than a request takes.
//! 6. Traffic that passes both ways at once has no turns: an end that has any is left out.

use super::end::End;
use slowpath_model::{Micros, Origin};

/// A request takes a few writes: head, length, body. A peer that has answered none of more than that does
/// not read requests; one that is stopped leaves its asker waiting after the first.
const WRITES_OF_A_REQUEST: u64 = 4;

/// Turns on one connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turns {
    /// The asking end is the near one.
    pub(crate) near_asks: bool,
    pub(crate) asking: Micros,
    pub(crate) answering: Micros,
    pub(crate) round_trips: Micros,
    /// The part of `round_trips` beyond a least RTT and beyond the usual time for each exchange, where both ends were
    /// observed, and how long most exchanges took.
    pub(crate) beyond: Micros,
    /// How long an answer took in the mean, without the round trip; of a pending one without others, how
    /// long it has been awaited.
    pub(crate) answer: Option<Micros>,
    /// Answers that came.
    pub(crate) answers: u64,
    /// Observed where they are given.
    pub(crate) at_its_end: bool,
}

/// Whether an end asks (rule 1).
pub(super) fn asks(end: &End<'_>) -> bool {
    match end.origin {
        Origin::Opened => true,
        Origin::Accepted => false,
        Origin::Unknown => end.tuple.local.port() > end.tuple.remote.port(),
    }
}

/// Whether an end sends what asks for nothing (rule 5): by its writes while it was observed, or, before that, by
/// segments of less than half of the size that one large request would fill.
fn streams(end: &End<'_>) -> bool {
    let stats = end.stats;
    let writes = end.tally.deltas.writes;
    let small = stats.bytes_acked.saturating_mul(2)
        < stats
            .data_segments_out
            .saturating_mul(stats.send_mss.into());
    let before = small && stats.data_segments_out > WRITES_OF_A_REQUEST;
    !end.received() && (before || writes.is_some_and(|n| n > WRITES_OF_A_REQUEST))
}

/// Both ends if they were observed for the same time, or their turns cover the same, within a tenth: else the one that was
/// observed longer. An end at which nothing happens after its last answer is observed for less, and lacks no turn.
fn same_time<'a, 'b>(
    near: Option<&'a End<'b>>,
    far: Option<&'a End<'b>>,
) -> (Option<&'a End<'b>>, Option<&'a End<'b>>) {
    let (Some(one), Some(other)) = (near, far) else {
        return (near, far);
    };
    let within = |time: Micros, of: Micros| time.0 / 9 >= of.0 / 10;
    let observed = |end: &End<'_>| end.tally.totals.observed;
    let turns = |end: &End<'_>| end.turns.here.turn_time + end.turns.peer.turn_time;
    let enough = |end: &End<'_>, of: &End<'_>| {
        within(observed(end), observed(of)) || within(turns(end), turns(of))
    };
    (
        near.filter(|_| enough(one, other)),
        far.filter(|_| enough(other, one)),
    )
}

impl Turns {
    /// Whether the answering end's took most.
    pub(super) fn answers_decide(&self) -> bool {
        self.answering >= self.asking.max(self.round_trips)
    }

    /// Of a connection; `None` without turns.
    pub(super) fn of(near: &End<'_>, far: Option<&End<'_>>) -> Option<Self> {
        let near_asks = asks(near);
        let asking = if near_asks { Some(near) } else { far };
        if asking.is_some_and(streams) {
            return None;
        }
        let usable = |end: &&End<'_>| end.turns.observed && !end.turns.duplex();
        let near = Some(near).filter(usable);
        let far = far.filter(usable);
        let (near, far) = same_time(near, far);
        let (asking, answering) = match near_asks {
            true => (near, far),
            false => (far, near),
        };
        asking.or(answering)?;
        let waited = asking.map(|end| &end.turns.peer);
        let own = answering.map(|end| &end.turns.here);
        let exchanges = waited
            .map_or(0, |w| w.count)
            .max(own.map_or(0, |o| o.count));
        let least = asking
            .and_then(|end| end.stats.min_rtt)
            .unwrap_or(Micros::ZERO);
        let rtts = Micros(least.0.saturating_mul(exchanges));
        let answers = match (own, waited) {
            (Some(own), _) => own.turn_time,
            (None, Some(waited)) => waited.turn_time.saturating_sub(rtts),
            (None, None) => Micros::ZERO,
        };
        let mean = match (own, waited) {
            (Some(own), _) => own.mean().or(own.pending),
            (None, waited) => waited.and_then(|w| {
                let mean = w.mean().map(|mean| mean.saturating_sub(least));
                mean.or(w.pending)
            }),
        };
        let round_trips = waited.map_or(Micros::ZERO, |w| w.turn_time.saturating_sub(answers));
        Some(Turns {
            near_asks,
            asking: match (asking, answering) {
                (Some(asking), _) => asking.turns.here.turn_time,
                (None, Some(answering)) => answering.turns.peer.turn_time,
                (None, None) => Micros::ZERO,
            },
            answering: answers,
            round_trips,
            beyond: own.zip(waited).map_or(Micros::ZERO, |(_, waited)| {
                let usual = waited.quantile(0.5).map_or(u64::MAX, |usual| usual.0);
                let usual = Micros(usual.saturating_mul(exchanges));
                let unusual = waited.turn_time.saturating_sub(usual);
                unusual.min(round_trips.saturating_sub(rtts))
            }),
            answer: mean,
            answers: exchanges,
            at_its_end: own.is_some(),
        })
        .filter(|turns| match turns.answer {
            // Whoever writes again without an answer does not wait for one.
            Some(pending) if turns.answers == 0 => 2 * pending.0 >= turns.answering.0,
            answer => turns.answers > 0 || answer.is_some(),
        })
    }
}
