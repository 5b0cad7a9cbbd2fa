// SPDX-License-Identifier: Apache-2.0
//! The observer: snapshots of TCP connections, read from the kernel.
//!
//! What enters: nothing but the kernel. What leaves: [`slowpath_model::Snapshot`]s of every
//! connection that changed since the last poll or closed, and counts of what was lost on
//! the way. Two tiers give the same type: [`bpf`] (tracepoints, iterators and socket
//! storage) and [`inet_diag`] (netlink), the latter without the statistics that only BPF
//! sees; those are `None`, never zero.
//!
//! What is promised: a connection is handed over at most once a poll; every map, ring and
//! queue is bounded and counts its drops; nothing here judges.

pub mod bpf;
pub mod conntrack;
pub mod empty;
mod exhausted;
pub mod inet_diag;
pub mod listeners;
pub mod mlab;

pub mod namespaces;
mod prefetch;
mod probes;
#[doc(hidden)]
pub use probes::Aligned;

pub use exhausted::{exhausted, with_limit};
pub use namespaces::Namespaces;
pub use prefetch::{prefetch, prefetch_part};
pub use slowpath_model::{Feature, FeatureState, tcp_info};
use slowpath_model::{Holder, MonoNanos, Snapshot};

/// What one poll met and handed over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PollReport {
    /// When the poll began.
    pub at: MonoNanos,
    /// Connections that the walk met, each once.
    pub visited: u64,
    /// Connections alive, counted at opening and closing.
    pub live: u64,
    /// Connections alive that the walk did not meet.
    pub missed: u64,
    /// Connections that the walk met more than once and that were counted once.
    pub repeats: u64,
    /// Snapshots handed over because something had changed.
    pub emitted: u64,
    /// Final snapshots handed over.
    pub closed: u64,
    /// Connections whose snapshot found no room in any pass.
    pub left_over: u64,
    /// Passes that were needed.
    pub passes: u32,
    /// Whether the poll walked over every connection; otherwise it looked at those that
    /// changed, `visited` is `live`, and nothing is known of `missed` and `repeats`.
    pub walked: bool,
}

/// Who takes the snapshots of a poll.
pub trait Sink {
    /// The connection with this cookie in this namespace will be expected soon.
    fn announce(&mut self, netns: u32, cookie: u64) {
        let _ = (netns, cookie);
    }

    /// The connection with this cookie in this namespace comes a few snapshots later.
    fn expect(&mut self, netns: u32, cookie: u64) {
        let _ = (netns, cookie);
    }

    /// Nothing had changed on the connection whose snapshot comes next until then, or since
    /// its last snapshot if that is later.
    fn unchanged_until(&mut self, at: MonoNanos) {
        let _ = at;
    }

    /// The network namespace of the connection whose snapshot comes next, by a number that no
    /// other gets while the machine runs; inode numbers are given again. 0 where the kernel has none
    /// (before 5.12), and not said by tiers that do not know it.
    fn namespace(&mut self, cookie: u64) {
        let _ = cookie;
    }

    /// The first sequence number that the peer of the connection whose snapshot comes next has not
    /// acknowledged (`snd_una`); not stated by tiers that do not know it.
    fn unacknowledged(&mut self, sequence: u32) {
        let _ = sequence;
    }

    /// One snapshot.
    fn see(&mut self, snapshot: &Snapshot);
}

impl<F: FnMut(&Snapshot)> Sink for F {
    fn see(&mut self, snapshot: &Snapshot) {
        self(snapshot);
    }
}

/// One socket call of a connection under suspicion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// The connection's socket cookie.
    pub cookie: u64,
    /// When the call returned.
    pub at: MonoNanos,
    /// Bytes it moved.
    pub bytes: u32,
    /// Which way.
    pub direction: Direction,
}

/// The direction of a socket call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The application wrote.
    Send,
    /// The application read.
    Receive,
}

/// A socket and a process that has a descriptor of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketHolder {
    /// The socket's cookie.
    pub cookie: u64,
    /// The process.
    pub process: Holder,
    /// Whether the socket listens; otherwise it is a connection.
    pub listens: bool,
}

/// Why a socket has no descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnheldReason {
    /// No process has accepted it yet, or it was closed: its state distinguishes the two.
    NoSocket,
    /// It is the kernel's own.
    Kernel,
    /// The kernel uses it and no process ever could.
    NoFile,
}

/// What one BPF program has cost so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramCost {
    /// The probe it belongs to.
    pub probe: &'static str,
    /// Its name.
    pub program: String,
    /// How often it ran.
    pub runs: u64,
    /// For how long in all, in nanoseconds.
    pub nanos: u64,
}

impl ProgramCost {
    /// Whether the program runs within a poll, so that its time is in the poll's.
    pub fn within_polls(&self) -> bool {
        let mut probes = probes::ALL.iter();
        let own = probes.find(|probe| probe.name == self.probe);
        own.is_some_and(|probe| probe.within_polls.contains(&self.program.as_str()))
    }
}

/// The kernel's monotonic clock, the one that BPF reads.
pub fn monotonic() -> MonoNanos {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    MonoNanos(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}

/// The kernel's boot id as a number; 0 where `/proc` does not show it.
pub fn boot_id() -> u128 {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .ok()
        .and_then(|id| u128::from_str_radix(&id.trim().replace('-', ""), 16).ok())
        .unwrap_or(0)
}
