// SPDX-License-Identifier: Apache-2.0
//! Network namespaces: made, entered, removed.

use crate::TestbedError;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

const DIRECTORY: &str = "/run/netns";

/// A network namespace with a name, gone when this is dropped.
#[derive(Debug)]
pub struct Namespace {
    name: String,
    file: File,
}

impl Namespace {
    /// Makes the namespace and brings its loopback up.
    ///
    /// # Errors
    /// `ip` is missing or refuses (no root, the name exists).
    pub fn new(name: &str) -> Result<Self, TestbedError> {
        run_tool("ip", &["netns", "add", name], None)?;
        let path = PathBuf::from(DIRECTORY).join(name);
        let file = File::open(&path).map_err(TestbedError::io("open", path.to_string_lossy()))?;
        let namespace = Namespace {
            name: name.to_owned(),
            file,
        };
        namespace.ip("link set lo up")?;
        Ok(namespace)
    }

    /// Its name, under `/run/netns`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its inode number, which names it in [`slowpath_model::ConnectionId::netns`].
    ///
    /// # Errors
    /// The namespace's file cannot be examined.
    pub fn inode(&self) -> Result<u32, TestbedError> {
        let metadata = self
            .file
            .metadata()
            .map_err(TestbedError::io("examine namespace", &self.name))?;
        Ok(metadata.ino() as u32)
    }

    /// Runs `work` on a thread inside the namespace and waits for it.
    ///
    /// # Errors
    /// The namespace cannot be entered. A panic of `work` is passed on.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, TestbedError> {
        run_in(&self.file, &self.name, work)
    }

    /// The open file that stands for the namespace, for what may outlive this value.
    ///
    /// # Errors
    /// The descriptor cannot be duplicated.
    pub(crate) fn file(&self) -> Result<File, TestbedError> {
        self.file
            .try_clone()
            .map_err(TestbedError::io("duplicate namespace", &self.name))
    }

    /// A command that will run inside the namespace.
    ///
    /// # Errors
    /// The namespace's descriptor cannot be duplicated.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Result<Command, TestbedError> {
        let file = self.file()?;
        let mut command = Command::new(program);
        // SAFETY: the closure only calls setns, which is async-signal-safe, on a
        // descriptor that it owns.
        unsafe { command.pre_exec(move || enter(file.as_raw_fd())) };
        Ok(command)
    }

    /// Sets a sysctl of this namespace, named with dots.
    ///
    /// # Errors
    /// There is no such sysctl in a namespace, or it refuses the value.
    pub fn sysctl(&self, name: &str, value: &str) -> Result<(), TestbedError> {
        let path = format!("/proc/sys/{}", name.replace('.', "/"));
        self.run(|| fs::write(&path, value))?
            .map_err(TestbedError::io("set sysctl", format!("{name}={value}")))
    }

    /// Runs lines of `ip -batch` inside.
    ///
    /// # Errors
    /// `ip` is missing or refuses a line.
    pub fn ip(&self, lines: &str) -> Result<(), TestbedError> {
        run_tool("ip", &["-n", &self.name, "-batch", "-"], Some(lines))
    }

    /// Runs `tc` inside, with arguments separated by spaces.
    ///
    /// # Errors
    /// `tc` is missing or refuses.
    pub fn tc(&self, arguments: &str) -> Result<(), TestbedError> {
        let mut all = vec!["-n", &self.name];
        all.extend(arguments.split_whitespace());
        run_tool("tc", &all, None)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // A namespace that cannot be removed now is removed as a leftover later.
        let _ = run_tool("ip", &["netns", "del", &self.name], None);
    }
}

/// Runs `work` on a thread inside the namespace that `file` stands for.
pub(crate) fn run_in<T: Send>(
    file: &File,
    name: &str,
    work: impl FnOnce() -> T + Send,
) -> Result<T, TestbedError> {
    let fd = file.as_raw_fd();
    let result = std::thread::scope(|scope| {
        scope
            .spawn(move || {
                enter(fd)?;
                Ok(work())
            })
            .join()
    });
    match result {
        Ok(result) => result.map_err(TestbedError::io("enter namespace", name)),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

fn enter(fd: i32) -> io::Result<()> {
    // SAFETY: setns takes two integers.
    match unsafe { libc::setns(fd, libc::CLONE_NEWNET) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Removes the namespaces of testbeds whose process is gone.
pub(crate) fn remove_leftovers() {
    let Ok(entries) = fs::read_dir(DIRECTORY) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        let Some(pid) = owner_of(name) else { continue };
        if !PathBuf::from(format!("/proc/{pid}")).exists() {
            // Another process may remove it at the same moment.
            let _ = run_tool("ip", &["netns", "del", name], None);
        }
    }
}

/// The process in a testbed namespace's name, `sp-<pid>-<n>-<side>`.
fn owner_of(name: &str) -> Option<u32> {
    let mut parts = name.strip_prefix("sp-")?.split('-');
    let pid = parts.next()?.parse().ok()?;
    parts.next()?.parse::<u32>().ok()?;
    parts.next()?;
    Some(pid)
}

/// Runs `ip` or `tc`.
pub(crate) fn run_tool(
    program: &'static str,
    arguments: &[&str],
    input: Option<&str>,
) -> Result<(), TestbedError> {
    let describe = || {
        let input = input.unwrap_or_default().trim().replace('\n', "; ");
        format!("{program} {} {input}", arguments.join(" "))
    };
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(if input.is_some() {
            Stdio::piped()
        } else {
            Stdio::null()
        })
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => TestbedError::ToolMissing {
                program: program.to_owned(),
                package: "iproute2",
            },
            _ => TestbedError::Io {
                operation: "run",
                object: describe(),
                source,
            },
        })?;
    if let (Some(input), Some(mut stdin)) = (input, child.stdin.take()) {
        // A tool that stops reading says why on its standard error.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child
        .wait_with_output()
        .map_err(TestbedError::io("wait for", program))?;
    if output.status.success() {
        return Ok(());
    }
    Err(TestbedError::Tool {
        command: describe(),
        stderr: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::owner_of;

    #[test]
    fn only_testbed_names_have_an_owner() {
        assert_eq!(owner_of("sp-123-4-a"), Some(123));
        assert_eq!(owner_of("sp-123-4"), None);
        assert_eq!(owner_of("sp-x-4-a"), None);
        assert_eq!(owner_of("other-1-2-a"), None);
    }
}
