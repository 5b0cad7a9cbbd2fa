// SPDX-License-Identifier: Apache-2.0
//! Snapshots of the connections that changed, found through the notes of the event probes.
//!
//! Without it each poll walks over all connections.

use super::{Probe, object};
use crate::bpf::{BpfTier, PollError};
use libbpf_rs::ProgramInput;
use std::io;

/// The probe. Its program is attached to nothing: [`BpfTier::run_collect`] runs it.
pub(crate) const PROBE: Probe = Probe {
    name: "changes",
    measures: "changed connections without a walk over all",
    since: "6.2",
    within_polls: &[COLLECT],
    object: object!("changes"),
    attach: |_| Ok(Box::new(())),
    ..Probe::EVENTS
};

const COLLECT: &str = "collect";

impl BpfTier {
    /// Has the kernel copy the connections that the part of a list names, as the shared page
    /// says which.
    pub(crate) fn run_collect(&self) -> Result<(), PollError> {
        self.loaded
            .iter()
            .flat_map(|loaded| loaded.object.progs_mut())
            .find(|program| program.name() == COLLECT)
            .ok_or_else(|| libbpf_rs::Error::from(io::Error::from(io::ErrorKind::NotFound)))
            .and_then(|program| program.test_run(ProgramInput::default()))
            .map_err(PollError::Collect)?;
        Ok(())
    }
}
