// SPDX-License-Identifier: Apache-2.0
//! Which sockets are on their way through a Unix socket.
//!
//! Without it such a socket counts as one that no process holds.

use super::{Probe, object};
use crate::bpf::BpfTier;
use crate::bpf::iterator::{each_record, open};
use crate::namespaces;
use libbpf_rs::Link;
use std::sync::Mutex;

/// The probe.
pub(crate) const PROBE: Probe = Probe {
    name: "in_flight",
    measures: "sockets held by no process but by a message on a Unix socket",
    since: "5.17",
    object: object!("in_flight"),
    attach: |attaching| Ok(Box::new(InFlight(attaching.one("in_flight")?))),
    ..Probe::EVENTS
};

/// What the probe keeps while it runs.
struct InFlight(Link);

impl BpfTier {
    /// The sockets that messages on Unix sockets carry, in every network namespace. Without
    /// the `in_flight` feature none is found; a namespace that vanishes meanwhile has none.
    pub fn in_flight(&mut self) -> Vec<u64> {
        let Some(InFlight(link)) = self.state() else {
            return Vec::new();
        };
        let found = Mutex::new(Vec::new());
        namespaces::in_each(|| {
            if let Ok(mut iterator) = open(link, "Unix sockets")
                && let Ok(mut found) = found.lock()
            {
                // What was read until then is true.
                let _ = each_record(&mut iterator, |cookie: u64| found.push(cookie));
            }
        });
        found.into_inner().unwrap_or_default()
    }
}
