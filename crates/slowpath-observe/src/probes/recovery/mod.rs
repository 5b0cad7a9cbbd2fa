// SPDX-License-Identifier: Apache-2.0
//! Entries to recovery and loss, and the time spent there.
//!
//! Without it retransmissions are counted, and not how long they took.

use super::connection::Sums;
use super::{Probe, object};
use slowpath_model::Problem;

/// The probe.
pub(crate) const PROBE: Probe = Probe {
    name: "recovery",
    measures: "recovery episodes",
    since: "6.0",
    serves: &[Problem::FastRetransmit, Problem::IdleBurst],
    sums: &[Sums::Recovery],
    object: object!("recovery"),
    ..Probe::EVENTS
};
