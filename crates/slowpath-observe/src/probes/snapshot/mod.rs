// SPDX-License-Identifier: Apache-2.0
//! Snapshots by a walk of the socket storage.

use super::{Probe, object};

/// The probe.
pub(crate) const PROBE: Probe = Probe {
    name: "snapshot",
    measures: "every statistic of every connection",
    since: "5.11",
    required: true,
    serves: &[],
    object: object!("snapshot"),
};
