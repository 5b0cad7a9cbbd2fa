// SPDX-License-Identifier: Apache-2.0
//! The processes that descend from one, from `/proc`.

use std::collections::BTreeSet;
use std::fs;

/// The living descendants of the process `pid`: by what the kernel lists as children
/// (`/proc/PID/task/TID/children`), or on kernels without it by the parent that each process names.
pub fn descendants(pid: u32) -> BTreeSet<u32> {
    let mut found = BTreeSet::new();
    if descend(pid, &mut found) {
        found
    } else {
        by_parents(pid)
    }
}

/// This process's number in `/proc`, which may show another pid namespace than its own: in a
/// host of the laboratory it shows the machine's.
pub fn own_pid() -> u32 {
    let shown = fs::read_link("/proc/self").ok();
    let shown = shown.and_then(|link| link.to_str()?.parse().ok());
    shown.unwrap_or_else(std::process::id)
}

/// The number in `/proc` of a living child of this process, which has it by another one if `/proc`
/// shows another pid namespace; `None`: it is not there.
pub fn child_in_proc(child: u32) -> Option<u32> {
    let own = own_pid();
    if own == std::process::id() {
        return Some(child);
    }
    let status = |pid: &u32| fs::read_to_string(format!("/proc/{pid}/status")).ok();
    let mut all = descendants(own).into_iter();
    all.find(|pid| status(pid).and_then(|it| innermost(&it)) == Some(child))
}

/// A process's numbers, from the pid namespace that `/proc` shows to its own: `NSpid`
/// (proc_pid_status(5)).
pub(crate) fn numbers(status: &str) -> Option<impl DoubleEndedIterator<Item = u32> + '_> {
    let mut lines = status.lines();
    let numbers = lines.find_map(|line| line.strip_prefix("NSpid:"))?;
    Some(numbers.split_whitespace().flat_map(str::parse))
}

/// A process's number in its own pid namespace.
fn innermost(status: &str) -> Option<u32> {
    numbers(status)?.next_back()
}

/// Puts the descendants of `pid` into `found`; whether the kernel lists children at all.
fn descend(pid: u32, found: &mut BTreeSet<u32>) -> bool {
    let mut pending = vec![pid];
    let mut listed = false;
    while let Some(pid) = pending.pop() {
        let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else {
            continue;
        };
        for task in tasks.flatten() {
            let Ok(children) = fs::read_to_string(task.path().join("children")) else {
                continue;
            };
            listed = true;
            for child in children.split_whitespace().flat_map(str::parse) {
                if found.insert(child) {
                    pending.push(child);
                }
            }
        }
    }
    listed
}

/// The descendants of `pid` by the parent each process names.
fn by_parents(pid: u32) -> BTreeSet<u32> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return BTreeSet::new();
    };
    let parents: Vec<(u32, u32)> = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(|child: u32| {
            let stat = fs::read_to_string(format!("/proc/{child}/stat")).ok()?;
            Some((child, parent_in(&stat)?))
        })
        .collect();
    closure(&parents, pid)
}

/// The parent in a `/proc/PID/stat` line (`proc(5)`): the second field after the command
/// name, which is in parentheses and may contain any character.
fn parent_in(stat: &str) -> Option<u32> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(1)?.parse().ok()
}

fn closure(parents: &[(u32, u32)], root: u32) -> BTreeSet<u32> {
    let mut found = BTreeSet::new();
    loop {
        let before = found.len();
        for (child, parent) in parents {
            if *parent == root || found.contains(parent) {
                found.insert(*child);
            }
        }
        if found.len() == before {
            return found;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descent_is_transitive_in_any_order() {
        let parents = [(40, 30), (30, 20), (20, 10), (21, 11), (99, 1)];
        assert_eq!(closure(&parents, 10), BTreeSet::from([20, 30, 40]));
    }

    #[test]
    fn the_parent_is_found_behind_any_command_name() {
        assert_eq!(parent_in("12 (a) R 3) S 7 12 12 0"), Some(7));
        assert_eq!(parent_in("nonsense"), None);
    }

    #[test]
    fn a_childs_number_in_proc_is_the_outermost() {
        // As proc_pid_status(5) shows a process three namespaces deep: 4711 here, 1 in its own.
        assert_eq!(
            innermost("Name:\tx\nNSpid:\t4711\t52\t1\nNSsid:\t9\n"),
            Some(1)
        );
        assert_eq!(innermost("Name:\tx\n"), None);
        let mut child = std::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        // The test's own namespace is /proc's, or it has the child by another number.
        assert!(child_in_proc(child.id()).is_some());
        drop(child.stdin.take());
        child.wait().unwrap();
    }

    #[test]
    fn both_ways_find_a_child() {
        // It waits for standard input to close.
        let mut child = std::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let own = own_pid();
        let child_pid = child_in_proc(child.id()).unwrap();
        assert!(descendants(own).contains(&child_pid));
        assert!(by_parents(own).contains(&child_pid));
        drop(child.stdin.take());
        child.wait().unwrap();
    }
}
