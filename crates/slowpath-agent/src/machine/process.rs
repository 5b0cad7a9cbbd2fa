// SPDX-License-Identifier: Apache-2.0
//! What `/proc` says of one process.
//!
//! Everything is read below one open directory: `/proc/PID` keeps standing for the process
//! it was opened for, and reads fail once that has ended, so nothing of another process with
//! the same pid can get in between.

use crate::descendants::{numbers, own_pid};
use crate::host::ProcessFacts;
use crate::owners::cgroup_path;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use slowpath_model::{ProcessStart, Tier, join_arguments};
use std::os::fd::OwnedFd;
use std::path::Path;

/// Bytes of a command line that are kept.
const MAX_COMMAND_LINE: usize = 2_048;

/// Bytes of the other files that are read: they are shorter.
const MAX_FILE: usize = 16_384;

/// Why a process could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadError {
    /// The process has ended.
    Gone,
    /// Its files may not be read.
    NotPermitted,
    /// This process, or the machine, has no descriptor or memory left: nothing is known.
    Exhausted(Errno),
}

impl From<Errno> for ReadError {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::ACCESS | Errno::PERM => ReadError::NotPermitted,
            Errno::MFILE | Errno::NFILE | Errno::NOMEM => ReadError::Exhausted(errno),
            _ => ReadError::Gone,
        }
    }
}

/// A process in `/proc`.
pub(crate) struct ProcessDirectory(OwnedFd);

impl ProcessDirectory {
    /// The process that has that pid now.
    pub(crate) fn open(pid: u32) -> Result<Self, ReadError> {
        Self::open_at(Path::new(&format!("/proc/{pid}")))
    }

    fn open_at(path: &Path) -> Result<Self, ReadError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(ProcessDirectory(rustix::fs::open(
            path,
            flags,
            Mode::empty(),
        )?))
    }

    /// Its directory of descriptors, or another one below it.
    pub(crate) fn directory(&self, name: &str) -> Result<OwnedFd, ReadError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(&self.0, name, flags, Mode::empty())?)
    }

    /// Its command name and when it started.
    pub(crate) fn identity(&self) -> Result<(String, ProcessStart), ReadError> {
        let stat = self.read("stat", MAX_FILE)?;
        identity(&String::from_utf8_lossy(&stat)).ok_or(ReadError::Gone)
    }

    /// All of it.
    pub(crate) fn facts(&self) -> Result<ProcessFacts, ReadError> {
        let (command, start) = self.identity()?;
        let line = self.read("cmdline", MAX_COMMAND_LINE).ok();
        let cgroup = self.read("cgroup", MAX_FILE).ok();
        Ok(ProcessFacts {
            command,
            start,
            executable: rustix::fs::readlinkat(&self.0, "exe", Vec::new())
                .ok()
                .map(|path| executable(&path.to_string_lossy())),
            command_line: line.map(|l| command_line(&l)).filter(|l| !l.is_empty()),
            cgroup: cgroup.and_then(|text| {
                cgroup_path::choose(&String::from_utf8_lossy(&text)).map(str::to_owned)
            }),
        })
    }

    fn read(&self, name: &str, most: usize) -> Result<Vec<u8>, ReadError> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.0, name, flags, Mode::empty())?;
        let mut bytes = vec![0; most];
        let mut length = 0;
        while length < most {
            match rustix::io::read(&file, &mut bytes[length..]) {
                Ok(0) => break,
                Ok(n) => length += n,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        bytes.truncate(length);
        Ok(bytes)
    }
}

/// Command name and start time in a line of `/proc/PID/stat` (`proc_pid_stat(5)`): the
/// second field is in parentheses and may contain any character, the start is field 22.
fn identity(stat: &str) -> Option<(String, ProcessStart)> {
    let (before, after) = stat.rsplit_once(')')?;
    let (_, command) = before.split_once('(')?;
    let start = after.split_whitespace().nth(22 - 3)?.parse().ok()?;
    Some((command.to_owned(), ProcessStart(start)))
}

/// Arguments are separated by NUL; a program that writes a title over them may leave several
/// at the end.
fn command_line(bytes: &[u8]) -> String {
    let end = bytes.iter().rposition(|b| *b != 0).map_or(0, |i| i + 1);
    let text = String::from_utf8_lossy(&bytes[..end]);
    let arguments: Vec<&str> = text.split('\0').collect();
    join_arguments(&arguments).trim_end().to_owned()
}

/// The kernel marks a program whose file was replaced while it runs (`d_path`).
fn executable(path: &str) -> String {
    path.strip_suffix(" (deleted)").unwrap_or(path).to_owned()
}

/// Whether pids in `/proc` are those of the initial pid namespace, as the BPF programs
/// report them. It may show that one to a process of another: to those of a laboratory's hosts.
pub(crate) fn proc_is_initial() -> bool {
    if in_initial_namespace() && own_pid() == std::process::id() {
        return true;
    }
    // A process with one number is in the namespace that it shows. Not all may be asked.
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut found = all.filter_map(|entry| {
        let status = std::fs::read_to_string(entry.path().join("status")).ok()?;
        let has_one = numbers(&status)?.nth(1).is_none();
        is_initial(entry.path().join("ns/pid")).filter(|_| has_one)
    });
    found.next().unwrap_or(false)
}

/// Whether this process is in the initial pid namespace: then the kernel lists the descriptors
/// of all processes to it.
pub(crate) fn in_initial_namespace() -> bool {
    is_initial("/proc/self/ns/pid").unwrap_or(false)
}

fn is_initial(link: impl AsRef<Path>) -> Option<bool> {
    let link = std::fs::read_link(link).ok()?;
    // PROC_PID_INIT_INO (include/uapi/linux/nsfs.h).
    Some(link == Path::new("pid:[4026531836]"))
}

/// Whether an owner can be found in every process of the machine. Otherwise, in a container or a
/// host of the laboratory, in those of this pid namespace only.
pub fn sees_all_processes(tier: Tier) -> bool {
    match tier {
        Tier::Bpf => in_initial_namespace() && proc_is_initial(),
        Tier::InetDiag | Tier::Imported => proc_is_initial(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_command_may_contain_anything() {
        let line = "7 (a) R (b) S 1 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 4711 0 0";
        assert_eq!(
            identity(line),
            Some(("a) R (b".to_owned(), ProcessStart(4711)))
        );
        assert_eq!(identity("7 (a S 1"), None);
        assert_eq!(identity("7 (a) S 1"), None);
    }

    #[test]
    fn arguments_stay_distinct() {
        assert_eq!(command_line(b"a\0b c\0\0\0"), "a 'b c'");
        assert_eq!(command_line(b""), "");
        assert_eq!(command_line(b"a\0\0b\0"), "a '' b");
        assert_eq!(
            command_line(b"nginx: worker process \0\0"),
            "nginx: worker process"
        );
        assert_eq!(executable("/usr/bin/x (deleted)"), "/usr/bin/x");
    }

    #[test]
    fn a_process_is_read_while_it_lives() {
        let mut child = Command::new("sh")
            .args(["-c", "read line", "named"])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let directory = ProcessDirectory::open(child.id()).unwrap();
        // The shell may still be on its way to execve.
        let facts = loop {
            let facts = directory.facts().unwrap();
            if facts.command == "sh" && facts.command_line.is_some() {
                break facts;
            }
            std::thread::yield_now();
        };
        assert_eq!(
            facts.command_line.as_deref(),
            Some("sh -c 'read line' named")
        );
        assert!(facts.executable.unwrap().starts_with('/'));
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!(directory.facts(), Err(ReadError::Gone));
        assert_eq!(
            ProcessDirectory::open(child.id()).err(),
            Some(ReadError::Gone)
        );
    }
}
