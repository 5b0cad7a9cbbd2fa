// SPDX-License-Identifier: Apache-2.0
//! Network namespaces: finding them and doing something in each.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::str::FromStr;

/// The network namespaces whose sockets are observed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Namespaces {
    /// Every one.
    #[default]
    All,
    /// Only the one of the thread that opens the tier.
    Own,
}

impl FromStr for Namespaces {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "all" => Ok(Namespaces::All),
            "own" => Ok(Namespaces::Own),
            _ => Err("neither own nor all".to_owned()),
        }
    }
}

impl fmt::Display for Namespaces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Namespaces::All => "all",
            Namespaces::Own => "own",
        })
    }
}

/// Inode number of this thread's network namespace.
///
/// # Errors
/// `/proc` does not show it.
pub fn own_inode() -> io::Result<u32> {
    fs::metadata("/proc/thread-self/ns/net").map(|meta| meta.ino() as u32)
}

/// Runs `work` once in each network namespace that a process or a name under `/run/netns`
/// keeps alive, on a thread of its own; in this thread's namespace only, if entering
/// others is not permitted. Returns how often that was refused: for a namespace, or for a
/// process whose namespace may not even be known.
pub(crate) fn in_each(work: impl Fn() + Sync) -> usize {
    in_new(&mut HashSet::new(), work)
}

/// The same, but not in the namespaces whose inode numbers are in `visited`, and adds those in
/// which it did.
pub(crate) fn in_new(visited: &mut HashSet<u32>, work: impl Fn() + Sync) -> usize {
    let mut refused = 0;
    if visited.insert(own_inode().unwrap_or_default()) {
        work();
    }
    let mut others = Vec::new();
    for path in candidates() {
        // A look at the number is cheaper than opening it.
        match fs::metadata(&path) {
            Ok(meta) if !visited.insert(meta.ino() as u32) => {}
            Ok(_) => others.extend(File::open(path)),
            Err(error) => refused += usize::from(error.kind() == io::ErrorKind::PermissionDenied),
        }
    }
    refused + within(&others, |_| work())
}

/// Runs `work` in each of those namespaces, on a thread of its own; returns how many may not
/// be entered.
pub(crate) fn within(namespaces: &[File], work: impl Fn(&File) + Sync) -> usize {
    if namespaces.is_empty() {
        return 0;
    }
    let enter = || {
        let mut refused = 0;
        for namespace in namespaces {
            // SAFETY: changes only this thread's namespace; the thread ends here.
            if unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) } == 0 {
                work(namespace);
            } else {
                refused += 1;
            }
        }
        refused
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().spawn_scoped(scope, enter);
        let refused = thread.map(|thread| thread.join().unwrap_or(namespaces.len()));
        refused.unwrap_or(namespaces.len())
    })
}

/// Names of network namespaces by inode number: those that `ip netns` gave them.
pub fn names() -> HashMap<u32, String> {
    let named = fs::read_dir("/run/netns").into_iter().flatten().flatten();
    let name = |entry: fs::DirEntry| {
        let inode = fs::metadata(entry.path()).ok()?.ino() as u32;
        Some((inode, entry.file_name().into_string().ok()?))
    };
    named.filter_map(name).collect()
}

/// Where namespaces can be entered: names under `/run/netns`, and processes.
pub(crate) fn candidates() -> impl Iterator<Item = PathBuf> {
    let named = fs::read_dir("/run/netns").into_iter().flatten();
    let processes = fs::read_dir("/proc").into_iter().flatten();
    named
        .flatten()
        .map(|entry| entry.path())
        .chain(processes.flatten().filter_map(|entry| {
            let name = entry.file_name();
            let numeric = name.to_str()?.bytes().all(|b| b.is_ascii_digit());
            numeric.then(|| entry.path().join("ns/net"))
        }))
}
