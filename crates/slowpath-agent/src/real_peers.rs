// SPDX-License-Identifier: Apache-2.0
//! The real peers of connections behind address translation.
//!
//! Conntrack is asked once for each connection: at the end of the poll that met it first, or
//! when it closed within that poll. A poll asks for at most [`MAX_ASKED`], under a CPU budget
//! [`FEW_ASKED`]; the others wait for the next one.

use crate::connection_table::{ConnectionTable, LiveConnection};
use slowpath_model::{MonoNanos, ProblemSet};
use slowpath_observe::conntrack::{Answer, Conntrack};
use slowpath_observe::{Feature, FeatureState};
use std::collections::VecDeque;
use std::mem;

/// Connections asked for at the end of one poll.
pub(crate) const MAX_ASKED: usize = 1_024;

/// The same under a CPU budget, where polls come more often: about 0.2 ms.
pub(crate) const FEW_ASKED: usize = 128;

/// Connections that wait to be asked for, by their slots; if there are more, all
/// connections are looked through instead.
const MAX_WAITING: usize = 65_536;

/// Asks conntrack, where that is possible.
#[derive(Debug, Default)]
pub(crate) struct RealPeers {
    conntrack: Option<Conntrack>,
    waiting: VecDeque<u32>,
    /// More are waiting than found room.
    overflowed: bool,
}

impl RealPeers {
    /// Tries to open conntrack, unless it is open; gives the feature's state.
    pub(crate) fn open(&mut self) -> Feature {
        let opened = match &self.conntrack {
            Some(_) => Ok(()),
            None => Conntrack::open().map(|conntrack| {
                // In a container of its own it is the first process's that translates.
                self.conntrack = Some(conntrack.with_host(1));
                // Those met until now have not been noted.
                self.overflowed = true;
            }),
        };
        Feature {
            name: "conntrack",
            measures: "the real peers behind address translation",
            state: match opened {
                Ok(()) => FeatureState::Active,
                Err(error) => FeatureState::Missing {
                    reason: error.to_string(),
                },
            },
            serves: ProblemSet::EMPTY,
        }
    }

    pub(crate) fn begin(&mut self, now: MonoNanos) {
        if let Some(conntrack) = &mut self.conntrack {
            conntrack.begin(now);
        }
    }

    /// A connection was met for the first time.
    pub(crate) fn met(&mut self, slot: u32) {
        if self.conntrack.is_none() {
            return;
        }
        if self.waiting.len() < MAX_WAITING {
            self.waiting.push_back(slot);
        } else {
            self.overflowed = true;
        }
    }

    /// Asks for a connection, if that has not been done; whether it is done now.
    pub(crate) fn ask(&mut self, connection: &mut LiveConnection) -> bool {
        let Some(conntrack) = &mut self.conntrack else {
            return true;
        };
        if connection.peer_asked {
            return true;
        }
        let snapshot = &connection.snapshot;
        match conntrack.real_peer(snapshot.id.netns, &snapshot.tuple) {
            Answer::Later => return false,
            Answer::Same => {}
            Answer::Peer(peer) => {
                connection.real_peer = Some(peer);
                connection.unsaved = true;
            }
        }
        connection.peer_asked = true;
        true
    }

    /// Whether any wait.
    pub(crate) fn wanted(&self) -> bool {
        self.overflowed || !self.waiting.is_empty()
    }

    /// Asks for those that wait, `most` of them at most.
    pub(crate) fn ask_new(&mut self, connections: &mut ConnectionTable, most: usize) {
        let count = self.waiting.len().min(most);
        for _ in 0..count {
            let Some(slot) = self.waiting.pop_front() else {
                break;
            };
            if let Some(connection) = connections.get_mut(slot)
                && !self.ask(connection)
            {
                self.waiting.push_back(slot);
            }
        }
        if self.waiting.is_empty() && mem::take(&mut self.overflowed) {
            for slot in connections.slots() {
                if connections.get_mut(slot).is_some_and(|c| !c.peer_asked) {
                    self.met(slot);
                }
            }
        }
    }
}
