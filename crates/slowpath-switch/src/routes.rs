// SPDX-License-Identifier: Apache-2.0
//! From a destination to the ports that lead there.

use crate::packet::{Destination, PortId};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// No port leads there.
const NONE: u32 = u32::MAX;
/// Set in an entry that names a set of ports; otherwise the entry is the one port.
const SET: u32 = 1 << 31;

/// Routes: an array by destination, with sets of ports kept once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Routes {
    entries: Vec<u32>,
    /// Of each set its first member and how many there are.
    sets: Vec<(u32, u32)>,
    members: Vec<PortId>,
    known: BTreeMap<Vec<PortId>, u32>,
}

/// What leads to a destination.
pub(crate) enum Way {
    /// That port.
    One(PortId),
    /// Any port of the set of that number.
    Any(u32),
}

impl Routes {
    /// Replaces the ports that lead to `destination`; none takes the route away.
    pub fn set(&mut self, destination: Destination, ports: &[PortId]) {
        let entry = match ports {
            [] => NONE,
            [port] => u32::from(port.0),
            ports => SET | self.intern(ports),
        };
        let at = destination.0 as usize;
        if at >= self.entries.len() {
            self.entries.resize(at + 1, NONE);
        }
        self.entries[at] = entry;
    }

    fn intern(&mut self, ports: &[PortId]) -> u32 {
        if let Some(number) = self.known.get(ports) {
            return *number;
        }
        let number = self.sets.len() as u32;
        self.sets
            .push((self.members.len() as u32, ports.len() as u32));
        self.members.extend_from_slice(ports);
        self.known.insert(ports.to_vec(), number);
        number
    }

    /// The port for a flow whose mixed hash `hash` gives.
    #[inline]
    pub fn port(&self, destination: Destination, hash: impl FnOnce() -> u64) -> Option<PortId> {
        let entry = *self.entries.get(destination.0 as usize)?;
        if entry & SET == 0 {
            return Some(PortId(entry as u16));
        }
        if entry == NONE {
            return None;
        }
        let (first, count) = self.sets[(entry & !SET) as usize];
        let chosen = ((hash() >> 32) * u64::from(count)) >> 32;
        Some(self.members[first as usize + chosen as usize])
    }

    /// What leads to `destination`.
    pub fn way(&self, destination: Destination) -> Option<Way> {
        match *self.entries.get(destination.0 as usize)? {
            NONE => None,
            entry if entry & SET == 0 => Some(Way::One(PortId(entry as u16))),
            entry => Some(Way::Any(entry & !SET)),
        }
    }

    /// The ports of a set.
    pub fn members(&self, set: u32) -> &[PortId] {
        let (first, count) = self.sets[set as usize];
        &self.members[first as usize..(first + count) as usize]
    }

    /// All ports that lead to `destination`.
    pub fn ports(&self, destination: Destination) -> Vec<PortId> {
        match self.way(destination) {
            None => Vec::new(),
            Some(Way::One(port)) => alloc::vec![port],
            Some(Way::Any(set)) => self.members(set).to_vec(),
        }
    }
}
