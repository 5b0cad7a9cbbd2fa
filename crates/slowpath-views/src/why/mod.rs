// SPDX-License-Identifier: Apache-2.0
//! One answer about a process, a peer or a port, from polls over a while.

mod answer;
mod turns;

pub use crate::conclusion::Member;
pub use crate::target::{Fit, Target, TargetError};
pub use answer::{Answer, WatchedListener, WhyConnection, WhyOutput};
pub use turns::{TurnEntry, TurnWithoutRtt, TurnsEntry};

use crate::conclusion::EndTable;
use crate::interactions::{FoundInteraction, InteractionFinder};
use crate::json::LimitReached;
use crate::listeners::ListenerTally;
use crate::source::{LiveConnection, MOST_CLOSED, PollReport, Source};
use crate::tally::{Tally, trouble};
use crate::watch::unshown_line;
use slowpath_model::{ConnectionId, FourTuple, ListenerId, Micros, MonoNanos, WallMicros};
use slowpath_text::plural;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::SocketAddr;

/// Listening sockets listed at most.
const MOST_LISTENING: usize = 1_000;

/// What polls showed of a target so far.
#[derive(Debug)]
pub struct Collector {
    target: Target,
    fits: HashMap<ConnectionId, Fit>,
    ends: EndTable,
    listening: BTreeMap<ListenerId, WatchedListener>,
    listeners: ListenerTally,
    interactions: InteractionFinder,
    others_with_owner: u64,
    owners_unknown: u64,
    process: Option<u32>,
    unshown: u64,
    /// Where connections of the process were accepted.
    accepted_on: HashSet<SocketAddr>,
}

/// No connection and no listener fits the target. The text states what was looked for and
/// what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NoConnection(String);

impl Collector {
    /// Nothing yet of `target`.
    pub fn at(target: &Target) -> Self {
        Collector {
            target: target.clone(),
            fits: HashMap::new(),
            ends: EndTable::default(),
            listening: BTreeMap::new(),
            listeners: ListenerTally::default(),
            interactions: InteractionFinder::default(),
            others_with_owner: 0,
            owners_unknown: 0,
            process: None,
            unshown: 0,
            accepted_on: HashSet::new(),
        }
    }

    /// A process that is meant exists: having no connection is an answer about it.
    #[must_use]
    pub fn with_process(mut self, pid: Option<u32>) -> Self {
        self.process = pid;
        self
    }

    /// Connections that fit so far.
    pub fn connections(&self) -> usize {
        self.fits.len()
    }

    /// Takes a poll in; `now` is the wall clock's time.
    pub fn polled(&mut self, source: &dyn Source, report: &PollReport, now: WallMicros) {
        self.ends.poll(report.at);
        self.unshown += report.unshown;
        let (mut with, mut unknown) = (0, 0);
        for live in source.recently_closed().chain(source.connections()) {
            match live.owner.process() {
                Some(_) => with += 1,
                None => unknown += 1,
            }
            self.take(live, report.at);
        }
        for found in self.interactions.polled(source, report) {
            self.ends.explain(&found);
        }
        self.ends.relate(source, report);
        self.ends.processes(source, report.at);
        for listener in source.listeners() {
            if self.target.fits_listener(listener) {
                self.listeners.take(listener, now);
                if self.listening.len() < MOST_LISTENING {
                    let watched = WatchedListener {
                        owner: listener.owner.clone(),
                        local: listener.snapshot.local,
                        accept_queue: listener.snapshot.accept_queue,
                        backlog: listener.snapshot.backlog,
                    };
                    self.listening.insert(listener.snapshot.id, watched);
                }
            } else if listener.latest.is_some() && self.ends.leads_to(listener.snapshot.local) {
                // Those who connect to it take it for losses.
                self.listeners.take(listener, now);
            }
        }
        (self.others_with_owner, self.owners_unknown) = (with, unknown);
    }

    fn take(&mut self, live: LiveConnection<'_>, at: MonoNanos) {
        let let_go = || self.was_accepted_here(live).then_some(Fit::Process);
        let Some(fit) = self.target.fits(live).or_else(let_go) else {
            return;
        };
        if fit == Fit::Process && live.is_accepted() && self.accepted_on.len() < MOST_LISTENING {
            self.accepted_on.insert(live.snapshot.tuple.local);
        }
        self.fits.entry(live.snapshot.id).or_insert(fit);
        self.ends.meet(live, at);
    }

    /// Whether a connection that has no process any more was accepted where those that are meant were, or by a
    /// listening socket that is meant: a server closed it, and its last data still waits.
    fn was_accepted_here(&self, live: LiveConnection<'_>) -> bool {
        let local = live.snapshot.tuple.local;
        let process = matches!(self.target, Target::Pid(_) | Target::Name { .. });
        let accepts = |listening: &WatchedListener| {
            let at = FourTuple::new(listening.local, listening.local).local;
            at.port() == local.port() && (at.ip().is_unspecified() || at.ip() == local.ip())
        };
        let here = || self.accepted_on.contains(&local) || self.listening.values().any(accepts);
        process && live.owner.process().is_none() && here()
    }

    /// The answer after observing for `looked`.
    ///
    /// # Errors
    /// [`NoConnection`] when neither a connection nor a listener fits.
    pub fn answer(self, looked: Micros) -> Result<Answer, NoConnection> {
        let best = self.fits.values().copied().min();
        let fit = match best {
            Some(fit) => fit,
            None if !self.listening.is_empty() => Fit::Port,
            None if self.process.is_some() => Fit::Process,
            None => return Err(self.no_connection(looked)),
        };
        let mut total = Tally::default();
        let mut idle = Micros::ZERO;
        let fits = self.fits;
        let limits_reached = [
            LimitReached::of("closed_connections", MOST_CLOSED, self.unshown),
            self.ends.limit_reached(),
            self.listeners.limit_reached(),
        ];
        let mut limit_lines: Vec<String> = unshown_line(self.unshown).into_iter().collect();
        limit_lines.extend(self.ends.limit_line());
        let (mut members, other_ends) = self.ends.finish(|id| fits.get(id) == Some(&fit));
        // The order decides which gauges a sum ends with: that of the worst connection.
        members.sort_by_key(|m| (trouble(&m.tally.totals.problem_time), Reverse(m.id)));
        for member in &members {
            total.merge(&member.tally);
            idle += member.idle;
        }
        members.reverse();
        // What the peer's process suffers from explains its end of the same connection.
        let both = |m: &Member| [Some(m.id), other_ends.of(m).map(|other| other.id)];
        let meant: HashSet<ConnectionId> = members.iter().flat_map(both).flatten().collect();
        let found = self.interactions.all(|id| meant.contains(id));
        let outgrown = |found: &&FoundInteraction| members.iter().any(|m| m.outgrew(found));
        let found = found.into_iter().filter(|found| !outgrown(found));
        let interactions = found.cloned().collect();
        Ok(Answer {
            other_ends,
            target: self.target.to_string(),
            looked,
            fit,
            total,
            idle,
            members,
            listening: self.listening.into_values().collect(),
            listeners: self.listeners,
            interactions,
            process: self.process,
            limits_reached: limits_reached.into_iter().flatten().collect(),
            limit_lines,
        })
    }

    fn no_connection(&self, looked: Micros) -> NoConnection {
        let mut text = format!(
            "no TCP connection of {} in {looked}; {} observed",
            self.target,
            plural(self.others_with_owner + self.owners_unknown, "connection")
        );
        if self.owners_unknown > 0 && matches!(self.target, Target::Pid(_) | Target::Name { .. }) {
            text.push_str(&format!(
                ", of which {} have no known owner: run as root, or name the peer (HOST:PORT)",
                self.owners_unknown
            ));
        }
        text.push_str(". Look longer (--for 30s), or at everything (slowpath watch)");
        NoConnection(text)
    }
}

#[cfg(test)]
pub(crate) mod figures_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod turns_tests;
