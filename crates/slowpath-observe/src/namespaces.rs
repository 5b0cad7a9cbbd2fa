// SPDX-License-Identifier: Apache-2.0
//! Network namespaces: finding them and doing something in each.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// Inode number of this process's network namespace; 0 if it cannot be told.
pub(crate) fn own_inode() -> u32 {
    fs::metadata("/proc/self/ns/net").map_or(0, |m| m.ino() as u32)
}

/// Runs `work` once in each network namespace that a process or a name under `/run/netns`
/// keeps alive, on a thread of its own; in this process's namespace only, if entering
/// others is not permitted. Returns how often that was refused: for a namespace, or for a
/// process whose namespace may not even be known.
pub(crate) fn in_each(work: impl Fn() + Sync) -> usize {
    let mut refused = 0;
    let mut seen = HashSet::from([own_inode()]);
    work();
    let mut others = Vec::new();
    for path in candidates() {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) => {
                refused += usize::from(error.kind() == io::ErrorKind::PermissionDenied);
                continue;
            }
        };
        if let Ok(meta) = file.metadata()
            && seen.insert(meta.ino() as u32)
        {
            others.push(file);
        }
    }
    if others.is_empty() {
        return refused;
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for namespace in &others {
                // SAFETY: changes only this thread's namespace; the thread ends here.
                if unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) } == 0 {
                    work();
                } else {
                    refused += 1;
                }
            }
        });
    });
    refused
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
