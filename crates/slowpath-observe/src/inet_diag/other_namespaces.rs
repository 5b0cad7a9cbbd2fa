// SPDX-License-Identifier: Apache-2.0
//! The other network namespaces: a netlink socket in each, found and dropped as they come
//! and go.
//!
//! A dump answers only for the namespace of its socket, and looks through the hash table of
//! all of them: one of an empty namespace costs as much as half a thousand connections. So
//! a namespace is dumped only if its own count of TCP sockets
//! (`/proc/net/sockstat`, kept open) is not zero, each family by itself.
//!
//! A socket keeps its namespace alive. So one whose namespace no process and no name under
//! `/run/netns` leads to any more is closed as soon as no connection is found in there: until then
//! a process holds connections, or they are about to end.
//!
//! Not observed: namespaces to which no such way leads when they are looked for, and those that
//! this process may not enter.

use super::{DumpReport, InetDiag, OpenError, Options};
use crate::exhausted;
use crate::listeners::ListenerRound;
use crate::namespaces;
use rustc_hash::FxHashMap;
use slowpath_model::{ListenCounters, Micros, MonoNanos, Snapshot};
use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::{Mutex, PoisonError};

/// Namespaces are looked for this often at most, and so rarely that it takes a hundredth of
/// the time.
const SEARCHES: Micros = Micros(1_000_000);

/// Namespaces that are looked into besides the own one.
const MAX: usize = 1_024;

/// The count of TCP sockets in a namespace, by family.
#[derive(Debug)]
struct Gauge {
    v4: File,
    v6: Option<File>,
}

impl Gauge {
    /// Of the calling thread's namespace.
    fn open() -> io::Result<Self> {
        Ok(Gauge {
            v4: File::open("/proc/thread-self/net/sockstat")?,
            // Not there without IPv6.
            v6: File::open("/proc/thread-self/net/sockstat6").ok(),
        })
    }

    /// Whether there may be sockets of IPv4, of IPv6.
    fn read(&self) -> (bool, bool) {
        let v6 = self.v6.as_ref();
        (
            in_use(&self.v4, "TCP:").is_none_or(|n| n > 0),
            v6.is_some_and(|file| in_use(file, "TCP6:").is_none_or(|n| n > 0)),
        )
    }
}

/// `LABEL inuse N`; `None` if that cannot be read.
fn in_use(file: &File, label: &str) -> Option<u64> {
    let mut buffer = [0; 512];
    let length = file.read_at(&mut buffer, 0).ok()?;
    count(std::str::from_utf8(&buffer[..length]).ok()?, label)
}

fn count(text: &str, label: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(label))?;
    line.trim_start()
        .strip_prefix("inuse ")?
        .split(' ')
        .next()?
        .parse()
        .ok()
}

#[derive(Debug)]
struct OtherNamespace {
    tier: InetDiag,
    gauge: Gauge,
    /// A process or a name leads there.
    reachable: bool,
    /// Connections at the last poll.
    open: u64,
}

/// Every network namespace but the one of the thread that made it.
#[derive(Debug)]
pub struct OtherNamespaces {
    own: u32,
    options: Options,
    namespaces: FxHashMap<u32, OtherNamespace>,
    next_search: MonoNanos,
    unobserved: Unobserved,
}

/// What the latest search could not look into.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Unobserved {
    /// Processes and names of which the namespace may not be known.
    unknown: usize,
    /// Namespaces that may not be entered.
    refused: usize,
    /// Namespaces that could not be opened because something had run out, and the error number.
    exhausted: usize,
    errno: i32,
}

impl Unobserved {
    /// Takes note of why a namespace was not opened; one that has gone is no loss.
    fn failed(&mut self, error: &io::Error) {
        match error.raw_os_error() {
            Some(libc::EACCES | libc::EPERM) => self.refused += 1,
            Some(errno) if exhausted(errno).is_some() => {
                self.exhausted += 1;
                self.errno = errno;
            }
            _ => {}
        }
    }

    fn words(&self) -> Option<String> {
        let mut words = Vec::new();
        if self.refused > 0 {
            words.push(format!(
                "{} may not be entered, which takes CAP_SYS_ADMIN",
                count_of(self.refused, "network namespace")
            ));
        }
        if self.unknown > 0 {
            words.push(format!(
                "of {} the network namespace may not be known, which takes CAP_SYS_PTRACE",
                count_of(self.unknown, "process")
            ));
        }
        if self.exhausted > 0 {
            let what = count_of(self.exhausted, "network namespace");
            let why = exhausted(self.errno).unwrap_or_default();
            words.push(format!("{what} could not be opened: {why}"));
        }
        (!words.is_empty()).then(|| words.join("; "))
    }
}

fn count_of(number: usize, what: &str) -> String {
    match (number, what) {
        (1, _) => format!("1 {what}"),
        (_, "process") => format!("{number} processes"),
        _ => format!("{number} {what}s"),
    }
}

impl OtherNamespaces {
    /// Nothing is known yet: the first poll looks for namespaces.
    pub fn new(options: Options) -> Self {
        OtherNamespaces {
            own: super::netns().unwrap_or_default(),
            options,
            namespaces: FxHashMap::default(),
            next_search: MonoNanos(0),
            unobserved: Unobserved::default(),
        }
    }

    /// What the latest search could not look into, and why; the first call searches.
    pub fn unobserved(&mut self) -> Option<String> {
        if self.next_search == MonoNanos(0) {
            self.search_now();
        }
        self.unobserved.words()
    }

    /// Namespaces looked into.
    pub fn len(&self) -> usize {
        self.namespaces.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.namespaces.is_empty()
    }

    /// Whether the namespace with that inode number is looked into.
    pub fn looks_into(&self, netns: u32) -> bool {
        self.namespaces.contains_key(&netns)
    }

    /// Has the next poll look for namespaces that came or went.
    pub fn search_next(&mut self) {
        self.next_search = MonoNanos(0);
    }

    /// Polls each namespace that has sockets: hands its snapshots to `each`, with the inode
    /// number of the socket. One that cannot be read is left out and counted in `failed`.
    pub fn poll(&mut self, mut each: impl FnMut(&Snapshot, u32)) -> OtherNamespacesReport {
        let started = crate::monotonic();
        if started >= self.next_search {
            self.search_now();
        }
        let mut report = OtherNamespacesReport::default();
        let mut out = Vec::new();
        for namespace in self.namespaces.values_mut() {
            let (v4, v6) = namespace.gauge.read();
            if !v4 && !v6 && namespace.open == 0 {
                continue;
            }
            out.clear();
            match namespace.tier.poll_families(v4, v6, &mut out) {
                Ok(dump) => {
                    namespace.open = dump.open;
                    report.add(&dump);
                }
                Err(_) => report.failed += 1,
            }
            for (snapshot, key) in out.iter().zip(namespace.tier.keys()) {
                each(snapshot, key.inode);
            }
        }
        self.namespaces
            .retain(|_, namespace| namespace.reachable || namespace.open > 0);
        report.namespaces = self.namespaces.len() as u64;
        report
    }

    /// One round over the listeners of each namespace that has sockets: hands it to `each`
    /// with the namespace's counters. One that cannot be read is left out.
    pub fn listeners(&mut self, mut each: impl FnMut(ListenerRound, Option<ListenCounters>)) {
        for namespace in self.namespaces.values_mut() {
            let (v4, v6) = namespace.gauge.read();
            if (v4 || v6)
                && let Ok((round, counters)) = namespace.tier.listeners()
            {
                each(round, counters);
            }
        }
    }

    fn search_now(&mut self) {
        let started = crate::monotonic();
        self.search();
        let ended = crate::monotonic();
        let rest = Micros(100 * ended.since(started).0);
        self.next_search = ended + rest.max(SEARCHES);
    }

    fn search(&mut self) {
        let mut unobserved = Unobserved::default();
        for namespace in self.namespaces.values_mut() {
            namespace.reachable = false;
        }
        let mut found: HashSet<u32> = HashSet::from([self.own]);
        let mut new = Vec::new();
        for path in namespaces::candidates() {
            let inode = match fs::metadata(&path) {
                Ok(meta) => meta.ino() as u32,
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    unobserved.unknown += 1;
                    continue;
                }
                Err(_) => continue,
            };
            if !found.insert(inode) {
                continue;
            }
            if let Some(namespace) = self.namespaces.get_mut(&inode) {
                namespace.reachable = true;
            } else if self.namespaces.len() + new.len() < MAX {
                match File::open(path) {
                    Ok(file) => new.push(file),
                    Err(error) => unobserved.failed(&error),
                }
            }
        }
        let opened = Mutex::new(Vec::new());
        let failures = Mutex::new(Vec::new());
        unobserved.refused += namespaces::within(&new, |file| {
            let opening = file.metadata().and_then(|meta| {
                let tier = InetDiag::with_options(self.options).map_err(system_error)?;
                Ok((meta.ino() as u32, tier, Gauge::open()?))
            });
            match opening {
                Ok(it) => opened
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push(it),
                Err(error) => failures
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push(error),
            }
        });
        let failures = failures.into_inner().unwrap_or_default();
        failures.iter().for_each(|error| unobserved.failed(error));
        self.unobserved = unobserved;
        for (inode, tier, gauge) in opened.into_inner().unwrap_or_default() {
            let namespace = OtherNamespace {
                tier,
                gauge,
                reachable: true,
                open: 0,
            };
            self.namespaces.insert(inode, namespace);
        }
    }
}

fn system_error(error: OpenError) -> io::Error {
    match error {
        OpenError::Socket(error) | OpenError::Netns(error) => error,
        other => io::Error::other(other),
    }
}

/// What one poll of the other namespaces did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OtherNamespacesReport {
    /// Namespaces looked into, the empty ones included.
    pub namespaces: u64,
    /// Namespaces that could not be read.
    pub failed: u64,
    /// The sums of [`DumpReport`].
    pub open: u64,
    /// Snapshots emitted, last ones included.
    pub emitted: u64,
    /// Last snapshots emitted.
    pub closed: u64,
    /// Records of connections that the poll had already met.
    pub repeated: u64,
    /// Connections not remembered.
    pub dropped: u64,
}

impl OtherNamespacesReport {
    fn add(&mut self, dump: &DumpReport) {
        self.open += dump.open;
        self.emitted += dump.emitted;
        self.closed += dump.closed;
        self.repeated += dump.repeated;
        self.dropped += dump.dropped;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_observed_is_said() {
        let mut unobserved = Unobserved::default();
        assert_eq!(unobserved.words(), None);
        for errno in [libc::EPERM, libc::EMFILE, libc::EMFILE, libc::ENOENT] {
            unobserved.failed(&io::Error::from_raw_os_error(errno));
        }
        unobserved.unknown = 3;
        let words = unobserved.words().unwrap();
        for part in [
            "1 network namespace may not be entered, which takes CAP_SYS_ADMIN",
            "of 3 processes the network namespace may not be known",
            "2 network namespaces could not be opened: too many open files",
        ] {
            assert!(words.contains(part), "{words}");
        }
    }

    #[test]
    fn sockets_in_use_are_counted_by_family() {
        let v4 =
            "sockets: used 32\nTCP: inuse 17 orphan 18 tw 0 alloc 19 mem 679\nUDP: inuse 0 mem 0\n";
        assert_eq!(count(v4, "TCP:"), Some(17));
        assert_eq!(count("TCP6: inuse 3\nUDP6: inuse 0\n", "TCP6:"), Some(3));
        assert_eq!(count("TCP: inuse \n", "TCP:"), None);
        assert_eq!(count("", "TCP:"), None);
    }
}
