// SPDX-License-Identifier: Apache-2.0
//! Who a connection belongs to: a process and where it runs, or why that is unknown.
//!
//! Which of several holders is *the* owner is decided by the agent; the rule is in
//! `docs/reference/owners.md`. A wrong name is worse than none: what is not certain is
//! [`UnknownOwner`] with its reason.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// The owner of a connection. Cheap to clone: the connections of one process share one.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Owner(Arc<Ownership>);

/// What is known of an owner.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Ownership {
    /// The process, or why it is unknown.
    pub process: Result<Process, UnknownOwner>,
    /// Where it runs. May be known where the process is not: all its holders run there, or
    /// the socket was made there.
    pub cgroup: Option<Arc<Cgroup>>,
    /// The application, as the user's rules name it.
    pub application: Option<Arc<str>>,
    /// For an accepted connection whose owner is unknown: the command name of the one
    /// process that holds the listening socket.
    pub listener: Option<Arc<str>>,
}

impl Owner {
    /// An owner of which this is known.
    pub fn new(ownership: Ownership) -> Self {
        Owner(Arc::new(ownership))
    }

    /// A process of which nothing more is known.
    pub fn of_process(process: Process) -> Self {
        Owner::new(Ownership {
            process: Ok(process),
            cgroup: None,
            application: None,
            listener: None,
        })
    }

    /// A process of which pid and command name are known.
    pub fn named(pid: u32, command: &str) -> Self {
        Owner::of_process(Process {
            pid,
            start: None,
            command: command.into(),
            executable: None,
            command_line: None,
        })
    }

    /// No process is known, for this reason.
    pub fn unknown(reason: UnknownOwner) -> Self {
        Owner::new(Ownership {
            process: Err(reason),
            cgroup: None,
            application: None,
            listener: None,
        })
    }

    /// The process, if known.
    pub fn process(&self) -> Option<&Process> {
        self.0.process.as_ref().ok()
    }

    /// Why the process is unknown, if it is.
    pub fn why_unknown(&self) -> Option<UnknownOwner> {
        self.0.process.as_ref().err().copied()
    }

    /// The process id, if known.
    pub fn pid(&self) -> Option<u32> {
        self.process().map(|p| p.pid)
    }

    /// The process's command name, if known.
    pub fn command(&self) -> Option<&Arc<str>> {
        self.process().map(|p| &p.command)
    }

    /// The systemd unit, if known.
    pub fn unit(&self) -> Option<&Arc<str>> {
        self.0.cgroup.as_ref()?.unit.as_ref()
    }

    /// The container, if it is in one.
    pub fn container(&self) -> Option<&Container> {
        self.0.cgroup.as_ref()?.container.as_ref()
    }

    /// The pod, if it is in one.
    pub fn pod(&self) -> Option<&Arc<str>> {
        self.0.cgroup.as_ref()?.pod.as_ref()
    }

    /// The name to count the connection under: the application that a rule names, else the
    /// process's command name; `None` if neither is known.
    pub fn name(&self) -> Option<&Arc<str>> {
        self.0.application.as_ref().or_else(|| self.command())
    }

    /// Whether both are one and the same value in memory.
    pub fn is_same(&self, other: &Owner) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Default for Owner {
    /// No scan has been made yet.
    fn default() -> Self {
        Owner::unknown(UnknownOwner::NotLooked)
    }
}

impl Deref for Owner {
    type Target = Ownership;

    fn deref(&self) -> &Ownership {
        &self.0
    }
}

/// One process (thread group).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Process {
    /// Process id: in the initial pid namespace with BPF, else in the agent's.
    pub pid: u32,
    /// When it started; distinguishes processes that got the same pid one after the other.
    pub start: Option<ProcessStart>,
    /// Command name of its thread-group leader (`comm`, up to 15 bytes), whatever its
    /// threads call themselves.
    pub command: Arc<str>,
    /// Path of its executable (`/proc/PID/exe`).
    pub executable: Option<Arc<str>>,
    /// Its arguments (`/proc/PID/cmdline`), as [`join_arguments`](crate::join_arguments) writes them. Can hold secrets: what goes
    /// to a log is redacted first.
    pub command_line: Option<Arc<str>>,
}

/// When a process started: clock ticks (10 ms) since boot, as field 22 of `/proc/PID/stat`
/// (`proc_pid_stat(5)`) reports them on every architecture that has BPF.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct ProcessStart(pub u64);

impl ProcessStart {
    /// From the kernel's `task->start_boottime` (`nsec_to_clock_t`, kernel/time/time.c, with
    /// USER_HZ 100).
    pub const fn from_boot_nanos(nanos: u64) -> Self {
        ProcessStart(nanos / 10_000_000)
    }
}

/// Where a process runs.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Cgroup {
    /// Path in the unified (v2) hierarchy, or in the first v1 hierarchy that says more.
    pub path: Arc<str>,
    /// Who says so.
    pub source: CgroupSource,
    /// The innermost systemd unit in the path (`nginx.service`, `session-3.scope`).
    pub unit: Option<Arc<str>>,
    /// The innermost container in the path.
    pub container: Option<Container>,
    /// The Kubernetes pod's uid. Its name is in no cgroup path.
    pub pod: Option<Arc<str>>,
}

/// How a cgroup is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CgroupSource {
    /// It is that of the owner, or of all processes that could be the owner.
    Process,
    /// It is that in which the socket was made (`sk->sk_cgrp_data`).
    Socket,
}

/// A container.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Container {
    /// Its id, as its runtime names it.
    pub id: Arc<str>,
    /// Its runtime, where the path names it.
    pub runtime: Option<Arc<str>>,
}

macro_rules! reasons {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $words:literal;)*) => {
        /// Why the owner of a connection is unknown.
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        #[serde(rename_all = "snake_case")]
        pub enum UnknownOwner {
            $($(#[$doc])* $variant,)*
        }

        impl UnknownOwner {
            /// All of them, in the order of their numbers. The log keeps the order: append only.
            pub const ALL: [UnknownOwner; [$($name),*].len()] = [$(UnknownOwner::$variant),*];

            /// Their names, in the same order.
            pub const NAMES: [&'static str; [$($name),*].len()] = [$($name),*];

            /// The name, as in JSON and in the log.
            pub const fn name(self) -> &'static str {
                match self { $(UnknownOwner::$variant => $name,)* }
            }

            /// The reason in words.
            pub const fn words(self) -> &'static str {
                match self { $(UnknownOwner::$variant => $words,)* }
            }
        }
    };
}

reasons! {
    /// No scan has been made since the connection was first observed.
    NotLooked = "not_looked", "not looked for yet";
    /// It waits in the listener's queue: no process has accepted it.
    NotAccepted = "not_accepted", "no process has accepted it yet";
    /// It was closed before a scan, and no process was observed to open it.
    ClosedBeforeLooked = "closed_before_looked", "closed before a look at who holds it";
    /// Another process than its opener, or than the one that the last scan named, closed it
    /// before a scan.
    HandedOn = "handed_on", "passed on, and closed before a look";
    /// Several processes hold it and none of them opened it.
    HeldBySeveral = "held_by_several", "held by several processes";
    /// No process has a descriptor of it: an io_uring's registered file, or a part of the
    /// kernel that took it over from a process.
    NoHolder = "held_by_nobody", "no process has a descriptor of it";
    /// Its only descriptor is in a message on a Unix socket that no process has received.
    InFlight = "in_flight", "on its way through a Unix socket";
    /// The kernel opened it for itself (NFS, SMB, NVMe over TCP).
    KernelSocket = "kernel_socket", "the kernel's own";
    /// Its holder ended before it could be named.
    HolderVanished = "holder_vanished", "its holder ended before it could be named";
    /// Some processes' descriptors may not be read, and no other process holds it.
    NoPermission = "no_permission", "not permitted to see every process's descriptors";
    /// The agent sees the processes of its own pid namespace only, and none holds it.
    OutsidePidNamespace = "outside_pid_namespace", "held by no process of this pid namespace";
    /// This kernel, or the tier in use, does not report who holds a socket.
    NotSupported = "not_supported", "this kernel does not report it";
    /// The scan failed.
    LookFailed = "look_failed", "looking failed";
    /// The log's version had no reasons yet.
    NotRecorded = "not_recorded", "the log does not record it";
}

impl UnknownOwner {
    /// The reason with that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|r| r.name() == name)
    }
}

impl fmt::Display for UnknownOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words())
    }
}

/// Connections without a known owner, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnknownOwners([u64; UnknownOwner::ALL.len()]);

impl UnknownOwners {
    /// Counts one.
    pub fn count(&mut self, reason: UnknownOwner) {
        self.0[reason as usize] += 1;
    }

    /// How many have that reason.
    pub const fn of(&self, reason: UnknownOwner) -> u64 {
        self.0[reason as usize]
    }

    /// Sets how many have that reason.
    pub fn set(&mut self, reason: UnknownOwner, count: u64) {
        self.0[reason as usize] = count;
    }

    /// How many there are.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The reasons that occur, each with its number.
    pub fn iter(&self) -> impl Iterator<Item = (UnknownOwner, u64)> {
        UnknownOwner::ALL
            .into_iter()
            .zip(self.0)
            .filter(|(_, n)| *n > 0)
    }
}

/// What the observer knows of an owner when it takes a snapshot; never what the context of some
/// later event suggests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Claim {
    /// This process opened it, in its own context.
    Opener(Holder),
    /// The kernel opened it for itself.
    Kernel,
    /// Another process than the opener closed it.
    HandedOn {
        /// The process that opened it.
        opener: Holder,
        /// The one that closed it.
        closer: Closer,
    },
    /// No process was observed to open it.
    UnknownOpener {
        /// Cookie of the listening socket that it came from.
        listener: Option<u64>,
        /// Number of the cgroup in which the socket, or the listening one, was made.
        socket_cgroup: Option<u64>,
        /// The process that closed it: that names no owner, but shows whether another process
        /// had passed it on.
        closer: Option<Closer>,
    },
}

impl Claim {
    /// The process that opened it.
    pub const fn opener(&self) -> Option<&Holder> {
        match self {
            Claim::Opener(opener) | Claim::HandedOn { opener, .. } => Some(opener),
            Claim::Kernel | Claim::UnknownOpener { .. } => None,
        }
    }

    /// The process that closed it, if that was observed and it is not the opener.
    pub const fn closer(&self) -> Option<Closer> {
        match self {
            Claim::HandedOn { closer, .. } => Some(*closer),
            Claim::UnknownOpener { closer, .. } => *closer,
            Claim::Opener(_) | Claim::Kernel => None,
        }
    }
}

/// A process that closed a connection, or its sending half.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Closer {
    /// Process id in the initial pid namespace.
    pub pid: u32,
    /// When it started, in nanoseconds since boot (`task->start_boottime`).
    pub start_ns: u64,
}

impl Closer {
    /// Whether it is this process.
    pub fn is(&self, process: &Process) -> bool {
        let start = ProcessStart::from_boot_nanos(self.start_ns);
        self.pid == process.pid && process.start.is_none_or(|s| s == start)
    }
}

/// A process as the BPF programs report it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Holder {
    /// Process id in the initial pid namespace.
    pub pid: u32,
    /// When it started, in nanoseconds since boot (`task->start_boottime`).
    pub start_ns: u64,
    /// How often it has called `execve`, it and its ancestors (`task->self_exec_id`): the
    /// program it runs is another when this is.
    pub program: u32,
    /// Number of its cgroup in the unified hierarchy; 0 where unknown.
    pub cgroup: u64,
    /// Command name of the thread-group leader, up to the first NUL.
    pub command: [u8; 16],
}

impl Holder {
    /// When it started, as `/proc` reports it.
    pub const fn start(&self) -> ProcessStart {
        ProcessStart::from_boot_nanos(self.start_ns)
    }

    /// The command name.
    pub fn command(&self) -> String {
        let end = self.command.iter().position(|b| *b == 0);
        String::from_utf8_lossy(&self.command[..end.unwrap_or(self.command.len())]).into_owned()
    }
}
