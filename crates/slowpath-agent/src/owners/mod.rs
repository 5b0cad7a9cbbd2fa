// SPDX-License-Identifier: Apache-2.0
//! Owners of connections: which process, where it runs, which application; or why none is
//! known.
//!
//! What enters: claims of the observer (who called `connect`), scans of the descriptors of all
//! processes ([`assign`]), what [`Host`] reads of a process, the user's rules. What leaves:
//! [`Owner`]s, one for all connections of a process that a rule treats alike. No I/O.
//!
//! What is promised: a name comes from the context of `connect` itself or from a descriptor,
//! never from the context in which a later event runs; the rule for several holders is
//! [`choice`]; a process is its pid and its start; what is remembered is bounded.

pub(crate) mod assign;
pub(crate) mod cgroup_path;
pub(crate) mod cgroups;
pub(crate) mod choice;
mod redact;
mod rules;
mod secrets;

pub use redact::{CommandLines, redacted};
pub use rules::{Rules, RulesError};

use crate::host::{Host, ProcessFacts};
use crate::live_connection::LiveConnection;
use cgroups::Cgroups;
use rustc_hash::FxHashMap;
use slowpath_model::{
    Cgroup, CgroupSource, Claim, Closer, FourTuple, Holder, Owner, Ownership, Process, Snapshot,
    UnknownOwner,
};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

/// Processes and unknown owners that are remembered between scans.
const MAX_REMEMBERED: usize = 65_536;

/// Processes that are read from `/proc` in one poll; others are named by what the kernel's
/// programs know, and read by a later one. Reading one takes about 50 us.
const READS_A_POLL: u32 = 100;

/// Scans after which a process that holds nothing is forgotten.
const REMEMBERED_SCANS: u32 = 4;

/// How owners are named.
#[derive(Clone, Debug, Default)]
pub struct OwnerOptions {
    /// Which owner is which application.
    pub rules: Rules,
    /// How much of a command line the log keeps. Live views show all of it.
    pub log_command_lines: CommandLines,
}

/// What is known of a process.
#[derive(Debug)]
struct KnownProcess {
    process: Process,
    cgroup: Option<Arc<Cgroup>>,
    /// As it was when `/proc` was read.
    holder: Holder,
    /// `/proc` was read, or it is too late.
    complete: bool,
    /// Rules that match, up to the first without ports.
    rules: Vec<u16>,
    /// What it is called, by the rule that matches.
    owners: Vec<(Option<u16>, Owner)>,
    /// The scan that met it last.
    scan: u32,
}

/// An unknown owner: reason, listener, where, rule.
type UnknownKey = (
    UnknownOwner,
    Option<Arc<str>>,
    Option<Arc<str>>,
    Option<u16>,
);

/// Owners by process.
#[derive(Debug)]
pub(crate) struct Owners {
    options: OwnerOptions,
    /// `/proc` shows the processes that holders name.
    readable: bool,
    processes: FxHashMap<(u32, u64), KnownProcess>,
    unknown: FxHashMap<UnknownKey, Owner>,
    cgroups: Cgroups,
    /// Who held each listening socket at the last scan.
    listeners: FxHashMap<u64, Listener>,
    reads: u32,
    scan: u32,
}

/// What all holders of a listening socket have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listener {
    /// Their command name; `None` if they differ.
    pub command: Option<Arc<str>>,
    /// The number of their cgroup.
    pub cgroup: Option<u64>,
    /// Who they are, at most [`MAX_HOLDERS`].
    pub holders: Vec<Holder>,
}

/// Holders of one listening socket that are kept.
const MAX_HOLDERS: usize = 64;

impl Owners {
    /// `readable`: `/proc` shows the processes that holders name, by the same pids.
    pub(crate) fn new(options: OwnerOptions, readable: bool) -> Self {
        Owners {
            options,
            readable,
            processes: FxHashMap::default(),
            unknown: FxHashMap::default(),
            cgroups: Cgroups::default(),
            listeners: FxHashMap::default(),
            reads: READS_A_POLL,
            scan: 0,
        }
    }

    pub(crate) fn begin_poll(&mut self) {
        self.reads = READS_A_POLL;
        self.cgroups.begin_round();
    }

    /// A scan begins.
    fn begin_scan(&mut self) {
        self.scan = self.scan.wrapping_add(1);
        self.reads = u32::MAX;
        self.cgroups.begin_round();
    }

    /// A scan ends: what it did not meet for a while is forgotten.
    fn end_scan(&mut self) {
        self.reads = READS_A_POLL;
        let scan = self.scan;
        self.processes
            .retain(|_, known| scan.wrapping_sub(known.scan) < REMEMBERED_SCANS);
        if self.processes.len() > MAX_REMEMBERED {
            self.processes.clear();
        }
    }

    /// Who held a listening socket at the latest scan; empty if that did not meet it.
    pub(crate) fn holding(
        &mut self,
        cookie: u64,
        local: SocketAddr,
        host: &mut dyn Host,
    ) -> Vec<Owner> {
        let Some(listener) = self.listeners.get(&cookie) else {
            return Vec::new();
        };
        let no_peer = match local.ip() {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        let tuple = FourTuple {
            local,
            remote: SocketAddr::new(no_peer, 0),
        };
        let holders = listener.holders.clone();
        let owners = holders.iter().map(|h| self.of(h, tuple, true, host));
        owners.collect()
    }

    /// The owner of a connection that no process holds any more, or that none ever held.
    pub(crate) fn closed(&mut self, connection: &mut LiveConnection, host: &mut dyn Host) {
        let tuple = connection.snapshot.tuple;
        let claim = connection.snapshot.owner;
        if connection.scanned
            && let Some(process) = connection.owner.process()
        {
            // The process that the last scan met need not be the one that closed it; a service
            // manager closes last what it held for a service.
            let closer = claim.and_then(|c| c.closer());
            if closer.is_some_and(|c| !c.is(process) && !self.manages_services(c)) {
                connection.owner =
                    self.unnamed(UnknownOwner::HandedOn, claim.as_ref(), tuple, host);
            }
            return;
        }
        connection.owner = match &claim {
            Some(Claim::Opener(opener)) if !connection.scanned => {
                self.of(opener, tuple, false, host)
            }
            Some(Claim::HandedOn { .. }) if !connection.scanned => {
                self.unknown(UnknownOwner::HandedOn, None, None, tuple)
            }
            claim => match connection.owner.why_unknown() {
                Some(UnknownOwner::NotLooked | UnknownOwner::NotAccepted) => self.unnamed(
                    UnknownOwner::ClosedBeforeLooked,
                    claim.as_ref(),
                    tuple,
                    host,
                ),
                _ => return,
            },
        };
    }

    /// Whether it is known to be a service manager: the last scans have met it.
    fn manages_services(&self, closer: Closer) -> bool {
        let known = self.processes.get(&(closer.pid, closer.start_ns));
        let cgroup = known.and_then(|known| known.cgroup.as_ref());
        cgroup.is_some_and(|cgroup| cgroup_path::is_service_manager(&cgroup.path))
    }

    /// An owner whose process is unknown, with what its claim states all the same: who held
    /// the listening socket, and the cgroup in which the socket was made. An accepted
    /// connection's socket is of the cgroup in which `listen` was called, which may be a
    /// service manager's: it counts if those that held the listening socket run there too.
    pub(crate) fn unnamed(
        &mut self,
        reason: UnknownOwner,
        claim: Option<&Claim>,
        tuple: FourTuple,
        host: &mut dyn Host,
    ) -> Owner {
        let (mut listening, mut cgroup) = (None, None);
        match claim {
            Some(Claim::Opener(opener)) => {
                cgroup = self
                    .cgroups
                    .by_number(opener.cgroup, CgroupSource::Socket, host);
            }
            Some(Claim::UnknownOpener {
                listener: Some(listener),
                socket_cgroup,
                ..
            }) => {
                if let Some(listener) = self.listeners.get(listener) {
                    listening = listener.command.clone();
                    cgroup = listener
                        .cgroup
                        .filter(|c| Some(*c) == *socket_cgroup)
                        .and_then(|c| self.cgroups.by_number(c, CgroupSource::Socket, host));
                }
            }
            _ => {}
        }
        self.unknown(reason, listening, cgroup, tuple)
    }

    /// What a snapshot states by itself.
    pub(crate) fn claimed(&mut self, snapshot: &Snapshot, host: &mut dyn Host) -> Owner {
        let tuple = snapshot.tuple;
        match &snapshot.owner {
            Some(Claim::Opener(opener)) => self.of(opener, tuple, false, host),
            Some(Claim::HandedOn { .. }) => self.unknown(UnknownOwner::HandedOn, None, None, tuple),
            Some(Claim::Kernel) => self.unknown(UnknownOwner::KernelSocket, None, None, tuple),
            Some(Claim::UnknownOpener { .. }) | None => {
                self.unknown(UnknownOwner::NotLooked, None, None, tuple)
            }
        }
    }

    /// The owner that this process is. `met`: a scan has just met it, so that it lives.
    pub(crate) fn of(
        &mut self,
        holder: &Holder,
        tuple: FourTuple,
        met: bool,
        host: &mut dyn Host,
    ) -> Owner {
        self.learn(holder, met, host);
        let rules = &self.options.rules;
        let Some(known) = self.processes.get_mut(&key(holder)) else {
            return Owner::default();
        };
        let rule = rules.first(&known.rules, tuple);
        if let Some((_, owner)) = known.owners.iter().find(|o| o.0 == rule) {
            return owner.clone();
        }
        let owner = Owner::new(Ownership {
            process: Ok(known.process.clone()),
            cgroup: known.cgroup.clone(),
            application: rule.and_then(|r| rules.name(r)).cloned(),
            listener: None,
        });
        known.owners.push((rule, owner.clone()));
        owner
    }

    /// Where that process runs.
    fn cgroup_of(&mut self, holder: &Holder, host: &mut dyn Host) -> Option<Arc<Cgroup>> {
        self.learn(holder, true, host);
        self.processes.get(&key(holder))?.cgroup.clone()
    }

    /// An owner whose process is unknown.
    pub(crate) fn unknown(
        &mut self,
        reason: UnknownOwner,
        listener: Option<Arc<str>>,
        cgroup: Option<Arc<Cgroup>>,
        tuple: FourTuple,
    ) -> Owner {
        let rules = &self.options.rules;
        let rule = if rules.is_empty() {
            None
        } else {
            rules.first(&rules.of(None, cgroup.as_deref()), tuple)
        };
        let path = cgroup.as_ref().map(|c| c.path.clone());
        let key = (reason, listener, path, rule);
        if let Some(owner) = self.unknown.get(&key)
            && owner.cgroup == cgroup
        {
            return owner.clone();
        }
        if self.unknown.len() >= MAX_REMEMBERED {
            self.unknown.clear();
        }
        let owner = Owner::new(Ownership {
            process: Err(reason),
            cgroup,
            application: rule.and_then(|r| rules.name(r)).cloned(),
            listener: key.1.clone(),
        });
        self.unknown.insert(key, owner.clone());
        owner
    }

    /// The owner as the log keeps it.
    pub(crate) fn for_log(&self, owner: &Owner) -> Owner {
        redacted(owner, self.options.log_command_lines)
    }

    /// Makes the process known; reads `/proc` when it is new, has turned to another program
    /// or has moved to another cgroup.
    fn learn(&mut self, holder: &Holder, met: bool, host: &mut dyn Host) {
        let (key, scan) = (key(holder), self.scan);
        // What /proc says of a process by itself does not say when it turns to another
        // program.
        let undated = holder.program == 0 && met;
        let current = self.processes.get_mut(&key).is_some_and(|known| {
            // A claim may be older than the program that the process has turned to since.
            let latest = known.holder == *holder || known.holder.program > holder.program;
            let current = known.complete && latest && !(undated && known.scan != scan);
            known.scan = scan;
            current
        });
        if current {
            return;
        }
        let (facts, complete) = self.read(holder, met, host);
        let fresh = self.describe(holder, facts, complete, host);
        match self.processes.get_mut(&key) {
            // Nothing has changed: its owners stay what they are.
            Some(old) if old.process == fresh.process && old.cgroup == fresh.cgroup => {
                (old.holder, old.complete) = (fresh.holder, complete);
            }
            // It has ended since: what was known of that program stays known.
            Some(old)
                if fresh.process.executable.is_none()
                    && old.process.executable.is_some()
                    && old.holder.program == holder.program =>
            {
                (old.holder, old.complete) = (fresh.holder, complete);
            }
            _ => {
                self.processes.insert(key, fresh);
            }
        }
    }

    /// What `/proc` says, if it is of that process and, unless a scan has just met it, of
    /// that program; and whether there is no more to come.
    fn read(
        &mut self,
        holder: &Holder,
        met: bool,
        host: &mut dyn Host,
    ) -> (Option<ProcessFacts>, bool) {
        if !self.readable {
            return (None, true);
        }
        if self.reads == 0 {
            return (None, false);
        }
        self.reads -= 1;
        let facts = host.process(holder.pid).filter(|facts| {
            facts.start == holder.start() && (met || facts.command == holder.command())
        });
        // In the middle of execve there are no arguments yet.
        let complete = facts.as_ref().is_none_or(|f| f.command_line.is_some());
        (facts, complete)
    }

    fn describe(
        &mut self,
        holder: &Holder,
        facts: Option<ProcessFacts>,
        complete: bool,
        host: &mut dyn Host,
    ) -> KnownProcess {
        let text = |t: Option<String>| t.map(Arc::from);
        let facts = facts.unwrap_or_else(|| ProcessFacts {
            command: holder.command(),
            ..ProcessFacts::default()
        });
        let cgroups = &mut self.cgroups;
        let cgroup = match facts.cgroup {
            Some(path) => Some(cgroups.by_path(&path, CgroupSource::Process)),
            None => cgroups.by_number(holder.cgroup, CgroupSource::Process, host),
        };
        let process = Process {
            pid: holder.pid,
            start: Some(holder.start()),
            command: facts.command.into(),
            executable: text(facts.executable),
            command_line: text(facts.command_line),
        };
        KnownProcess {
            rules: (self.options.rules).of(Some(&process), cgroup.as_deref()),
            process,
            cgroup,
            holder: *holder,
            complete,
            owners: Vec::new(),
            scan: self.scan,
        }
    }
}

/// A process is its pid and its start.
fn key(holder: &Holder) -> (u32, u64) {
    (holder.pid, holder.start_ns)
}
