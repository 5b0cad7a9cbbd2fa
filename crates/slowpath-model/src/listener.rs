// SPDX-License-Identifier: Apache-2.0
//! Listening sockets: what the observer reads of one, and the verdict on an interval.
//!
//! A listener is no connection. It has two queues: half-open connections that wait for the
//! last segment of the handshake (the SYN queue) and complete ones that wait for `accept`
//! (the accept queue). What does not fit is dropped, and the client tries again a second
//! later.

use crate::{Finding, Micros, MonoNanos, Owner, Problem, ProblemSet, Tier, WallMicros};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// Names one listening socket on one host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ListenerId {
    /// The kernel's boot id as a 128-bit number.
    pub boot_id: u128,
    /// Inode number of the network namespace.
    pub netns: u32,
    /// The socket cookie.
    pub cookie: u64,
}

/// What was observed of one listening socket at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListenerSnapshot {
    /// Which one.
    pub id: ListenerId,
    /// The address it listens on, normalised.
    pub local: SocketAddr,
    /// When.
    pub at: MonoNanos,
    /// Whether it is closed; then these are its last figures.
    pub closed: bool,
    /// Which tier observed it.
    pub tier: Tier,
    /// The process that called `listen`, where that was observed; not necessarily one that accepts.
    pub opener: Option<Owner>,
    /// Whether it is one of a SO_REUSEPORT group; `None` where the tier does not know.
    pub reuse_port: Option<bool>,
    /// Connections that wait for `accept` (`sk_ack_backlog`).
    pub accept_queue: u32,
    /// What `listen` asked for, at most `net.core.somaxconn` (`sk_max_ack_backlog`). The
    /// accept queue is full above it (`sk_acceptq_is_full`), the SYN queue at it or, in
    /// later kernels, above it (`inet_csk_reqsk_queue_is_full`).
    pub backlog: u32,
    /// Segments dropped at this socket since it was opened (`sk_drops`), SYNs and last ACKs of
    /// handshakes for want of room above all.
    pub drops: Option<u64>,
    /// Half-open connections (`icsk_accept_queue.qlen`).
    pub syn_queue: Option<u32>,
    /// Those of them whose SYN/ACK was sent only once (`icsk_accept_queue.young`).
    pub young: Option<u32>,
    /// How long ago it last answered with a SYN cookie, to the second
    /// (`tcp_synq_overflow`); `None` if never or where the tier does not know. A SO_REUSEPORT
    /// group has one such time for all.
    pub cookie_age: Option<Micros>,
}

impl ListenerSnapshot {
    /// Whether the accept queue has no room.
    pub fn accept_queue_full(&self) -> bool {
        self.accept_queue > self.backlog
    }

    /// Whether the SYN queue has no room, where its length is known.
    pub fn syn_queue_full(&self) -> bool {
        self.syn_queue.is_some_and(|queue| queue >= self.backlog)
    }
}

/// A network namespace's counters of listening (`/proc/net/netstat`), since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListenCounters {
    /// `ListenOverflows`: dropped because an accept queue was full.
    pub overflows: Option<u64>,
    /// `ListenDrops`: dropped at listeners for whatever reason, those included.
    pub drops: Option<u64>,
    /// `TCPReqQFullDrop`: SYNs dropped because a SYN queue was full.
    pub queue_full_drops: Option<u64>,
    /// `TCPReqQFullDoCookies`: SYNs that found a SYN queue full and were answered by a cookie.
    pub queue_full_cookies: Option<u64>,
    /// `SyncookiesSent`.
    pub cookies_sent: Option<u64>,
}

impl ListenCounters {
    /// What a namespace begins with.
    pub const ZERO: ListenCounters = ListenCounters {
        overflows: Some(0),
        drops: Some(0),
        queue_full_drops: Some(0),
        queue_full_cookies: Some(0),
        cookies_sent: Some(0),
    };

    /// What each counter grew by since `before`; `None` where one is unknown or went backwards.
    #[must_use]
    pub fn since(&self, before: &ListenCounters) -> ListenCounters {
        let grown = |now: Option<u64>, then: Option<u64>| now?.checked_sub(then?);
        ListenCounters {
            overflows: grown(self.overflows, before.overflows),
            drops: grown(self.drops, before.drops),
            queue_full_drops: grown(self.queue_full_drops, before.queue_full_drops),
            queue_full_cookies: grown(self.queue_full_cookies, before.queue_full_cookies),
            cookies_sent: grown(self.cookies_sent, before.cookies_sent),
        }
    }
}

/// A network namespace's settings of listening; what cannot be read is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListenSettings {
    /// `net.core.somaxconn`: upper limit of a backlog.
    pub somaxconn: Option<u32>,
    /// `net.ipv4.tcp_max_syn_backlog`: without cookies, a quarter of it is kept for peers
    /// known to be alive.
    pub max_syn_backlog: Option<u32>,
    /// `net.ipv4.tcp_syncookies`: 0 never, 1 when the SYN queue is full, 2 always.
    pub syncookies: Option<u32>,
    /// `net.ipv4.tcp_abort_on_overflow`: reset instead of silence.
    pub abort_on_overflow: Option<bool>,
}

/// The evidence of a verdict on a listener.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListenerDeltas {
    /// Segments dropped at this listener in the interval.
    pub drops: Option<u64>,
    /// Connections that waited for `accept` at the beginning.
    pub accept_queue_before: u32,
    /// Likewise at the end.
    pub accept_queue: u32,
    /// The backlog.
    pub backlog: u32,
    /// Half-open connections at the end.
    pub syn_queue: Option<u32>,
    /// Those of them whose SYN/ACK was sent only once.
    pub young: Option<u32>,
    /// What the namespace's counters grew by.
    pub namespace: ListenCounters,
    /// Listeners of the namespace that dropped something in the interval, this one included.
    pub dropping: u32,
    /// The namespace's settings.
    pub settings: ListenSettings,
}

/// The verdict on one listener over one interval.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListenerVerdict {
    /// Which listener.
    pub listener: ListenerId,
    /// The interval's beginning.
    pub from: MonoNanos,
    /// The interval's end.
    pub to: MonoNanos,
    /// What was found: [`Problem::AcceptQueueOverflow`], [`Problem::SynQueueOverflow`] or
    /// both. Events are segments turned away or answered by a cookie, where they can be
    /// counted separately.
    pub findings: Vec<Finding>,
    /// Those of the two that could not be distinguished.
    pub unmeasured: ProblemSet,
    /// The evidence.
    pub deltas: ListenerDeltas,
}

impl ListenerVerdict {
    /// The interval's length.
    pub fn interval(&self) -> Micros {
        self.to.since(self.from)
    }

    /// The finding of that problem, if it was found.
    pub fn finding(&self, problem: Problem) -> Option<&Finding> {
        self.findings.iter().find(|f| f.problem == problem)
    }

    /// The verdict as the log keeps it, its interval ending at `end`.
    pub fn interval_record(
        &self,
        snapshot: &ListenerSnapshot,
        owner: &Owner,
        end: WallMicros,
    ) -> ListenerInterval {
        ListenerInterval {
            listener: self.listener,
            local: snapshot.local,
            owner: owner.clone(),
            tier: snapshot.tier,
            end,
            duration: self.interval(),
            findings: self.findings.clone(),
            unmeasured: self.unmeasured,
            deltas: self.deltas,
        }
    }
}

/// An interval in which a listener had a problem, for the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListenerInterval {
    /// Which listener.
    pub listener: ListenerId,
    /// The address it listens on.
    pub local: SocketAddr,
    /// A process that holds it, or why none is known.
    pub owner: Owner,
    /// Which tier observed it.
    pub tier: Tier,
    /// The interval's end.
    pub end: WallMicros,
    /// The interval's length.
    pub duration: Micros,
    /// What was found; never empty.
    pub findings: Vec<Finding>,
    /// What could not be measured.
    pub unmeasured: ProblemSet,
    /// The evidence.
    pub deltas: ListenerDeltas,
}
