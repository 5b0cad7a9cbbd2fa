// SPDX-License-Identifier: Apache-2.0
//! The scan for holders without BPF: `/proc/PID/fd` of every process, and `/proc/PID/task/TID/fd` of
//! threads with a table of their own (`unshare(CLONE_FILES)`).

use super::process::{ProcessDirectory, ReadError};
use rustc_hash::{FxHashMap, FxHashSet};
use rustix::fs::Dir;
use rustix::io::Errno;
use slowpath_model::Holder;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// `KCMP_FILES` (include/uapi/linux/kcmp.h).
const KCMP_FILES: libc::c_int = 2;

/// Nanoseconds in a clock tick of `/proc` (USER_HZ 100).
const TICK: u64 = 10_000_000;

/// What a scan of `/proc` found.
#[derive(Debug, Default)]
pub(crate) struct DescriptorScan {
    /// A socket's inode number and a process that holds it.
    pub held: Vec<(u32, Holder)>,
    /// Sockets whose holder ended before it could be named.
    pub vanished: FxHashSet<u32>,
    /// Some process's descriptors may not be read.
    pub restricted: bool,
    /// Some could not be read, because something had run out.
    pub exhausted: Option<Errno>,
}

impl DescriptorScan {
    /// Takes note of why something was not read; a process that has ended has no descriptors.
    fn unread(&mut self, error: ReadError) {
        match error {
            ReadError::Gone => {}
            ReadError::NotPermitted => self.restricted = true,
            ReadError::Exhausted(errno) => self.exhausted = Some(errno),
        }
    }
}

/// Who holds the sockets with these inode numbers.
///
/// # Errors
/// `/proc` cannot be listed, or shows no process at all.
pub(crate) fn scan<T>(wanted: &FxHashMap<u32, T>) -> io::Result<DescriptorScan> {
    let mut scan = DescriptorScan::default();
    let mut processes = 0;
    for process in fs::read_dir("/proc")? {
        let pid = process?.file_name().to_str().and_then(|n| n.parse().ok());
        if let Some(pid) = pid {
            processes += 1;
            match ProcessDirectory::open(pid) {
                Ok(process) => {
                    let sockets = sockets_of(pid, &process, wanted, &mut scan);
                    name_holder(pid, &process, sockets, &mut scan);
                }
                Err(error) => scan.unread(error),
            }
        }
    }
    if processes == 0 {
        return Err(io::Error::new(
            io::ErrorKind::NotFound,
            "it shows no process; is it mounted?",
        ));
    }
    Ok(scan)
}

/// Which of the sockets the process holds.
fn sockets_of<T>(
    pid: u32,
    process: &ProcessDirectory,
    wanted: &FxHashMap<u32, T>,
    scan: &mut DescriptorScan,
) -> FxHashSet<u32> {
    let mut sockets = FxHashSet::default();
    let mut tables = vec!["fd".to_owned()];
    match threads(process) {
        Ok(threads) => {
            let mut own = threads;
            own.retain(|thread| *thread != pid && has_own_table(pid, *thread));
            tables.extend(own.iter().map(|thread| format!("task/{thread}/fd")));
        }
        Err(error) => scan.unread(error),
    }
    for table in &tables {
        let read = process.directory(table);
        if let Err(error) = read.and_then(|table| sockets_in(table, wanted, &mut sockets)) {
            scan.unread(error);
        }
    }
    sockets
}

/// Names who holds the sockets, if it is there still.
fn name_holder(
    pid: u32,
    process: &ProcessDirectory,
    sockets: FxHashSet<u32>,
    scan: &mut DescriptorScan,
) {
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
            scan.held.extend(sockets.into_iter().map(|s| (s, holder)));
        }
        Err(ReadError::Exhausted(errno)) => scan.exhausted = Some(errno),
        Err(_) => scan.vanished.extend(sockets),
    }
}

/// The threads of a process; none if there is only one.
fn threads(process: &ProcessDirectory) -> Result<Vec<u32>, ReadError> {
    let names = names(process.directory("task")?);
    let numbers: Vec<u32> = names.iter().filter_map(|n| n.parse().ok()).collect();
    Ok(if numbers.len() < 2 {
        Vec::new()
    } else {
        numbers
    })
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

fn sockets_in<T>(
    table: OwnedFd,
    wanted: &FxHashMap<u32, T>,
    into: &mut FxHashSet<u32>,
) -> Result<(), ReadError> {
    for entry in Dir::read_from(&table)?.flatten() {
        if !entry.file_name().to_bytes()[0].is_ascii_digit() {
            continue;
        }
        // Who may list the descriptors may not always see what they are.
        match rustix::fs::readlinkat(table.as_fd(), entry.file_name(), Vec::new()) {
            Ok(target) => {
                let inode = target.to_str().ok().and_then(socket_inode);
                into.extend(inode.filter(|i| wanted.contains_key(i)));
            }
            Err(Errno::ACCESS | Errno::PERM) => return Err(ReadError::NotPermitted),
            // It was closed meanwhile.
            Err(_) => {}
        }
    }
    Ok(())
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
    use std::os::unix::net::UnixStream;
    use std::process::Command;

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
        let found = scan(&FxHashMap::from_iter([(inode, ())])).unwrap();
        let pids: Vec<u32> = found.held.iter().map(|(_, h)| h.pid).collect();
        assert_eq!(pids, [std::process::id()]);
        let none = scan(&FxHashMap::<u32, ()>::default()).unwrap();
        assert!(none.held.is_empty());
    }

    #[test]
    fn a_holder_that_ends_before_it_is_named_has_vanished() {
        let (socket, _other) = UnixStream::pair().unwrap();
        let path = format!("/proc/self/fd/{}", socket.as_raw_fd());
        let inode = fs::metadata(path).unwrap().ino() as u32;
        let mut holder = Command::new("cat")
            .stdin(OwnedFd::from(socket))
            .spawn()
            .unwrap();
        let wanted = FxHashMap::from_iter([(inode, ())]);
        let process = ProcessDirectory::open(holder.id()).unwrap();
        let mut scan = DescriptorScan::default();
        let sockets = sockets_of(holder.id(), &process, &wanted, &mut scan);
        assert_eq!(sockets.iter().collect::<Vec<_>>(), [&inode]);
        holder.kill().unwrap();
        holder.wait().unwrap();
        name_holder(holder.id(), &process, sockets, &mut scan);
        assert_eq!(scan.held, []);
        assert_eq!(scan.vanished, FxHashSet::from_iter([inode]));
        assert!(!scan.restricted && scan.exhausted.is_none());
    }
}
