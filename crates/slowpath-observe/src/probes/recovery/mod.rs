// SPDX-License-Identifier: Apache-2.0
//! Entries to recovery and loss, and the time spent there.

use super::{Probe, object};
use slowpath_model::Problem;

/// The probe.
pub(crate) const PROBE: Probe = Probe {
    name: "recovery",
    measures: "recovery episodes",
    since: "6.0",
    required: false,
    serves: &[Problem::FastRetransmit, Problem::IdleBurst],
    object: object!("recovery"),
};
