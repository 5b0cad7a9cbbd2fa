// SPDX-License-Identifier: Apache-2.0
//! What keeps a process of this machine from working, and which of its sockets are not judged, from
//! `/proc` and the cgroup file system.

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
    let cgroups = fs::read_to_string(process.join("cgroup")).unwrap_or_default();
    let sockets = sockets(&process);
    let count = |tables: [&str; 2]| {
        let table = |name: &str| fs::read_to_string(process.join("net").join(name)).ok();
        let inodes = tables.iter().filter_map(|name| table(name));
        let inodes: HashSet<u64> = inodes.flat_map(|text| inodes_in(&text)).collect();
        sockets.intersection(&inodes).count()
    };
    Some(ProcessState {
        stopped: is_stopped(&stat)?,
        throttled: throttled(&cgroups),
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

/// The part of the periods of its cgroup's CPU quota in which it ran out of it, 0..=1; `None` without a
/// quota (Documentation/scheduler/sched-bwc.rst).
fn throttled(cgroups: &str) -> Option<f64> {
    cgroups.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?.trim_start_matches('/'));
        let roots: &[&str] = match controllers {
            "" => &["/sys/fs/cgroup", "/sys/fs/cgroup/unified"],
            of if of.split(',').any(|c| c == "cpu") => {
                &["/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"]
            }
            _ => return None,
        };
        let stat = |root: &&str| fs::read_to_string(Path::new(root).join(path).join("cpu.stat"));
        roots
            .iter()
            .find_map(|root| throttled_part(&stat(root).ok()?))
    })
}

/// From the text of `cpu.stat`.
fn throttled_part(text: &str) -> Option<f64> {
    let field = |name: &str| -> Option<u64> {
        let mut lines = text.lines().filter_map(|line| line.split_once(' '));
        lines.find(|(key, _)| *key == name)?.1.trim().parse().ok()
    };
    let periods = field("nr_periods").filter(|n| *n > 0)?;
    Some((field("nr_throttled")? as f64 / periods as f64).min(1.0))
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
    fn a_quota_that_ran_out_in_half_of_its_periods_is_a_half() {
        let text = "usage_usec 1\nnr_periods 40\nnr_throttled 20\nthrottled_usec 7\n";
        assert_eq!(throttled_part(text), Some(0.5));
        assert_eq!(throttled_part("nr_periods 0\nnr_throttled 0\n"), None);
        assert_eq!(throttled_part(""), None);
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
