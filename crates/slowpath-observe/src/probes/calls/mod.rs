// SPDX-License-Identifier: Apache-2.0
//! Socket calls: sums for all, call by call for suspects.

use super::{Probe, object};
use slowpath_model::Problem;

/// The probe.
pub(crate) const PROBE: Probe = Probe {
    name: "calls",
    measures: "socket calls",
    since: "6.3",
    required: false,
    serves: &[Problem::SmallWrites],
    object: object!("calls"),
};
