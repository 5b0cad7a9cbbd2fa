// SPDX-License-Identifier: Apache-2.0
//! The look: who holds which connection now, in either tier, and what that makes of owners.

use super::choice::{self, Candidate, is_same_process};
use super::{Listener, MAX_HOLDERS, Owners, cgroup_path, descriptors};
use crate::connection_table::{ConnectionTable, LiveConnection};
use crate::observer::{Observer, PollError};
use rustc_hash::{FxHashMap, FxHashSet};
use slowpath_model::{Claim, Holder, MonoNanos, TcpState, UnknownOwner};
use slowpath_observe::bpf::Unheld;
use slowpath_observe::monotonic;
use std::sync::Arc;

/// The processes that hold a socket, each once; nearly always one.
#[derive(Debug)]
struct Holders {
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

type Table = FxHashMap<u64, Holders>;

fn add(table: &mut Table, cookie: u64, holder: Holder) {
    table
        .entry(cookie)
        .and_modify(|h| h.add(holder))
        .or_insert_with(|| Holders {
            first: holder,
            others: Vec::new(),
        });
}

/// What one look over all descriptors found, by socket cookie.
#[derive(Debug, Default)]
struct Found {
    /// The kernel could tell at all.
    told: bool,
    connections: Table,
    listeners: Table,
    /// Their holder ended before it could be named.
    vanished: FxHashSet<u64>,
    /// Some process's descriptors may not be read.
    restricted: bool,
}

/// What to do with a connection whose socket nobody was found to hold.
enum Fate {
    /// No process has it any more.
    Closed,
    /// It was opened while the look went on.
    Later,
    /// The kernel has to be asked.
    Ask,
    Known(UnknownOwner),
}

/// Looks at who holds which connection, and names the owners. Gives whether another look is
/// wanted soon.
pub(crate) fn scan(
    observer: &mut Observer,
    connections: &mut ConnectionTable,
    owners: &mut Owners,
) -> Result<bool, PollError> {
    let began = monotonic();
    let found = find(observer).inspect_err(|_| fail(connections, owners))?;
    owners.begin_look();
    let listeners = found
        .listeners
        .iter()
        .map(|(cookie, holders)| (*cookie, listener(holders, owners)))
        .collect();
    owners.listeners(listeners);
    let mut asked = Vec::new();
    let mut again = false;
    for slot in connections.slots() {
        let Some(connection) = connections.get_mut(slot) else {
            continue;
        };
        if let Some(holders) = found.connections.get(&connection.snapshot.id.cookie) {
            again |= name(connection, holders, owners);
            continue;
        }
        match fate(connection, observer, &found, began) {
            Fate::Closed => settle(connection, owners),
            Fate::Later => again = true,
            Fate::Ask => asked.push(slot),
            Fate::Known(reason) => {
                again = true;
                give_reason(connection, reason, owners);
            }
        }
    }
    if !asked.is_empty() {
        again = true;
        let reasons = ask(observer, owners).inspect_err(|_| fail(connections, owners))?;
        for slot in asked {
            if let Some(connection) = connections.get_mut(slot) {
                let reason = match connection.snapshot.owner {
                    // The kernel gives a file to some of its own sockets (9p's).
                    Some(Claim::Kernel) => UnknownOwner::KernelSocket,
                    _ => reasons.of(connection.snapshot.id.cookie),
                };
                give_reason(connection, reason, owners);
            }
        }
    }
    owners.end_look();
    Ok(again)
}

/// The look failed: those whom none has met yet are unknown for that reason.
fn fail(connections: &mut ConnectionTable, owners: &mut Owners) {
    for slot in connections.slots() {
        if let Some(connection) = connections.get_mut(slot)
            && connection.owner.why_unknown() == Some(UnknownOwner::NotLooked)
        {
            let snapshot = &connection.snapshot;
            let claim = snapshot.owner.as_ref();
            connection.owner = owners.unnamed(UnknownOwner::LookFailed, claim, snapshot.tuple);
            connection.unsaved = true;
        }
    }
}

fn find(observer: &mut Observer) -> Result<Found, PollError> {
    let mut found = Found::default();
    match observer {
        Observer::Bpf(tier) => {
            let Found {
                connections,
                listeners,
                ..
            } = &mut found;
            let told = tier.holders(|held| {
                let table = if held.listens {
                    &mut *listeners
                } else {
                    &mut *connections
                };
                add(table, held.cookie, held.by);
            })?;
            found.told = told;
        }
        Observer::InetDiag {
            inodes, listening, ..
        } => {
            let connections = inodes.iter().map(|(c, inode)| (*inode, (*c, false)));
            let listeners = listening.iter().map(|(c, inode)| (*inode, (*c, true)));
            // A socket without a file has none: 0.
            let wanted: FxHashMap<u32, (u64, bool)> =
                connections.chain(listeners).filter(|w| w.0 != 0).collect();
            let seen = descriptors::look(&wanted).map_err(PollError::Processes)?;
            found.told = true;
            found.restricted = seen.restricted;
            for (inode, holder) in seen.held {
                match wanted.get(&inode) {
                    Some((cookie, false)) => add(&mut found.connections, *cookie, holder),
                    Some((cookie, true)) => add(&mut found.listeners, *cookie, holder),
                    None => {}
                }
            }
            let vanished = seen.vanished.iter().filter_map(|i| wanted.get(i));
            found.vanished = vanished.map(|(cookie, _)| *cookie).collect();
        }
    }
    Ok(found)
}

/// What the holders of a listening socket have in common; service managers hold it for
/// others.
fn listener(holders: &Holders, owners: &mut Owners) -> Listener {
    let candidates = candidates(holders, owners);
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

fn candidates(holders: &Holders, owners: &mut Owners) -> Vec<Candidate> {
    holders
        .iter()
        .map(|holder| Candidate {
            holder: *holder,
            manages_services: owners
                .cgroup_of(holder, true)
                .is_some_and(|c| cgroup_path::is_service_manager(&c.path)),
        })
        .collect()
}

/// Names the owner of a connection with these holders; gives whether that may change soon.
fn name(connection: &mut LiveConnection, holders: &Holders, owners: &mut Owners) -> bool {
    let tuple = connection.snapshot.tuple;
    let claim = connection.snapshot.owner;
    connection.looked = true;
    let chosen = if holders.others.is_empty() {
        Some(holders.first)
    } else {
        let candidates = candidates(holders, owners);
        let opener = claim.as_ref().and_then(|c| c.opener());
        choice::owner(&candidates, opener).map(|c| c.holder)
    };
    let owner = match &chosen {
        Some(holder) => owners.of(holder, tuple, true),
        None => {
            // All of them may run in one place all the same.
            let cgroup = owners.cgroup_of(&holders.first, true);
            let same = holders
                .others
                .iter()
                .all(|h| owners.cgroup_of(h, true) == cgroup);
            let cgroup = cgroup.filter(|_| same);
            owners.nobody(UnknownOwner::HeldBySeveral, None, cgroup, tuple)
        }
    };
    if !connection.owner.is_same(&owner) {
        connection.owner = owner;
        connection.unsaved = true;
    }
    chosen.is_none()
}

fn fate(connection: &LiveConnection, observer: &Observer, found: &Found, began: MonoNanos) -> Fate {
    let snapshot = &connection.snapshot;
    let cookie = snapshot.id.cookie;
    if !found.told {
        return Fate::Known(UnknownOwner::NotSupported);
    }
    if is_closed(snapshot.stats.state) {
        return Fate::Closed;
    }
    if snapshot.id.start > began {
        return Fate::Later;
    }
    if found.vanished.contains(&cookie) {
        return Fate::Known(UnknownOwner::HolderVanished);
    }
    match observer {
        Observer::Bpf(_) => Fate::Ask,
        Observer::InetDiag { inodes, .. } => match inodes.get(&cookie) {
            // Only accept(2) gives it a file.
            Some(0) => Fate::Known(UnknownOwner::NotAccepted),
            _ if found.restricted => Fate::Known(UnknownOwner::NoPermission),
            _ => Fate::Ask,
        },
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

fn settle(connection: &mut LiveConnection, owners: &mut Owners) {
    let before = connection.owner.clone();
    owners.closed(connection);
    connection.unsaved |= !before.is_same(&connection.owner);
}

fn give_reason(connection: &mut LiveConnection, reason: UnknownOwner, owners: &mut Owners) {
    let snapshot = &connection.snapshot;
    let owner = owners.unnamed(reason, snapshot.owner.as_ref(), snapshot.tuple);
    connection.looked = true;
    if !connection.owner.is_same(&owner) {
        connection.owner = owner;
        connection.unsaved = true;
    }
}

/// Why sockets that are not closed have no holder.
struct Reasons {
    unheld: FxHashMap<u64, Unheld>,
    in_flight: FxHashSet<u64>,
    otherwise: UnknownOwner,
}

impl Reasons {
    fn of(&self, cookie: u64) -> UnknownOwner {
        match self.unheld.get(&cookie) {
            Some(Unheld::NoSocket) => UnknownOwner::NotAccepted,
            Some(Unheld::Kernel) => UnknownOwner::KernelSocket,
            Some(Unheld::NoFile) => UnknownOwner::NoHolder,
            None if self.in_flight.contains(&cookie) => UnknownOwner::InFlight,
            None => self.otherwise,
        }
    }
}

fn ask(observer: &mut Observer, owners: &Owners) -> Result<Reasons, PollError> {
    let mut reasons = Reasons {
        unheld: FxHashMap::default(),
        in_flight: FxHashSet::default(),
        otherwise: if owners.sees_every_process() {
            UnknownOwner::NoHolder
        } else {
            UnknownOwner::OutsidePidNamespace
        },
    };
    if let Observer::Bpf(tier) = observer {
        tier.unheld(|cookie, why| {
            reasons.unheld.insert(cookie, why);
        })?;
        reasons.in_flight = tier.in_flight().into_iter().collect();
    }
    Ok(reasons)
}
