// SPDX-License-Identifier: Apache-2.0
//! Opening and closing of connections.

use super::{Probe, object};

/// The probe.
pub(crate) const PROBE: Probe = Probe {
    name: "lifecycle",
    measures: "opening and closing, in every network namespace",
    since: "5.11",
    required: true,
    serves: &[],
    object: object!("lifecycle"),
};
