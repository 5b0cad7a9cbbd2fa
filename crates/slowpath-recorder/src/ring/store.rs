// SPDX-License-Identifier: Apache-2.0
//! The ring: the connections that it holds, and which of them go when space is short.

use super::connection::{HeldConnection, Rest};
use super::{Counts, Joins, Missing, Options, Saved, SettingsCheck, Unkept, Update};
use crate::updates::NotEvents;
use slowpath_recording::{EncodeError, Moment, Origin, Settings};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::net::SocketAddr;

/// One connection takes no more than this part of the ring: it would push out all others.
const SHARE: usize = 4;
/// From this part of the ring on, what waits is encoded early: it takes a fiftieth then.
const TIGHT: (usize, usize) = (3, 4);
/// Fewer events are not encoded early, if there are connections with more.
const FEW: usize = 256;
/// Connections that went of which it is known why.
const REMEMBERED: usize = 4_096;

/// Connections of the last minutes.
pub struct Ring {
    joins: Box<dyn Joins>,
    options: Options,
    origin: Origin,
    held: BTreeMap<u64, HeldConnection>,
    newest: HashMap<[SocketAddr; 2], u64>,
    /// Those that ended and were not asked for, by when.
    ended: BTreeSet<(Moment, u64)>,
    /// Those that live and were not asked for; numbers are given in the order of opening.
    living: BTreeSet<u64>,
    asked: BTreeSet<u64>,
    /// Those that are not held any more, and why; `None`: they were saved.
    removed: VecDeque<([SocketAddr; 2], Option<Missing>)>,
    unkept: Vec<Unkept>,
    takes: SettingsCheck,
    bytes: usize,
    counts: Counts,
    unwanted: Vec<u64>,
    refuses: bool,
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring")
            .field("bytes", &self.bytes)
            .field("counts", &self.counts)
            .finish_non_exhaustive()
    }
}

impl Ring {
    /// An empty one. The ticks a second of `origin` are those that connections report.
    pub fn new(joins: Box<dyn Joins>, origin: Origin, options: Options) -> Ring {
        Ring {
            joins,
            options,
            origin,
            held: BTreeMap::new(),
            newest: HashMap::new(),
            ended: BTreeSet::new(),
            living: BTreeSet::new(),
            asked: BTreeSet::new(),
            removed: VecDeque::new(),
            unkept: Vec::new(),
            takes: |_, _| Ok(()),
            bytes: 0,
            counts: Counts::default(),
            unwanted: Vec::new(),
            refuses: false,
        }
    }

    /// The same, with what says whether a replay can have a connection's settings.
    #[must_use]
    pub fn checking(self, takes: SettingsCheck) -> Ring {
        Ring { takes, ..self }
    }

    /// Takes whole events of the recorder.
    ///
    /// # Errors
    /// If the bytes are no whole events of this recorder.
    pub fn take(&mut self, events: &[u8]) -> Result<(), NotEvents> {
        self.counts.events += self.joins.take(events)?;
        Ok(())
    }

    /// Takes no new connections from now on, or takes them again. Refused ones are counted, and no further events of their sockets are wanted.
    pub fn refuse(&mut self, refuses: bool) {
        self.refuses = refuses;
    }

    /// The sockets that are recorded.
    pub fn sockets(&self) -> Vec<u64> {
        self.joins.sockets()
    }

    /// States how many of a socket's events were lost so far; `None`: it is not recorded any more. The caller states it when the recorder lost some, before [`Ring::work`].
    pub fn lost(&mut self, socket: u64, events: Option<u32>) {
        self.joins.lost(socket, events);
    }

    /// Bytes that are held.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Connections that are held.
    pub fn connections(&self) -> usize {
        self.held.len()
    }

    /// What happened so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Open sockets of which no further events are wanted, since the last call.
    pub fn unwanted(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.unwanted)
    }

    /// Connections that were asked for and of which nothing is kept after all, since the last call.
    pub fn unkept(&mut self) -> Vec<Unkept> {
        std::mem::take(&mut self.unkept)
    }

    /// Takes in what has become known, makes room, and returns the recordings that are due. To be called some times a second. `lost`: events that were lost in all.
    pub fn work(&mut self, now: Moment, lost: u64) -> Vec<Saved> {
        let mut updates = Vec::new();
        let mut saved = Vec::new();
        self.joins.settle(now, lost, &mut updates);
        for update in updates {
            self.apply(update, now, &mut saved);
        }
        for number in self.unended() {
            let joined = self.joins.bytes(number);
            if let Some(held) = self.held.get_mut(&number) {
                held.joined = joined;
            }
            self.recount(number);
        }
        self.expire(now);
        self.make_room(&mut saved);
        let due = |number: &u64| {
            let asked = self.held.get(number).and_then(|held| held.asked.as_ref());
            asked.is_some_and(|asked| asked.due.is_some_and(|due| due <= now))
        };
        let due: Vec<u64> = self.asked.iter().copied().filter(due).collect();
        for number in due {
            self.save(number, &mut saved);
        }
        saved
    }

    /// Saves what was asked for, those that live once more: the end.
    pub fn finish(&mut self) -> Vec<Saved> {
        let mut saved = Vec::new();
        for number in std::mem::take(&mut self.asked) {
            self.save(number, &mut saved);
        }
        saved
    }

    /// Keeps a connection, which had these addresses, in either order, at that time.
    ///
    /// # Errors
    /// Why it is not there.
    pub fn keep(
        &mut self,
        addresses: [SocketAddr; 2],
        at: Moment,
        reason: &str,
    ) -> Result<(), Missing> {
        let found = self.find(addresses, at);
        if let Some(number) = found {
            self.ask(number, reason, at);
            return Ok(());
        }
        let mut removed = self.removed.iter().rev();
        let removal = removed.find(|(pair, _)| is(*pair, addresses));
        let missing = match removal {
            Some((_, None)) => return Ok(()),
            Some((_, Some(missing))) => missing.clone(),
            None => Missing::Unknown,
        };
        self.counts.missing += 1;
        Err(missing)
    }

    /// Whether a connection with these addresses, in either order, was open by then: it is held, or it is known why not.
    pub fn knows(&self, addresses: [SocketAddr; 2], at: Moment) -> bool {
        self.find(addresses, at).is_some()
            || self.removed.iter().any(|(pair, _)| is(*pair, addresses))
    }

    /// Keeps every connection that is held; gives their number.
    pub fn keep_all(&mut self, at: Moment, reason: &str) -> usize {
        let all: Vec<u64> = self.held.keys().copied().collect();
        for number in &all {
            self.ask(*number, reason, at);
            // Now, and not when patience ends.
            let asked = self.held.get_mut(number);
            if let Some(asked) = asked.and_then(|held| held.asked.as_mut()) {
                asked.due = Some(at);
            }
        }
        all.len()
    }

    /// The latest one with these addresses that had opened by then.
    fn find(&self, [a, b]: [SocketAddr; 2], at: Moment) -> Option<u64> {
        let newest = [[a, b], [b, a]];
        let newest = newest.iter().filter_map(|pair| self.newest.get(pair));
        let newest = *newest.max()?;
        if self.held.get(&newest)?.opened <= at {
            return Some(newest);
        }
        let mut older = self.held.iter().rev();
        let fits = |held: &HeldConnection| is(held.addresses, [a, b]) && held.opened <= at;
        older.find_map(|(number, held)| fits(held).then_some(*number))
    }

    fn ask(&mut self, number: u64, reason: &str, at: Moment) {
        let patience = self.options.patience;
        let Some(held) = self.held.get_mut(&number) else {
            return;
        };
        self.counts.asked += u64::from(held.asked.is_none());
        held.ask(reason, at, patience);
        self.living.remove(&number);
        if let Some(ended) = held.ended {
            self.ended.remove(&(ended, number));
            // Nothing more comes.
            held.asked.as_mut().map(|asked| asked.due.insert(ended));
        }
        self.asked.insert(number);
        self.recount(number);
    }

    fn apply(&mut self, update: Update, now: Moment, saved: &mut Vec<Saved>) {
        match update {
            Update::Opened {
                number,
                addresses,
                settings,
                hz,
                at,
            } => {
                if self.refuse_one(number, addresses) {
                    return;
                }
                self.origin.hz = hz;
                let held = self.opened(addresses, settings, at);
                self.hold(number, addresses, held);
            }
            Update::OneSided {
                number,
                one_sided,
                hz,
                at,
            } => {
                if self.refuse_one(number, one_sided.addresses) {
                    return;
                }
                self.counts.one_sided += 1;
                self.origin.hz = hz;
                let held = HeldConnection::one_sided(&self.origin, &one_sided, at);
                self.hold(number, one_sided.addresses, held);
            }
            Update::Runs { number, .. }
            | Update::Packets { number, .. }
            | Update::Closed { number, .. }
                if !self.held.contains_key(&number) => {}
            Update::Runs { number, end, runs } => {
                self.counts.runs += runs.len() as u64;
                self.edit(number, |held| held.push(end, runs));
            }
            Update::Packets { number, packets } => {
                self.edit(number, |held| held.packets(&packets));
            }
            Update::Closed { number, ends } => {
                self.counts.ended += 1;
                let runs: usize = ends.iter().map(|end| end.runs.len()).sum();
                self.counts.runs += runs as u64;
                self.edit(number, |held| {
                    held.joined = 0;
                    held.close(ends, now)
                });
                let Some(held) = self.held.get(&number) else {
                    return;
                };
                if held.asked.is_some() {
                    self.save(number, saved);
                } else {
                    self.living.remove(&number);
                    self.ended.insert((now, number));
                }
            }
            Update::Half { socket, lives } => {
                self.counts.halves += 1;
                if lives {
                    self.unwanted.push(socket);
                }
            }
        }
    }

    /// Whether nothing new is taken; otherwise it is counted.
    fn refuse_one(&mut self, number: u64, addresses: [SocketAddr; 2]) -> bool {
        if !self.refuses {
            self.counts.opened += 1;
            return false;
        }
        self.counts.refused += 1;
        self.unwanted.extend(self.joins.forget(number));
        self.remember(addresses, Some(Missing::Refused));
        true
    }

    /// What is held of one whose ends are both here.
    fn opened(
        &self,
        addresses: [SocketAddr; 2],
        settings: Settings,
        at: Moment,
    ) -> Result<HeldConnection, EncodeError> {
        let possible = (self.takes)(addresses, &settings);
        let mut held = HeldConnection::new(&self.origin, addresses, settings, at)?;
        if let Err(reason) = possible {
            held.unreplayable.get_or_insert(Missing::Settings(reason));
        }
        Ok(held)
    }

    fn hold(
        &mut self,
        number: u64,
        addresses: [SocketAddr; 2],
        held: Result<HeldConnection, EncodeError>,
    ) {
        match held {
            Ok(held) => {
                self.held.insert(number, held);
                self.newest.insert(addresses, number);
                self.living.insert(number);
                self.give_up_unreplayable(number);
            }
            Err(_) => self.nonsense(number, addresses),
        }
    }

    /// Changes what is held of a connection; if that fails it is not held any more.
    fn edit(
        &mut self,
        number: u64,
        change: impl FnOnce(&mut HeldConnection) -> Result<(), EncodeError>,
    ) {
        let Some(held) = self.held.get_mut(&number) else {
            return;
        };
        let before = (held.encoded, held.file_bytes());
        let result = change(held);
        self.counts.encoded_runs += held.encoded - before.0;
        self.counts.encoded_bytes += held.file_bytes().saturating_sub(before.1) as u64;
        let addresses = held.addresses;
        self.recount(number);
        match result {
            Ok(()) => self.give_up_unreplayable(number),
            Err(_) => self.nonsense(number, addresses),
        }
    }

    fn nonsense(&mut self, number: u64, addresses: [SocketAddr; 2]) {
        self.counts.nonsense += 1;
        self.give_up(number, addresses, Missing::Nonsense);
    }

    /// Holds a connection no longer that cannot be replayed.
    fn give_up_unreplayable(&mut self, number: u64) {
        if let Some(held) = self.held.get(&number)
            && let Some(missing) = held.unreplayable.clone()
        {
            let addresses = held.addresses;
            self.counts.unreplayable += 1;
            self.give_up(number, addresses, missing);
        }
    }

    /// Holds it no longer; if it was asked for, that is reported.
    fn give_up(&mut self, number: u64, addresses: [SocketAddr; 2], missing: Missing) {
        if let Some(held) = self.held.get(&number)
            && held.asked.is_some()
        {
            self.unkept.push(Unkept {
                addresses,
                reasons: held.reasons(),
                missing: missing.clone(),
            });
        }
        self.remove(number);
        self.remember(addresses, Some(missing));
    }

    fn recount(&mut self, number: u64) {
        if let Some(held) = self.held.get_mut(&number) {
            let bytes = held.bytes();
            self.bytes = self.bytes - held.counted + bytes;
            held.counted = bytes;
        }
    }

    /// Those that have not ended.
    fn unended(&self) -> Vec<u64> {
        let asked = self.asked.iter();
        let asked = asked.filter(|it| self.held.get(it).is_some_and(|held| held.ended.is_none()));
        self.living.iter().chain(asked).copied().collect()
    }

    fn expire(&mut self, now: Moment) {
        let age = u64::try_from(self.options.age.as_nanos()).unwrap_or(u64::MAX);
        while let Some((ended, number)) = self.ended.first().copied()
            && now.0.saturating_sub(ended.0) >= age
        {
            self.counts.forgotten += 1;
            self.remove(number);
        }
    }

    fn make_room(&mut self, saved: &mut Vec<Saved>) {
        let share = self.options.bytes / SHARE;
        for number in self.unended() {
            let counted = |ring: &Ring| ring.held.get(&number).map_or(0, |held| held.counted);
            if counted(self) > share {
                self.edit(number, HeldConnection::flush);
            }
            if counted(self) > share {
                let before = self.counts.dropped_living;
                self.drop(number, saved);
                let large = self.counts.dropped_living - before;
                self.counts.dropped_large += large;
                self.counts.dropped_living = before;
            }
        }
        for few in [FEW, 1] {
            if self.bytes <= self.options.bytes / TIGHT.1 * TIGHT.0 {
                break;
            }
            for number in self.unended() {
                if self
                    .held
                    .get(&number)
                    .is_some_and(|held| held.waiting() >= few)
                {
                    self.edit(number, HeldConnection::flush);
                }
            }
        }
        while self.bytes > self.options.bytes {
            let next = self.ended.first().map(|(_, number)| *number);
            let next = next.or_else(|| self.living.first().copied());
            let Some(next) = next.or_else(|| self.asked.first().copied()) else {
                break;
            };
            self.drop(next, saved);
        }
    }

    /// Drops a connection for lack of space; if it was asked for, it is saved as far as it is.
    fn drop(&mut self, number: u64, saved: &mut Vec<Saved>) {
        let Some(held) = self.held.get(&number) else {
            return;
        };
        let (addresses, lives) = (held.addresses, held.ended.is_none());
        if held.asked.is_none() {
            match lives {
                true => self.counts.dropped_living += 1,
                false => self.counts.dropped_ended += 1,
            }
            self.remember(addresses, Some(Missing::Dropped));
        } else {
            self.save(number, saved);
            if lives && self.held.contains_key(&number) {
                self.counts.cut_short += 1;
                if let Some(saved) = saved.last_mut().filter(|it| it.number == number) {
                    saved.cut_short = true;
                }
                self.remember(addresses, None);
            }
        }
        self.remove(number);
    }

    /// Saves it; if it has ended it is not held any more.
    fn save(&mut self, number: u64, saved: &mut Vec<Saved>) {
        let Some(held) = self.held.get_mut(&number) else {
            return;
        };
        let addresses = held.addresses;
        let over = held.ended.is_some();
        let both = self.joins.rest(number).map(Rest::Both);
        let one_sided = || self.joins.rest_one_sided(number);
        let rest = both.or_else(|| one_sided().map(|(end, packets)| Rest::OneSided(end, packets)));
        match held.save(number, rest.unwrap_or(Rest::Nothing)) {
            Ok(None) => self.give_up_unreplayable(number),
            Ok(Some(it)) => {
                self.counts.saved += 1;
                saved.push(it);
                if over {
                    self.remove(number);
                    self.remember(addresses, None);
                }
            }
            Err(_) => self.nonsense(number, addresses),
        }
    }

    fn remove(&mut self, number: u64) {
        if let Some(held) = self.held.remove(&number) {
            self.bytes -= held.counted;
            if self.newest.get(&held.addresses) == Some(&number) {
                self.newest.remove(&held.addresses);
            }
            if let Some(ended) = held.ended {
                self.ended.remove(&(ended, number));
            }
        }
        self.living.remove(&number);
        self.asked.remove(&number);
        self.unwanted.extend(self.joins.forget(number));
    }

    fn remember(&mut self, addresses: [SocketAddr; 2], missing: Option<Missing>) {
        if self.removed.len() >= REMEMBERED {
            self.removed.pop_front();
        }
        self.removed.push_back((addresses, missing));
    }
}

fn is(held: [SocketAddr; 2], [a, b]: [SocketAddr; 2]) -> bool {
    held == [a, b] || held == [b, a]
}
