// SPDX-License-Identifier: Apache-2.0
//! An event for everything that happens to a packet.

use crate::packet::PortId;
use crate::queue::Depth;
use crate::time::Time;

/// Why a packet was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum DropReason {
    /// Its queue was full, and no detour was possible.
    BufferFull = 0,
    /// Its time to live ran out.
    TtlExpired = 1,
    /// No route to its destination.
    NoRoute = 2,
    /// The management of its queue dropped it ([`Aqm`](crate::Aqm)).
    Early = 3,
}

impl DropReason {
    /// Every reason, in the order of their numbers.
    pub const ALL: [DropReason; 4] = [
        DropReason::BufferFull,
        DropReason::TtlExpired,
        DropReason::NoRoute,
        DropReason::Early,
    ];
}

/// Receives what happens, in order. Every method does nothing unless written; with `()` the
/// calls leave no code behind.
pub trait Observer<P> {
    /// The packet joined a queue of `port`, which with it holds `depth` (all classes).
    #[inline]
    fn enqueued(&mut self, at: Time, port: PortId, packet: &P, depth: Depth) {
        let _ = (at, port, packet, depth);
    }

    /// The packet left its queue for the line of `port`, which without it holds `depth`.
    #[inline]
    fn dequeued(&mut self, at: Time, port: PortId, packet: &P, depth: Depth) {
        let _ = (at, port, packet, depth);
    }

    /// The packet was marked, as its queue of `port` (its class) held `queue`. Comes before
    /// `enqueued`, and before `detoured` if it was the lack of room there that marked it.
    /// A packet that already carried a mark counts again.
    #[inline]
    fn marked(&mut self, at: Time, port: PortId, packet: &P, queue: Depth) {
        let _ = (at, port, packet, queue);
    }

    /// The packet was dropped. `port` is the one it should have left by; `None` where none
    /// was chosen yet.
    #[inline]
    fn dropped(&mut self, at: Time, port: Option<PortId>, packet: &P, reason: DropReason) {
        let _ = (at, port, packet, reason);
    }

    /// The packet should have left by `from`, which had no room, and goes to `to`. Comes
    /// before `enqueued`.
    #[inline]
    fn detoured(&mut self, at: Time, from: PortId, to: PortId, packet: &P) {
        let _ = (at, from, to, packet);
    }
}

impl<P> Observer<P> for () {}

impl<P, O: Observer<P>> Observer<P> for &mut O {
    #[inline]
    fn enqueued(&mut self, at: Time, port: PortId, packet: &P, depth: Depth) {
        (**self).enqueued(at, port, packet, depth);
    }

    #[inline]
    fn dequeued(&mut self, at: Time, port: PortId, packet: &P, depth: Depth) {
        (**self).dequeued(at, port, packet, depth);
    }

    #[inline]
    fn marked(&mut self, at: Time, port: PortId, packet: &P, queue: Depth) {
        (**self).marked(at, port, packet, queue);
    }

    #[inline]
    fn dropped(&mut self, at: Time, port: Option<PortId>, packet: &P, reason: DropReason) {
        (**self).dropped(at, port, packet, reason);
    }

    #[inline]
    fn detoured(&mut self, at: Time, from: PortId, to: PortId, packet: &P) {
        (**self).detoured(at, from, to, packet);
    }
}
