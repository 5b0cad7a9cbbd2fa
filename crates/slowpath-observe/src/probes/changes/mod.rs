// SPDX-License-Identifier: Apache-2.0
//! Snapshots of the connections that changed, found through the notes of the event probes.

use super::{Probe, object};

/// The probe.
pub(crate) const PROBE: Probe = Probe {
    name: "changes",
    measures: "changed connections without a walk over all",
    since: "6.2",
    required: false,
    serves: &[],
    object: object!("changes"),
};
