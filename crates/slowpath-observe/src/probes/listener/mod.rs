// SPDX-License-Identifier: Apache-2.0
//! Listening sockets: their queues and what they dropped.

use super::{Probe, object};
use slowpath_model::Problem;

/// The probe.
pub(crate) const PROBE: Probe = Probe {
    name: "listener",
    measures: "queues of listening sockets, in every network namespace",
    since: "5.11",
    required: false,
    serves: &[Problem::AcceptQueueOverflow, Problem::SynQueueOverflow],
    object: object!("listener"),
};
