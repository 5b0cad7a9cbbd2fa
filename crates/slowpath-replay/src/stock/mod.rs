// SPDX-License-Identifier: Apache-2.0
//! What BPF saw of a stock kernel's connections, as a [`Recording`].
//!
//! What enters are the events of `slowpath-observe`'s probe `handlers`, in their order. What leaves are the runs of both ends of each connection: calls
//! cut where they gave the lock away, packets with their numbers, every clock that TCP read, and the memory that the device held. A packet is
//! recognised at its receiver by its IP identification, which one socket gives only once in 65,536 segments.
//!
//! What is promised: whatever the bytes, no panic; events that fit nowhere are counted ([`Joined::unplaced`]).

mod check;
mod event;
mod side;

pub use check::{check, mix};

use crate::recording::{Connection, End, Origin, Recording, Settings};
use event::{Event, Kind};
use side::Side;
use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};

/// What came out.
#[derive(Debug, Default)]
pub struct Joined {
    /// Connections of which both ends were seen.
    pub recording: Recording,
    /// Events that fit nowhere.
    pub unplaced: u64,
    /// Connections of which only one end was seen.
    pub halves: u64,
    /// The state after each run, by connection and end: what its check was made from.
    pub states: Vec<[Vec<[u32; event::FIELDS]>; 2]>,
}

/// Joins events. `None`: they are cut, or none of this recorder's.
pub fn join(mut bytes: &[u8], origin: Origin, settings: &Settings) -> Option<Joined> {
    let mut joined = Joined::default();
    let mut pairs: Vec<([SocketAddr; 2], [Option<Side>; 2])> = Vec::new();
    let mut known: HashMap<[SocketAddr; 2], usize> = HashMap::new();
    let mut sockets: HashMap<u64, (usize, usize)> = HashMap::new();
    while !bytes.is_empty() {
        let (event, rest) = Event::read(bytes)?;
        bytes = rest;
        if event.kind == Kind::Open {
            let address = |number: u32, port| {
                SocketAddr::from((Ipv4Addr::from_bits(u32::from_be(number)), port))
            };
            let ends = [
                address(event.a, event.c as u16),
                address(event.b, u16::from_be(event.d as u16)),
            ];
            let end = usize::from(event.end != 0);
            let pair = if end == 0 { ends } else { [ends[1], ends[0]] };
            let place = *known.entry(pair).or_insert_with(|| {
                pairs.push((pair, [None, None]));
                pairs.len() - 1
            });
            pairs[place].1[end] = Some(Side::new(end));
            sockets.insert(event.socket, (place, end));
            continue;
        }
        let side = sockets.get(&event.socket).copied();
        let Some((place, end)) = side else {
            joined.unplaced += 1;
            continue;
        };
        let (own, other) = match (&mut pairs[place].1, end) {
            ([a, b], 0) => (a, b),
            ([a, b], _) => (b, a),
        };
        let Some(own) = own else { continue };
        let sent = other.as_ref().map(|side| &side.packets);
        if !own.take(&event, sent) {
            joined.unplaced += 1;
        }
        if event.kind == Kind::Gone {
            sockets.remove(&event.socket);
        }
    }
    joined.recording.origin = origin;
    for (addresses, ends) in pairs {
        let [Some(a), Some(b)] = ends else {
            joined.halves += 1;
            continue;
        };
        let gone = [b.gone, a.gone];
        let mut states = [Vec::new(), Vec::new()];
        let mut place = 0;
        let ends = [a, b].map(|side| {
            let (end, fields): (End, _) = side.end(gone[place]);
            states[place] = fields;
            place += 1;
            end
        });
        joined.states.push(states);
        joined.recording.connections.push(Connection {
            addresses,
            settings: settings.clone(),
            ends,
        });
    }
    Some(joined)
}
