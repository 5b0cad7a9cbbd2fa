// SPDX-License-Identifier: Apache-2.0
//! What most switches do without: managed queues, flowlets, flow control. A switch that has any of it asks for it
//! in copies of the paths that packets take, so that the others ask for nothing.

use super::managed::Managed;
use super::{Admitted, Outcome, Passed, Queued, Switch};
use crate::aqm::Verdict;
use crate::flowlets::Table;
use crate::line::Departure;
use crate::observer::{DropReason, Observer};
use crate::packet::{Packet, PortId};
use crate::pfc::Pauses;
use crate::port::IDLE;
use crate::time::Time;
use alloc::boxed::Box;

/// What most switches do without.
#[derive(Clone, Debug)]
pub(super) struct Extras<P> {
    pub managed: Managed<P>,
    pub flowlets: Option<Table>,
    pub pauses: Option<Pauses>,
}

impl<P: Packet> Switch<P> {
    /// The place for what most switches do without.
    pub(super) fn extras(&mut self) -> &mut Extras<P> {
        self.extras.get_or_insert_with(|| {
            Box::new(Extras {
                managed: Managed::default(),
                flowlets: None,
                pauses: None,
            })
        })
    }

    /// [`Switch::arrive`], where there are extras.
    #[cold]
    #[inline(never)]
    pub(super) fn arrive_extras(
        &mut self,
        now: Time,
        by: PortId,
        packet: P,
        observer: &mut impl Observer<P>,
    ) -> Outcome<P> {
        let port = self.choose_port(now, packet.destination(), packet.flow());
        let admitted = self.enter(now, by, port, packet, observer);
        let admitted = admitted.and_then(|it| self.admit_input(now, by, it, observer));
        match admitted.and_then(|it| self.join_extras(now, Some(by), it, observer)) {
            Ok(queued) => Outcome::Queued(queued),
            Err((packet, reason)) => Outcome::Dropped { packet, reason },
        }
    }

    /// [`Switch::pass`], where there are extras. A managed queue sees every packet, also one that finds
    /// the line free.
    #[cold]
    #[inline(never)]
    pub(super) fn pass_extras(
        &mut self,
        now: Time,
        by: PortId,
        packet: P,
        observer: &mut impl Observer<P>,
    ) -> Passed<P> {
        match self.arrive_extras(now, by, packet, observer) {
            Outcome::Queued(queued) => Passed::Queued(queued),
            Outcome::Dropped { packet, reason } => Passed::Dropped { packet, reason },
        }
    }

    /// [`Switch::enqueue`], where there are extras.
    #[cold]
    #[inline(never)]
    pub(super) fn join_extras(
        &mut self,
        now: Time,
        by: Option<PortId>,
        admitted: Admitted<P>,
        observer: &mut impl Observer<P>,
    ) -> Result<Queued, (P, DropReason)> {
        let admitted = self.manage(now, admitted, observer)?;
        let (class, bytes) = (admitted.class, admitted.packet.bytes());
        let at = self.at(admitted.port, class);
        let queued = self.enqueue(now, admitted, observer);
        let slot = self.queues[at].last();
        if let Some(extras) = &mut self.extras {
            extras.managed.came(slot, now);
            if let Some(pauses) = &mut extras.pauses {
                pauses.joined(slot, by, class, bytes);
            }
        }
        let start = self.rest_if_paused(queued.port, queued.start);
        Ok(Queued { start, ..queued })
    }

    /// [`Switch::transmit`] at `start`, where it is due and there are extras.
    #[cold]
    #[inline(never)]
    pub(super) fn transmit_extras(
        &mut self,
        start: Time,
        port: PortId,
        observer: &mut impl Observer<P>,
    ) -> Option<Departure<P>> {
        while let Some(at) = self.first_waiting(port) {
            let verdict = self.leaves(start, port, at);
            let slot = self.queues[at].first();
            let mut packet = self.slots.pop(&mut self.queues[at], P::bytes)?;
            let (queue, bytes) = (self.queues[at].depth, packet.bytes());
            let state = &mut self.ports[port.index()];
            state.depth.remove(bytes);
            if let Some(pauses) = self.extras.as_mut().and_then(|it| it.pauses.as_mut()) {
                pauses.left(slot, bytes);
            }
            if let Some(memory) = &mut self.memory {
                memory.used.remove(bytes);
            }
            if let Some(flows) = &mut self.flows {
                flows.remove(port, packet.flow(), bytes);
            }
            if verdict == Verdict::Drop {
                // What is enqueued and does not wait counts as sent.
                state.enqueued -= 1;
                state.enqueued_bytes -= u64::from(bytes);
                state.dropped += 1;
                state.dropped_bytes += u64::from(bytes);
                observer.dropped(start, Some(port), &packet, DropReason::Early);
                let managed = &mut self.extras.as_mut()?.managed;
                managed.early += 1;
                managed.dropped.push(packet);
                continue;
            }
            if verdict == Verdict::Mark {
                packet.mark();
                state.marked += 1;
                observer.marked(start, port, &packet, queue);
            }
            observer.dequeued(start, port, &packet, state.depth);
            let departure = state.start(start, packet, bytes);
            return Some(self.departed(port, departure));
        }
        self.ports[port.index()].due = IDLE;
        None
    }
}
