// SPDX-License-Identifier: Apache-2.0
//! Which process holds which socket, and why no process holds the others.
//!
//! Without it an owner is who opened the connection, as far as that is known.

use super::load::Attaching;
use super::{Probe, object};
use crate::bpf::iterator::{each_record, open};
use crate::bpf::{BpfTier, PollError};
use crate::probes::connection::layouts::holder_flag::HOLDER_LISTENS;
use crate::probes::connection::layouts::unheld_reason::{UNHELD_KERNEL, UNHELD_NO_SOCKET};
use crate::probes::connection::layouts;
use crate::{SocketHolder, UnheldReason};
use libbpf_rs::Link;
use slowpath_layout::{Mirror, mirror};
use slowpath_model::Holder;
use std::any::Any;

/// The probe.
pub(crate) const PROBE: Probe = Probe {
    name: "owner",
    measures: "owners of sockets",
    since: "5.11",
    within_polls: &["owners", "unheld"],
    mirrors: &[HolderRecord::LAYOUT, UnheldRecord::LAYOUT],
    object: object!("owner"),
    attach,
    ..Probe::EVENTS
};

/// What the probe keeps while it runs.
struct Iterators {
    owners: Link,
    unheld: Link,
}

fn attach(attaching: &mut Attaching<'_>) -> Result<Box<dyn Any>, libbpf_rs::Error> {
    Ok(Box::new(Iterators {
        owners: attaching.one("owners")?,
        unheld: attaching.iterate("unheld", "connections")?,
    }))
}

mirror! {
    /// `struct holder`.
    pub(crate) struct HolderRecord = layouts::HOLDER {
        cookie: u64,
        start_ns: u64,
        cgroup: u64,
        pid: u32,
        program: u32,
        flags: u32,
        pad: u32,
        command: [u8; 16],
    }
}

mirror! {
    /// `struct unheld`.
    pub(crate) struct UnheldRecord = layouts::UNHELD {
        cookie: u64,
        reason: u32,
        pad: u32,
    }
}

impl BpfTier {
    /// Who holds which socket: calls `sink` for every descriptor, in every process of this
    /// pid namespace, that is a TCP socket known to the tier. A socket shared by several
    /// processes comes several times, and so does one with several descriptors. Gives
    /// whether the kernel could report holders at all.
    ///
    /// # Errors
    /// If the iterator cannot be read.
    pub fn holders(&mut self, mut sink: impl FnMut(SocketHolder)) -> Result<bool, PollError> {
        let Some(iterators) = self.state::<Iterators>() else {
            return Ok(false);
        };
        let what = "open files";
        let mut iterator = open(&iterators.owners, what)?;
        let read = each_record(&mut iterator, |record: HolderRecord| {
            sink(SocketHolder {
                cookie: record.cookie,
                process: Holder {
                    pid: record.pid,
                    start_ns: record.start_ns,
                    program: record.program,
                    cgroup: record.cgroup,
                    command: record.command,
                },
                listens: record.flags & HOLDER_LISTENS != 0,
            });
        });
        read.map_err(|source| PollError::Read { what, source })?;
        Ok(true)
    }

    /// The connections that no descriptor can stand for, each with the reason.
    ///
    /// # Errors
    /// If the iterator cannot be read. Without the `owner` feature nothing is found.
    pub fn unheld(&mut self, mut sink: impl FnMut(u64, UnheldReason)) -> Result<(), PollError> {
        let Some(iterators) = self.state::<Iterators>() else {
            return Ok(());
        };
        let what = "socket storage";
        let mut iterator = open(&iterators.unheld, what)?;
        let read = each_record(&mut iterator, |record: UnheldRecord| {
            let why = match record.reason {
                UNHELD_NO_SOCKET => UnheldReason::NoSocket,
                UNHELD_KERNEL => UnheldReason::Kernel,
                _ => UnheldReason::NoFile,
            };
            sink(record.cookie, why);
        });
        read.map_err(|source| PollError::Read { what, source })
    }
}
