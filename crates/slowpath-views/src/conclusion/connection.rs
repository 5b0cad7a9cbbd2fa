// SPDX-License-Identifier: Apache-2.0
//! One connection: what limited it, and who has to act.
//!
//! Both directions are looked at, each with its sender and its receiver as far as they are on
//! this machine. What took most time of all limits, if it took a tenth of the time in which the
//! connection was active. Without any such limit it is a turn, or the application's own pace ([`pace`](super::pace)).
//!
//! **Whom to act.** Send buffer: the sending application. Receiver: the process that does not read ([`does_not_read`]), or, where
//! it is not here, if the window was closed for most of the time (only an application that does not read closes it); else
//! the receiving host, whose buffer is small, or which has no processor for a process that would read. Network: its operator where segments
//! were lost, marked, overtook each other or queue; else the sending host: a window that began small or was
//! reduced before, or a queue of its own device. An application that paces itself (SO_MAX_PACING_RATE) is its own limit.
//!
//! A connection that failed is judged only by that: refused, whoever should accept there; unanswered or
//! unreachable, the network; reset, the application of the end that reset it; given up before anything answered
//! its SYN, that application.
//!
//! **Alarm**: someone should act. Not where the network is merely used: no loss and a queue of less than
//! 5 ms or of its least RTT; for answers of 0.1 s that take half of the time, not for another pace of an
//! application; for round trips from 10 ms on.

use super::end::{End, Times, round_trips};
use super::judged::{Judged, SEQUENTIAL};
use super::pace::pace;
use super::turns::Turns;
use super::{ActingProcess, Limiter, Observed, Role};
use slowpath_model::{Failure, Micros, Problem};
use std::net::SocketAddr;

/// Least part of the active time that a limiter takes: below it the application's own pace is the answer.
const LEAST: f64 = 0.1;

/// A standing queue that is a problem, with one round trip's worth of delay: CoDel's target is
/// the acceptable one (RFC 8289 section 4.4).
pub(super) const QUEUE: Micros = Micros(5_000);

/// A process that does not read, of the time that its peer's window was full: three quarters of it unread
/// (ReceiverAppSlow) for so much. A window that arrives at once and is read at an even pace for half of the time is
/// that full for a quarter of this half; who reads at once leaves nothing. Where polls show what was unread, these decide
/// ([`does_not_read`]).
const UNREAD: f64 = 0.125;

/// The same where only the sender is known: the window was zero for most of the time.
const CLOSED: f64 = 0.5;

/// One direction of a connection; at least one end is known.
#[derive(Clone, Copy)]
struct Direction<'a> {
    sender: Option<(End<'a>, Times)>,
    receiver: Option<(End<'a>, Times)>,
    /// The receiver's address.
    to: SocketAddr,
}

/// What one connection was limited by.
pub(super) fn judge<'a>(observed: &Observed<'a>) -> Judged<'a> {
    if let Some(failed) = failed(observed) {
        return failed;
    }
    let near = (observed.near, observed.near.times());
    let far = observed.far.map(|end| (end, end.times()));
    let out = Direction {
        sender: Some(near),
        receiver: far,
        to: observed.peer,
    };
    let back = Direction {
        sender: far,
        receiver: Some(near),
        to: near.0.tuple.local,
    };
    let ways = [out, back];
    let candidates = ways.into_iter().flat_map(|d| d.candidates());
    let candidates = candidates.chain(lost_on_the_way(&near, far.as_ref(), ways));
    let worst = candidates
        .filter(|j| crate::tally::share(j.time, j.active) >= LEAST)
        .max_by_key(|j| (j.alarm, j.time));
    let pace = pace(&near, far.as_ref(), observed.peer);
    let judged = match worst {
        Some(worst) if !outlasts(&pace, &worst) => passed_on(observed, &worst).unwrap_or(worst),
        _ => pace,
    };
    // Who waits for most of the time, for whatever reason, answers late itself.
    let waits = judged.alarm && crate::tally::share(judged.time, judged.active) >= SEQUENTIAL.0;
    let asking = [Some(near.0), observed.far].into_iter().flatten();
    let asking = asking.filter(|end| waits && super::turns::asks(end));
    Judged {
        asked_by: asking.filter_map(|end| end.owner.pid()).next(),
        ..judged
    }
}

/// Exchanges that waited for what was lost, in whichever direction: a message of a segment or two is sent again by a probe of
/// the tail, whose timer is no Timeout (RFC 8985 section 7), or by the RTO. What late ACKs and small writes held back meanwhile is not
/// the path's.
fn lost_on_the_way<'a>(
    near: &(End<'a>, Times),
    far: Option<&(End<'a>, Times)>,
    [out, back]: [Direction<'a>; 2],
) -> Option<Judged<'a>> {
    let far = far?;
    let turns = Turns::of(&near.0, Some(&far.0))?;
    (near.0.sent_again() + far.0.sent_again() > 0).then_some(())?;
    let asked = if turns.near_asks { out } else { back };
    let time = turns.beyond.saturating_sub(near.1.held + far.1.held);
    let judged = asked.limit(Limiter::Network, time);
    Some(Judged {
        who: Role::Network,
        address: Some(asked.to),
        active: judged.active.max(time),
        turns: Some(turns),
        ..judged
    })
}

/// Whether slow answers took longer than what limited the connection besides: what held their last piece back,
/// or, where the answering end itself was observed, anything.
fn outlasts(pace: &Judged<'_>, worst: &Judged<'_>) -> bool {
    let answered = |turns: Turns| turns.answers > 0 && turns.at_its_end;
    pace.alarm
        && pace.limiter == Limiter::Application
        && pace.time > worst.time
        && (worst.limiter == Limiter::Application || pace.turns.is_some_and(answered))
}

/// The least that a failed connection costs: the first RTO of a SYN (RFC 6298 section 2.1), after which
/// connecting is tried again.
const FAILED: Micros = Micros(1_000_000);

/// How a connection failed, if it did, and the end that shows it: the one asked about first.
pub(super) fn failure<'a>(observed: &Observed<'a>) -> Option<(End<'a>, Failure)> {
    let ends = [Some(observed.near), observed.far].into_iter().flatten();
    let mut failed = ends.filter_map(|end| Some((end, end.failure()?)));
    failed.next()
}

/// A connection that failed, as either end shows it.
fn failed<'a>(observed: &Observed<'a>) -> Option<Judged<'a>> {
    let near = observed.near;
    let (end, failure) = failure(observed)?;
    let (other, address) = match near.failure() {
        Some(_) => (observed.far, observed.peer),
        None => (Some(near), near.tuple.local),
    };
    let (who, owner, address) = match failure {
        Failure::Refused => (Role::AcceptingApplication, None, address),
        Failure::NotSent => (Role::SendingHost, Some(end.owner), end.tuple.local),
        Failure::Unanswered | Failure::Unreachable => (Role::Network, None, address),
        Failure::ResetByPeer => {
            let other = other.map(|other| other.owner);
            let known = other.filter(|owner| ActingProcess::of(owner).is_some());
            let owner = known.or(observed.listener).or(other);
            (Role::ReceivingApplication, owner, address)
        }
        Failure::ResetHere => (Role::ReceivingApplication, Some(end.owner), end.tuple.local),
        Failure::Abandoned => (Role::SendingApplication, Some(end.owner), address),
    };
    let time = end.tally.totals.observed.max(FAILED);
    Some(Judged {
        limiter: Limiter::Failed,
        alarm: true,
        who,
        owner,
        address: Some(address),
        time,
        work: time,
        active: time,
        given_up: false,
        awaited: time,
        because: Vec::new(),
        sender: Some(end),
        receiver: None,
        only_opening: matches!(failure, Failure::Unanswered | Failure::Abandoned)
            && end.stats.bytes_acked == 0,
        failure: Some(failure),
        turns: None,
        asked_by: None,
    })
}

/// A process that does not read because what it sends is limited is not to blame, nor is its buffer: the interaction
/// has found what it left unread. Nor is a path that only fills that buffer: a quicker one leaves the time in which something is
/// unread, which polls found to be longer than what the path took.
fn passed_on<'a>(observed: &Observed<'a>, judged: &Judged<'a>) -> Option<Judged<'a>> {
    let receiver = judged.receiver?;
    let behind = match judged.limiter {
        Limiter::Receiver => true,
        Limiter::Network => receiver.unread_at_polls()? > judged.time,
        _ => false,
    };
    let (near, far) = observed.cause.filter(|_| behind)?;
    (receiver.owner.pid()? == near.owner.pid()?).then_some(())?;
    let cause = judge(&Observed {
        near,
        far,
        peer: near.tuple.remote,
        listener: None,
        cause: None,
    });
    (cause.alarm && cause.limiter != Limiter::Application).then_some(cause)
}

/// Whether the process that receives, not its buffer, limits for `limited`: what a quicker one would spare is more than what
/// a larger buffer would.
///
/// 1. A larger buffer leaves the time in which the process is busy, so that something is unread: as much as polls found,
///    and no less than ReceiverAppSlow.
/// 2. A quicker process leaves round trips: one for each full window, and of the limited time no less than that in which
///    nothing was unread, when what is next to read was still on its way.
/// 3. The longer one limits.
/// 4. Without enough polls, as in the log: three quarters were unread for an eighth.
fn does_not_read(end: &End<'_>, times: &Times, sender: Option<End<'_>>, limited: Micros) -> bool {
    let Some(unread) = end.unread_at_polls() else {
        return crate::tally::share(times.unread, limited) >= UNREAD;
    };
    let unread = unread.max(times.unread);
    let least = sender.and_then(|sender| sender.stats.min_rtt);
    let windows = least.and_then(|least| end.round_trips_of_windows(least));
    let nothing_unread = limited.saturating_sub(unread);
    unread > windows.map_or(nothing_unread, |windows| windows.max(nothing_unread))
}

impl<'a> Direction<'a> {
    fn candidates(self) -> Vec<Judged<'a>> {
        let mut candidates = Vec::new();
        if let Some((sender, times)) = self.sender {
            candidates.push(self.send_buffer(sender, &times));
            candidates.push(self.network(sender, &times));
            candidates.push(self.held(sender, &times));
        }
        candidates.push(self.receiver());
        candidates
    }

    /// What this direction's problems took.
    fn because(&self) -> Vec<(Problem, Micros)> {
        let found = |end: End<'a>, of: fn(Problem) -> bool| {
            let found = end.tally.found().into_iter();
            found.filter(move |p| of(*p)).map(move |p| (p, end.time(p)))
        };
        let sender = self.sender.into_iter();
        let receiver = self.receiver.into_iter();
        let sent = sender.flat_map(|(end, _)| found(end, |p| p != Problem::ReceiverAppSlow));
        let unread = receiver.flat_map(|(end, _)| found(end, |p| p == Problem::ReceiverAppSlow));
        sent.chain(unread).collect()
    }

    fn limit(&self, limiter: Limiter, time: Micros) -> Judged<'a> {
        let (work, active) = match (&self.sender, &self.receiver) {
            (Some((_, times)), _) => (times.work, times.active),
            (None, Some((_, times))) => (times.active, times.active),
            (None, None) => (Micros::ZERO, Micros::ZERO),
        };
        Judged {
            limiter,
            alarm: true,
            who: Role::None,
            owner: None,
            address: None,
            time,
            work: work.max(time),
            active,
            given_up: self.sender.is_some_and(|(end, _)| end.given_up()),
            awaited: work.max(time),
            because: self.because(),
            sender: self.sender.map(|(end, _)| end),
            receiver: self.receiver.map(|(end, _)| end),
            only_opening: false,
            failure: None,
            turns: None,
            asked_by: None,
        }
    }

    /// A larger send buffer would only fill that of a receiver that is behind with reading: what it did not read,
    /// or could not for want of a processor, for longer than its window was full is taken off.
    fn send_buffer(&self, sender: End<'a>, times: &Times) -> Judged<'a> {
        let unread = self
            .receiver
            .map_or(Micros::ZERO, |(_, r)| r.unread.max(r.starved));
        let behind = unread.saturating_sub(times.window);
        Judged {
            who: Role::SendingApplication,
            owner: Some(sender.owner),
            address: Some(sender.tuple.local),
            ..self.limit(
                Limiter::SendBuffer,
                times.send_buffer.saturating_sub(behind),
            )
        }
    }

    fn network(&self, sender: End<'a>, times: &Times) -> Judged<'a> {
        let queues = round_trips(&sender).is_some_and(|(mean, least)| {
            let queue = mean.saturating_sub(least);
            queue >= QUEUE.max(least)
        });
        let lossy = times.repair > Micros::ZERO;
        let judged = self.limit(Limiter::Network, times.network);
        if let Some(part) = sender.paced()
            && times.network.saturating_sub(times.repair) > Micros::ZERO
        {
            let time = Micros((times.work.0 as f64 * part) as u64);
            return Judged {
                limiter: Limiter::Application,
                alarm: false,
                who: Role::SendingApplication,
                owner: Some(sender.owner),
                address: Some(sender.tuple.local),
                time,
                ..judged
            };
        }
        if queues && sender.queues_here() {
            return Judged {
                who: Role::SendingHost,
                address: Some(sender.tuple.local),
                ..judged
            };
        }
        let marked = sender.time(Problem::EcnMarked) > Micros::ZERO;
        if !queues && !lossy && !marked {
            return Judged {
                alarm: false,
                who: Role::SendingHost,
                owner: Some(sender.owner),
                address: Some(sender.tuple.local),
                ..judged
            };
        }
        Judged {
            who: Role::Network,
            address: Some(self.to),
            only_opening: !sender.sent()
                || 2 * sender.time(Problem::SynRetransmit).0 > times.network.0,
            ..judged
        }
    }

    fn held(&self, sender: End<'a>, times: &Times) -> Judged<'a> {
        Judged {
            who: Role::SendingApplication,
            owner: Some(sender.owner),
            address: Some(sender.tuple.local),
            ..self.limit(Limiter::Application, times.held)
        }
    }

    fn receiver(&self) -> Judged<'a> {
        let of = |times: Option<(End<'a>, Times)>, part: fn(&Times) -> Micros| {
            times.map_or(Micros::ZERO, |(_, times)| part(&times))
        };
        let window = of(self.sender, |t| t.window);
        let zero = of(self.sender, |t| t.zero_window);
        let unread = of(self.receiver, |t| t.unread);
        // What a full send buffer waited for, where the receiver's process waited for a processor meanwhile.
        let starved = of(self.receiver, |t| t.starved).saturating_sub(window);
        let starved = starved.min(of(self.sender, |t| t.send_buffer));
        let time = (window + starved).max(unread);
        let does_not_read = match self.receiver {
            Some((end, times)) => {
                does_not_read(&end, &times, self.sender.map(|(end, _)| end), time)
            }
            None => crate::tally::share(zero, time) >= CLOSED,
        };
        let judged = Judged {
            owner: self.receiver.map(|(end, _)| end.owner),
            address: Some(self.to),
            ..self.limit(Limiter::Receiver, time)
        };
        let would_read = judged.waits_for_processor();
        let mut because = judged.because;
        // A larger one would not help.
        because.retain(|(problem, _)| {
            starved == Micros::ZERO || *problem != Problem::SendBufferLimited
        });
        Judged {
            who: match does_not_read && !would_read {
                true => Role::ReceivingApplication,
                false => Role::ReceivingHost,
            },
            because,
            ..judged
        }
    }
}
