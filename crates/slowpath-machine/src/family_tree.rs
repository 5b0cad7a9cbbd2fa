// SPDX-License-Identifier: Apache-2.0
//! A command and every process that descends from it.
//!
//! The kernel forgets who started a process once its parent has ended, and short processes
//! come and go between polls. So this process becomes the reaper of its orphaned descendants
//! (`PR_SET_CHILD_SUBREAPER`), and a thread walks `/proc/PID/task/TID/children` (or, on
//! kernels without it, every `/proc/PID/stat`) many times a second and remembers every process that it found.

use slowpath_agent::{descendants, own_pid};
use slowpath_views::selection::ProcessSet;
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
        self.members.append(descendants(own_pid()));
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

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
        drop(shell.stdin.take());
        shell.wait().unwrap();
        let met = &family.members;
        assert!(met.contains(grandchild) && met.contains(shell.id()));
    }
}
