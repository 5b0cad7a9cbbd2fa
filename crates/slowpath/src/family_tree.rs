// SPDX-License-Identifier: Apache-2.0
//! A command and every process that descends from it.
//!
//! The kernel forgets who started a process once its parent has ended, and short processes
//! come and go between polls. So this process becomes the reaper of its orphaned descendants
//! (`PR_SET_CHILD_SUBREAPER`), and a thread walks `/proc/PID/task/TID/children` (or, on
//! kernels without it, every `/proc/PID/stat`) many times a second and remembers every process that it found.

use slowpath_views::selection::ProcessSet;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

/// Shortest time between two walks.
const WALK_EVERY: Duration = Duration::from_millis(10);
/// Walks take at most one part in this of one core.
const WALK_SHARE: u32 = 25;

/// The processes of a command, those that have ended among them.
#[derive(Clone, Debug, Default)]
pub struct Family {
    /// The processes met so far.
    pub members: ProcessSet,
}

impl Family {
    /// A family of these processes.
    pub fn of<I: IntoIterator<Item = u32>>(pids: I) -> Self {
        Family {
            members: ProcessSet::of(pids),
        }
    }

    /// Adds every living process that descends from this one.
    pub fn walk(&self) {
        let mut found = BTreeSet::new();
        let own = std::process::id();
        if !descend(own, &mut found) {
            found = by_parents(own);
        }
        self.members.append(found);
    }

    /// Walks again and again in a thread, for as long as the process lives.
    ///
    /// # Errors
    /// When no thread can be had.
    pub fn keep_walking(&self) -> io::Result<()> {
        let family = self.clone();
        thread::Builder::new()
            .name("family".to_owned())
            .spawn(move || {
                loop {
                    let begun = Instant::now();
                    family.walk();
                    thread::sleep(WALK_EVERY.max(begun.elapsed() * WALK_SHARE));
                }
            })?;
        Ok(())
    }
}

/// Makes this process the parent of descendants whose own parent ends (`prctl(2)`).
pub fn adopt_orphans() {
    // SAFETY: PR_SET_CHILD_SUBREAPER takes plain numbers and touches no memory of ours.
    // It cannot fail from Linux 3.4 on; before, orphans are found while their parents live.
    unsafe {
        libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
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
    descendants(&parents, pid)
}

/// The parent in a `/proc/PID/stat` line (`proc(5)`): the second field after the command
/// name, which is in parentheses and may contain any character.
fn parent_in(stat: &str) -> Option<u32> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(1)?.parse().ok()
}

fn descendants(parents: &[(u32, u32)], root: u32) -> BTreeSet<u32> {
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
    use std::process::Command;

    #[test]
    fn descent_is_transitive_in_any_order() {
        let parents = [(40, 30), (30, 20), (20, 10), (21, 11), (99, 1)];
        assert_eq!(descendants(&parents, 10), BTreeSet::from([20, 30, 40]));
    }

    #[test]
    fn the_parent_is_found_behind_any_command_name() {
        assert_eq!(parent_in("12 (a) R 3) S 7 12 12 0"), Some(7));
        assert_eq!(parent_in("nonsense"), None);
    }

    #[test]
    fn grandchildren_are_found() {
        // The shell's child writes its pid and waits for standard input to close.
        let mut shell = Command::new("sh")
            .args(["-c", "sh -c 'echo $$; read x; true'; true"])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut out = io::BufReader::new(shell.stdout.take().unwrap());
        io::BufRead::read_line(&mut out, &mut line).unwrap();
        let grandchild: u32 = line.trim().parse().unwrap();
        let family = Family::default();
        family.walk();
        assert!(by_parents(std::process::id()).contains(&grandchild));
        drop(shell.stdin.take());
        shell.wait().unwrap();
        let met = &family.members;
        assert!(met.contains(grandchild) && met.contains(shell.id()));
    }
}
