// SPDX-License-Identifier: Apache-2.0
//! Which process holds which socket.

use super::{Probe, object};

/// The probe.
pub(crate) const PROBE: Probe = Probe {
    name: "owner",
    measures: "owners of sockets",
    since: "5.11",
    required: false,
    serves: &[],
    object: object!("owner"),
};
