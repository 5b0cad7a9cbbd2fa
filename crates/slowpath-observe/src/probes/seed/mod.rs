// SPDX-License-Identifier: Apache-2.0
//! Storage for connections that are older than the agent.

use super::{Probe, object};

/// The probe.
pub(crate) const PROBE: Probe = Probe {
    name: "seed",
    measures: "connections older than the agent",
    since: "5.9",
    required: false,
    serves: &[],
    object: object!("seed"),
};
