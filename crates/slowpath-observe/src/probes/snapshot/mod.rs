// SPDX-License-Identifier: Apache-2.0
//! Snapshots by a walk of the socket storage. Nothing works without it.

use super::{Probe, object};
use crate::bpf::iterator::drain;
use crate::bpf::{BpfTier, PollError};
use libbpf_rs::{Iter, Link};
use std::io;

/// The probe.
pub(crate) const PROBE: Probe = Probe {
    name: "snapshot",
    measures: "every statistic of every connection",
    since: "5.11",
    required: true,
    within_polls: &["snapshot"],
    object: object!("snapshot"),
    attach: |attaching| Ok(Box::new(Walk(attaching.iterate("snapshot", "connections")?))),
    ..Probe::EVENTS
};

/// What the probe keeps while it runs.
struct Walk(Link);

impl BpfTier {
    /// Has the kernel copy the connections that changed, over all of them.
    pub(crate) fn walk(&mut self) -> Result<(), PollError> {
        let what = "socket storage";
        let open = match self.state() {
            Some(Walk(link)) => Iter::new(link),
            None => Err(io::Error::from(io::ErrorKind::NotFound).into()),
        };
        let mut iterator = open.map_err(|source| PollError::Open { what, source })?;
        drain(&mut iterator).map_err(|source| PollError::Read { what, source })?;
        Ok(())
    }
}
