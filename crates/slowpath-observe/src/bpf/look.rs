// SPDX-License-Identifier: Apache-2.0
//! The look: who holds which socket, and what is wrong with those that nobody holds.

use super::poll::drain;
use super::{BpfTier, PollError};
use crate::namespaces;
use crate::wire::{HOLDER_LISTENS, HolderRecord, UNHELD_KERNEL, UNHELD_NO_SOCKET, UnheldRecord};
use libbpf_rs::{Iter, Link};
use slowpath_model::Holder;
use std::sync::Mutex;
use zerocopy::FromBytes;

/// A socket and a process that has a descriptor of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// The socket's cookie.
    pub cookie: u64,
    /// The process.
    pub by: Holder,
    /// Whether the socket listens; otherwise it is a connection.
    pub listens: bool,
}

/// Why a socket has no descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unheld {
    /// No process has accepted it yet, or it was closed: its state tells.
    NoSocket,
    /// It is the kernel's own.
    Kernel,
    /// The kernel uses it and no process ever could.
    NoFile,
}

impl BpfTier {
    /// Who holds which socket: calls `sink` for every descriptor, in every process of this
    /// pid namespace, that is a TCP socket known to the tier. A socket shared by several
    /// processes comes several times, and so does one with several descriptors. Gives
    /// whether the kernel could tell at all.
    ///
    /// # Errors
    /// If the iterator cannot be read.
    pub fn holders(&mut self, mut sink: impl FnMut(Held)) -> Result<bool, PollError> {
        let Some(link) = &self.owner_link else {
            return Ok(false);
        };
        let bytes = read(link, "open files")?;
        for record in bytes.chunks_exact(size_of::<HolderRecord>()) {
            if let Ok(record) = HolderRecord::read_from_bytes(record) {
                sink(Held {
                    cookie: record.cookie,
                    by: Holder {
                        pid: record.pid,
                        start_ns: record.start_ns,
                        program: record.program,
                        cgroup: record.cgroup,
                        command: record.command,
                    },
                    listens: record.flags & HOLDER_LISTENS != 0,
                });
            }
        }
        Ok(true)
    }

    /// The connections that no descriptor can stand for, each with the reason.
    ///
    /// # Errors
    /// If the iterator cannot be read. Without the `owner` feature nothing is found.
    pub fn unheld(&mut self, mut sink: impl FnMut(u64, Unheld)) -> Result<(), PollError> {
        let Some(link) = &self.unheld_link else {
            return Ok(());
        };
        let bytes = read(link, "socket storage")?;
        for record in bytes.chunks_exact(size_of::<UnheldRecord>()) {
            if let Ok(record) = UnheldRecord::read_from_bytes(record) {
                let why = match record.flags {
                    UNHELD_NO_SOCKET => Unheld::NoSocket,
                    UNHELD_KERNEL => Unheld::Kernel,
                    _ => Unheld::NoFile,
                };
                sink(record.cookie, why);
            }
        }
        Ok(())
    }

    /// The sockets that messages on Unix sockets carry, in every network namespace. Without
    /// the `in_flight` feature none is found; a namespace that vanishes meanwhile has none.
    pub fn in_flight(&mut self) -> Vec<u64> {
        let Some(link) = &self.in_flight_link else {
            return Vec::new();
        };
        let found = Mutex::new(Vec::new());
        namespaces::in_each(|| {
            if let Ok(bytes) = read(link, "Unix sockets")
                && let Ok(mut found) = found.lock()
            {
                let cookies = bytes.as_chunks().0.iter().map(|c| u64::from_ne_bytes(*c));
                found.extend(cookies);
            }
        });
        found.into_inner().unwrap_or_default()
    }
}

fn read(link: &Link, what: &'static str) -> Result<Vec<u8>, PollError> {
    let mut iterator = Iter::new(link).map_err(|source| PollError::Open { what, source })?;
    drain(&mut iterator).map_err(|source| PollError::Read { what, source })
}
