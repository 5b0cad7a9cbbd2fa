// SPDX-License-Identifier: Apache-2.0
//! Switches with flow control: what came in by which port, and what may not leave.

use super::{Admitted, Switch};
use crate::line::Departure;
use crate::observer::{DropReason, Observer};
use crate::packet::{Packet, PortId};
use crate::pfc::{PauseCounts, PauseFrame, Pauses, Pfc, PfcError};
use crate::port::IDLE;
use crate::time::{Span, Time};

/// Picoseconds that the bits of a pause frame take at 1 bit/s.
const FRAME_TIME: u64 = Pfc::FRAME as u64 * 8_000_000_000_000;

impl<P: Packet> Switch<P> {
    /// Lets a port stop what comes in by it, from now on. Nothing that came in by it may wait yet.
    ///
    /// From then on take frames by [`Switch::take_frame`] after each call of [`Switch::arrive`] and
    /// [`Switch::transmit`], and bring them to the other end, which takes them by
    /// [`Switch::receive_frame`] if it is a switch. Calls of [`Switch::transmit`] must not be late: what
    /// leaves the buffer lets others go on.
    ///
    /// # Errors
    /// The port is not there, or the thresholds are impossible: nothing was changed.
    pub fn set_pfc(&mut self, port: PortId, pfc: Pfc) -> Result<(), PfcError> {
        let (ports, classes) = (self.ports.len(), self.classes);
        let pauses = &mut self.extras().pauses;
        let pauses = pauses.get_or_insert_with(|| Pauses::new(ports, classes));
        pauses.set(port, pfc)
    }

    fn pauses(&self) -> Option<&Pauses> {
        self.extras.as_ref()?.pauses.as_ref()
    }

    pub(super) fn pauses_mut(&mut self) -> Option<&mut Pauses> {
        self.extras.as_mut()?.pauses.as_mut()
    }

    /// The next frame that the switch sends now, until there are no more.
    pub fn take_frame(&mut self, now: Time) -> Option<PauseFrame> {
        let (port, class, pause) = self.pauses_mut()?.next_frame()?;
        let line = &self.ports[port.index()].line;
        let rate = line.rate().bits_per_second();
        Some(PauseFrame {
            port,
            class,
            pause,
            arrival: now + Span(FRAME_TIME.div_ceil(rate)) + line.propagation(),
        })
    }

    /// A frame of the other end came to a port: it is to send nothing of that class, or may go on. The
    /// packet on the line ends. What is due until now must have been started before. Returns when
    /// [`Switch::transmit`] is due there from now on; `None`: not until something comes.
    pub fn receive_frame(
        &mut self,
        now: Time,
        port: PortId,
        class: u8,
        pause: bool,
    ) -> Option<Time> {
        let class = class.min(self.classes - 1);
        if port.index() >= self.ports.len() {
            return None;
        }
        let (ports, classes) = (self.ports.len(), self.classes);
        let pauses = &mut self.extras().pauses;
        let pauses = pauses.get_or_insert_with(|| Pauses::new(ports, classes));
        pauses.receive(now, port, class, pause);
        let waits = self.first_waiting(port).is_some();
        let state = &mut self.ports[port.index()];
        if !waits {
            state.due = IDLE;
        } else if state.due == IDLE {
            state.due = now.max(state.line.free_at());
        }
        (state.due != IDLE).then_some(state.due)
    }

    /// The queue whose packet a port sends next, if it may.
    pub(super) fn first_waiting(&self, port: PortId) -> Option<usize> {
        let first = port.index() * usize::from(self.classes);
        let pauses = self.pauses();
        let mut classes = 0..usize::from(self.classes);
        let class = classes.find(|class| {
            !self.queues[first + class].is_empty()
                && pauses.is_none_or(|pauses| !pauses.is_paused(port, *class))
        });
        class.map(|class| first + class)
    }

    /// Asks whether there is room for what came in by a port.
    pub(super) fn admit_input(
        &mut self,
        now: Time,
        by: PortId,
        admitted: Admitted<P>,
        observer: &mut impl Observer<P>,
    ) -> Result<Admitted<P>, (P, DropReason)> {
        let bytes = admitted.packet.bytes();
        let pauses = self.pauses_mut();
        if pauses.is_none_or(|pauses| pauses.admits(by, admitted.class, bytes)) {
            return Ok(admitted);
        }
        let state = &mut self.ports[admitted.port.index()];
        state.dropped += 1;
        state.dropped_bytes += u64::from(bytes);
        let reason = DropReason::BufferFull;
        observer.dropped(now, Some(admitted.port), &admitted.packet, reason);
        Err((admitted.packet, reason))
    }

    /// A port that may not send what waits is not due.
    pub(super) fn rest_if_paused(&mut self, port: PortId, due: Option<Time>) -> Option<Time> {
        if due.is_some() && self.pauses().is_some() && self.first_waiting(port).is_none() {
            self.ports[port.index()].due = IDLE;
            return None;
        }
        due
    }

    /// The same behind a packet that has started.
    pub(super) fn departed(&mut self, port: PortId, departure: Departure<P>) -> Departure<P> {
        Departure {
            next: self.rest_if_paused(port, departure.next),
            ..departure
        }
    }

    /// Whether a port may send nothing of a class, though some waits; and since when it has been stopped.
    pub fn is_held(&self, port: PortId, class: u8) -> Option<Time> {
        let pauses = self.pauses()?;
        let held =
            self.class_depth(port, class).packets > 0 && pauses.is_paused(port, usize::from(class));
        held.then(|| pauses.since(port))
    }

    /// What waits in one class of a port: where each packet came in, with which class, and its bytes.
    pub fn origins(&self, port: PortId, class: u8) -> impl Iterator<Item = (PortId, u8, u32)> {
        let queue = (class < self.classes).then(|| self.queues.get(self.at(port, class)));
        let pauses = self.pauses();
        let slots = queue.flatten().into_iter();
        let slots = slots.flat_map(|queue| self.slots.iter_slots(queue));
        slots.filter_map(move |(slot, packet)| {
            let (port, class) = pauses?.origin(slot)?;
            Some((port, class, packet.bytes()))
        })
    }

    /// Whether `bytes` of a class that came in by a port and wait keep up the pause that the switch sent
    /// there.
    pub fn stays_stopped(&self, port: PortId, class: u8, bytes: u64) -> bool {
        let class = class.min(self.classes - 1);
        let pauses = self.pauses();
        pauses.is_some_and(|pauses| pauses.stays_stopped(port, class, bytes))
    }

    /// What flow control did at a port until then; `None` without any.
    pub fn pause_counts(&self, port: PortId, until: Time) -> Option<PauseCounts> {
        (port.index() < self.ports.len()).then_some(())?;
        self.pauses().map(|pauses| pauses.counts(port, until))
    }
}
