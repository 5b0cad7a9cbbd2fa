// SPDX-License-Identifier: Apache-2.0
//! The real peers of connections behind address translation: whom to ask for, and when. Pure.
//!
//! Conntrack is asked once for each connection: at the end of the poll that met it first, or
//! when it closed within that poll. A poll asks for at most [`MAX_ASKED`], under a CPU budget
//! [`FEW_ASKED`]; the others wait for the next one.

use crate::connection_table::ConnectionTable;
use crate::host::Host;
use crate::live_connection::LiveConnection;
use slowpath_observe::conntrack::Answer;
use std::collections::VecDeque;
use std::mem;

/// Connections asked for at the end of one poll.
pub(crate) const MAX_ASKED: usize = 1_024;

/// The same under a CPU budget, where polls come more often: about 0.2 ms.
pub(crate) const FEW_ASKED: usize = 128;

/// Connections that wait to be asked for, by their slots; if there are more, all
/// connections are looked through instead.
const MAX_WAITING: usize = 65_536;

/// Connections whose real peer is to be asked for.
#[derive(Debug, Default)]
pub(crate) struct RealPeers {
    /// Conntrack can be asked.
    available: bool,
    waiting: VecDeque<u32>,
    /// Others are waiting than those in the queue.
    overflowed: bool,
}

impl RealPeers {
    /// Conntrack can be asked from now on; the connections opened before were not queued.
    pub(crate) fn enable(&mut self) {
        if !mem::replace(&mut self.available, true) {
            self.overflowed = true;
        }
    }

    /// A connection was met for the first time.
    pub(crate) fn opened(&mut self, slot: u32) {
        if !self.available {
            return;
        }
        if self.waiting.len() < MAX_WAITING {
            self.waiting.push_back(slot);
        } else {
            self.overflowed = true;
        }
    }

    /// Connections are in other slots than before.
    pub(crate) fn moved(&mut self) {
        self.overflowed |= !self.waiting.is_empty();
        self.waiting.clear();
    }

    /// Asks for a connection, if that has not been done; whether it is done now.
    pub(crate) fn ask(&self, connection: &mut LiveConnection, host: &mut dyn Host) -> bool {
        if !self.available || connection.peer_asked {
            return true;
        }
        let snapshot = &connection.snapshot;
        match host.real_peer(snapshot.id.netns, &snapshot.tuple) {
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
    pub(crate) fn is_wanted(&self) -> bool {
        self.overflowed || !self.waiting.is_empty()
    }

    /// Asks for those that wait, `most` of them at most.
    pub(crate) fn ask_new(
        &mut self,
        connections: &mut ConnectionTable,
        most: usize,
        host: &mut dyn Host,
    ) {
        let count = self.waiting.len().min(most);
        for _ in 0..count {
            let Some(slot) = self.waiting.pop_front() else {
                break;
            };
            if let Some(connection) = connections.get_mut(slot)
                && !self.ask(connection, host)
            {
                self.waiting.push_back(slot);
            }
        }
        if self.waiting.is_empty() && mem::take(&mut self.overflowed) {
            for slot in connections.slots() {
                if connections.get_mut(slot).is_some_and(|c| !c.peer_asked) {
                    self.opened(slot);
                }
            }
        }
    }
}
