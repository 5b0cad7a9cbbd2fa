// SPDX-License-Identifier: Apache-2.0
//! Makes a [`Recording`] of what the light recorder observed of connections.
//!
//! What enters are the pieces of the probe `packets`. What leaves are the runs of both ends, inferred: packets in their order with their numbers, and calls where the bytes that
//! they moved place them (`inference`). Each packet carries the fields that the recorder read from the socket ([`Outcome::Observed`](slowpath_recording::Outcome::Observed)), so that a replay
//! can be compared with them. Small queues, the moments inside a run and what waited in the device are not observed: a replay may diverge from the recording, and says where.
//!
//! What is promised: whatever the bytes, no panic; pieces that cannot be placed are counted, and an end of which some were lost has a gap there. No I/O, no clocks.

mod inference;
mod live;
mod memory;
mod moments;
mod numbers;
mod piece;
mod side;
mod ticks;
pub(crate) mod wire;

pub use live::Live;

use crate::stock::{Host, Joined, client_first, settings};
use crate::updates::NotEvents;
use piece::{Kind, Opened, Piece};
use side::Side;
use slowpath_recording::{Connection, MAX_EVENTS, Recording};
use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use ticks::Ticks;

/// Joins pieces as they come.
#[derive(Clone, Debug, Default)]
pub struct Joiner {
    sides: Vec<Side>,
    sockets: HashMap<u64, usize>,
    ticks: Ticks,
    unplaced: u64,
    events: u64,
}

fn addresses(opened: &Opened) -> [SocketAddr; 2] {
    client_first(opened.end, opened.own, opened.peer)
}

impl Joiner {
    /// Takes whole pieces.
    ///
    /// # Errors
    /// If they are none.
    pub fn take(&mut self, mut bytes: &[u8]) -> Result<(), NotEvents> {
        while !bytes.is_empty() {
            let (piece, rest) = Piece::read(bytes).ok_or(NotEvents)?;
            bytes = rest;
            if !self.place(piece) {
                self.unplaced += 1;
            }
        }
        Ok(())
    }

    /// Whether observed sockets still exist.
    pub fn is_busy(&self) -> bool {
        !self.sockets.is_empty()
    }

    fn place(&mut self, piece: Piece) -> bool {
        let known = self.sockets.get(&piece.socket).copied();
        self.events += match &piece.content {
            Kind::Packets { block, .. } => block.list.len() as u64,
            Kind::Calls(block) => block.list.len() as u64,
            Kind::Timer(_) => u64::from(known.is_some()),
            Kind::Opened(_) => 1,
        };
        // As much as a recording's file may hold; what comes then is as if lost.
        if self.events > MAX_EVENTS {
            return false;
        }
        match piece.content {
            Kind::Opened(opened) => {
                self.ticks.look(opened.at, opened.jiffies);
                self.sockets.insert(piece.socket, self.sides.len());
                self.sides.push(Side::new(*opened));
                return true;
            }
            // Of all sockets, also of those that are not recorded.
            Kind::Timer(fired) => {
                self.ticks.look(fired.at, fired.jiffies);
                if let Some(place) = known {
                    self.sides[place].fired(fired);
                }
                return true;
            }
            _ => {}
        }
        let Some(side) = known.map(|place| &mut self.sides[place]) else {
            return false;
        };
        match piece.content {
            Kind::Packets { block, state, gone } => {
                side.packets(block, state, gone);
                if gone {
                    self.sockets.remove(&piece.socket);
                }
            }
            Kind::Calls(block) => side.called(block),
            Kind::Opened(_) | Kind::Timer(_) => {}
        }
        true
    }

    /// The connections.
    pub fn finish(mut self, host: Host) -> Joined {
        let mut joined = Joined {
            unplaced: self.unplaced,
            ..Joined::default()
        };
        joined.recording = Recording {
            origin: host.origin,
            connections: Vec::new(),
            one_sided: Vec::new(),
        };
        joined.recording.origin.hz = self.ticks.hz();
        // The socket of a lost event is not known: any that has not ended may lack it.
        let attributed: u64 = self.sides.iter().map(|side| u64::from(side.lost)).sum();
        if self.events > MAX_EVENTS || host.lost > attributed {
            for side in self.sides.iter_mut().filter(|side| !side.gone) {
                side.missing();
            }
        }
        let mut waiting: BTreeMap<[SocketAddr; 2], &Side> = BTreeMap::new();
        for side in &self.sides {
            let addresses = addresses(&side.opened);
            let Some(other) = waiting.remove(&addresses) else {
                waiting.insert(addresses, side);
                continue;
            };
            if other.opened.end == side.opened.end {
                joined.halves += 1;
                waiting.insert(addresses, side);
                continue;
            }
            let [a, b] = if side.opened.end == 0 {
                [side, other]
            } else {
                [other, side]
            };
            joined.recording.connections.push(Connection {
                addresses,
                settings: settings(
                    [&a.opened.found, &b.opened.found],
                    host.hystart,
                    self.ticks.hz(),
                ),
                ends: [a.end(b, &self.ticks), b.end(a, &self.ticks)],
                joint: None,
            });
        }
        joined.halves += waiting.len() as u64;
        joined
    }
}
