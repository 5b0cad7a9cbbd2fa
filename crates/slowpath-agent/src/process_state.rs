// SPDX-License-Identifier: Apache-2.0
//! What keeps a process of this machine from working, and which of its sockets are not judged, from
//! `/proc`.

use crate::processor;
use slowpath_model::ProcessState;
use std::collections::HashSet;
use std::fs;
use std::path::Path;

/// Descriptors of a process that are looked at: enough for all but the largest servers, read within
/// some ten milliseconds.
const MOST_DESCRIPTORS: usize = 10_000;

/// The state of a process; `None` if it is gone or not ours to read.
pub fn process_state(pid: u32) -> Option<ProcessState> {
    let process = Path::new("/proc").join(pid.to_string());
    let stat = fs::read_to_string(process.join("stat")).ok()?;
    let sockets = sockets(&process);
    let count = |tables: [&str; 2]| {
        let table = |name: &str| fs::read_to_string(process.join("net").join(name)).ok();
        let inodes = tables.iter().filter_map(|name| table(name));
        let inodes: HashSet<u64> = inodes.flat_map(|text| inodes_in(&text)).collect();
        sockets.intersection(&inodes).count()
    };
    Some(ProcessState {
        stopped: is_stopped(&stat)?,
        throttled: processor::throttled(pid),
        udp_sockets: count(["udp", "udp6"]),
        unix_sockets: count(["unix", "unix"]),
    })
}

/// Whether `/proc/PID/stat` says that it is stopped, by a signal or a debugger (proc(5)): the state is
/// the first field after the command's name, which is in brackets and may hold any.
fn is_stopped(stat: &str) -> Option<bool> {
    let (_, rest) = stat.rsplit_once(')')?;
    let state = rest.trim_start().chars().next()?;
    Some(matches!(state, 'T' | 't'))
}

/// Inodes of the sockets among a process's descriptors.
fn sockets(process: &Path) -> HashSet<u64> {
    let Ok(descriptors) = fs::read_dir(process.join("fd")) else {
        return HashSet::new();
    };
    let links = descriptors
        .take(MOST_DESCRIPTORS)
        .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    let inode = |link: std::path::PathBuf| {
        let text = link.to_str()?;
        text.strip_prefix("socket:[")?
            .strip_suffix(']')?
            .parse()
            .ok()
    };
    links.filter_map(inode).collect()
}

/// Inodes in `/proc/PID/net/udp` (tenth field, after the header) or `unix` (seventh).
fn inodes_in(text: &str) -> Vec<u64> {
    let mut lines = text.lines();
    let column = match lines.next() {
        Some(header) if header.starts_with("Num") => 6,
        Some(_) => 9,
        None => return Vec::new(),
    };
    let inode = |line: &str| line.split_whitespace().nth(column)?.parse().ok();
    lines.filter_map(inode).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixDatagram;

    #[test]
    fn the_state_stands_after_the_last_bracket() {
        assert_eq!(is_stopped("12 (a) T b) S 1 12"), Some(false));
        assert_eq!(is_stopped("12 (a) S b) T 1 12"), Some(true));
        assert_eq!(is_stopped("12"), None);
    }

    #[test]
    fn this_processs_own_sockets_are_counted() {
        let before = process_state(std::process::id()).unwrap();
        let udp = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let unix = UnixDatagram::pair().unwrap();
        let after = process_state(std::process::id()).unwrap();
        // Other tests of this process may open and close some meanwhile.
        assert!(after.udp_sockets >= 1 && after.unix_sockets >= 2);
        assert!(!before.stopped && !after.stopped);
        drop((udp, unix));
    }

    #[test]
    fn a_process_that_is_gone_has_no_state() {
        assert_eq!(process_state(u32::MAX), None);
    }
}
