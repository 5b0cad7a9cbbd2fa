// SPDX-License-Identifier: Apache-2.0
//! The netlink tier: TCP statistics by inet_diag dumps (`sock_diag(7)`).
//!
//! What enters: dumps of the network namespace of the thread that called
//! [`InetDiag::open`]. What leaves: [`Snapshot`]s like the BPF tier's, without what only
//! BPF can see: origin, start, socket calls, RTT sums, recovery episodes. It needs no
//! privilege and works in containers, on old kernels and in user-mode Linux.
//!
//! What is promised: a connection is emitted once a poll, whatever the dump repeats; one
//! that a dump skipped is looked up by itself before it is taken for closed; one that
//! closed gives a last snapshot with the statistics of the last poll that saw it. A
//! connection that lives and dies between two polls is never observed; a new one that
//! its first dump skips is observed a poll later.

mod listeners;
mod other_namespaces;
mod raw;
pub(crate) mod socket;
mod table;
#[cfg(test)]
mod tests;
pub mod wire;

pub use other_namespaces::{OtherNamespaces, OtherNamespacesReport};
pub use raw::{RawDump, RawSocket};
pub use socket::DumpError as PollError;
pub use table::SocketKey;

use crate::listeners::{OpenNetstat, own_settings};
use slowpath_model::{ListenCounters, ListenSettings, Micros, MonoNanos, Snapshot};
use socket::DiagSocket;
use std::{fs, io, mem};
use table::{Scope, Table};
use thiserror::Error;
use wire::Family;

/// How often an interrupted dump is repeated within one poll.
const RETRIES: u32 = 3;

/// How to poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Emit only connections that changed since the last poll, as the BPF tier does.
    pub changed_only: bool,
    /// How many connections to remember (about 1 KiB each). Those beyond are emitted in
    /// every poll, their end is not noticed, and [`DumpReport::dropped`] counts them.
    pub max_sockets: usize,
}

impl Default for Options {
    /// Everything is emitted; 262,144 connections are remembered.
    fn default() -> Self {
        Options {
            changed_only: false,
            max_sockets: 1 << 18,
        }
    }
}

/// Why the tier cannot be used.
#[derive(Debug, Error)]
pub enum OpenError {
    /// No netlink socket for sock_diag.
    #[error("opening a sock_diag netlink socket: {0}; is CONFIG_INET_DIAG in this kernel?")]
    Socket(#[source] io::Error),
    /// The kernel does not dump TCP sockets.
    #[error("this kernel cannot dump TCP sockets: {0}; load the module tcp_diag")]
    Unsupported(#[source] PollError),
    /// The first exchange failed otherwise.
    #[error(transparent)]
    Probe(PollError),
    /// The network namespace cannot be read.
    #[error("reading {NETNS}: {0}; is /proc mounted?")]
    Netns(#[source] io::Error),
}

/// Of the calling thread: threads can be in different namespaces.
const NETNS: &str = "/proc/thread-self/ns/net";

/// What one poll did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DumpReport {
    /// Connections found open, each counted once.
    pub open: u64,
    /// Snapshots emitted, last ones included.
    pub emitted: u64,
    /// Last snapshots emitted.
    pub closed: u64,
    /// Dumps that the kernel flagged as interrupted (NLM_F_DUMP_INTR); each was repeated,
    /// up to three times.
    pub interrupted: u64,
    /// Whether the last repetition was interrupted too: connections may be missing.
    pub incomplete: bool,
    /// Records of a connection that the poll had already met.
    pub repeated: u64,
    /// Connections that the dump skipped and a look-up found.
    pub skipped: u64,
    /// Connections not remembered because [`Options::max_sockets`] was reached.
    pub dropped: u64,
    /// Records that this tier does not understand.
    pub undecodable: u64,
    /// How long the poll took.
    pub duration: Micros,
}

/// The tier. It may move to another thread; it keeps to the namespace it was opened in.
#[derive(Debug)]
pub struct InetDiag {
    socket: DiagSocket,
    table: Table,
    /// Whether the kernel dumps IPv6 sockets.
    v6: bool,
    /// The namespace's counters, and its settings of listening when the tier was opened.
    netstat: Option<OpenNetstat>,
    listen_settings: ListenSettings,
    /// The namespace's counters of listening at the last round.
    listen_counters: Option<ListenCounters>,
    /// Half-open connections are counted until then.
    half_open_until: MonoNanos,
}

impl InetDiag {
    /// Opens the tier with the default [`Options`].
    ///
    /// # Errors
    /// See [`OpenError`]; nothing is left behind.
    pub fn open() -> Result<Self, OpenError> {
        Self::with_options(Options::default())
    }

    /// Opens the tier.
    ///
    /// # Errors
    /// See [`OpenError`]; nothing is left behind.
    pub fn with_options(options: Options) -> Result<Self, OpenError> {
        let scope = Scope {
            boot_id: crate::boot_id(),
            netns: netns().map_err(OpenError::Netns)?,
        };
        let mut socket = DiagSocket::open().map_err(OpenError::Socket)?;
        socket.probe().map_err(|error| {
            if error.is_unsupported() {
                OpenError::Unsupported(error)
            } else {
                OpenError::Probe(error)
            }
        })?;
        Ok(InetDiag {
            socket,
            table: Table::new(scope, options.changed_only, options.max_sockets),
            v6: true,
            netstat: OpenNetstat::open(),
            listen_settings: own_settings(),
            listen_counters: None,
            half_open_until: MonoNanos(0),
        })
    }

    /// Appends a snapshot of every connection (of every changed one with
    /// [`Options::changed_only`]) and a last one of those that closed.
    ///
    /// # Errors
    /// See [`PollError`]. `out` keeps what was read before the error; no connection is
    /// taken for closed by a poll that failed.
    pub fn poll(&mut self, out: &mut Vec<Snapshot>) -> Result<DumpReport, PollError> {
        self.poll_families(true, true, out)
    }

    /// The same, asking only for IPv4 or IPv6: of the other there are no sockets.
    fn poll_families(
        &mut self,
        v4: bool,
        v6: bool,
        out: &mut Vec<Snapshot>,
    ) -> Result<DumpReport, PollError> {
        let started = crate::monotonic();
        let InetDiag {
            socket,
            table,
            v6: has_v6,
            ..
        } = self;
        table.begin();
        let mut report = DumpReport::default();
        if v4 {
            report.read_all(socket, table, Family::V4, out)?;
        }
        if v6 && *has_v6 {
            match report.read_all(socket, table, Family::V6, out) {
                Err(error) if error.is_unsupported() => *has_v6 = false,
                other => other?,
            }
        }
        let before = table.counts.open;
        for id in table.missing() {
            socket.lookup(&id, |record, at| {
                if record.header.id.cookie() == id.cookie() {
                    table.see(record, at, out);
                }
            })?;
        }
        report.skipped = table.counts.open - before;
        table.finish(out);

        let counts = mem::take(&mut table.counts);
        report.open = counts.open;
        report.emitted = counts.emitted;
        report.closed = counts.closed;
        report.repeated = counts.repeated;
        report.dropped = counts.dropped;
        report.undecodable += counts.undecodable;
        report.duration = crate::monotonic().since(started);
        Ok(report)
    }

    /// What the snapshots of the last poll do not carry, in the order in which that poll
    /// appended them.
    pub fn keys(&self) -> &[SocketKey] {
        &self.table.keys
    }
}

impl DumpReport {
    /// Dumps a family until a dump is not interrupted, [`RETRIES`] times at most.
    fn read_all(
        &mut self,
        socket: &mut DiagSocket,
        table: &mut Table,
        family: Family,
        out: &mut Vec<Snapshot>,
    ) -> Result<(), PollError> {
        let mut attempt = 0;
        loop {
            let repeated = table.counts.repeated;
            let end = socket.dump(family, |record, at| table.see(record, at, out))?;
            self.undecodable += end.undecodable;
            if attempt > 0 {
                // The whole dump is a repetition.
                table.counts.repeated = repeated;
            }
            if !end.interrupted {
                return Ok(());
            }
            self.interrupted += 1;
            if attempt == RETRIES {
                self.incomplete = true;
                return Ok(());
            }
            attempt += 1;
        }
    }
}

/// Inode number of the thread's network namespace, from a link like `net:[4026531840]`.
fn netns() -> io::Result<u32> {
    let link = fs::read_link(NETNS)?;
    link.to_str()
        .and_then(|name| name.strip_prefix("net:[")?.strip_suffix(']')?.parse().ok())
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("{link:?}")))
}
