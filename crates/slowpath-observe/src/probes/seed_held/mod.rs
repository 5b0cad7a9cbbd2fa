// SPDX-License-Identifier: Apache-2.0
//! Storage for connections that are older than the agent and lie in network namespaces that it
//! may not enter (without CAP_SYS_ADMIN).

use super::{Probe, object};

/// The probe.
pub(crate) const PROBE: Probe = Probe {
    name: "seed_held",
    measures: "connections and listeners older than the agent that a process holds",
    since: "5.11",
    required: false,
    serves: &[],
    object: object!("seed_held"),
};
