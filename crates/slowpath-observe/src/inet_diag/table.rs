// SPDX-License-Identifier: Apache-2.0
//! What was observed: finds repeats, changes and ends of connections among the sockets of one
//! poll after the other. No I/O.

use super::wire::{CongestionName, SocketId, SocketRecord};
use slowpath_model::{ConnectionId, Micros, MonoNanos, Origin, Snapshot, TcpState, TcpStats, Tier};
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// What a snapshot does not carry about its socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketKey {
    /// Inode number of the socket, as in `/proc/PID/fd`; 0 if no process holds it.
    pub inode: u32,
    /// Owner's user id in the reader's user namespace.
    pub uid: u32,
    /// The congestion control.
    pub congestion: CongestionName,
}

/// Whose connections a table holds: fixed for its life.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scope {
    pub boot_id: u128,
    pub netns: u32,
}

/// What a poll met so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub open: u64,
    pub emitted: u64,
    pub closed: u64,
    pub repeated: u64,
    pub dropped: u64,
    pub undecodable: u64,
}

#[derive(Debug)]
struct KnownSocket {
    socket: SocketId,
    key: SocketKey,
    snapshot: Snapshot,
    /// The poll that saw it last.
    poll: u64,
}

/// The connections of the last poll, by cookie.
#[derive(Debug)]
pub(super) struct Table {
    scope: Scope,
    changed_only: bool,
    max_sockets: usize,
    known: HashMap<u64, KnownSocket>,
    poll: u64,
    pub counts: Counts,
    /// Parallel to what this poll emitted.
    pub keys: Vec<SocketKey>,
}

impl Table {
    pub fn new(scope: Scope, changed_only: bool, max_sockets: usize) -> Self {
        Table {
            scope,
            changed_only,
            max_sockets,
            known: HashMap::new(),
            poll: 0,
            counts: Counts::default(),
            keys: Vec::new(),
        }
    }

    /// Whose connections this table holds.
    pub fn scope(&self) -> Scope {
        self.scope
    }

    /// Begins a poll.
    pub fn begin(&mut self) {
        self.poll += 1;
        self.counts = Counts::default();
        self.keys.clear();
    }

    /// Takes one socket of the dump. Records without statistics (TIME_WAIT's remains,
    /// connection requests) and listeners are no connections and are passed over.
    pub fn see(&mut self, record: &SocketRecord, at: MonoNanos, out: &mut Vec<Snapshot>) {
        let stats = match record.stats() {
            None => return,
            Some(Ok(stats)) if stats.state == TcpState::Listen => return,
            Some(Ok(stats)) => stats,
            Some(Err(_)) => {
                self.counts.undecodable += 1;
                return;
            }
        };
        let socket = record.header.id;
        let key = SocketKey {
            inode: record.header.inode,
            uid: record.header.uid,
            congestion: record.congestion,
        };
        let full = self.known.len() >= self.max_sockets;
        let changed = match self.known.entry(socket.cookie()) {
            Entry::Occupied(known) if known.get().poll == self.poll => {
                self.counts.repeated += 1;
                return;
            }
            Entry::Occupied(mut known) => {
                let known = known.get_mut();
                // accept(2) gives the socket its inode and changes nothing else.
                let accepted = key.inode != 0 && known.key.inode != key.inode;
                let changed = accepted || change_key(&known.snapshot.stats) != change_key(&stats);
                known.snapshot = snapshot(self.scope, &socket, stats, at);
                known.socket = socket;
                // A socket that no process holds any more keeps its last owner's inode.
                if key.inode != 0 {
                    known.key = key;
                }
                known.poll = self.poll;
                changed
            }
            Entry::Vacant(_) if full => {
                self.counts.dropped += 1;
                true
            }
            Entry::Vacant(entry) => {
                entry.insert(KnownSocket {
                    socket,
                    key,
                    snapshot: snapshot(self.scope, &socket, stats, at),
                    poll: self.poll,
                });
                true
            }
        };
        self.counts.open += 1;
        if changed || !self.changed_only {
            self.emit(snapshot(self.scope, &socket, stats, at), key, out);
        }
    }

    /// The connections of the last poll that this one has not met.
    pub fn missing(&self) -> Vec<SocketId> {
        self.known
            .values()
            .filter(|known| known.poll != self.poll)
            .map(|known| known.socket)
            .collect()
    }

    /// Ends the connections of the last poll that this one has not met.
    pub fn finish(&mut self, out: &mut Vec<Snapshot>) {
        let poll = self.poll;
        let ended = self.known.extract_if(|_, known| known.poll != poll);
        for (_, known) in ended {
            self.counts.closed += 1;
            self.counts.emitted += 1;
            self.keys.push(known.key);
            out.push(Snapshot {
                closed: true,
                ..known.snapshot
            });
        }
    }

    fn emit(&mut self, snapshot: Snapshot, key: SocketKey, out: &mut Vec<Snapshot>) {
        self.counts.emitted += 1;
        self.keys.push(key);
        out.push(snapshot);
    }
}

/// What differs if anything happened to a connection: bytes and segments in both
/// directions, the state, what the applications queued or read, and the time busy, the
/// only one that grows while a connection waits with data outstanding.
fn change_key(stats: &TcpStats) -> impl PartialEq {
    (
        (stats.state, stats.busy.map(|Micros(us)| us)),
        (stats.bytes_acked, stats.bytes_received, stats.bytes_sent),
        (stats.segments_in, stats.segments_out),
        (stats.send_queue, stats.receive_queue),
    )
}

fn snapshot(scope: Scope, socket: &SocketId, stats: TcpStats, at: MonoNanos) -> Snapshot {
    Snapshot {
        id: ConnectionId {
            boot_id: scope.boot_id,
            netns: scope.netns,
            cookie: socket.cookie(),
            start: MonoNanos(0),
        },
        tuple: socket.tuple(),
        at,
        origin: Origin::Unknown,
        closed: false,
        tier: Tier::InetDiag,
        owner: None,
        stats,
        sends: None,
        receives: None,
        waits: slowpath_model::Waits::UNOBSERVED,
        facts: slowpath_model::SocketFacts::default(),
        turns: slowpath_model::Turns::UNOBSERVED,
    }
}
