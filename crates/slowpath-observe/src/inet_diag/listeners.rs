// SPDX-License-Identifier: Apache-2.0
//! Listening sockets in the netlink tier: a dump of only the listening hash, and of
//! half-open connections when the namespace's counters say that they were too many.

use super::wire::{Family, SocketRecord};
use super::{InetDiag, PollError};
use crate::listeners::{ListenerRound, ListenerSighting, OpenNetstat};
use slowpath_model::{ListenCounters, ListenerId, ListenerSnapshot, Micros, MonoNanos, Tier};
use std::collections::HashMap;
use std::net::SocketAddr;

/// TCP states' numbers (`include/net/tcp_states.h`).
const SYN_RECV: u8 = 3;
const LISTEN: u8 = 10;

/// Listeners of one round; further ones are left out and counted.
const MAX_LISTENERS: usize = 65_536;

/// Walks within this time belong to one round: the later one replaces the earlier.
const SAME_ROUND: Micros = Micros(500_000);

impl InetDiag {
    /// One round over the listeners of this namespace, and its counters. Cookies
    /// distinguish listeners; what only BPF reads of them is `None`. The length of a
    /// SYN queue is known in rounds in which the counters show that one was full, of
    /// listeners that share their address with no other.
    ///
    /// # Errors
    /// See [`PollError`].
    pub fn listeners(&mut self) -> Result<(ListenerRound, Option<ListenCounters>), PollError> {
        let mut round = ListenerRound {
            complete: true,
            ..ListenerRound::default()
        };
        let settings = self.listen_settings;
        let scope = self.table.scope();
        for family in self.families() {
            self.socket.dump_states(family, 1 << LISTEN, |record, at| {
                if record.header.state != LISTEN {
                    return;
                }
                if round.sightings.len() >= MAX_LISTENERS {
                    round.dropped += 1;
                    return;
                }
                round.sightings.push(ListenerSighting {
                    snapshot: snapshot(record, at, scope.boot_id, scope.netns),
                    settings,
                    first_drops: None,
                    netns_cookie: 0,
                    inode: Some(record.header.inode).filter(|inode| *inode != 0),
                });
            })?;
        }
        let counters = self.netstat.as_ref().and_then(OpenNetstat::read);
        let full = |c: &ListenCounters| (c.drops, c.queue_full_drops, c.queue_full_cookies);
        let moved = match (&counters, &self.listen_counters) {
            (Some(now), Some(before)) => full(now) != full(before),
            _ => false,
        };
        self.listen_counters = counters;
        let now = crate::monotonic();
        if moved {
            self.half_open_until = now + SAME_ROUND;
        }
        if now <= self.half_open_until {
            self.half_open(&mut round)?;
        }
        Ok((round, counters))
    }

    fn families(&self) -> impl Iterator<Item = Family> + use<> {
        let v6 = self.v6.then_some(Family::V6);
        std::iter::once(Family::V4).chain(v6)
    }

    /// Counts half-open connections by the address they came to.
    fn half_open(&mut self, round: &mut ListenerRound) -> Result<(), PollError> {
        let mut listening: HashMap<SocketAddr, u32> = HashMap::new();
        for sighting in &round.sightings {
            *listening.entry(sighting.snapshot.local).or_default() += 1;
        }
        let mut waiting: HashMap<SocketAddr, u32> = HashMap::new();
        for family in self.families() {
            self.socket
                .dump_states(family, 1 << SYN_RECV, |record, _| {
                    // Request sockets have no tcp_info; connections on their way to the accept
                    // queue have.
                    if record.info.is_some() {
                        return;
                    }
                    let local = record.header.id.tuple().local;
                    let anywhere = |ip: &str| {
                        let ip = ip.parse().ok()?;
                        let address = SocketAddr::new(ip, local.port());
                        listening.contains_key(&address).then_some(address)
                    };
                    let address = if listening.contains_key(&local) {
                        Some(local)
                    } else if local.is_ipv4() {
                        anywhere("0.0.0.0").or_else(|| anywhere("::"))
                    } else {
                        anywhere("::")
                    };
                    if let Some(address) = address {
                        *waiting.entry(address).or_default() += 1;
                    }
                })?;
        }
        for sighting in &mut round.sightings {
            let local = sighting.snapshot.local;
            if listening.get(&local) == Some(&1) {
                sighting.snapshot.syn_queue = Some(waiting.get(&local).copied().unwrap_or(0));
            }
        }
        Ok(())
    }
}

fn snapshot(
    record: &SocketRecord<'_>,
    at: MonoNanos,
    boot_id: u128,
    netns: u32,
) -> ListenerSnapshot {
    ListenerSnapshot {
        id: ListenerId {
            boot_id,
            netns,
            cookie: record.header.id.cookie(),
        },
        local: record.header.id.tuple().local,
        at,
        closed: false,
        tier: Tier::InetDiag,
        opener: None,
        reuse_port: None,
        accept_queue: record.header.receive_queue,
        backlog: record.header.send_queue,
        drops: record.drops.map(u64::from),
        syn_queue: None,
        young: None,
        cookie_age: None,
    }
}
