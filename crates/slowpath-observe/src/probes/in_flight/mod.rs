// SPDX-License-Identifier: Apache-2.0
//! Which sockets are on their way through a Unix socket.

use super::{Probe, object};

/// The probe.
pub(crate) const PROBE: Probe = Probe {
    name: "in_flight",
    measures: "sockets held by no process but by a message on a Unix socket",
    since: "5.17",
    required: false,
    serves: &[],
    object: object!("in_flight"),
};
