// SPDX-License-Identifier: Apache-2.0
//! Storage for connections that were there before the tier, or were missed.
//!
//! Without it they are not known until they close or change their state, but for those that
//! [`seed_held`](super::seed_held) finds.

use super::{Probe, object};
use crate::bpf::BpfTier;
use crate::bpf::iterator::{drain, may_go_on};
use crate::namespaces;
use libbpf_rs::{Iter, Link};
use std::collections::HashSet;
use std::io::Read as _;

/// The probe.
pub(crate) const PROBE: Probe = Probe {
    name: "seed",
    measures: "connections older than the agent",
    since: "5.9",
    within_polls: &["seed"],
    object: object!("seed"),
    attach: |attaching| {
        Ok(Box::new(Seed {
            link: attaching.one("seed")?,
            walked: HashSet::new(),
        }))
    },
    ..Probe::EVENTS
};

/// What the probe keeps while it runs.
struct Seed {
    link: Link,
    /// Namespaces in which connections older than the tier were looked for.
    walked: HashSet<u32>,
}

/// Sockets looked at with one system call.
const MOST: usize = 32_768;

impl BpfTier {
    /// Gives storage to connections that have none; returns how many there were. After the
    /// first time, each is a connection that had been missed.
    ///
    /// Two ways: a walk in each network namespace that a process or a name under
    /// `/run/netns` leads to, once in its life, since what opens later is met when it
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
            let Some(iterator) = self.held() else {
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
            // What was met until an error is seeded.
            Ok(0) | Err(_) => {}
        }
        let seeded = self.shared.first().seeded.wrapping_sub(*before);
        self.seeding = None;
        Some(seeded)
    }

    fn seed_new_namespaces(&mut self) {
        let own = self.shared.first().netns;
        let Some(seed) = self.state_mut::<Seed>() else {
            return;
        };
        // A namespace that vanishes meanwhile has no sockets left to seed.
        let walk = |link: &Link| {
            if let Ok(mut iterator) = Iter::new(link) {
                let _ = drain(&mut iterator);
            }
        };
        if own == 0 {
            namespaces::in_new(&mut seed.walked, || walk(&seed.link));
        } else if seed.walked.insert(own) {
            walk(&seed.link);
        }
    }
}
