// SPDX-License-Identifier: Apache-2.0
//! Analysis by synthesis: what of a light recording was inferred is inferred otherwise where its replay diverges from what was observed.
//!
//! 1. A replay parts before a run: something before it was not as inferred.
//! 2. Alternatives ([`Alteration`]) of the runs before it are tried one at a time, those next to it first: what was inferred and nothing else. What was observed (which packets came, in which order, the bytes of calls, the socket's counters) is never changed.
//! 3. The one whose replay goes furthest is kept, the smallest change of equals; it must go further than without.
//! 4. From there on again, until the replay does not part any more, or alternatives or tries are used up.
//!
//! What enters is a connection and where its replay parted; what leaves are connections to be replayed, and in the end the best of them with its changes. No I/O; the same answers, the same outcome.
//!
//! The result explains what was observed; it need not be what happened.

mod alternatives;
mod change;

pub use change::{Alteration, Change, RunPosition};

use slowpath_recording::{Connection, Handler};

/// Changes of one connection at most.
const MOST_CHANGES: usize = 24;
/// Replays of one connection at most.
const MOST_TRIES: usize = 4000;

/// The search for one connection.
#[derive(Clone, Debug)]
pub struct Search {
    best: Connection,
    changes: Vec<Change>,
    /// Packets that came to either end before its replay parted; `None`: it did not.
    reached: Option<u64>,
    alternatives: std::vec::IntoIter<Change>,
    asked: Vec<(Change, Connection)>,
    tries: usize,
}

impl Search {
    /// For a connection whose replay parted before that run.
    pub fn new(connection: &Connection, parted: RunPosition) -> Search {
        Search {
            best: connection.clone(),
            changes: Vec::new(),
            reached: Some(reached(connection, parted)),
            alternatives: alternatives::of(connection, parted).into_iter(),
            asked: Vec::new(),
            tries: 0,
        }
    }

    /// The next ones to be replayed, at most `most`. None: it is over.
    pub fn candidates(&mut self, most: usize) -> impl Iterator<Item = &Connection> {
        self.asked.clear();
        let over = self.reached.is_none()
            || self.changes.len() >= MOST_CHANGES
            || self.tries >= MOST_TRIES;
        while !over && self.asked.len() < most {
            let Some(change) = self.alternatives.next() else {
                break;
            };
            if let Some(connection) = change.apply(&self.best) {
                self.asked.push((change, connection));
            }
        }
        self.tries += self.asked.len();
        self.asked.iter().map(|(_, connection)| connection)
    }

    /// Where the replays of those parted, in their order. Whether one went further.
    pub fn report(&mut self, parted: &[Option<RunPosition>]) -> bool {
        let asked = std::mem::take(&mut self.asked);
        let mut best = (self.reached, None);
        for ((change, connection), parted) in asked.into_iter().zip(parted) {
            let reached = parted.map(|parted| (reached(&connection, parted), parted));
            let count = reached.map(|(count, _)| count);
            if is_further(count, best.0) {
                best = (count, Some((change, connection, *parted)));
            }
        }
        let (reached, Some((change, connection, parted))) = best else {
            return false;
        };
        self.reached = reached;
        self.changes.push(change);
        let next = parted.map(|parted| alternatives::of(&connection, parted));
        self.alternatives = next.unwrap_or_default().into_iter();
        self.best = connection;
        true
    }

    /// The one that went furthest.
    pub fn best(&self) -> &Connection {
        &self.best
    }

    /// What of it is other than it was inferred.
    pub fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// How many connections were replayed.
    pub fn tries(&self) -> usize {
        self.tries
    }
}

/// Nowhere is further than anywhere.
fn is_further(count: Option<u64>, than: Option<u64>) -> bool {
    match (count, than) {
        (None, than) => than.is_some(),
        (Some(count), Some(than)) => count > than,
        (Some(_), None) => false,
    }
}

/// Packets that came to either end before that run.
fn reached(connection: &Connection, parted: RunPosition) -> u64 {
    let run = |end: u8| {
        connection
            .ends
            .get(usize::from(end))?
            .runs
            .get(usize::try_from(parted.run).ok()?)
    };
    let at = run(parted.end).map_or(u64::MAX, |run| run.at.0);
    let runs = connection.ends.iter().flat_map(|end| &end.runs);
    let before = runs.filter(|run| run.at.0 < at && matches!(run.handler, Handler::Packet { .. }));
    before.count() as u64
}
