// SPDX-License-Identifier: Apache-2.0
//! Switches whose queues are managed.

use super::{Admitted, Outcome, Passed, Queued, Switch};
use crate::aqm::{Aqm, AqmError, Manager, Passing, Verdict};
use crate::line::Departure;
use crate::observer::{DropReason, Observer};
use crate::packet::{Packet, PortId};
use crate::port::IDLE;
use crate::time::Time;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// The managers of a switch's queues.
#[derive(Clone, Debug)]
pub(super) struct Managed<P> {
    /// By queue, as the switch numbers them.
    managers: Vec<Option<Manager>>,
    /// When the packet in each slot came.
    came: Vec<Time>,
    /// What was dropped on the way out and not yet taken back.
    dropped: Vec<P>,
    /// Packets dropped here, coming or going.
    pub early: u64,
}

impl<P> Managed<P> {
    /// A packet joined a queue, in that slot.
    fn came(&mut self, slot: usize, now: Time) {
        if slot >= self.came.len() {
            self.came.resize(slot + 1, now);
        }
        self.came[slot] = now;
    }
}

impl<P: Packet> Switch<P> {
    /// Lets the queues of a port be managed, one by one for each class, from now on. Nothing may wait
    /// there yet.
    ///
    /// From then on [`Switch::transmit`] can drop packets, also where it returns `None`: take them back
    /// by [`Switch::take_dropped`] after each call.
    ///
    /// # Errors
    /// The port is not there, or the configuration is impossible: nothing was changed.
    pub fn set_aqm(&mut self, port: PortId, aqm: Aqm) -> Result<(), AqmError> {
        if port.index() >= self.ports.len() {
            return Err(AqmError::NoSuchPort);
        }
        let manager = Manager::new(aqm)?;
        let queues = self.queues.len();
        let managed = self.managed.get_or_insert_with(|| {
            Box::new(Managed {
                managers: (0..queues).map(|_| None).collect(),
                came: Vec::new(),
                dropped: Vec::new(),
                early: 0,
            })
        });
        let first = port.index() * usize::from(self.classes);
        for place in &mut managed.managers[first..first + usize::from(self.classes)] {
            *place = Some(manager.clone());
        }
        Ok(())
    }

    /// A packet that [`Switch::transmit`] dropped, until there are no more.
    pub fn take_dropped(&mut self) -> Option<P> {
        self.managed.as_mut()?.dropped.pop()
    }

    /// [`Switch::pass`]. A managed queue sees every packet, also one that finds the line free.
    #[cold]
    #[inline(never)]
    pub(super) fn pass_managed(
        &mut self,
        now: Time,
        by: PortId,
        packet: P,
        observer: &mut impl Observer<P>,
    ) -> Passed<P> {
        match self.arrive(now, by, packet, observer) {
            Outcome::Queued(queued) => Passed::Queued(queued),
            Outcome::Dropped { packet, reason } => Passed::Dropped { packet, reason },
        }
    }

    /// [`Switch::join`], where managers are asked.
    #[cold]
    #[inline(never)]
    pub(super) fn join_managed(
        &mut self,
        now: Time,
        admitted: Admitted<P>,
        observer: &mut impl Observer<P>,
    ) -> Result<Queued, (P, DropReason)> {
        let admitted = self.manage(now, admitted, observer)?;
        let at = self.at(admitted.port, admitted.class);
        let queued = self.enqueue(now, admitted, observer);
        if let Some(managed) = &mut self.managed {
            managed.came(self.queues[at].last(), now);
        }
        Ok(queued)
    }

    /// What the manager of its queue makes of a packet that fits.
    fn manage(
        &mut self,
        now: Time,
        mut admitted: Admitted<P>,
        observer: &mut impl Observer<P>,
    ) -> Result<Admitted<P>, (P, DropReason)> {
        let at = self.at(admitted.port, admitted.class);
        let Some(managed) = &mut self.managed else {
            return Ok(admitted);
        };
        let Some(manager) = &mut managed.managers[at] else {
            return Ok(admitted);
        };
        let queue = self.queues[at].depth;
        let state = &mut self.ports[admitted.port.index()];
        let packet = &mut admitted.packet;
        let passing = Passing {
            now,
            queue,
            leaving: false,
            bytes: packet.bytes(),
            capable: packet.is_ecn_capable(),
            rate: state.line.rate(),
        };
        match manager.arrives(passing, &mut self.random) {
            Verdict::Pass => {}
            Verdict::Mark => {
                packet.mark();
                admitted.marked = true;
                state.marked += 1;
                observer.marked(now, admitted.port, packet, queue);
            }
            Verdict::Drop => {
                managed.early += 1;
                state.dropped += 1;
                state.dropped_bytes += u64::from(passing.bytes);
                observer.dropped(now, Some(admitted.port), packet, DropReason::Early);
                return Err((admitted.packet, DropReason::Early));
            }
        }
        Ok(admitted)
    }

    /// [`Switch::transmit`] at `start`, where it is due and managers are asked.
    #[cold]
    #[inline(never)]
    pub(super) fn transmit_managed(
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
                let managed = self.managed.as_mut()?;
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

    /// What the manager of a queue that is not empty makes of its first packet.
    fn leaves(&mut self, start: Time, port: PortId, at: usize) -> Verdict {
        let slot = self.queues[at].first();
        let Some((managed, packet)) = self.managed.as_mut().zip(self.slots.at(slot)) else {
            return Verdict::Pass;
        };
        let came = managed.came.get(slot).copied().unwrap_or(start);
        let Some(manager) = &mut managed.managers[at] else {
            return Verdict::Pass;
        };
        let bytes = packet.bytes();
        let mut queue = self.queues[at].depth;
        queue.remove(bytes);
        let passing = Passing {
            now: start,
            queue,
            leaving: true,
            bytes,
            capable: packet.is_ecn_capable(),
            rate: self.ports[port.index()].line.rate(),
        };
        manager.leaves(passing, came)
    }
}
