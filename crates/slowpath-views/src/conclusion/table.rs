// SPDX-License-Identifier: Apache-2.0
//! Ends of connections, followed over several polls, and how the two of one connection find
//! each other.

use super::{Conclusion, End, EndEvidence, FailureEntry, Observed, Refusing, conclude};
use crate::interactions::FoundInteraction;
use crate::json::LimitReached;
use crate::source::{LiveConnection, PollReport, Source};
use crate::tally::Tally;
use slowpath_diagnose::{InteractionEvidence, ProxyFlow, Totals};
use slowpath_model::{
    ConnectionId, FourTuple, IntervalVerdict, Micros, MonoNanos, Origin, Owner, Problem,
    SocketFacts, TcpState, TcpStats, TurnTimes,
};
use slowpath_text::plural;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Ends followed beside those that are meant, at most.
const MOST_RELATED: usize = 20_000;

/// Processes of which a poll reads how long they wait for a processor, at most: three small files each, so that it takes
/// some milliseconds. Of others that is not known.
const MOST_PROCESSES: usize = 64;

/// One end of a connection, as it was observed.
#[derive(Clone, Debug)]
pub struct Member {
    /// Which one.
    pub id: ConnectionId,
    /// Its addresses.
    pub tuple: FourTuple,
    /// The peer behind address translation, where it is another one.
    pub real_peer: Option<SocketAddr>,
    /// Its owner, or why it is unknown.
    pub owner: Owner,
    /// Its statistics when last observed.
    pub stats: TcpStats,
    /// Its time.
    pub tally: Tally,
    /// Which end opened it.
    pub origin: Origin,
    /// The part of its time in which nothing changed.
    pub idle: Micros,
    /// What else the kernel knows of its socket.
    pub facts: SocketFacts,
    /// Requests and answers.
    pub turns: TurnTimes,
    /// Its process was stopped while data waited to be read, at the last poll.
    pub stopped: bool,
    /// How long its process waited for a processor until polls that found data unread.
    pub starved: Micros,
    /// Polls that found something unread, and all polls that met it alive.
    pub unread_polls: (u32, u32),
    /// The largest window met at polls, with what is unread counted as room.
    pub largest_window: Option<u32>,
}

impl Member {
    pub(crate) fn end(&self) -> End<'_> {
        End {
            owner: &self.owner,
            tuple: self.tuple,
            origin: self.origin,
            stats: &self.stats,
            tally: &self.tally,
            idle: self.idle,
            facts: self.facts,
            turns: &self.turns,
            stopped: self.stopped,
            starved: self.starved,
            unread_polls: self.unread_polls,
            largest_window: self.largest_window,
        }
    }

    /// What it shows of a problem, of the time in which it had something to do.
    pub(crate) fn evidence(&self, problem: Problem) -> EndEvidence {
        let end = self.end();
        EndEvidence::of(&end, problem, end.times().work.max(end.time(problem)))
    }

    /// Whether an interaction says that its send buffer is too small, and it has since grown to what that asks
    /// for (Linux doubles SO_SNDBUF).
    pub(crate) fn outgrew(&self, found: &FoundInteraction) -> bool {
        let buffer = self.tally.deltas_of(Problem::SendBufferLimited).send_buffer;
        let wanted = found.interaction.evidence.send_buffer_wanted();
        let enough = |(buffer, wanted): (u32, u64)| u64::from(buffer) >= wanted.saturating_mul(2);
        found.interaction.connections.contains(&self.id) && buffer.zip(wanted).is_some_and(enough)
    }

    pub(crate) fn ends(&self) -> Ends {
        Ends::new(self.tuple, self.id.netns).behind(self.real_peer)
    }
}

/// What names an end, such that the other end's reversed is the same: its addresses behind address
/// translation and, as every network namespace has its own loopback, the namespace of addresses
/// of that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Ends {
    tuple: FourTuple,
    netns: u32,
}

impl Ends {
    fn new(tuple: FourTuple, netns: u32) -> Self {
        let own = tuple.remote.ip().is_loopback();
        Ends {
            tuple,
            netns: if own { netns } else { 0 },
        }
    }

    /// Of a connection.
    fn of(live: LiveConnection<'_>) -> Self {
        Ends::new(live.snapshot.tuple, live.snapshot.id.netns).behind(live.real_peer)
    }

    /// With the peer behind address translation, where there is one.
    fn behind(self, real_peer: Option<SocketAddr>) -> Self {
        match real_peer {
            Some(remote) => Ends {
                tuple: FourTuple::new(self.tuple.local, remote),
                ..self
            },
            None => self,
        }
    }

    pub(crate) fn reversed(self) -> Self {
        Ends {
            tuple: self.tuple.reversed(),
            ..self
        }
    }
}

/// How long a process has waited for a processor, as a poll read it. The kernel counts a wait when it ends.
#[derive(Clone, Copy, Debug)]
struct ProcessorReading {
    pid: u32,
    wait: Micros,
    /// The poll that found it so first.
    changed: MonoNanos,
    /// Data was unread at that poll or at one since.
    unread: bool,
}

/// An end, followed over several polls.
#[derive(Clone, Debug)]
struct Followed {
    member: Member,
    /// When observation began.
    begun: MonoNanos,
    /// End of the last interval added.
    until: MonoNanos,
    /// First and last poll that met it.
    met: (MonoNanos, MonoNanos),
    /// How long its SYNs waited while it was observed.
    opening: Micros,
    /// How long its retransmission timer had been waited for when it was first met.
    timer_before: Micros,
    /// What was last read of its process's wait for a processor.
    processor: Option<ProcessorReading>,
}

impl Followed {
    /// First met at `at`, by who began to look at `begun`.
    fn new(live: LiveConnection<'_>, begun: MonoNanos, at: MonoNanos) -> Self {
        Followed {
            member: Member {
                id: live.snapshot.id,
                tuple: live.snapshot.tuple,
                real_peer: None,
                owner: Owner::default(),
                stats: live.snapshot.stats,
                tally: Tally::default(),
                origin: live.snapshot.origin,
                idle: Micros::ZERO,
                facts: live.snapshot.facts,
                turns: if live.snapshot.id.start >= begun {
                    TurnTimes::from_birth()
                } else {
                    TurnTimes::default()
                },
                stopped: false,
                starved: Micros::ZERO,
                unread_polls: (0, 0),
                largest_window: None,
            },
            begun,
            until: begun,
            met: (at, at),
            opening: Micros::ZERO,
            timer_before: match live.snapshot.id.start >= begun {
                true => Micros::ZERO,
                false => timer_wait(&live.snapshot.stats),
            },
            processor: None,
        }
    }

    /// A poll met it.
    fn take(&mut self, live: LiveConnection<'_>, at: MonoNanos) {
        self.met.1 = at;
        let member = &mut self.member;
        if live.snapshot.id != member.id {
            // The port was used again: the latest connection counts.
            *self = Followed::new(live, self.until, at);
            return self.take(live, at);
        }
        member.stats = live.snapshot.stats;
        // A socket that closes has nothing under way.
        let not_sent = member.facts.not_sent && live.snapshot.closed;
        member.facts = live.snapshot.facts;
        member.facts.not_sent |= not_sent;
        if let Some(opening) = live.snapshot.waits.opening() {
            let opened = member.id.start + opening.syn_wait;
            self.opening = opened.since(member.id.start.max(self.begun));
        }
        member.turns.observe(&live.snapshot.turns, at);
        member.real_peer = live.real_peer;
        if live.owner.process().is_some() || member.owner.process().is_none() {
            member.owner.clone_from(live.owner);
        }
        if let Some(verdict) = live.latest {
            // An interval that ended before observation began says nothing about now.
            if verdict.to > self.until {
                self.until = verdict.to;
                member.tally.add(verdict);
            }
        }
    }

    /// The verdict on an interval of it.
    fn judged(&mut self, live: LiveConnection<'_>, verdict: &IntervalVerdict) {
        let member = &mut self.member;
        member.stats = live.snapshot.stats;
        // A socket that closes has nothing under way.
        let not_sent = member.facts.not_sent && live.snapshot.closed;
        member.facts = live.snapshot.facts;
        member.facts.not_sent |= not_sent;
        member.turns.observe(&live.snapshot.turns, verdict.to);
        member.real_peer = live.real_peer;
        // Whom it is known to belong to may change, and turn out not to be known.
        member.owner.clone_from(live.owner);
        member.tally.add(verdict);
        self.until = verdict.to;
        self.met.1 = self.met.1.max(verdict.to);
    }

    /// How long its process has waited for a processor: what it did counts if data was unread meanwhile.
    fn waited(&mut self, pid: u32, wait: Option<Micros>, at: MonoNanos) {
        let unread = self.member.stats.receive_queue > 0;
        let reading = wait.map(|wait| ProcessorReading {
            pid,
            wait,
            changed: at,
            unread,
        });
        let earlier = self.processor.filter(|earlier| earlier.pid == pid);
        let (Some(now), Some(earlier)) = (reading, earlier) else {
            self.processor = reading;
            return;
        };
        let more = now.wait.saturating_sub(earlier.wait);
        if more == Micros::ZERO {
            let unread = earlier.unread || unread;
            self.processor = Some(ProcessorReading { unread, ..earlier });
            return;
        }
        if earlier.unread || unread {
            self.member.starved += more.min(at.since(earlier.changed));
        }
        self.processor = reading;
    }

    /// Whether something is unread, and how much its peer might send if nothing was, at the end of a poll.
    fn count_unread(&mut self) {
        let stats = &self.member.stats;
        if stats.state == TcpState::Established {
            let (unread, polls) = &mut self.member.unread_polls;
            *unread += u32::from(stats.receive_queue > 0);
            *polls += 1;
            let left = stats.receive_window;
            let window = left.map(|left| left.saturating_add(stats.receive_queue));
            self.member.largest_window = window.max(self.member.largest_window);
        }
    }

    /// With the time in which nothing changed.
    fn finish(self) -> Member {
        let mut member = self.member;
        let life = self.met.1.since(self.met.0);
        member.idle = life.saturating_sub(member.tally.totals.observed);
        let totals = &mut member.tally.totals;
        member.idle = charge(totals, Problem::SynRetransmit, self.opening, member.idle);
        // The kernel's clock includes expirations for its SYN.
        let opened = self.opening == Micros::ZERO;
        if opened && totals.problem_time[Problem::Timeout as usize] > Micros::ZERO {
            let waited = timer_wait(&member.stats).saturating_sub(self.timer_before);
            let waited = waited.min(self.met.1.since(self.begun));
            member.idle = charge(totals, Problem::Timeout, waited, member.idle);
        }
        member.tally.idle(member.idle);
        member
    }
}

/// How long a retransmission timer was waited for, from its first expirations on and before them.
fn timer_wait(stats: &TcpStats) -> Micros {
    let since = stats.rto_stats.map_or(Micros::ZERO, |s| s.time);
    since + stats.recovery.map_or(Micros::ZERO, |r| r.rto_wait)
}

/// While a SYN or a retransmission timer is waited for nothing changes, or so it seems, and the wait is known when it ends: that
/// interval's verdict has no room for more than itself (rule 1 of the classifier's `syn_retransmit`; its `timeout`).
/// What it `lasted` beyond that was idle, or passed for the application's own time. Gives what remains idle.
fn charge(totals: &mut Totals, problem: Problem, lasted: Micros, idle: Micros) -> Micros {
    let charged = totals.problem_time[problem as usize];
    let missing = lasted.saturating_sub(charged);
    let of_idle = missing.min(idle);
    let pace = &mut totals.problem_time[Problem::SenderAppLimited as usize];
    let of_pace = (missing.saturating_sub(of_idle)).min(*pace);
    *pace = pace.saturating_sub(of_pace);
    totals.problem_time[problem as usize] += of_idle + of_pace;
    totals.observed += of_idle;
    idle.saturating_sub(of_idle)
}

/// The ends that an answer is about, and those that belong to them.
#[derive(Clone, Debug, Default)]
pub struct EndTable {
    meant: HashMap<ConnectionId, Followed>,
    /// Ends of the same connections, or of those that explain them; `None` as long as none
    /// was met.
    related: HashMap<Ends, Option<Followed>>,
    /// Connections that were met for the first time when there was no room for their other end.
    unrelated: u64,
    begun: Option<MonoNanos>,
    /// Who listens where, as the last poll had it.
    listening: HashMap<SocketAddr, Owner>,
}

impl EndTable {
    /// Ends that are meant.
    pub fn len(&self) -> usize {
        self.meant.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.meant.is_empty()
    }

    /// A poll begins.
    pub fn poll(&mut self, at: MonoNanos) {
        self.begun.get_or_insert(at);
    }

    /// A poll met an end that is meant.
    pub fn meet(&mut self, live: LiveConnection<'_>, at: MonoNanos) {
        let begun = self.begun.unwrap_or(at);
        let known = self.meant.len();
        let followed = self.meant.entry(live.snapshot.id);
        followed
            .or_insert_with(|| Followed::new(live, begun, at))
            .take(live, at);
        self.want_other_end(live, known);
    }

    /// Looks for the other end of a connection from now on; `known` were meant before it was met.
    fn want_other_end(&mut self, live: LiveConnection<'_>, known: usize) {
        let wanted = self.want(Ends::of(live).reversed());
        self.unrelated += u64::from(!wanted && self.meant.len() > known);
    }

    /// The verdict on an interval of an end that is meant.
    pub fn judged(&mut self, live: LiveConnection<'_>, verdict: &IntervalVerdict) {
        self.poll(verdict.from);
        let known = self.meant.len();
        let followed = self.meant.entry(live.snapshot.id);
        followed
            .or_insert_with(|| Followed::new(live, verdict.from, verdict.from))
            .judged(live, verdict);
        self.want_other_end(live, known);
    }

    /// Whether an end is meant.
    pub fn contains(&self, id: &ConnectionId) -> bool {
        self.meant.contains_key(id)
    }

    /// The ends that are meant; their idle time is not known yet.
    pub fn members(&self) -> impl Iterator<Item = &Member> {
        self.meant.values().map(|followed| &followed.member)
    }

    /// Whether the end is looked for.
    fn want(&mut self, ends: Ends) -> bool {
        if self.related.len() < MOST_RELATED {
            self.related.entry(ends).or_insert(None);
            return true;
        }
        self.related.contains_key(&ends)
    }

    /// The bound on other ends, if it was reached.
    pub fn limit_reached(&self) -> Option<LimitReached> {
        LimitReached::of("other_ends", MOST_RELATED, self.unrelated)
    }

    /// The same in a line.
    pub fn limit_line(&self) -> Option<String> {
        self.limit_reached().map(|limit| {
            format!(
                "not looked at: the other ends of {}, beyond {MOST_RELATED}",
                plural(limit.left_out, "connection")
            )
        })
    }

    /// Both ends of the connections that an interaction is made of belong to them.
    pub fn explain(&mut self, found: &FoundInteraction) {
        for (id, tuple, _) in &found.members {
            let ends = Ends::new(*tuple, id.netns);
            self.want(ends);
            self.want(ends.reversed());
        }
    }

    /// Looks for the other ends, at the end of a poll.
    pub fn relate(&mut self, source: &dyn Source, report: &PollReport) {
        let begun = self.begun.unwrap_or(report.at);
        for listener in source.listeners() {
            let room = self.listening.len() < MOST_RELATED;
            if room && listener.owner.process().is_some() {
                let local = FourTuple::new(listener.snapshot.local, listener.snapshot.local).local;
                self.listening.insert(local, listener.owner.clone());
            }
        }
        for live in source.recently_closed().chain(source.connections()) {
            if let Some(related) = self.related.get_mut(&Ends::of(live)) {
                let followed = related.get_or_insert_with(|| Followed::new(live, begun, report.at));
                followed.take(live, report.at);
            }
        }
    }

    /// Whether a connection that is meant leads to a socket that listens there.
    pub fn leads_to(&self, listening: SocketAddr) -> bool {
        let there = FourTuple::new(listening, listening).local;
        let any = there.ip().is_unspecified();
        let to = |ends: &Ends| {
            let peer = ends.tuple.local;
            peer.port() == there.port() && (any || peer.ip() == there.ip())
        };
        self.related.keys().any(to)
    }

    /// Which of them belong to processes that are stopped, or wait for a processor, while data waits for them; at the
    /// end of a poll.
    pub fn processes(&mut self, source: &dyn Source, at: MonoNanos) {
        let mut known: HashMap<u32, bool> = HashMap::new();
        let mut waits: HashMap<u32, Option<Micros>> = HashMap::new();
        let related = self.related.values_mut().flatten();
        for followed in self.meant.values_mut().chain(related) {
            followed.count_unread();
            let reads = followed.member.end().received();
            if let Some(pid) = followed.member.owner.pid().filter(|_| reads) {
                let room = waits.len() < MOST_PROCESSES;
                let read = || room.then(|| source.processor_wait(pid)).flatten();
                let wait = *waits.entry(pid).or_insert_with(read);
                followed.waited(pid, wait, at);
            }
            let member = &mut followed.member;
            let waits = member.stats.state == TcpState::Established
                && member.stats.receive_queue > 0
                && member.tally.totals.observed == Micros::ZERO;
            member.stopped = waits
                && member.owner.pid().is_some_and(|pid| {
                    let read = || source.process_state(pid).is_some_and(|s| s.stopped);
                    *known.entry(pid).or_insert_with(read)
                });
        }
    }

    /// What was observed of those that are meant and `wanted`, and the other ends.
    pub fn finish(self, wanted: impl Fn(&ConnectionId) -> bool) -> (Vec<Member>, OtherEnds) {
        let meant = self.meant.into_iter().filter(|(id, _)| wanted(id));
        let related = self.related.into_iter();
        let related = related.filter_map(|(ends, end)| Some((ends, end?.finish())));
        (
            meant.map(|(_, followed)| followed.finish()).collect(),
            OtherEnds {
                ends: related.collect(),
                listening: self.listening,
            },
        )
    }
}

/// The other ends on this machine, of connections that are meant and of those that explain them.
#[derive(Clone, Debug, Default)]
pub struct OtherEnds {
    ends: HashMap<Ends, Member>,
    listening: HashMap<SocketAddr, Owner>,
}

impl OtherEnds {
    /// The other end of the same connection.
    pub(crate) fn of(&self, near: &Member) -> Option<&Member> {
        self.ends.get(&near.ends().reversed())
    }

    /// Who listens at that address.
    fn listener(&self, at: SocketAddr) -> Option<&Owner> {
        let any = |ip: IpAddr| self.listening.get(&SocketAddr::new(ip, at.port()));
        any(at.ip())
            .or_else(|| any(Ipv4Addr::UNSPECIFIED.into()))
            .or_else(|| any(Ipv6Addr::UNSPECIFIED.into()))
    }

    /// The one answer about `members`.
    pub fn conclude(
        &self,
        members: &[Member],
        interactions: &[FoundInteraction],
        refusing: &[Refusing<'_>],
    ) -> Conclusion {
        let observed = members.iter().map(|near| Observed {
            cause: self.cause(near, interactions),
            ..self.observed(near)
        });
        conclude(observed, refusing)
    }

    /// Both ends, without what an interaction explains.
    fn observed<'a>(&'a self, near: &'a Member) -> Observed<'a> {
        let far = self.of(near);
        let peer = near.real_peer.unwrap_or(near.tuple.remote);
        Observed {
            near: near.end(),
            far: far.map(Member::end),
            peer,
            listener: far.and_then(|_| self.listener(peer)),
            cause: None,
        }
    }

    /// Those of `members` that failed, counted.
    pub fn failures(&self, members: &[Member]) -> Vec<FailureEntry> {
        super::failures::count(members.iter().map(|near| self.observed(near)))
    }

    /// The connection because of which `near`'s process, or its peer's, does not read.
    fn cause(
        &self,
        near: &Member,
        interactions: &[FoundInteraction],
    ) -> Option<(End<'_>, Option<End<'_>>)> {
        let far = self.of(near).map(|m| m.id);
        let about = |id: &ConnectionId| *id == near.id || Some(*id) == far;
        interactions.iter().find_map(|found| {
            let InteractionEvidence::PipelinedProxy {
                cause,
                flow: ProxyFlow::BackedUp,
                ..
            } = &found.interaction.evidence
            else {
                return None;
            };
            let connections = &found.interaction.connections;
            connections.iter().any(about).then_some(())?;
            let (id, tuple, _) = found.members.iter().find(|(_, tuple, _)| tuple == cause)?;
            let own = self.ends.get(&Ends::new(*tuple, id.netns))?;
            (own.id != near.id).then_some(())?;
            Some((own.end(), self.of(own).map(Member::end)))
        })
    }
}
