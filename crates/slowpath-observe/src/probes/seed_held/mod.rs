// SPDX-License-Identifier: Apache-2.0
//! Storage for connections that are older than the agent and lie in network namespaces that it
//! may not enter (without CAP_SYS_ADMIN).
//!
//! Without it such connections are not known until they close or change their state.

use super::{Probe, object};
use crate::bpf::BpfTier;
use libbpf_rs::{Iter, Link};

/// The probe.
pub(crate) const PROBE: Probe = Probe {
    name: "seed_held",
    measures: "connections and listeners older than the agent that a process holds",
    since: "5.11",
    object: object!("seed_held"),
    attach: |attaching| Ok(Box::new(SeedHeld(attaching.one("seed_held")?))),
    ..Probe::EVENTS
};

/// What the probe keeps while it runs.
struct SeedHeld(Link);

impl BpfTier {
    /// Begins a walk over the sockets that processes hold.
    pub(crate) fn held(&self) -> Option<Iter> {
        let SeedHeld(link) = self.state()?;
        Iter::new(link).ok()
    }
}
