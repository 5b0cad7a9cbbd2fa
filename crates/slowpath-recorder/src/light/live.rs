// SPDX-License-Identifier: Apache-2.0
//! Joining without an end: each connection by itself, reported as a whole when both of its ends are over.
//!
//! Its runs are inferred from all observations of both ends; so nothing is reported before. The observations that are kept meanwhile count as the connection's bytes.

use super::piece::{CallEvent, Kind, Observation, Piece, TimerEvent};
use super::side::Side;
use super::ticks::Ticks;
use super::{Joiner, addresses};
use crate::stock::{Host, settings};
use crate::updates::{Joins, NotEvents, Update};
use slowpath_recording::{End, Moment};
use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;

/// Closed sockets still report what they have not put into the ring yet.
const LINGER: u64 = 2_000_000_000;
/// Both ends are established within a round trip, or the handshake's last packet was lost (RFC 6298, section 2: again after 1, 2, 4 s).
const PEER_TIMEOUT: u64 = 10_000_000_000;

#[derive(Clone, Default)]
struct Pair {
    joiner: Joiner,
    sockets: Vec<u64>,
    addresses: Option<[SocketAddr; 2]>,
    /// Its number once it was reported: 0 before.
    number: u64,
    /// When [`Live::settle`] first met it, and when both ends had gone: 0 if not yet.
    met: u64,
    gone: u64,
    /// Observations of each end when losses were last checked.
    sure: [usize; 2],
}

impl Pair {
    fn bytes(&self) -> usize {
        let side = |side: &Side| {
            let observed = side.observations.capacity() * size_of::<Observation>();
            let calls = side.calls.capacity() * size_of::<CallEvent>();
            size_of::<Side>() + observed + calls + side.timers.capacity() * size_of::<TimerEvent>()
        };
        size_of::<Pair>() + self.joiner.sides.iter().map(side).sum::<usize>()
    }

    fn ends(&self, ticks: &Ticks) -> Option<[End; 2]> {
        let mut joiner = self.joiner.clone();
        joiner.ticks = ticks.clone();
        let joined = joiner.finish(Host::default());
        let mut ends = joined.recording.connections.into_iter().next()?.ends;
        for end in &mut ends {
            // What comes after a gap is not reported.
            let whole = end.gap.and_then(|gap| usize::try_from(gap).ok());
            end.runs.truncate(whole.unwrap_or(usize::MAX));
        }
        Some(ends)
    }
}

/// A [`Joiner`] that goes on for ever.
#[derive(Default)]
pub struct Live {
    hystart: bool,
    pairs: BTreeMap<u64, Pair>,
    sockets: HashMap<u64, u64>,
    open: HashMap<[SocketAddr; 2], u64>,
    /// Keys of reported connections, by their number.
    reported: BTreeMap<u64, u64>,
    next: u64,
    last: u64,
    ticks: Ticks,
    /// Losses of sockets that are gone, and losses of unknown sockets.
    gone: u64,
    unattributed: u64,
}

impl std::fmt::Debug for Live {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Live").finish_non_exhaustive()
    }
}

impl Live {
    /// `hystart`: the module's parameter of CUBIC.
    pub fn new(hystart: bool) -> Live {
        Live {
            hystart,
            ..Live::default()
        }
    }

    /// Of which connection a piece is; one that opens is put where its other end is.
    fn place(&mut self, piece: &Piece) -> Option<u64> {
        let Kind::Opened(opened) = &piece.content else {
            return self.sockets.get(&piece.socket).copied();
        };
        let addresses = addresses(opened);
        let fits = |pair: &Pair| {
            let mut sides = pair.joiner.sides.iter();
            pair.sockets.len() == 1 && sides.all(|side| side.opened.end != opened.end)
        };
        let known = self.open.get(&addresses).copied();
        let known = known.filter(|key| self.pairs.get(key).is_some_and(fits));
        let key = known.unwrap_or_else(|| {
            self.next += 1;
            self.next
        });
        self.open.insert(addresses, key);
        self.sockets.insert(piece.socket, key);
        let pair = self.pairs.entry(key).or_default();
        pair.addresses = Some(addresses);
        pair.sockets.push(piece.socket);
        Some(key)
    }

    fn free(&mut self, key: u64) -> Vec<u64> {
        let Some(pair) = self.pairs.remove(&key) else {
            return Vec::new();
        };
        let lost = pair.joiner.sides.iter().map(|side| u64::from(side.lost));
        self.gone += lost.sum::<u64>();
        self.reported.remove(&pair.number);
        if let Some(addresses) = pair.addresses
            && self.open.get(&addresses) == Some(&key)
        {
            self.open.remove(&addresses);
        }
        let mut living = Vec::new();
        for socket in pair.sockets {
            if self.sockets.get(&socket) == Some(&key) {
                self.sockets.remove(&socket);
                if pair.joiner.sockets.contains_key(&socket) {
                    living.push(socket);
                }
            }
        }
        living
    }

    /// Losses of unknown sockets.
    fn doubt(&mut self, lost: u64) {
        let sides = self.pairs.values().flat_map(|pair| &pair.joiner.sides);
        let known: u64 = sides.map(|side| u64::from(side.lost)).sum();
        let unattributed = lost.saturating_sub(known + self.gone);
        let more = unattributed > self.unattributed;
        self.unattributed = self.unattributed.max(unattributed);
        for pair in self.pairs.values_mut() {
            for (side, sure) in pair.joiner.sides.iter_mut().zip(&mut pair.sure) {
                if more && !side.gone {
                    side.cut.get_or_insert(*sure);
                }
                *sure = side.observations.len();
            }
        }
    }
}

impl Joins for Live {
    fn take(&mut self, mut bytes: &[u8]) -> Result<u64, NotEvents> {
        let mut events = 0;
        while !bytes.is_empty() {
            let (piece, rest) = Piece::read(bytes).ok_or(NotEvents)?;
            bytes = rest;
            match &piece.content {
                Kind::Timer(fired) => self.ticks.look(fired.at, fired.jiffies),
                Kind::Opened(opened) => self.ticks.look(opened.at, opened.jiffies),
                Kind::Packets { .. } | Kind::Calls(_) => {}
            }
            let Some(key) = self.place(&piece) else {
                continue;
            };
            if let Some(pair) = self.pairs.get_mut(&key) {
                let before = pair.joiner.events;
                pair.joiner.place(piece);
                events += pair.joiner.events - before;
            }
        }
        Ok(events)
    }

    fn settle(&mut self, now: Moment, lost: u64, updates: &mut Vec<Update>) {
        self.doubt(lost);
        let mut over = Vec::new();
        for (key, pair) in &mut self.pairs {
            pair.met = if pair.met == 0 {
                now.0.max(1)
            } else {
                pair.met
            };
            let gone = pair.joiner.sides.iter().all(|side| side.gone);
            if gone && pair.gone == 0 {
                pair.gone = now.0.max(1);
            }
            let (Some(addresses), [a, b]) = (pair.addresses, pair.joiner.sides.as_slice()) else {
                if gone || now.0.saturating_sub(pair.met) > PEER_TIMEOUT {
                    over.push(*key);
                }
                continue;
            };
            if pair.number == 0 && self.ticks.hz() > 0 {
                let ends = if a.opened.end == 0 { [a, b] } else { [b, a] };
                let found = ends.map(|side| &side.opened.found);
                self.last += 1;
                pair.number = self.last;
                self.reported.insert(self.last, *key);
                updates.push(Update::Opened {
                    number: self.last,
                    addresses,
                    settings: settings(found, self.hystart, self.ticks.hz()),
                    hz: self.ticks.hz(),
                    at: Moment(a.opened.at.min(b.opened.at)),
                });
            }
            if pair.gone > 0 && now.0.saturating_sub(pair.gone) >= LINGER {
                over.push(*key);
            }
        }
        for key in over {
            let pair = self.pairs.get(&key);
            let whole = pair.filter(|pair| pair.number > 0);
            let ends = whole.and_then(|pair| Some((pair.number, pair.ends(&self.ticks)?)));
            let sockets = pair.map_or(Vec::new(), |pair| pair.sockets.clone());
            let living = self.free(key);
            match ends {
                Some((number, ends)) => updates.push(Update::Closed { number, ends }),
                None => updates.extend(sockets.into_iter().map(|socket| Update::Half {
                    socket,
                    lives: living.contains(&socket),
                })),
            }
        }
    }

    fn rest(&self, number: u64) -> Option<[End; 2]> {
        let pair = self.pairs.get(self.reported.get(&number)?)?;
        pair.ends(&self.ticks)
    }

    fn bytes(&self, number: u64) -> usize {
        let pair = self
            .reported
            .get(&number)
            .and_then(|key| self.pairs.get(key));
        pair.map_or(0, Pair::bytes)
    }

    fn forget(&mut self, number: u64) -> Vec<u64> {
        let key = self.reported.get(&number).copied();
        key.map_or(Vec::new(), |key| self.free(key))
    }
}
