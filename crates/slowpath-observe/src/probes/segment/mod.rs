// SPDX-License-Identifier: Apache-2.0
//! RTT samples at each received segment, and what data waits for.
//!
//! Without it round trips are known only as the kernel smooths them, and neither delayed ACKs nor
//! what data waits for in queues.

use super::connection::Sums;
use super::{Probe, object};
use slowpath_model::Problem;

/// The probe.
pub(crate) const PROBE: Probe = Probe {
    name: "segment",
    measures: "RTT sums, sample by sample, and what data waits for",
    since: "5.11",
    serves: &[Problem::DelayedAck, Problem::SmallWrites],
    sums: &[Sums::Rtt],
    object: object!("segment"),
    ..Probe::EVENTS
};
