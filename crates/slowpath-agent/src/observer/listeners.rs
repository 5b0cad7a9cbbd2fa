// SPDX-License-Identifier: Apache-2.0
//! One scan of the listening sockets, in either tier.
//!
//! A listener's own count of drops and its namespace's counters must be of the same moment
//! to be compared. So a scan reads the counters before and after it walks over the
//! listeners, and again if they moved in between.

use super::{Observer, PollError};
use crate::listeners::{ListenerScan, Namespace, key};
use rustc_hash::FxHashMap;
use slowpath_model::ListenCounters;
use slowpath_observe::Namespaces;
use slowpath_observe::listeners::{ListenerRound, ListenerSighting, Netstats};

/// How often a walk is repeated because counters moved meanwhile.
const RETRIES: u32 = 4;

/// Scans listeners, and remembers how it got to their namespaces' counters.
#[derive(Default)]
pub(crate) struct ListenerScanner {
    netstats: Netstats,
}

/// What one walk gave: the listeners and, in the tier that reads them itself, the counters
/// by namespace.
struct Walk {
    sightings: Vec<ListenerSighting>,
    complete: bool,
    dropped: u64,
    counters: FxHashMap<u32, ListenCounters>,
}

impl Walk {
    /// What one namespace, or BPF for all of them, gave.
    fn of(round: ListenerRound, counters: Option<ListenCounters>) -> Self {
        let netns = round.sightings.first().map(|s| s.snapshot.id.netns);
        Walk {
            counters: netns.zip(counters).into_iter().collect(),
            sightings: round.sightings,
            complete: round.complete,
            dropped: round.dropped,
        }
    }

    /// With what another namespace gave.
    fn add(&mut self, round: ListenerRound, counters: Option<ListenCounters>) {
        let other = Walk::of(round, counters);
        self.sightings.extend(other.sightings);
        self.counters.extend(other.counters);
        self.dropped += other.dropped;
        self.complete &= other.complete;
    }
}

impl ListenerScanner {
    /// Walks until no namespace's counters move between two readings, four times at most;
    /// with `all` over every listener, else over those with something to show. `None` where
    /// listeners cannot be observed.
    pub(crate) fn scan(
        &mut self,
        observer: &mut Observer,
        all: bool,
    ) -> Result<Option<ListenerScan>, PollError> {
        let Some(walk) = observer.walk_listeners(all)? else {
            return Ok(None);
        };
        let mut scan = ListenerScan {
            complete: walk.complete,
            dropped: walk.dropped,
            ..ListenerScan::default()
        };
        let mut own = merge(&mut scan, walk);
        for _ in 0..RETRIES {
            if !self.read_counters(&mut scan, &own) {
                break;
            }
            let Some(walk) = observer.walk_listeners(false)? else {
                break;
            };
            own = merge(&mut scan, walk);
        }
        Ok(Some(scan))
    }

    /// The counters of those namespaces, as many as exist now.
    pub(crate) fn counters_of(
        namespaces: Namespaces,
    ) -> impl Iterator<Item = (Namespace, ListenCounters)> {
        Netstats::of(namespaces).into_iter()
    }

    /// Reads the counters of every namespace in the scan; whether another walk is needed:
    /// some were not read before, or moved since. `own`: those that the walk read itself.
    fn read_counters(
        &mut self,
        scan: &mut ListenerScan,
        own: &FxHashMap<u32, ListenCounters>,
    ) -> bool {
        let mut moved = false;
        for (netns, (sightings, counters)) in &mut scan.namespaces {
            let pid = sightings
                .values()
                .find_map(|s| s.snapshot.opener.as_ref()?.pid());
            let read = match own.get(&netns.0) {
                Some(counters) => Some(*counters),
                None => self.netstats.counters(netns.0, pid),
            };
            moved |= *counters != read;
            *counters = read;
        }
        moved
    }
}

/// Takes a later walk in; gives the counters that it read itself.
fn merge(scan: &mut ListenerScan, walk: Walk) -> FxHashMap<u32, ListenCounters> {
    for sighting in walk.sightings {
        let netns = (sighting.snapshot.id.netns, sighting.netns_cookie);
        let (sightings, _) = scan.namespaces.entry(netns).or_default();
        sightings.insert(key(&sighting.snapshot.id), sighting);
    }
    walk.counters
}

impl Observer {
    /// One walk over the listening sockets: those with something to show, or with `all`
    /// every one. `None` where they cannot be observed.
    fn walk_listeners(&mut self, all: bool) -> Result<Option<Walk>, PollError> {
        match self {
            Observer::Bpf(tier) => Ok(tier.listeners(all)?.map(|round| Walk::of(round, None))),
            Observer::InetDiag {
                tier,
                other_namespaces,
                listening,
                ..
            } => {
                let (round, counters) = tier.listeners()?;
                let mut walk = Walk::of(round, counters);
                if let Some(others) = other_namespaces {
                    others.listeners(|round, counters| walk.add(round, counters));
                }
                let live = walk.sightings.iter().filter(|s| !s.snapshot.closed);
                *listening = live
                    .filter_map(|s| Some((s.snapshot.id.cookie, s.inode?)))
                    .collect();
                Ok(Some(walk))
            }
        }
    }
}
