// SPDX-License-Identifier: Apache-2.0
//! How much of each flow waits at each port.

use crate::packet::PortId;
use crate::queue::Depth;
use crate::random::mix;
use alloc::vec::Vec;

/// How much of each flow waits at each port: a hash table with linear probing. It holds
/// flows that have a packet waiting and no others, so never more than packets are queued;
/// it is at most half full, and does not shrink.
#[derive(Clone, Debug)]
pub(crate) struct Flows {
    /// A power of two of them. Free where the depth holds no packet.
    slots: Vec<Slot>,
    used: usize,
    salt: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    flow: u64,
    port: PortId,
    depth: Depth,
}

impl Slot {
    fn is_free(&self) -> bool {
        self.depth.packets == 0
    }
}

impl Flows {
    /// An empty one; the salt keeps chosen flow numbers from meeting in one place.
    pub fn new(salt: u64) -> Self {
        Flows {
            slots: alloc::vec![Slot::default(); 16],
            used: 0,
            salt,
        }
    }

    fn home(&self, port: PortId, flow: u64) -> usize {
        let hash = mix(flow ^ mix(self.salt ^ u64::from(port.0)));
        hash as usize & (self.slots.len() - 1)
    }

    /// Where the flow is, or where it would go.
    fn find(&self, port: PortId, flow: u64) -> usize {
        let mut at = self.home(port, flow);
        loop {
            let slot = &self.slots[at];
            if slot.is_free() || (slot.flow == flow && slot.port == port) {
                return at;
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
    }

    pub fn add(&mut self, port: PortId, flow: u64, bytes: u32) {
        let mut at = self.find(port, flow);
        if self.slots[at].is_free() {
            if self.used * 2 >= self.slots.len() {
                self.grow();
                at = self.find(port, flow);
            }
            self.used += 1;
            self.slots[at] = Slot {
                flow,
                port,
                depth: Depth::default(),
            };
        }
        self.slots[at].depth.add(bytes);
    }

    fn grow(&mut self) {
        let larger = alloc::vec![Slot::default(); self.slots.len() * 2];
        let old = core::mem::replace(&mut self.slots, larger);
        for slot in old.into_iter().filter(|slot| !slot.is_free()) {
            let at = self.find(slot.port, slot.flow);
            self.slots[at] = slot;
        }
    }

    pub fn remove(&mut self, port: PortId, flow: u64, bytes: u32) {
        let at = self.find(port, flow);
        if self.slots[at].is_free() {
            return;
        }
        self.slots[at].depth.remove(bytes);
        if self.slots[at].is_free() {
            self.used -= 1;
            self.close_gap(at);
        }
    }

    /// Moves back what was probed past a slot that is now free.
    fn close_gap(&mut self, mut gap: usize) {
        let mask = self.slots.len() - 1;
        let mut at = (gap + 1) & mask;
        while !self.slots[at].is_free() {
            let home = self.home(self.slots[at].port, self.slots[at].flow);
            // Its way from home to here passes the gap.
            if at.wrapping_sub(home) & mask >= at.wrapping_sub(gap) & mask {
                self.slots[gap] = self.slots[at];
                self.slots[at] = Slot::default();
                gap = at;
            }
            at = (at + 1) & mask;
        }
    }

    pub fn depth(&self, port: PortId, flow: u64) -> Depth {
        self.slots[self.find(port, flow)].depth
    }

    /// The flows of a port, in no order.
    pub fn of_port(&self, port: PortId) -> impl Iterator<Item = (u64, Depth)> {
        self.slots
            .iter()
            .filter(move |slot| !slot.is_free() && slot.port == port)
            .map(|slot| (slot.flow, slot.depth))
    }
}
