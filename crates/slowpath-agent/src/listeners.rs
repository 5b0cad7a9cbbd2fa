// SPDX-License-Identifier: Apache-2.0
//! The book of listening sockets: a round every second or so, verdicts on those that
//! turned connections away, their owners.
//!
//! A listener's own count of drops and its namespace's counters must be of the same moment
//! to be compared. So a round reads the counters before and after it walks over the
//! listeners, and again if they moved in between.

use crate::observer::{Observer, PollError};
use crate::owners::Owners;
use rustc_hash::{FxHashMap, FxHashSet};
use slowpath_diagnose::{ListenRound, ListenerPair, judge_listeners};
use slowpath_model::{
    ListenCounters, ListenSettings, ListenerId, ListenerInterval, ListenerSnapshot,
    ListenerVerdict, Micros, MonoNanos, Owner, Problem, Tier, WallMicros,
};
use slowpath_observe::listeners::{ListenerRound, ListenerSighting, Netstats};

/// Listeners are looked at this often at most.
const ROUNDS: Micros = Micros(1_000_000);
/// And so rarely that looking takes one part of this many of a core's time.
const RESTS: u64 = 100;
/// All of them are looked at, whether they have something to show or not, this often.
const FULL_ROUNDS: Micros = Micros(60_000_000);
/// Listeners kept; further ones are counted as lost.
const MAX_LISTENERS: usize = 65_536;
/// How often a round is repeated because counters moved meanwhile.
const RETRIES: u32 = 4;

/// A listening socket as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveListener {
    /// What was last seen of it. One that shows nothing is looked at once a minute.
    pub snapshot: ListenerSnapshot,
    /// Its namespace's settings.
    pub settings: ListenSettings,
    /// A process that holds it: the one that called `listen`, if it still does, else that
    /// with the lowest pid; as of the latest look once the listener has a problem, before
    /// that the one that called `listen`, where that was seen.
    pub owner: Owner,
    /// Processes that hold it, at most 64; empty as long as it has had no problem.
    pub holders: Vec<Owner>,
    /// The verdict on the latest round, if there was anything to say.
    pub latest: Option<ListenerVerdict>,
    /// Rounds with an accept queue overflow, and their events where counted.
    pub accept_overflows: Overflows,
    /// Likewise of the SYN queue.
    pub syn_overflows: Overflows,
    /// When it was first seen.
    pub first_observed: WallMicros,
    round: u64,
}

/// Overflows of one queue since its listener was first seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overflows {
    /// Rounds that found one.
    pub rounds: u64,
    /// Time of those rounds: an upper bound.
    pub time: Micros,
    /// Segments turned away, in the rounds in which they could be told.
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

type Key = (u32, u64);

/// Inode number and, where the kernel gives one, cookie of a network namespace: numbers are
/// used again.
type Namespace = (u32, u64);

/// Namespaces without listeners whose counters are kept.
const MAX_NAMESPACES: usize = 65_536;

fn key(id: &ListenerId) -> Key {
    (id.netns, id.cookie)
}

/// What one walk gave: the listeners and, in the tier that reads them itself, the counters.
pub(crate) struct Walk {
    pub sightings: Vec<ListenerSighting>,
    pub complete: bool,
    pub dropped: u64,
    pub counters: Vec<(u32, ListenCounters)>,
}

impl Walk {
    /// What one namespace, or BPF for all of them, gave.
    pub(crate) fn of(round: ListenerRound, counters: Option<ListenCounters>) -> Self {
        let netns = round.sightings.first().map(|s| s.snapshot.id.netns);
        Walk {
            counters: netns.zip(counters).into_iter().collect(),
            sightings: round.sightings,
            complete: round.complete,
            dropped: round.dropped,
        }
    }

    /// With what another namespace gave.
    pub(crate) fn add(&mut self, round: ListenerRound, counters: Option<ListenCounters>) {
        let other = Walk::of(round, counters);
        self.sightings.extend(other.sightings);
        self.counters.extend(other.counters);
        self.dropped += other.dropped;
        self.complete &= other.complete;
    }
}

#[derive(Default)]
pub(crate) struct Listeners {
    known: FxHashMap<Key, LiveListener>,
    closed: Vec<LiveListener>,
    /// Those with a verdict on the latest round.
    judged: Vec<Key>,
    /// Each namespace's counters at its latest round.
    counters: FxHashMap<Namespace, ListenCounters>,
    netstats: Netstats,
    next: MonoNanos,
    next_full: MonoNanos,
    previous: MonoNanos,
    round: u64,
    lost: u64,
    overfull: u64,
}

/// CPU time of this thread, user and system: a busy machine makes no walk dearer.
fn thread_cpu() -> Micros {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Micros(time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1_000)
}

impl Listeners {
    /// The counters of the namespaces that exist now; those that come later begin at zero.
    pub(crate) fn start(&mut self, now: MonoNanos, tier: Tier) {
        if tier == Tier::Bpf {
            self.counters.extend(Netstats::all());
        }
        self.previous = now;
    }

    /// One round if it is due; gives what goes into the log.
    pub(crate) fn round(
        &mut self,
        observer: &mut Observer,
        owners: &mut Owners,
        (now, wall): (MonoNanos, WallMicros),
    ) -> Result<Vec<ListenerInterval>, PollError> {
        self.closed.clear();
        if now < self.next {
            return Ok(Vec::new());
        }
        self.next = now + ROUNDS;
        let full = now >= self.next_full;
        let began = thread_cpu();
        let Some(seen) = self.look(observer, full)? else {
            return Ok(Vec::new());
        };
        let took = thread_cpu().saturating_sub(began);
        let rest = Micros(took.0.saturating_mul(RESTS));
        self.next = now + rest.max(ROUNDS);
        self.round += 1;
        if seen.complete {
            self.next_full = now + FULL_ROUNDS;
        }
        self.lost = seen.dropped;
        for key in std::mem::take(&mut self.judged) {
            if let Some(listener) = self.known.get_mut(&key) {
                listener.latest = None;
            }
        }
        let mut logged = Vec::new();
        for (netns, (sightings, counters)) in seen.namespaces {
            self.namespace(netns, sightings, counters, wall, &mut logged);
        }
        if seen.complete {
            let round = self.round;
            self.known.retain(|_, l| l.round == round);
            if self.counters.len() > MAX_NAMESPACES {
                self.forget_namespaces();
            }
        }
        self.previous = now;
        self.name_holders(owners, &mut logged);
        Ok(logged)
    }

    /// Walks until no namespace's counters move between two readings, four times at most.
    fn look(&mut self, observer: &mut Observer, full: bool) -> Result<Option<Seen>, PollError> {
        let Some(walk) = observer.listeners(full)? else {
            return Ok(None);
        };
        let mut seen = Seen {
            complete: walk.complete,
            dropped: walk.dropped,
            namespaces: FxHashMap::default(),
            own: FxHashMap::default(),
        };
        seen.merge(walk);
        for _ in 0..RETRIES {
            if !self.read_counters(&mut seen) {
                break;
            }
            let Some(walk) = observer.listeners(false)? else {
                break;
            };
            seen.merge(walk);
        }
        Ok(Some(seen))
    }

    /// Reads the counters of every namespace that was seen; whether another walk is needed:
    /// some were not read before, or moved since.
    fn read_counters(&mut self, seen: &mut Seen) -> bool {
        let mut moved = false;
        for (netns, (sightings, counters)) in &mut seen.namespaces {
            let pid = sightings
                .values()
                .find_map(|s| s.snapshot.opener.as_ref()?.pid());
            let read = match seen.own.get(&netns.0) {
                Some(counters) => Some(*counters),
                None => self.netstats.counters(netns.0, pid),
            };
            moved |= *counters != read;
            *counters = read;
        }
        moved
    }

    fn namespace(
        &mut self,
        netns: Namespace,
        sightings: FxHashMap<Key, ListenerSighting>,
        counters: Option<ListenCounters>,
        wall: WallMicros,
        logged: &mut Vec<ListenerInterval>,
    ) {
        let grown = counters.map(|now| {
            let before = self.counters.insert(netns, now);
            now.since(&before.unwrap_or(ListenCounters::ZERO))
        });
        let mut settings = ListenSettings::default();
        let mut pairs: Vec<(ListenerSnapshot, ListenerSnapshot)> = Vec::new();
        for (key, mut sighting) in sightings {
            settings = sighting.settings;
            let before = self.known.get(&key).map(|l| l.snapshot.clone());
            let born = sighting.snapshot.opener.is_some();
            let before = before.or_else(|| {
                // Listening began under our eyes, with empty queues.
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
                    let room = before.backlog.saturating_sub(1);
                    before.syn_queue = before.syn_queue.map(|queue| queue.min(room));
                }
                pairs.push((before, sighting.snapshot));
            }
        }
        let pairs: Vec<ListenerPair<'_>> = pairs
            .iter()
            .map(|(before, after)| ListenerPair { before, after })
            .collect();
        let verdicts = judge_listeners(&ListenRound {
            listeners: &pairs,
            counters: grown,
            settings,
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

    fn keep(&mut self, key: Key, sighting: &ListenerSighting, wall: WallMicros) {
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

    /// Names the holders of listeners that have a problem now, as of the latest look.
    fn name_holders(&mut self, owners: &mut Owners, logged: &mut [ListenerInterval]) {
        for key in &self.judged {
            let Some(listener) = self.known.get_mut(key) else {
                continue;
            };
            let snapshot = &listener.snapshot;
            let mut holders = owners.holding(snapshot.id.cookie, snapshot.local);
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

/// What the walks of one round saw, namespace by namespace.
struct Seen {
    complete: bool,
    dropped: u64,
    namespaces: FxHashMap<Namespace, (FxHashMap<Key, ListenerSighting>, Option<ListenCounters>)>,
    /// The counters that the latest walk read itself, by namespace.
    own: FxHashMap<u32, ListenCounters>,
}

impl Seen {
    /// Takes a later walk in.
    fn merge(&mut self, walk: Walk) {
        self.own = walk.counters.into_iter().collect();
        for sighting in walk.sightings {
            let netns = (sighting.snapshot.id.netns, sighting.netns_cookie);
            let (sightings, _) = self.namespaces.entry(netns).or_default();
            sightings.insert(key(&sighting.snapshot.id), sighting);
        }
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
