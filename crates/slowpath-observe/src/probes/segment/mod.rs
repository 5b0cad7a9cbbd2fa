// SPDX-License-Identifier: Apache-2.0
//! RTT samples at each received segment.

use super::{Probe, object};
use slowpath_model::Problem;

/// The probe.
pub(crate) const PROBE: Probe = Probe {
    name: "segment",
    measures: "RTT sums, sample by sample, and what data waits for",
    since: "5.11",
    required: false,
    serves: &[Problem::DelayedAck, Problem::SmallWrites],
    object: object!("segment"),
};
