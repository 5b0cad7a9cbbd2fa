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
    fn both_ways_find_a_child() {
        // It waits for standard input to close.
        let mut child = std::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let own = std::process::id();
        assert!(descendants(own).contains(&child.id()));
        assert!(by_parents(own).contains(&child.id()));
        drop(child.stdin.take());
        child.wait().unwrap();
    }
}
