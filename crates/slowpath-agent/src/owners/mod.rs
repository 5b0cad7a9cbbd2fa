// SPDX-License-Identifier: Apache-2.0
//! Owners of connections: which process, where it runs, which application; or why nobody
//! knows.
//!
//! What enters: claims of the eyes (who called `connect`), looks at the descriptors of all
//! processes, `/proc`, the user's rules. What leaves: [`Owner`]s, one for all connections of
//! a process that a rule treats alike.
//!
//! What is promised: a name comes from the context of `connect` itself or from a descriptor,
//! never from the context in which a later event runs; the rule for several holders is
//! [`choice`]; a process is its pid and its start; what is remembered is bounded.

pub(crate) mod cgroup_path;
pub(crate) mod cgroups;
pub(crate) mod choice;
pub(crate) mod descriptors;
pub(crate) mod process;
mod redact;
mod rules;
pub(crate) mod scan;

pub use redact::{CommandLines, redacted};
pub use rules::{Rules, RulesError};

use crate::connection_table::LiveConnection;
use cgroups::Cgroups;
use process::{ProcessDirectory, ProcessFacts};
use rustc_hash::FxHashMap;
use slowpath_model::{
    Cgroup, CgroupSource, Claim, Closer, FourTuple, Holder, Owner, Ownership, Process, Snapshot,
    UnknownOwner,
};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

/// Processes and unknown owners that are remembered between looks.
const MAX_REMEMBERED: usize = 65_536;

/// Processes that are read from `/proc` in one poll; others are named by what the kernel's
/// programs know, and read by a later one. Reading one takes about 50 us.
const READS_A_POLL: u32 = 100;

/// Looks after which a process that holds nothing is forgotten.
const REMEMBERED_LOOKS: u32 = 4;

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
struct Known {
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
    /// The look that met it last.
    look: u32,
}

/// An unknown owner: reason, listener, where, rule.
type Nobody = (
    UnknownOwner,
    Option<Arc<str>>,
    Option<Arc<str>>,
    Option<u16>,
);

/// Owners by process.
#[derive(Debug)]
pub(crate) struct Owners {
    options: OwnerOptions,
    /// `/proc` tells the processes that holders name.
    readable: bool,
    processes: FxHashMap<(u32, u64), Known>,
    nobodies: FxHashMap<Nobody, Owner>,
    cgroups: Cgroups,
    /// Who held each listening socket at the last look.
    listeners: FxHashMap<u64, Listener>,
    reads: u32,
    look: u32,
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
    /// `bpf`: holders are named by pids of the initial pid namespace.
    pub(crate) fn new(options: OwnerOptions, bpf: bool) -> Self {
        Owners {
            options,
            readable: !bpf || process::in_initial_pid_namespace(),
            processes: FxHashMap::default(),
            nobodies: FxHashMap::default(),
            cgroups: Cgroups::default(),
            listeners: FxHashMap::default(),
            reads: READS_A_POLL,
            look: 0,
        }
    }

    /// Whether every process of the machine can be seen.
    pub(crate) fn sees_every_process(&self) -> bool {
        self.readable && process::in_initial_pid_namespace()
    }

    pub(crate) fn begin_poll(&mut self) {
        self.reads = READS_A_POLL;
        self.cgroups.begin_round();
    }

    /// A look begins.
    pub(crate) fn begin_look(&mut self) {
        self.look = self.look.wrapping_add(1);
        self.reads = u32::MAX;
        self.cgroups.begin_round();
    }

    /// A look ends: what it did not meet for a while is forgotten.
    pub(crate) fn end_look(&mut self) {
        self.reads = READS_A_POLL;
        let look = self.look;
        self.processes
            .retain(|_, known| look.wrapping_sub(known.look) < REMEMBERED_LOOKS);
        if self.processes.len() > MAX_REMEMBERED {
            self.processes.clear();
        }
    }

    /// What a look found out about listening sockets.
    pub(crate) fn listeners(&mut self, listeners: FxHashMap<u64, Listener>) {
        self.listeners = listeners;
    }

    /// Who held a listening socket at the latest look; empty if that did not meet it.
    pub(crate) fn holding(&mut self, cookie: u64, local: SocketAddr) -> Vec<Owner> {
        let Some(listener) = self.listeners.get(&cookie) else {
            return Vec::new();
        };
        let nobody = match local.ip() {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        let tuple = FourTuple {
            local,
            remote: SocketAddr::new(nobody, 0),
        };
        let holders = listener.holders.clone();
        holders.iter().map(|h| self.of(h, tuple, true)).collect()
    }

    /// The owner of a connection that nobody holds any more, or that nobody ever held.
    pub(crate) fn closed(&mut self, connection: &mut LiveConnection) {
        let tuple = connection.snapshot.tuple;
        let claim = connection.snapshot.owner;
        if connection.looked
            && let Some(process) = connection.owner.process()
        {
            // Whom the last look met need not be who closed it; a service manager closes
            // last what it held for a service.
            let closer = claim.and_then(|c| c.closer());
            if closer.is_some_and(|c| !c.is(process) && !self.manages_services(c)) {
                connection.owner = self.unnamed(UnknownOwner::HandedOn, claim.as_ref(), tuple);
            }
            return;
        }
        connection.owner = match &claim {
            Some(Claim::Opener(opener)) if !connection.looked => self.of(opener, tuple, false),
            Some(Claim::HandedOn { .. }) if !connection.looked => {
                self.nobody(UnknownOwner::HandedOn, None, None, tuple)
            }
            claim => match connection.owner.why_unknown() {
                Some(UnknownOwner::NotLooked | UnknownOwner::NotAccepted) => {
                    self.unnamed(UnknownOwner::ClosedBeforeLooked, claim.as_ref(), tuple)
                }
                _ => return,
            },
        };
    }

    /// Whether it is known to be a service manager: the last looks have met it.
    fn manages_services(&self, closer: Closer) -> bool {
        let known = self.processes.get(&(closer.pid, closer.start_ns));
        let cgroup = known.and_then(|known| known.cgroup.as_ref());
        cgroup.is_some_and(|cgroup| cgroup_path::is_service_manager(&cgroup.path))
    }

    /// An owner whose process is unknown, with what its claim tells all the same: who held
    /// the listening socket, and the cgroup in which the socket was made. An accepted
    /// connection's socket is of the cgroup in which `listen` was called, which may be a
    /// service manager's: it counts if those that held the listening socket run there too.
    pub(crate) fn unnamed(
        &mut self,
        reason: UnknownOwner,
        claim: Option<&Claim>,
        tuple: FourTuple,
    ) -> Owner {
        let (mut listening, mut cgroup) = (None, None);
        match claim {
            Some(Claim::Opener(opener)) => {
                cgroup = self.cgroups.by_number(opener.cgroup, CgroupSource::Socket);
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
                        .and_then(|c| self.cgroups.by_number(c, CgroupSource::Socket));
                }
            }
            _ => {}
        }
        self.nobody(reason, listening, cgroup, tuple)
    }

    /// What a snapshot alone tells.
    pub(crate) fn claimed(&mut self, snapshot: &Snapshot) -> Owner {
        let tuple = snapshot.tuple;
        match &snapshot.owner {
            Some(Claim::Opener(opener)) => self.of(opener, tuple, false),
            Some(Claim::HandedOn { .. }) => self.nobody(UnknownOwner::HandedOn, None, None, tuple),
            Some(Claim::Kernel) => self.nobody(UnknownOwner::KernelSocket, None, None, tuple),
            Some(Claim::UnknownOpener { .. }) | None => {
                self.nobody(UnknownOwner::NotLooked, None, None, tuple)
            }
        }
    }

    /// The owner that this process is. `met`: a look has just met it, so that it lives.
    pub(crate) fn of(&mut self, holder: &Holder, tuple: FourTuple, met: bool) -> Owner {
        let rules = &self.options.rules;
        let known = know(
            &mut self.processes,
            &mut self.cgroups,
            rules,
            &mut self.reads,
            holder,
            (self.readable, met, self.look),
        );
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
    pub(crate) fn cgroup_of(&mut self, holder: &Holder, met: bool) -> Option<Arc<Cgroup>> {
        let known = know(
            &mut self.processes,
            &mut self.cgroups,
            &self.options.rules,
            &mut self.reads,
            holder,
            (self.readable, met, self.look),
        );
        known.cgroup.clone()
    }

    /// An owner whose process is unknown.
    pub(crate) fn nobody(
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
        if let Some(owner) = self.nobodies.get(&key)
            && owner.cgroup == cgroup
        {
            return owner.clone();
        }
        if self.nobodies.len() >= MAX_REMEMBERED {
            self.nobodies.clear();
        }
        let owner = Owner::new(Ownership {
            process: Err(reason),
            cgroup,
            application: rule.and_then(|r| rules.name(r)).cloned(),
            listener: key.1.clone(),
        });
        self.nobodies.insert(key, owner.clone());
        owner
    }

    /// The owner as the log keeps it.
    pub(crate) fn for_log(&self, owner: &Owner) -> Owner {
        redacted(owner, self.options.log_command_lines)
    }
}

/// What is known of a process; reads `/proc` when it is new, has turned to another program
/// or has moved to another cgroup.
fn know<'a>(
    processes: &'a mut FxHashMap<(u32, u64), Known>,
    cgroups: &mut Cgroups,
    rules: &Rules,
    reads: &mut u32,
    holder: &Holder,
    (readable, met, look): (bool, bool, u32),
) -> &'a mut Known {
    let key = (holder.pid, holder.start_ns);
    // What /proc alone tells of a process does not say when it turns to another program.
    let untold = holder.program == 0 && met;
    let current = processes.get(&key).is_some_and(|known| {
        // A claim may be older than the program that the process has turned to since.
        let latest = known.holder == *holder || known.holder.program > holder.program;
        known.complete && latest && !(untold && known.look != look)
    });
    if !current {
        let (told, complete) = if !readable {
            (None, true)
        } else if *reads == 0 {
            (None, false)
        } else {
            *reads -= 1;
            let told = tell(holder, met);
            // In the middle of execve there are no arguments yet.
            let complete = told.as_ref().is_none_or(|t| t.command_line.is_some());
            (told, complete)
        };
        let known = fresh(cgroups, rules, holder, told, complete, look);
        match processes.get_mut(&key) {
            // Nothing has changed: its owners stay what they are.
            Some(old) if old.process == known.process && old.cgroup == known.cgroup => {
                old.holder = known.holder;
                old.complete = complete;
            }
            // It has ended since: what was known of that program stays known.
            Some(old)
                if known.process.executable.is_none()
                    && old.process.executable.is_some()
                    && old.holder.program == holder.program =>
            {
                old.holder = known.holder;
                old.complete = complete;
            }
            _ => {
                processes.insert(key, known);
            }
        }
    }
    let known = processes
        .entry(key)
        .or_insert_with(|| fresh(cgroups, rules, holder, None, false, look));
    known.look = look;
    known
}

fn fresh(
    cgroups: &mut Cgroups,
    rules: &Rules,
    holder: &Holder,
    told: Option<ProcessFacts>,
    complete: bool,
    look: u32,
) -> Known {
    let text = |t: Option<String>| t.map(Arc::from);
    let told = told.unwrap_or_else(|| ProcessFacts {
        command: holder.command(),
        ..ProcessFacts::default()
    });
    let cgroup = match told.cgroup {
        Some(path) => Some(cgroups.by_path(&path, CgroupSource::Process)),
        None => cgroups.by_number(holder.cgroup, CgroupSource::Process),
    };
    let process = Process {
        pid: holder.pid,
        start: Some(holder.start()),
        command: told.command.into(),
        executable: text(told.executable),
        command_line: text(told.command_line),
    };
    Known {
        rules: rules.of(Some(&process), cgroup.as_deref()),
        process,
        cgroup,
        holder: *holder,
        complete,
        owners: Vec::new(),
        look,
    }
}

/// What `/proc` tells, if it is of that process and, unless a look has just met it, of that
/// program.
fn tell(holder: &Holder, met: bool) -> Option<ProcessFacts> {
    let told = ProcessDirectory::open(holder.pid).ok()?.told().ok()?;
    let same = told.start == holder.start() && (met || told.command == holder.command());
    same.then_some(told)
}
