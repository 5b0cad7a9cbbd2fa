// SPDX-License-Identifier: Apache-2.0
//! Storage for connections that were there before the tier, or were missed.

use super::BpfTier;
use super::poll::{drain, may_go_on};
use crate::namespaces;
use libbpf_rs::{Iter, Link};
use std::io::Read as _;

/// Sockets looked at with one system call.
const MOST: usize = 32_768;

impl BpfTier {
    /// Gives storage to connections that have none; returns how many there were. After the
    /// first time, each is a connection that had been missed.
    ///
    /// Two ways: a walk in each network namespace that a process or a name under
    /// `/run/netns` leads to, once in its life, since what opens later is seen when it
    /// opens; and each time all open files, so that the cost does not grow with empty
    /// namespaces. Only a connection that is older than the tier, held by no process, and in
    /// a namespace to which no way leads, is not found.
    pub fn seed(&mut self) -> u64 {
        loop {
            if let Some(seeded) = self.seed_some(MOST) {
                return seeded;
            }
        }
    }

    /// The same in pieces: looks at about `sockets` more of those that processes hold, at most
    /// 32,768. Gives how many connections had no storage when all have been looked at.
    pub fn seed_some(&mut self, sockets: usize) -> Option<u64> {
        if self.seeding.is_none() {
            let before = self.shared.first().seeded;
            self.seed_new_namespaces();
            let held = self.seed_held_link.as_ref();
            let Some(iterator) = held.and_then(|link| Iter::new(link).ok()) else {
                return Some(self.shared.first().seeded.wrapping_sub(before));
            };
            self.seeding = Some((iterator, before));
        }
        let (iterator, before) = self.seeding.as_mut()?;
        // The program writes a byte for each socket, and the kernel pauses where the buffer is full.
        let mut looked = [0; MOST];
        match iterator.read(&mut looked[..sockets.clamp(1, MOST)]) {
            Ok(1..) => return None,
            // The kernel pauses after a million files (bpf_seq_read).
            Err(e) if may_go_on(&e) => return None,
            // What was seen until an error is seeded.
            Ok(0) | Err(_) => {}
        }
        let seeded = self.shared.first().seeded.wrapping_sub(*before);
        self.seeding = None;
        Some(seeded)
    }

    fn seed_new_namespaces(&mut self) {
        let Some(link) = &self.seed_link else {
            return;
        };
        // A namespace that vanishes meanwhile has no sockets left to seed.
        let walk = |link: &Link| {
            if let Ok(mut iterator) = Iter::new(link) {
                let _ = drain(&mut iterator);
            }
        };
        namespaces::in_new(&mut self.walked, || walk(link));
    }
}
