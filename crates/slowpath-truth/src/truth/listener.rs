// SPDX-License-Identifier: Apache-2.0
//! What a listener turned away: from the packets that passed its host's interface, and its
//! application's own account of whom it accepted when.
//!
//! A connection waits for `accept` from the ACK that completed it, the first after its last
//! SYN-ACK, until the application got it; it is half-open from its SYN-ACK until then. From
//! this the lengths of both queues are known at every moment, and so is which was full when
//! something was turned away:
//!
//! 1. A SYN that is not answered at once: the SYN queue, if it is full and cookies are off; else
//!    the accept queue, if that is full (the order of `tcp_conn_request`).
//! 2. A SYN that is answered although the SYN queue is full, with cookies: the SYN queue.
//! 3. An ACK that completes a handshake and is ignored (the SYN-ACK is sent again, or the
//!    connection never accepted): the accept queue, if it is full.
//!
//! What is turned away while neither is full makes both undecided.

use super::Truth;
use crate::packet::{ACK, Packet, SYN};
use slowpath_model::Problem;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

/// A SYN that is not answered so soon, nanoseconds, is not answered: the kernel does it while
/// it handles the SYN.
const AT_ONCE: u64 = 50_000_000;

/// A connection that the application got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// When, `CLOCK_MONOTONIC`.
    pub at: u64,
    /// Whose.
    pub peer: SocketAddr,
}

/// A listener, and what is known of it.
#[derive(Clone, Copy, Debug)]
pub struct Listening<'a> {
    /// Where it listens.
    pub local: SocketAddr,
    /// What passed its host's interface.
    pub packets: &'a [Packet],
    /// Whom the application got, to the last.
    pub accepted: &'a [Accepted],
    /// The most connections in an accept queue that is not full.
    pub backlog: u64,
    /// The most in a SYN queue that is not full.
    pub half_open: u64,
    /// `tcp_syncookies`.
    pub cookies: bool,
}

/// One client's packets.
#[derive(Default)]
struct Client {
    answers: Vec<u64>,
    acks: Vec<u64>,
    accepted: Option<u64>,
}

impl Client {
    /// When it began to wait for `accept`.
    fn entered(&self) -> Option<u64> {
        let accepted = self.accepted?;
        let before = |at: &&u64| **at <= accepted;
        let last = *self.answers.iter().rfind(before)?;
        self.acks.iter().copied().find(|ack| *ack > last)
    }

    fn waits(&self, at: u64) -> bool {
        let entered = self.entered().is_some_and(|entered| entered < at);
        entered && self.accepted.is_some_and(|accepted| accepted > at)
    }
}

#[derive(Default)]
struct Count {
    events: u64,
    unclear: u64,
}

/// Whether either queue overflowed.
pub fn overflows(listening: &Listening<'_>) -> [(Problem, Truth); 2] {
    let clients = clients(listening);
    let mut half_open = BTreeSet::new();
    let (mut accept, mut syn) = (Count::default(), Count::default());
    let full = |at| {
        let waiting = clients.values().filter(|c| c.waits(at)).count();
        waiting as u64 > listening.backlog
    };
    for packet in listening.packets {
        let Some(client) = clients.get(&packet.from) else {
            continue;
        };
        let at = packet.at;
        let entered = client.entered();
        if entered.is_some_and(|entered| entered < at) {
            continue;
        }
        if packet.has(SYN) && !packet.has(ACK) {
            if half_open.contains(&packet.from) {
                continue;
            }
            let mut answers = client.answers.iter();
            let answered = answers.any(|a| *a >= at && *a < at + AT_ONCE);
            let no_room = half_open.len() as u64 > listening.half_open;
            match (answered, no_room) {
                (true, false) => {
                    half_open.insert(packet.from);
                }
                (true, true) if listening.cookies => syn.events += 1,
                (true, true) => {
                    half_open.insert(packet.from);
                    syn.unclear += 1;
                }
                (false, true) if !listening.cookies => syn.events += 1,
                (false, no_room) => {
                    // With cookies a full SYN queue is counted before this one is looked at.
                    syn.unclear += u64::from(no_room || !full(at));
                    let count = if full(at) {
                        &mut accept.events
                    } else {
                        &mut accept.unclear
                    };
                    *count += 1;
                }
            }
        } else if packet.has(ACK) && client.answers.first().is_some_and(|first| *first < at) {
            if entered == Some(at) {
                half_open.remove(&packet.from);
            } else if full(at) {
                accept.events += 1;
            } else {
                accept.unclear += 1;
            }
        }
    }
    let truth = |count: &Count| Truth::counted(count.events, count.unclear);
    [
        (Problem::AcceptQueueOverflow, truth(&accept)),
        (Problem::SynQueueOverflow, truth(&syn)),
    ]
}

fn clients(listening: &Listening<'_>) -> BTreeMap<SocketAddr, Client> {
    let mut clients: BTreeMap<SocketAddr, Client> = BTreeMap::new();
    for packet in listening.packets {
        if packet.to == listening.local {
            let client = clients.entry(packet.from).or_default();
            if packet.has(ACK) && !packet.has(SYN) {
                client.acks.push(packet.at);
            }
        } else if packet.from == listening.local && packet.has(SYN) {
            clients
                .entry(packet.to)
                .or_default()
                .answers
                .push(packet.at);
        }
    }
    for accepted in listening.accepted {
        clients.entry(accepted.peer).or_default().accepted = Some(accepted.at);
    }
    clients
}

#[cfg(test)]
mod tests;
