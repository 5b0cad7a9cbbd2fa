// SPDX-License-Identifier: Apache-2.0
//! Which connections are traced, when, and what the answers say.
//!
//! What enters: connections that lost segments, the time, the packets of answers, random numbers.
//! What leaves: probes to be sent, and traced paths. No clock, no I/O.
//!
//! What is promised: no more traces a minute than configured, of each connection one in [`AGAIN`] and at
//! most [`MOST`] at once; a connection that is not traced for one of these reasons is counted. An
//! answer counts only if it quotes a probe that was sent, with its connection's addresses and
//! ports.

use super::packet::{Answer, PROBE, Probe, v4};
use rustc_hash::FxHashMap;
use slowpath_model::{ConnectionId, FourTuple, Micros, MonoNanos};
use std::net::Ipv4Addr;

/// Routers that a trace looks for, as 007 does (NSDI 2018): its probes have TTLs up to this.
pub(super) const HOPS: u8 = 15;
/// How long answers are awaited.
const WAIT: Micros = Micros(2_000_000);
/// A connection that goes on losing segments is traced again after that: routes change.
const AGAIN: Micros = Micros(300_000_000);
/// Traces under way.
const MOST: usize = 64;
/// Connections of which it is remembered when they were traced.
const REMEMBERED: usize = 4_096;

/// A connection that lost segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LossyConnection {
    pub(crate) id: ConnectionId,
    pub(crate) tuple: FourTuple,
    /// The first sequence number that its peer has not acknowledged.
    pub(crate) unacknowledged: u32,
}

/// A trace that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TracedPath {
    pub(crate) connection: ConnectionId,
    pub(crate) sent: MonoNanos,
    /// By TTL from 1; `None`: no answer. The last one has answered.
    pub(crate) routers: Vec<Option<Ipv4Addr>>,
}

struct Trace {
    connection: ConnectionId,
    ends: [(Ipv4Addr, u16); 2],
    sent: MonoNanos,
    /// The number of its first probe; those of the others follow.
    first: u16,
    routers: [Option<Ipv4Addr>; HOPS as usize],
}

/// The traces of an agent.
pub(crate) struct PathTracer {
    /// Traces a minute, and how many may begin now, in millionths.
    per_minute: u32,
    credit: u64,
    credited: MonoNanos,
    traces: Vec<Trace>,
    traced: FxHashMap<ConnectionId, MonoNanos>,
    /// Connections that were not traced because of a limit.
    pub(crate) left_out: u64,
}

/// One trace's worth of credit.
const ONE: u64 = 1_000_000;

impl PathTracer {
    /// The most traces in a minute, the first ones at once.
    pub(crate) fn new(per_minute: u32, now: MonoNanos) -> Self {
        PathTracer {
            per_minute,
            credit: u64::from(per_minute) * ONE,
            credited: now,
            traces: Vec::new(),
            traced: FxHashMap::default(),
            left_out: 0,
        }
    }

    /// The probes to send for a connection that lost segments, if it is to be traced now. `number`
    /// is random: nothing can answer that has not met a probe.
    pub(crate) fn begin(
        &mut self,
        lossy: &LossyConnection,
        now: MonoNanos,
        number: u16,
    ) -> Option<Vec<[u8; PROBE]>> {
        let ends = v4(&lossy.tuple)?;
        if ends[1].0.is_loopback() || ends[0].0 == ends[1].0 {
            return None;
        }
        let recent = self.traced.get(&lossy.id);
        if recent.is_some_and(|traced| now < *traced + AGAIN) {
            return None;
        }
        self.add_credit(now);
        if self.credit < ONE || self.traces.len() >= MOST || !self.remember(lossy.id, now) {
            self.left_out += 1;
            return None;
        }
        self.credit -= ONE;
        self.traces.push(Trace {
            connection: lossy.id,
            ends,
            sent: now,
            first: number,
            routers: [None; HOPS as usize],
        });
        let probe = |ttl: u8| Probe {
            ttl,
            number: number.wrapping_add(u16::from(ttl)),
            unacknowledged: lossy.unacknowledged,
        };
        Some((1..=HOPS).map(|ttl| probe(ttl).packet(ends)).collect())
    }

    fn add_credit(&mut self, now: MonoNanos) {
        let minute = 60_000_000;
        let full = u64::from(self.per_minute) * ONE;
        let passed = now.since(self.credited).0.min(minute);
        self.credit = (self.credit + full * passed / minute).min(full);
        self.credited = now;
    }

    /// Whether there is room to remember it.
    fn remember(&mut self, id: ConnectionId, now: MonoNanos) -> bool {
        if self.traced.len() >= REMEMBERED {
            self.traced.retain(|_, traced| now < *traced + AGAIN);
        }
        let room = self.traced.len() < REMEMBERED || self.traced.contains_key(&id);
        if room {
            self.traced.insert(id, now);
        }
        room
    }

    /// Takes a packet with an ICMP message; the first answer to each probe counts.
    pub(crate) fn answered(&mut self, packet: &[u8]) {
        let Some(answer) = Answer::parse(packet) else {
            return;
        };
        for trace in &mut self.traces {
            let ttl = answer.number.wrapping_sub(trace.first);
            if trace.ends != answer.ends || !(1..=u16::from(HOPS)).contains(&ttl) {
                continue;
            }
            trace.routers[usize::from(ttl) - 1].get_or_insert(answer.from);
            return;
        }
    }

    /// Whether answers are awaited.
    pub(crate) fn waits(&self) -> bool {
        !self.traces.is_empty()
    }

    /// The traces whose answers are not awaited any more; those without an answer are none.
    pub(crate) fn ended(&mut self, now: MonoNanos) -> Vec<TracedPath> {
        let over = |trace: &mut Trace| now >= trace.sent + WAIT;
        let ended = self.traces.extract_if(.., over);
        ended.filter_map(Trace::path).collect()
    }
}

impl Trace {
    fn path(self) -> Option<TracedPath> {
        let last = self.routers.iter().rposition(Option::is_some)?;
        Some(TracedPath {
            connection: self.connection,
            sent: self.sent,
            routers: self.routers[..=last].to_vec(),
        })
    }
}

#[cfg(test)]
#[path = "tracer_tests.rs"]
mod tests;
