// SPDX-License-Identifier: Apache-2.0
//! The look without BPF: `/proc/PID/fd` of every process, and `/proc/PID/task/TID/fd` of
//! threads with a table of their own (`unshare(CLONE_FILES)`).

use super::facts::{ProcessDirectory, Refusal};
use rustc_hash::{FxHashMap, FxHashSet};
use rustix::fs::Dir;
use slowpath_model::Holder;
use std::fs;
use std::os::fd::{AsFd, OwnedFd};

/// `KCMP_FILES` (include/uapi/linux/kcmp.h).
const KCMP_FILES: libc::c_int = 2;

/// Nanoseconds in a clock tick of `/proc` (USER_HZ 100).
const TICK: u64 = 10_000_000;

/// What a look over `/proc` found.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// A socket's inode number and a process that holds it.
    pub held: Vec<(u32, Holder)>,
    /// Sockets whose holder ended before it could be named.
    pub vanished: FxHashSet<u32>,
    /// Some process's descriptors may not be read.
    pub restricted: bool,
}

/// Who holds the sockets with these inode numbers.
pub(crate) fn look<T>(wanted: &FxHashMap<u32, T>) -> Seen {
    let mut seen = Seen::default();
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let pid = process.file_name().to_str().and_then(|n| n.parse().ok());
        if let Some(pid) = pid {
            look_at(pid, wanted, &mut seen);
        }
    }
    seen
}

fn look_at<T>(pid: u32, wanted: &FxHashMap<u32, T>, seen: &mut Seen) {
    let Ok(process) = ProcessDirectory::open(pid) else {
        return;
    };
    let mut sockets = FxHashSet::default();
    match process.directory("fd") {
        Ok(table) => sockets_in(table, wanted, &mut sockets),
        Err(Refusal::NotPermitted) => seen.restricted = true,
        Err(Refusal::Gone) => return,
    }
    for thread in threads(&process) {
        if thread != pid
            && has_own_table(pid, thread)
            && let Ok(table) = process.directory(&format!("task/{thread}/fd"))
        {
            sockets_in(table, wanted, &mut sockets);
        }
    }
    if sockets.is_empty() {
        return;
    }
    match process.identity() {
        Ok((name, start)) => {
            let mut command = [0; 16];
            let length = name.len().min(command.len());
            command[..length].copy_from_slice(&name.as_bytes()[..length]);
            let holder = Holder {
                pid,
                start_ns: start.0.saturating_mul(TICK),
                program: 0,
                cgroup: 0,
                command,
            };
            seen.held.extend(sockets.into_iter().map(|s| (s, holder)));
        }
        Err(_) => seen.vanished.extend(sockets),
    }
}

/// The threads of a process; none if there is only one.
fn threads(process: &ProcessDirectory) -> Vec<u32> {
    let Ok(task) = process.directory("task") else {
        return Vec::new();
    };
    let names = names(task);
    let numbers: Vec<u32> = names.iter().filter_map(|n| n.parse().ok()).collect();
    if numbers.len() < 2 {
        Vec::new()
    } else {
        numbers
    }
}

/// Whether the thread has a table of descriptors of its own; where the kernel does not say,
/// it is taken to share its process's.
fn has_own_table(process: u32, thread: u32) -> bool {
    // SAFETY: kcmp takes numbers and touches no memory of ours.
    let order = unsafe {
        libc::syscall(
            libc::SYS_kcmp,
            process as libc::pid_t,
            thread as libc::pid_t,
            KCMP_FILES,
            0,
            0,
        )
    };
    order > 0
}

fn names(directory: OwnedFd) -> Vec<String> {
    Dir::new(directory)
        .into_iter()
        .flatten()
        .flatten()
        .map(|e| e.file_name().to_string_lossy().into_owned())
        .collect()
}

fn sockets_in<T>(table: OwnedFd, wanted: &FxHashMap<u32, T>, into: &mut FxHashSet<u32>) {
    let Ok(entries) = Dir::read_from(&table) else {
        return;
    };
    for entry in entries.flatten() {
        let target = rustix::fs::readlinkat(table.as_fd(), entry.file_name(), Vec::new());
        let inode = target
            .ok()
            .and_then(|target| socket_inode(target.to_str().ok()?));
        into.extend(inode.filter(|i| wanted.contains_key(i)));
    }
}

/// `socket:[N]` gives N.
fn socket_inode(target: &str) -> Option<u32> {
    target
        .strip_prefix("socket:[")?
        .strip_suffix(']')?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn links_that_are_no_sockets_are_nothing() {
        assert_eq!(socket_inode("socket:[4026531840]"), Some(4_026_531_840));
        for target in [
            "pipe:[3]",
            "socket:[]",
            "socket:[-1]",
            "socket:[3",
            "/dev/null",
        ] {
            assert_eq!(socket_inode(target), None, "{target}");
        }
    }

    #[test]
    fn a_socket_of_this_process_is_its_own() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let path = format!("/proc/self/fd/{}", listener.as_raw_fd());
        let inode = fs::metadata(path).unwrap().ino() as u32;
        let seen = look(&FxHashMap::from_iter([(inode, ())]));
        let pids: Vec<u32> = seen.held.iter().map(|(_, h)| h.pid).collect();
        assert_eq!(pids, [std::process::id()]);
        assert!(look(&FxHashMap::<u32, ()>::default()).held.is_empty());
    }
}
