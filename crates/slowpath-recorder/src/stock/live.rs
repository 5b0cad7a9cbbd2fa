// SPDX-License-Identifier: Apache-2.0
//! Joining without an end: what has become final of each connection is handed out now and then, and what is over is forgotten.
//!
//! What enters: the recorder's events, the time, and what the recorder lost. What leaves: [`Update`]s. What is promised: the runs of a connection that was handed
//! out piece by piece are those that a [`Joiner`] gives at its end; what is kept is bounded by the connections that live.

use super::side::Side;
use super::{Joiner, Pair, settings};
use crate::updates::{Joins, NotEvents, Update};
use slowpath_recording::{End, Moment, Packet};
use std::collections::BTreeMap;

/// Closed sockets still get packets, as long as these are on their way.
pub(super) const LINGER: u64 = 2_000_000_000;
/// A handshake takes no longer: five SYN-ACKs (`tcp_synack_retries`), the last 63 s after the first (RFC 6298 section 2, doubling from 1 s).
const HANDSHAKE: u64 = 64_000_000_000;
/// Handshakes under way at once; further ones push the oldest out.
const MOST_HANDSHAKES: usize = 4_096;

/// How far a pair of ends has been reported.
#[derive(Clone, Copy, Default)]
pub(super) struct Progress {
    /// Its number; none yet: 0.
    pub(super) number: u64,
    /// When it was first looked at, and when both ends had gone: 0 if not yet.
    met: u64,
    pub(super) gone: u64,
}

/// A [`Joiner`] that goes on for ever.
#[derive(Debug, Default)]
pub struct Live {
    pub(super) joiner: Joiner,
    pub(super) hystart: bool,
    pub(super) places: BTreeMap<u64, usize>,
    pub(super) last: u64,
    /// Losses of sockets that are gone, and those whose socket is not known.
    gone: u64,
    unattributed: u64,
}

impl Live {
    /// `hystart`: the module's parameter of CUBIC.
    pub fn new(hystart: bool) -> Live {
        Live {
            hystart,
            ..Live::default()
        }
    }

    /// Ends whose other end is on another machine are given back.
    #[must_use]
    pub fn pairs_only(mut self) -> Live {
        self.joiner = self.joiner.pairs_only();
        self
    }

    /// Events that fit nowhere; those of sockets that are not wanted any more are among them.
    pub fn unplaced(&self) -> u64 {
        self.joiner.unplaced
    }

    /// Reports what is final of a pair. Returns whether it is a handshake that goes on.
    fn settle_pair(&mut self, place: usize, now: u64, updates: &mut Vec<Update>) -> bool {
        let pair = &mut self.joiner.pairs[place];
        let Some(addresses) = pair.addresses else {
            return false;
        };
        if pair.is_one_sided() {
            self.settle_one_sided(place, now, updates);
            return false;
        }
        let progress = &mut pair.progress;
        if progress.met == 0 {
            progress.met = now.max(1);
        }
        let Pair {
            ends: [Some(a), Some(b)],
            ..
        } = pair
        else {
            let hopeless = |side: &Side| side.gone || side.cut;
            let only = pair.ends.iter().flatten().next();
            let over = match only {
                Some(side) => hopeless(side),
                None => now.saturating_sub(progress.met) > HANDSHAKE,
            };
            let shakes = only.is_none();
            if over {
                self.halve(place, updates);
            }
            return shakes && !over;
        };
        if let (0, Some(mine), Some(theirs), Some(hz)) =
            (progress.number, &a.settings, &b.settings, self.joiner.hz)
        {
            let first = a.log.runs.first().into_iter().chain(b.log.runs.first());
            let at = first.map(|run| run.at).min().unwrap_or(Moment(now));
            self.last += 1;
            progress.number = self.last;
            self.places.insert(self.last, place);
            updates.push(Update::Opened {
                number: self.last,
                addresses,
                settings: settings::settings([mine, theirs], self.hystart, hz),
                hz,
                at,
            });
        }
        let number = progress.number;
        if number > 0 {
            for (end, side) in [&mut *a, &mut *b].into_iter().enumerate() {
                let runs = side.settle();
                if !runs.is_empty() {
                    updates.push(Update::Runs { number, end, runs });
                }
            }
        }
        if !(a.gone && b.gone) {
            return false;
        }
        if progress.gone == 0 {
            progress.gone = now.max(1);
        }
        if number == 0 {
            self.halve(place, updates);
        } else if now.saturating_sub(progress.gone) >= LINGER {
            if let Some(ends) = self.rest(number) {
                updates.push(Update::Closed { number, ends });
            }
            self.free(place);
        }
        false
    }

    pub(super) fn halve(&mut self, place: usize, updates: &mut Vec<Update>) {
        let pair = &self.joiner.pairs[place];
        for (socket, end) in pair.sockets.iter().zip(&pair.ends) {
            if let Some(side) = end {
                updates.push(Update::Half {
                    socket: *socket,
                    lives: !side.gone,
                });
            }
        }
        self.free(place);
    }

    pub(super) fn free(&mut self, place: usize) {
        let pair = std::mem::take(&mut self.joiner.pairs[place]);
        for (end, side) in pair.ends.iter().enumerate() {
            self.gone += side.as_ref().map_or(0, |side| u64::from(side.lost));
            // Another connection may have the socket by now.
            let socket = pair.sockets[end];
            if self.joiner.sockets.get(&socket) == Some(&(place, end)) {
                self.joiner.sockets.remove(&socket);
            }
        }
        if let Some(addresses) = pair.addresses
            && self.joiner.known.get(&addresses) == Some(&place)
        {
            self.joiner.known.remove(&addresses);
        }
        self.places.remove(&pair.progress.number);
        self.joiner.free.push(place);
    }
}

impl Joins for Live {
    fn take(&mut self, events: &[u8]) -> Result<u64, NotEvents> {
        self.joiner.events = 0;
        self.joiner.take(events)?;
        Ok(self.joiner.events)
    }

    fn sockets(&self) -> Vec<u64> {
        self.joiner.sockets.keys().copied().collect()
    }

    fn lost(&mut self, socket: u64, events: Option<u32>) {
        let Some((place, end)) = self.joiner.sockets.get(&socket).copied() else {
            return;
        };
        let Some(side) = &mut self.joiner.pairs[place].ends[end] else {
            return;
        };
        match events {
            Some(events) if events > side.lost => {
                side.lost = events;
                side.doubt();
            }
            Some(_) => {}
            None => {
                side.doubt();
                side.gone = true;
                self.joiner.sockets.remove(&socket);
            }
        }
    }

    fn settle(&mut self, now: Moment, lost: u64, updates: &mut Vec<Update>) {
        let ends = self.joiner.pairs.iter_mut();
        let ends = ends.flat_map(|pair| pair.ends.iter_mut().flatten());
        let mut living: Vec<&mut Side> = ends.collect();
        let known: u64 = living.iter().map(|side| u64::from(side.lost)).sum();
        let unattributed = lost.saturating_sub(known + self.gone);
        if unattributed > self.unattributed {
            self.unattributed = unattributed;
            for side in living.iter_mut().filter(|side| !side.gone) {
                side.doubt();
            }
        }
        for side in living {
            side.log.sure = side.log.count();
        }
        let mut handshakes = Vec::new();
        for place in 0..self.joiner.pairs.len() {
            if self.settle_pair(place, now.0, updates) {
                handshakes.push((self.joiner.pairs[place].progress.met, place));
            }
        }
        if let Some(many) = handshakes.len().checked_sub(MOST_HANDSHAKES) {
            handshakes.sort_unstable();
            for (_, place) in &handshakes[..many] {
                self.free(*place);
            }
        }
    }

    fn rest(&self, number: u64) -> Option<[End; 2]> {
        let place = *self.places.get(&number)?;
        let Pair {
            ends: [Some(a), Some(b)],
            ..
        } = &self.joiner.pairs[place]
        else {
            return None;
        };
        Some([a, b].map(|side| side.clone().end().0))
    }

    fn rest_one_sided(&self, number: u64) -> Option<(End, [Vec<Packet>; 2])> {
        let pair = &self.joiner.pairs[*self.places.get(&number)?];
        let end = pair
            .ends
            .iter()
            .flatten()
            .find(|side| side.is_one_sided())?;
        Some(end.clone().last())
    }

    fn bytes(&self, number: u64) -> usize {
        let pair = self.places.get(&number);
        let ends = pair
            .iter()
            .flat_map(|place| &self.joiner.pairs[**place].ends);
        ends.flatten().map(Side::bytes).sum()
    }

    fn forget(&mut self, number: u64) -> Vec<u64> {
        let Some(place) = self.places.get(&number).copied() else {
            return Vec::new();
        };
        let pair = &self.joiner.pairs[place];
        let sockets = pair.sockets.iter().zip(&pair.ends);
        let lives = |end: &Option<Side>| end.as_ref().is_some_and(|side| !side.gone);
        let living = sockets.filter(|(_, end)| lives(end));
        let living = living.map(|(socket, _)| *socket).collect();
        self.free(place);
        living
    }
}
