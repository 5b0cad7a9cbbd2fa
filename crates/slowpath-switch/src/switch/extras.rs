// SPDX-License-Identifier: Apache-2.0
//! What most switches do without: managed queues, flowlets. A switch that has any of it asks for it
//! in copies of the paths that packets take, so that the others ask for nothing.

use super::managed::Managed;
use super::{Admitted, Outcome, Passed, Queued, Switch};
use crate::aqm::Verdict;
use crate::flowlets::Table;
use crate::line::Departure;
use crate::observer::{DropReason, Observer};
use crate::packet::{Packet, PortId};
use crate::port::IDLE;
use crate::time::Time;
use alloc::boxed::Box;

/// What most switches do without.
#[derive(Clone, Debug)]
pub(super) struct Extras<P> {
    pub managed: Managed<P>,
    pub flowlets: Option<Table>,
}

impl<P: Packet> Switch<P> {
    /// The place for what most switches do without.
    pub(super) fn extras(&mut self) -> &mut Extras<P> {
        self.extras.get_or_insert_with(|| {
            Box::new(Extras {
                managed: Managed::default(),
                flowlets: None,
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
        match admitted.and_then(|admitted| self.join_extras(now, admitted, observer)) {
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

    /// [`Switch::join`], where there are extras.
    #[cold]
    #[inline(never)]
    pub(super) fn join_extras(
        &mut self,
        now: Time,
        admitted: Admitted<P>,
        observer: &mut impl Observer<P>,
    ) -> Result<Queued, (P, DropReason)> {
        let admitted = self.manage(now, admitted, observer)?;
        let at = self.at(admitted.port, admitted.class);
        let queued = self.enqueue(now, admitted, observer);
        if let Some(extras) = &mut self.extras {
            extras.managed.came(self.queues[at].last(), now);
        }
        Ok(queued)
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
        let first = port.index() * usize::from(self.classes);
        let queues = first..first + usize::from(self.classes);
        while let Some(at) = queues.clone().find(|at| !self.queues[*at].is_empty()) {
            let verdict = self.leaves(start, port, at);
            let mut packet = self.slots.pop(&mut self.queues[at], P::bytes)?;
            let (queue, bytes) = (self.queues[at].depth, packet.bytes());
            let state = &mut self.ports[port.index()];
            state.depth.remove(bytes);
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
            return Some(state.start(start, packet, bytes));
        }
        self.ports[port.index()].due = IDLE;
        None
    }
}
