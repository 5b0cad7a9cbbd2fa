// SPDX-License-Identifier: Apache-2.0
//! First-in first-out queues in one array of slots.

use alloc::vec::Vec;

/// How much waits somewhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Depth {
    /// Bytes.
    pub bytes: u64,
    /// Packets.
    pub packets: u32,
}

impl Depth {
    #[inline]
    pub(crate) fn add(&mut self, bytes: u32) {
        self.bytes += u64::from(bytes);
        self.packets += 1;
    }

    #[inline]
    pub(crate) fn remove(&mut self, bytes: u32) {
        self.bytes -= u64::from(bytes);
        self.packets -= 1;
    }
}

/// No slot.
const NIL: u32 = u32::MAX;

/// A list of slots; its packets are in [`Slots`].
#[derive(Clone, Debug)]
pub(crate) struct Fifo {
    head: u32,
    tail: u32,
    pub depth: Depth,
}

impl Fifo {
    pub const EMPTY: Fifo = Fifo {
        head: NIL,
        tail: NIL,
        depth: Depth {
            bytes: 0,
            packets: 0,
        },
    };

    /// The slot of the first packet.
    pub fn first(&self) -> usize {
        self.head as usize
    }

    /// The slot of the last packet.
    pub fn last(&self) -> usize {
        self.tail as usize
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.head == NIL
    }
}

#[derive(Clone, Debug)]
struct Slot<P> {
    next: u32,
    /// `None` while the slot is free.
    packet: Option<P>,
}

/// The slots of all queues of a switch. The one freed last is filled first: with short
/// queues the same few stay in the cache.
#[derive(Clone, Debug)]
pub(crate) struct Slots<P> {
    slots: Vec<Slot<P>>,
    free: u32,
}

impl<P> Slots<P> {
    pub const fn new() -> Self {
        Slots {
            slots: Vec::new(),
            free: NIL,
        }
    }

    #[inline]
    pub fn push(&mut self, fifo: &mut Fifo, packet: P, bytes: u32) {
        let at = self.free;
        let at = if at == NIL {
            self.slots.push(Slot {
                next: NIL,
                packet: Some(packet),
            });
            (self.slots.len() - 1) as u32
        } else {
            let slot = &mut self.slots[at as usize];
            self.free = slot.next;
            slot.next = NIL;
            slot.packet = Some(packet);
            at
        };
        if fifo.tail == NIL {
            fifo.head = at;
        } else {
            self.slots[fifo.tail as usize].next = at;
        }
        fifo.tail = at;
        fifo.depth.add(bytes);
    }

    /// Takes the first packet; its length comes off the depth by `bytes`.
    #[inline]
    pub fn pop(&mut self, fifo: &mut Fifo, bytes: impl FnOnce(&P) -> u32) -> Option<P> {
        let at = fifo.head;
        let slot = self.slots.get_mut(at as usize)?;
        let packet = slot.packet.take()?;
        fifo.head = slot.next;
        if fifo.head == NIL {
            fifo.tail = NIL;
        }
        slot.next = self.free;
        self.free = at;
        fifo.depth.remove(bytes(&packet));
        Some(packet)
    }

    /// The packet in a slot.
    pub fn at(&self, slot: usize) -> Option<&P> {
        self.slots.get(slot)?.packet.as_ref()
    }

    /// The packets of a queue in order.
    pub fn iter<'a>(&'a self, fifo: &Fifo) -> impl Iterator<Item = &'a P> {
        self.iter_slots(fifo).map(|(_, packet)| packet)
    }

    /// The packets of a queue in order, each with its slot.
    pub fn iter_slots<'a>(&'a self, fifo: &Fifo) -> impl Iterator<Item = (usize, &'a P)> {
        let mut at = fifo.head;
        core::iter::from_fn(move || {
            let number = at as usize;
            let slot = self.slots.get(number)?;
            at = slot.next;
            Some((number, slot.packet.as_ref()?))
        })
    }
}
