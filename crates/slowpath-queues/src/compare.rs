// SPDX-License-Identifier: Apache-2.0
//! How far replayed queues are from those that were (DETER section 5.4).

use super::engine::Outcome;
use slowpath_netsim::engine::SwitchId;
use slowpath_netsim::results::{DropPlace, Joined, PacketLog};
use slowpath_switch::PortId;
use std::collections::HashMap;

/// What packets found in the queues that they joined: the sum over all connections of the
/// difference between their bytes there and in the replay (queue content difference).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// Bytes, for each packet and queue that it joined in both; sorted.
    pub bytes: Vec<u64>,
    /// Packets that joined a queue in the run only: the replay dropped them earlier.
    pub missing: u64,
    /// Of `bytes`, those where both queues were empty.
    pub both_empty: u64,
    /// Drops.
    pub drops: DropErrors,
}

/// How far drops are from those that were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DropErrors {
    /// Dropped in the run.
    pub run: u64,
    /// Dropped in the run, not in the replay.
    pub false_accept: u64,
    /// Dropped in the replay, not in the run.
    pub false_drop: u64,
    /// Dropped in both, at different queues.
    pub wrong_place: u64,
}

impl DropErrors {
    /// DETER's drop error: all kinds of errors by what was dropped in either; 0 where
    /// nothing was.
    pub fn share(&self) -> f64 {
        let either = self.run + self.false_drop;
        if either == 0 {
            return 0.0;
        }
        (self.false_accept + self.false_drop + self.wrong_place) as f64 / either as f64
    }
}

impl Difference {
    /// The mean, in bytes; 0 if nothing was compared.
    pub fn mean(&self) -> f64 {
        if self.bytes.is_empty() {
            return 0.0;
        }
        self.bytes.iter().map(|b| *b as f64).sum::<f64>() / self.bytes.len() as f64
    }

    /// The least difference that at least the share `q` of the packets does not exceed.
    pub fn quantile(&self, q: f64) -> u64 {
        let rank = (q * self.bytes.len() as f64).ceil() as usize;
        let index = rank.clamp(1, self.bytes.len().max(1)) - 1;
        self.bytes.get(index).copied().unwrap_or(0)
    }
}

/// Compares a replay with the run.
pub fn compare(run: &PacketLog, replayed: &Outcome) -> Difference {
    let mut difference = Difference {
        drops: compare_drops(&run.dropped, &replayed.dropped),
        ..Difference::default()
    };
    // Where in the replayed queue a packet stands; of the queue before, what is stale is
    // identified by its number.
    let mut place = vec![(u32::MAX, 0u32); run.sent.len()];
    for (number, (was, is)) in (0..).zip(run.queues.iter().zip(&replayed.queues)) {
        for (at, joined) in (0..).zip(is) {
            if let Some(slot) = place.get_mut(joined.packet as usize) {
                *slot = (number, at);
            }
        }
        let mut windows = Windows::new(run, was, is);
        for (index, joined) in was.iter().enumerate() {
            match place[joined.packet as usize] {
                (queue, at) if queue == number => {
                    let bytes = windows.at(index, at as usize);
                    difference.both_empty += u64::from(windows.are_empty());
                    difference.bytes.push(bytes);
                }
                _ => difference.missing += 1,
            }
        }
    }
    difference.bytes.sort_unstable();
    difference
}

fn compare_drops(run: &[DropPlace], replayed: &[DropPlace]) -> DropErrors {
    let place = |drop: &DropPlace| (drop.packet, (drop.switch, drop.port));
    let was: HashMap<u32, (SwitchId, Option<PortId>)> = run.iter().map(place).collect();
    let is: HashMap<u32, (SwitchId, Option<PortId>)> = replayed.iter().map(place).collect();
    let mut errors = DropErrors {
        run: was.len() as u64,
        ..DropErrors::default()
    };
    for (packet, at) in &was {
        match is.get(packet) {
            None => errors.false_accept += 1,
            Some(elsewhere) if elsewhere != at => errors.wrong_place += 1,
            Some(_) => {}
        }
    }
    errors.false_drop = is.keys().filter(|packet| !was.contains_key(packet)).count() as u64;
    errors
}

/// What waits in both queues, connection by connection, as both go on.
struct Windows<'a> {
    run: &'a PacketLog,
    was: Side<'a>,
    is: Side<'a>,
    /// Bytes of each connection in the run less those in the replay.
    by_connection: HashMap<(u32, u32), i64>,
    difference: u64,
}

struct Side<'a> {
    joined: &'a [Joined],
    sign: i64,
    from: usize,
    to: usize,
}

impl<'a> Windows<'a> {
    fn new(run: &'a PacketLog, was: &'a [Joined], is: &'a [Joined]) -> Self {
        let side = |joined, sign| Side {
            joined,
            sign,
            from: 0,
            to: 0,
        };
        Windows {
            run,
            was: side(was, 1),
            is: side(is, -1),
            by_connection: HashMap::new(),
            difference: 0,
        }
    }

    /// The difference when the packet at place `run` of the one and `replay` of the other
    /// joins.
    fn at(&mut self, run: usize, replay: usize) -> u64 {
        let (table, difference) = (&mut self.by_connection, &mut self.difference);
        self.was.move_to(run, self.run, table, difference);
        self.is.move_to(replay, self.run, table, difference);
        self.difference
    }

    fn are_empty(&self) -> bool {
        self.was.from == self.was.to && self.is.from == self.is.to
    }
}

impl Side<'_> {
    /// The window is what had joined before `place` and not left when it joined.
    fn move_to(
        &mut self,
        place: usize,
        run: &PacketLog,
        table: &mut HashMap<(u32, u32), i64>,
        difference: &mut u64,
    ) {
        let from = self.joined[place].left as usize;
        while self.to < place {
            self.count(self.to, 1, run, table, difference);
            self.to += 1;
        }
        while self.from > from {
            self.from -= 1;
            self.count(self.from, 1, run, table, difference);
        }
        while self.to > place {
            self.to -= 1;
            self.count(self.to, -1, run, table, difference);
        }
        while self.from < from {
            self.count(self.from, -1, run, table, difference);
            self.from += 1;
        }
    }

    fn count(
        &self,
        at: usize,
        sign: i64,
        run: &PacketLog,
        table: &mut HashMap<(u32, u32), i64>,
        difference: &mut u64,
    ) {
        let packet = &run.sent[self.joined[at].packet as usize];
        let key = (packet.source.0, packet.key);
        let bytes = table.entry(key).or_insert(0);
        *difference -= bytes.unsigned_abs();
        *bytes += sign * self.sign * i64::from(packet.bytes);
        *difference += bytes.unsigned_abs();
        if *bytes == 0 {
            table.remove(&key);
        }
    }
}
