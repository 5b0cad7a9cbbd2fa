// SPDX-License-Identifier: Apache-2.0
//! The look: who holds which socket, and what is wrong with those that nobody holds.

use super::poll::each_record;
use super::{BpfTier, PollError};
use crate::namespaces;
use crate::wire::layouts::holder_flag::HOLDER_LISTENS;
use crate::wire::layouts::unheld_reason::{UNHELD_KERNEL, UNHELD_NO_SOCKET};
use crate::wire::{HolderRecord, UnheldRecord};
use libbpf_rs::{Iter, Link};
use slowpath_model::Holder;
use std::sync::Mutex;

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
        let what = "open files";
        let mut iterator = open(link, what)?;
        let read = each_record(&mut iterator, |record: HolderRecord| {
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
        });
        read.map_err(|source| PollError::Read { what, source })?;
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
        let what = "socket storage";
        let mut iterator = open(link, what)?;
        let read = each_record(&mut iterator, |record: UnheldRecord| {
            let why = match record.reason {
                UNHELD_NO_SOCKET => Unheld::NoSocket,
                UNHELD_KERNEL => Unheld::Kernel,
                _ => Unheld::NoFile,
            };
            sink(record.cookie, why);
        });
        read.map_err(|source| PollError::Read { what, source })
    }

    /// The sockets that messages on Unix sockets carry, in every network namespace. Without
    /// the `in_flight` feature none is found; a namespace that vanishes meanwhile has none.
    pub fn in_flight(&mut self) -> Vec<u64> {
        let Some(link) = &self.in_flight_link else {
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

fn open(link: &Link, what: &'static str) -> Result<Iter, PollError> {
    Iter::new(link).map_err(|source| PollError::Open { what, source })
}
