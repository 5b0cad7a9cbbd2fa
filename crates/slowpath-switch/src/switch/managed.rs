// SPDX-License-Identifier: Apache-2.0
//! Switches whose queues are managed.

use super::{Admitted, Switch};
use crate::aqm::{Aqm, AqmError, Manager, Passing, Verdict};
use crate::observer::{DropReason, Observer};
use crate::packet::{Packet, PortId};
use crate::time::Time;
use alloc::vec::Vec;

/// The managers of a switch's queues.
#[derive(Clone, Debug)]
pub(super) struct Managed<P> {
    /// By queue, as the switch numbers them; none where none is managed.
    pub managers: Vec<Option<Manager>>,
    /// When the packet in each slot came.
    came: Vec<Time>,
    /// What was dropped on the way out and not yet taken back.
    pub dropped: Vec<P>,
    /// Packets dropped here, coming or going.
    pub early: u64,
}

impl<P> Default for Managed<P> {
    fn default() -> Self {
        Managed {
            managers: Vec::new(),
            came: Vec::new(),
            dropped: Vec::new(),
            early: 0,
        }
    }
}

impl<P> Managed<P> {
    /// A packet joined a queue, in that slot.
    pub fn came(&mut self, slot: usize, now: Time) {
        if self.managers.is_empty() {
            return;
        }
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
        let first = port.index() * usize::from(self.classes);
        let classes = usize::from(self.classes);
        let managers = &mut self.extras().managed.managers;
        managers.resize_with(queues, || None);
        for place in managers.iter_mut().skip(first).take(classes) {
            *place = Some(manager.clone());
        }
        Ok(())
    }

    /// A packet that [`Switch::transmit`] dropped, until there are no more.
    pub fn take_dropped(&mut self) -> Option<P> {
        self.extras.as_mut()?.managed.dropped.pop()
    }

    /// What the manager of its queue makes of a packet that fits.
    pub(super) fn manage(
        &mut self,
        now: Time,
        mut admitted: Admitted<P>,
        observer: &mut impl Observer<P>,
    ) -> Result<Admitted<P>, (P, DropReason)> {
        let at = self.at(admitted.port, admitted.class);
        let managed = self.extras.as_mut().map(|extras| &mut extras.managed);
        let Some(Managed {
            managers, early, ..
        }) = managed
        else {
            return Ok(admitted);
        };
        let Some(Some(manager)) = managers.get_mut(at) else {
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
                *early += 1;
                state.dropped += 1;
                state.dropped_bytes += u64::from(passing.bytes);
                observer.dropped(now, Some(admitted.port), packet, DropReason::Early);
                return Err((admitted.packet, DropReason::Early));
            }
        }
        Ok(admitted)
    }

    /// What the manager of a queue that is not empty makes of its first packet.
    pub(super) fn leaves(&mut self, start: Time, port: PortId, at: usize) -> Verdict {
        let slot = self.queues[at].first();
        let Some((extras, packet)) = self.extras.as_mut().zip(self.slots.at(slot)) else {
            return Verdict::Pass;
        };
        let Managed { managers, came, .. } = &mut extras.managed;
        let came = came.get(slot).copied().unwrap_or(start);
        let Some(Some(manager)) = managers.get_mut(at) else {
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
