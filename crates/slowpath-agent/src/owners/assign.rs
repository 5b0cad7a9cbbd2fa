// SPDX-License-Identifier: Apache-2.0
//! What a scan over all descriptors makes of owners. Pure.
//!
//! What enters: which process holds which socket ([`HolderScan`]), and of sockets without a
//! holder why that is ([`Reasons`]). What leaves: the owner of each connection.

use super::choice::{self, Candidate, is_same_process};
use super::{Listener, MAX_HOLDERS, Owners, cgroup_path};
use crate::connection_table::ConnectionTable;
use crate::host::Host;
use crate::live_connection::LiveConnection;
use rustc_hash::{FxHashMap, FxHashSet};
use slowpath_model::{Claim, Holder, MonoNanos, TcpState, UnknownOwner};
use slowpath_observe::UnheldReason;
use std::sync::Arc;

/// The processes that hold a socket, each once; nearly always one.
#[derive(Debug)]
pub(crate) struct Holders {
    first: Holder,
    others: Vec<Holder>,
}

impl Holders {
    fn iter(&self) -> impl Iterator<Item = &Holder> {
        std::iter::once(&self.first).chain(&self.others)
    }

    fn add(&mut self, holder: Holder) {
        if !self.iter().any(|h| is_same_process(h, &holder)) {
            self.others.push(holder);
        }
    }
}

/// What one scan over all descriptors found, by socket cookie.
#[derive(Debug, Default)]
pub(crate) struct HolderScan {
    /// The kernel reports holders at all.
    pub(crate) supported: bool,
    connections: FxHashMap<u64, Holders>,
    listeners: FxHashMap<u64, Holders>,
    /// Their holder ended before it could be named.
    pub(crate) vanished: FxHashSet<u64>,
    /// They have no file, which `accept` gives them; empty where that is asked of the kernel.
    pub(crate) without_file: FxHashSet<u64>,
    /// Some process's descriptors may not be read.
    pub(crate) restricted: bool,
    /// Some could not be read: what had run out, and how to raise the limit.
    pub(crate) exhausted: Option<String>,
}

impl HolderScan {
    /// This process holds that socket.
    pub(crate) fn add(&mut self, cookie: u64, listens: bool, holder: Holder) {
        let table = match listens {
            true => &mut self.listeners,
            false => &mut self.connections,
        };
        table
            .entry(cookie)
            .and_modify(|h| h.add(holder))
            .or_insert_with(|| Holders {
                first: holder,
                others: Vec::new(),
            });
    }
}

/// Why sockets that are not closed have no holder.
#[derive(Debug, Default)]
pub(crate) struct Reasons {
    pub(crate) unheld: FxHashMap<u64, UnheldReason>,
    pub(crate) in_flight: FxHashSet<u64>,
    /// Those of all processes of the machine were looked at, not of a pid namespace.
    pub(crate) all_processes: bool,
}

impl Reasons {
    fn of(&self, cookie: u64, otherwise: UnknownOwner) -> UnknownOwner {
        match self.unheld.get(&cookie) {
            Some(UnheldReason::NoSocket) => UnknownOwner::NotAccepted,
            Some(UnheldReason::Kernel) => UnknownOwner::KernelSocket,
            Some(UnheldReason::NoFile) => UnknownOwner::NoHolder,
            None if self.in_flight.contains(&cookie) => UnknownOwner::InFlight,
            None => otherwise,
        }
    }
}

/// What to do with a connection whose socket no process was found to hold.
enum Fate {
    /// No process has it any more.
    Closed,
    /// It was opened while the scan went on.
    Later,
    /// The kernel has to be asked.
    Ask,
    Known(UnknownOwner),
}

/// What a scan left open.
#[derive(Debug, Default)]
pub(crate) struct Assigned {
    /// Another scan is wanted soon.
    pub(crate) incomplete: bool,
    /// The slots of connections without a holder, of which the kernel has to be asked.
    pub(crate) unheld: Vec<u32>,
}

impl Owners {
    /// Names the owners of connections by a scan that began at `began`.
    pub(crate) fn assign(
        &mut self,
        table: &mut ConnectionTable,
        scan: &HolderScan,
        began: MonoNanos,
        host: &mut dyn Host,
    ) -> Assigned {
        self.begin_scan();
        let listeners = scan.listeners.iter();
        self.listeners = listeners
            .map(|(cookie, holders)| (*cookie, self.listener(holders, host)))
            .collect();
        let mut assigned = Assigned::default();
        for slot in table.slots() {
            let Some(connection) = table.get_mut(slot) else {
                continue;
            };
            if let Some(holders) = scan.connections.get(&connection.snapshot.id.cookie) {
                assigned.incomplete |= self.name(connection, holders, host);
                continue;
            }
            match fate(connection, scan, began) {
                Fate::Closed => {
                    let before = connection.owner.clone();
                    self.closed(connection, host);
                    connection.unsaved |= !before.is_same(&connection.owner);
                }
                Fate::Later => assigned.incomplete = true,
                Fate::Ask => assigned.unheld.push(slot),
                Fate::Known(reason) => {
                    assigned.incomplete = true;
                    self.give_reason(connection, reason, host);
                }
            }
        }
        assigned.incomplete |= !assigned.unheld.is_empty();
        self.end_scan();
        assigned
    }

    /// Gives connections in these slots the reason why no process holds them.
    pub(crate) fn explain(
        &mut self,
        table: &mut ConnectionTable,
        unheld: &[u32],
        reasons: &Reasons,
        host: &mut dyn Host,
    ) {
        let otherwise = match self.readable && reasons.all_processes {
            true => UnknownOwner::NoHolder,
            false => UnknownOwner::OutsidePidNamespace,
        };
        for slot in unheld {
            let Some(connection) = table.get_mut(*slot) else {
                continue;
            };
            let reason = match connection.snapshot.owner {
                // The kernel gives a file to some of its own sockets (9p's).
                Some(Claim::Kernel) => UnknownOwner::KernelSocket,
                _ => reasons.of(connection.snapshot.id.cookie, otherwise),
            };
            self.give_reason(connection, reason, host);
        }
    }

    /// The scan failed: connections that none has met yet are unknown for that reason.
    pub(crate) fn scan_failed(&mut self, table: &mut ConnectionTable, host: &mut dyn Host) {
        for connection in table.iter_mut() {
            if connection.owner.why_unknown() == Some(UnknownOwner::NotLooked) {
                let snapshot = &connection.snapshot;
                let claim = snapshot.owner.as_ref();
                let reason = UnknownOwner::LookFailed;
                connection.owner = self.unnamed(reason, claim, snapshot.tuple, host);
                connection.unsaved = true;
            }
        }
    }

    /// What the holders of a listening socket have in common; service managers hold it for
    /// others.
    fn listener(&mut self, holders: &Holders, host: &mut dyn Host) -> Listener {
        let candidates = self.candidates(holders, host);
        let others = candidates.iter().any(|c| !c.manages_services);
        let mut counting = candidates.iter().filter(|c| !others || !c.manages_services);
        let mut common = Listener {
            command: None,
            cgroup: None,
            holders: holders.iter().take(MAX_HOLDERS).copied().collect(),
        };
        if let Some(Candidate { holder, .. }) = counting.next() {
            let rest: Vec<&Holder> = counting.map(|c| &c.holder).collect();
            let command = holder.command();
            let same_command = rest.iter().all(|h| h.command() == command);
            common.command = same_command.then(|| Arc::from(command));
            let same_cgroup = rest.iter().all(|h| h.cgroup == holder.cgroup);
            common.cgroup = (same_cgroup && holder.cgroup != 0).then_some(holder.cgroup);
        }
        common
    }

    fn candidates(&mut self, holders: &Holders, host: &mut dyn Host) -> Vec<Candidate> {
        let candidate = |holder: &Holder| Candidate {
            holder: *holder,
            manages_services: self
                .cgroup_of(holder, host)
                .is_some_and(|c| cgroup_path::is_service_manager(&c.path)),
        };
        holders.iter().map(candidate).collect()
    }

    /// Names the owner of a connection with these holders; gives whether that may change
    /// soon.
    fn name(
        &mut self,
        connection: &mut LiveConnection,
        holders: &Holders,
        host: &mut dyn Host,
    ) -> bool {
        let tuple = connection.snapshot.tuple;
        let claim = connection.snapshot.owner;
        connection.scanned = true;
        let chosen = if holders.others.is_empty() {
            Some(holders.first)
        } else {
            let candidates = self.candidates(holders, host);
            let opener = claim.as_ref().and_then(|c| c.opener());
            choice::owner(&candidates, opener).map(|c| c.holder)
        };
        let owner = match &chosen {
            Some(holder) => self.of(holder, tuple, true, host),
            None => {
                // All of them may run in one cgroup all the same.
                let cgroup = self.cgroup_of(&holders.first, host);
                let mut others = holders.others.iter();
                let same = others.all(|h| self.cgroup_of(h, host) == cgroup);
                let cgroup = cgroup.filter(|_| same);
                self.unknown(UnknownOwner::HeldBySeveral, None, cgroup, tuple)
            }
        };
        if !connection.owner.is_same(&owner) {
            connection.owner = owner;
            connection.unsaved = true;
        }
        chosen.is_none()
    }

    fn give_reason(
        &mut self,
        connection: &mut LiveConnection,
        reason: UnknownOwner,
        host: &mut dyn Host,
    ) {
        let snapshot = &connection.snapshot;
        let owner = self.unnamed(reason, snapshot.owner.as_ref(), snapshot.tuple, host);
        connection.scanned = true;
        if !connection.owner.is_same(&owner) {
            connection.owner = owner;
            connection.unsaved = true;
        }
    }
}

fn fate(connection: &LiveConnection, scan: &HolderScan, began: MonoNanos) -> Fate {
    let snapshot = &connection.snapshot;
    let cookie = snapshot.id.cookie;
    if !scan.supported {
        return Fate::Known(UnknownOwner::NotSupported);
    }
    if is_closed(snapshot.stats.state) {
        return Fate::Closed;
    }
    if snapshot.id.start > began {
        return Fate::Later;
    }
    if scan.vanished.contains(&cookie) {
        return Fate::Known(UnknownOwner::HolderVanished);
    }
    if scan.without_file.contains(&cookie) {
        // Only accept(2) gives it a file.
        return Fate::Known(UnknownOwner::NotAccepted);
    }
    if scan.exhausted.is_some() {
        return Fate::Known(UnknownOwner::LookFailed);
    }
    match scan.restricted {
        true => Fate::Known(UnknownOwner::NoPermission),
        false => Fate::Ask,
    }
}

/// Whether the application has closed or half closed its end (RFC 9293 section 3.3.2).
fn is_closed(state: TcpState) -> bool {
    use TcpState::*;
    matches!(
        state,
        FinWait1 | FinWait2 | Closing | LastAck | TimeWait | Close
    )
}
