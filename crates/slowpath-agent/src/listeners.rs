// SPDX-License-Identifier: Apache-2.0
//! The listening sockets: verdicts on those that turned connections away, their owners.
//!
//! What enters: a scan every second or so ([`ListenerScan`]). What leaves: live listeners,
//! and intervals for the log. No clock, no I/O.

use crate::host::Host;
use crate::owners::Owners;
use rustc_hash::{FxHashMap, FxHashSet};
use slowpath_diagnose::{ListenRound, ListenerPair, judge_listeners};
use slowpath_model::{
    ListenCounters, ListenSettings, ListenerId, ListenerInterval, ListenerSnapshot,
    ListenerVerdict, Micros, MonoNanos, Owner, Problem, WallMicros,
};
use slowpath_observe::listeners::ListenerSighting;

/// Listeners are scanned this often at most.
const ROUNDS: Micros = Micros(1_000_000);
/// And so rarely that the scans take one part of this many of a core's time.
const RESTS: u64 = 100;
/// All of them are scanned, whether they have something to show or not, this often.
const FULL_ROUNDS: Micros = Micros(60_000_000);
/// Listeners kept; further ones are counted as lost.
const MAX_LISTENERS: usize = 65_536;

/// A listening socket as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveListener {
    /// What was last observed of it. One that shows nothing is observed once a minute.
    pub snapshot: ListenerSnapshot,
    /// Its namespace's settings.
    pub settings: ListenSettings,
    /// A process that holds it: the one that called `listen`, if it still does, else that
    /// with the lowest pid; as of the latest scan once the listener has a problem, before
    /// that the one that called `listen`, where that was observed.
    pub owner: Owner,
    /// Processes that hold it, at most 64; empty as long as it has had no problem.
    pub holders: Vec<Owner>,
    /// The verdict on the latest round, if there was anything to say.
    pub latest: Option<ListenerVerdict>,
    /// Rounds with an accept queue overflow, and their events where counted.
    pub accept_overflows: Overflows,
    /// Likewise of the SYN queue.
    pub syn_overflows: Overflows,
    /// When it was first observed.
    pub first_observed: WallMicros,
    round: u64,
}

/// Overflows of one queue since its listener was first observed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overflows {
    /// Rounds that found one.
    pub rounds: u64,
    /// Time of those rounds: an upper bound.
    pub time: Micros,
    /// Segments turned away, in the rounds in which they could be counted.
    pub events: u64,
}

impl LiveListener {
    /// A listener that was just met.
    pub fn new(snapshot: ListenerSnapshot, settings: ListenSettings, wall: WallMicros) -> Self {
        LiveListener {
            owner: snapshot.opener.clone().unwrap_or_default(),
            snapshot,
            settings,
            holders: Vec::new(),
            latest: None,
            accept_overflows: Overflows::default(),
            syn_overflows: Overflows::default(),
            first_observed: wall,
            round: 0,
        }
    }

    /// The latest verdict as the log keeps it, if there is one, its interval ending at `end`.
    pub fn interval(&self, end: WallMicros) -> Option<ListenerInterval> {
        let verdict = self.latest.as_ref()?;
        Some(verdict.interval_record(&self.snapshot, &self.owner, end))
    }
}

impl Overflows {
    fn add(&mut self, verdict: &ListenerVerdict, problem: Problem) {
        if let Some(finding) = verdict.finding(problem) {
            self.rounds += 1;
            self.time += finding.share.time_of(verdict.interval());
            self.events += finding.events.unwrap_or(0);
        }
    }
}

pub(crate) type ListenerKey = (u32, u64);

/// Inode number and, where the kernel gives one, cookie of a network namespace: numbers are
/// used again.
pub(crate) type Namespace = (u32, u64);

/// Namespaces without listeners whose counters are kept.
const MAX_NAMESPACES: usize = 65_536;

/// What identifies a listener while it lives: its namespace's inode number and its cookie.
pub(crate) fn key(id: &ListenerId) -> ListenerKey {
    (id.netns, id.cookie)
}

/// The listeners of one namespace, and its counters at the same moment.
pub(crate) type NamespaceScan = (
    FxHashMap<ListenerKey, ListenerSighting>,
    Option<ListenCounters>,
);

/// What one scan of the listening sockets found, namespace by namespace.
#[derive(Default)]
pub(crate) struct ListenerScan {
    /// Every listener is in it, whether it had something to show or not.
    pub(crate) complete: bool,
    /// Listeners that could not be handed over.
    pub(crate) dropped: u64,
    pub(crate) namespaces: FxHashMap<Namespace, NamespaceScan>,
}

#[derive(Default)]
pub(crate) struct Listeners {
    known: FxHashMap<ListenerKey, LiveListener>,
    closed: Vec<LiveListener>,
    /// Those with a verdict on the latest round.
    judged: Vec<ListenerKey>,
    /// Each namespace's counters at its latest round.
    counters: FxHashMap<Namespace, ListenCounters>,
    next: MonoNanos,
    next_full: MonoNanos,
    previous: MonoNanos,
    round: u64,
    lost: u64,
    overfull: u64,
}

impl Listeners {
    /// The counters of the namespaces that exist now, where they are known; those of later
    /// namespaces begin at zero.
    pub(crate) fn start(
        &mut self,
        now: MonoNanos,
        counters: impl IntoIterator<Item = (Namespace, ListenCounters)>,
    ) {
        self.counters.extend(counters);
        self.previous = now;
    }

    /// A poll begins; `refreshed`: the views have shown what closed until now.
    pub(crate) fn begin_poll(&mut self, refreshed: bool) {
        if refreshed {
            self.closed.clear();
        }
    }

    /// Whether a scan is due and, if so, whether of all listeners.
    pub(crate) fn due(&self, now: MonoNanos) -> Option<bool> {
        (now >= self.next).then_some(now >= self.next_full)
    }

    /// A scan, and what was made of it, took so long.
    pub(crate) fn took(&mut self, now: MonoNanos, cost: Micros) {
        let rest = Micros(cost.0.saturating_mul(RESTS));
        self.next = now + rest.max(ROUNDS);
    }

    /// Takes a scan in; gives what goes into the log.
    pub(crate) fn scanned(
        &mut self,
        scan: ListenerScan,
        owners: &mut Owners,
        (now, wall): (MonoNanos, WallMicros),
        host: &mut dyn Host,
    ) -> Vec<ListenerInterval> {
        self.round += 1;
        if scan.complete {
            self.next_full = now + FULL_ROUNDS;
        }
        self.lost = scan.dropped;
        for key in std::mem::take(&mut self.judged) {
            if let Some(listener) = self.known.get_mut(&key) {
                listener.latest = None;
            }
        }
        let mut logged = Vec::new();
        for (netns, (sightings, counters)) in scan.namespaces {
            let pairs = self.update(sightings, wall);
            self.judge(netns, counters, &pairs, wall, &mut logged);
        }
        if scan.complete {
            let round = self.round;
            self.known.retain(|_, l| l.round == round);
            if self.counters.len() > MAX_NAMESPACES {
                self.forget_namespaces();
            }
        }
        self.previous = now;
        self.name_holders(owners, &mut logged, host);
        logged
    }

    /// Takes over what was observed in one namespace; gives each listener before and now.
    fn update(
        &mut self,
        sightings: FxHashMap<ListenerKey, ListenerSighting>,
        wall: WallMicros,
    ) -> Vec<(ListenerSnapshot, ListenerSighting)> {
        let mut pairs = Vec::new();
        for (key, mut sighting) in sightings {
            let before = self.known.get(&key).map(|l| l.snapshot.clone());
            let born = sighting.snapshot.opener.is_some();
            let before = before.or_else(|| {
                // Listening began while the agent observed it, with empty queues.
                born.then(|| ListenerSnapshot {
                    at: self.previous.min(sighting.snapshot.at),
                    accept_queue: 0,
                    syn_queue: sighting.snapshot.syn_queue.map(|_| 0),
                    drops: sighting.first_drops,
                    cookie_age: None,
                    ..sighting.snapshot.clone()
                })
            });
            if let Some(before) = &before {
                sighting.snapshot.drops = widened(before.drops, sighting.snapshot.drops);
            }
            self.keep(key, &sighting, wall);
            if let Some(mut before) = before {
                // One that showed nothing until the previous round was quiet until then.
                if before.at < self.previous {
                    before.at = self.previous.min(sighting.snapshot.at);
                    before.accept_queue = before.accept_queue.min(before.backlog);
                    let limit = before.backlog.saturating_sub(1);
                    before.syn_queue = before.syn_queue.map(|queue| queue.min(limit));
                }
                pairs.push((before, sighting));
            }
        }
        pairs
    }

    /// Judges one namespace's listeners.
    fn judge(
        &mut self,
        netns: Namespace,
        counters: Option<ListenCounters>,
        pairs: &[(ListenerSnapshot, ListenerSighting)],
        wall: WallMicros,
        logged: &mut Vec<ListenerInterval>,
    ) {
        let grown = counters.map(|now| {
            let before = self.counters.insert(netns, now);
            now.since(&before.unwrap_or(ListenCounters::ZERO))
        });
        let settings = pairs.last().map(|(_, sighting)| sighting.settings);
        let pairs: Vec<ListenerPair<'_>> = pairs
            .iter()
            .map(|(before, sighting)| ListenerPair {
                before,
                after: &sighting.snapshot,
            })
            .collect();
        let verdicts = judge_listeners(&ListenRound {
            listeners: &pairs,
            counters: grown,
            settings: settings.unwrap_or_default(),
        });
        for verdict in verdicts {
            let key = key(&verdict.listener);
            let listener = match self.known.get_mut(&key) {
                Some(listener) => {
                    self.judged.push(key);
                    listener
                }
                None => match self
                    .closed
                    .iter_mut()
                    .find(|l| l.snapshot.id == verdict.listener)
                {
                    Some(listener) => listener,
                    None => continue,
                },
            };
            listener
                .accept_overflows
                .add(&verdict, Problem::AcceptQueueOverflow);
            listener
                .syn_overflows
                .add(&verdict, Problem::SynQueueOverflow);
            let found = !verdict.findings.is_empty();
            listener.latest = Some(verdict);
            logged.extend(listener.interval(wall).filter(|_| found));
        }
    }

    fn keep(&mut self, key: ListenerKey, sighting: &ListenerSighting, wall: WallMicros) {
        let snapshot = &sighting.snapshot;
        let mut listener = match self.known.remove(&key) {
            Some(mut known) => {
                known.snapshot.clone_from(snapshot);
                known
            }
            None => LiveListener::new(snapshot.clone(), sighting.settings, wall),
        };
        listener.settings = sighting.settings;
        listener.round = self.round;
        if snapshot.closed {
            if self.closed.len() < MAX_LISTENERS {
                self.closed.push(listener);
            }
        } else if self.known.len() < MAX_LISTENERS {
            self.known.insert(key, listener);
        } else {
            self.overfull += 1;
        }
    }

    fn forget_namespaces(&mut self) {
        let used: FxHashSet<u32> = self.known.keys().map(|(netns, _)| *netns).collect();
        self.counters.retain(|(netns, _), _| used.contains(netns));
    }

    /// Names the holders of listeners that have a problem now, as of the latest scan.
    fn name_holders(
        &mut self,
        owners: &mut Owners,
        logged: &mut [ListenerInterval],
        host: &mut dyn Host,
    ) {
        for key in &self.judged {
            let Some(listener) = self.known.get_mut(key) else {
                continue;
            };
            let snapshot = &listener.snapshot;
            let mut holders = owners.holding(snapshot.id.cookie, snapshot.local, host);
            holders.sort_by_key(Owner::pid);
            let opener = snapshot.opener.as_ref().and_then(Owner::pid);
            let opens = |o: &&Owner| opener.is_some() && o.pid() == opener;
            let Some(owner) = holders.iter().find(opens).or(holders.first()) else {
                continue;
            };
            listener.owner = owner.clone();
            listener.holders = holders;
            for interval in logged.iter_mut() {
                if interval.listener == listener.snapshot.id {
                    interval.owner.clone_from(&listener.owner);
                }
            }
        }
    }

    /// Those that live and those that closed in the latest round.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &LiveListener> {
        self.known.values().chain(&self.closed)
    }

    /// Listeners that could not be followed.
    pub(crate) fn lost(&self) -> u64 {
        self.lost + self.overfull
    }
}

/// A 32-bit count of drops, carried on from an earlier one past its wrap.
fn widened(before: Option<u64>, now: Option<u64>) -> Option<u64> {
    let (before, now) = (before?, now?);
    let grown = (now as u32).wrapping_sub(before as u32);
    Some(before + u64::from(grown))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_go_on_past_their_wrap() {
        assert_eq!(widened(Some(5), Some(9)), Some(9));
        assert_eq!(
            widened(Some(u64::from(u32::MAX) - 1), Some(3)),
            Some((1 << 32) + 3)
        );
        assert_eq!(widened(None, Some(3)), None);
    }
}
