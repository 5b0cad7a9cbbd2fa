// SPDX-License-Identifier: Apache-2.0
//! Processes that do with sockets what a test says, command by command.

use crate::process::beside;
use crate::{Namespace, TestbedError};
use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// How long something may take that is bound to happen: a hang is an error.
const PATIENCE: Duration = Duration::from_secs(20);

/// A process that takes commands; the program `slowpath-actor` lists them.
#[derive(Debug)]
pub struct Actor {
    directory: PathBuf,
    name: String,
    pid: u32,
    stream: BufReader<UnixStream>,
    /// The test's own child; others are its children.
    child: Option<Child>,
}

impl Actor {
    /// Starts one that commands reach through the directory.
    ///
    /// # Errors
    /// The program is missing or does not answer.
    pub fn start(
        namespace: &Namespace,
        directory: &Path,
        name: &str,
    ) -> Result<Self, TestbedError> {
        let program = beside("slowpath-actor", "SLOWPATH_ACTOR")?;
        let link = directory.join(name).with_extension("program");
        std::os::unix::fs::symlink(&program, &link)
            .map_err(TestbedError::io("link", link.to_string_lossy()))?;
        let child = namespace
            .command(&link)?
            .arg(directory)
            .arg(name)
            .arg(life()?.to_string())
            .spawn()
            .map_err(TestbedError::io("start", program.to_string_lossy()))?;
        let pid = child.id();
        let stream = reach(directory, name)?;
        Ok(Actor {
            directory: directory.to_owned(),
            name: name.to_owned(),
            pid,
            stream,
            child: Some(child),
        })
    }

    /// Its process id, in the initial pid namespace.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Sends it a command; gives the number that it answers, often a descriptor.
    ///
    /// # Errors
    /// It cannot do that, or has ended.
    pub fn command(&mut self, command: &str) -> Result<i32, TestbedError> {
        let failed = |reason: String| TestbedError::Workload {
            role: "slowpath-actor".to_owned(),
            reason,
        };
        let io = || TestbedError::io("command", format!("{} to {command}", self.name));
        let io = io();
        let mut answer = String::new();
        let exchanged = writeln!(self.stream.get_mut(), "{command}")
            .and_then(|()| self.stream.read_line(&mut answer));
        exchanged.map_err(io)?;
        match answer.trim_end().split_once(' ') {
            Some(("ok", value)) => value.parse().map_err(|_| failed(answer.clone())),
            _ => Err(failed(answer)),
        }
    }

    /// A child made by `fork`, `share` or `pid-namespace`.
    ///
    /// # Errors
    /// See [`Actor::command`].
    pub fn child(&mut self, how: &str, name: &str) -> Result<Actor, TestbedError> {
        self.born(name, &format!("{how} {name}"))
    }

    /// A forked child with this pid, which must be free.
    ///
    /// # Errors
    /// See [`Actor::command`].
    pub fn child_as(&mut self, name: &str, pid: u32) -> Result<Actor, TestbedError> {
        self.born(name, &format!("fork-as {name} {pid}"))
    }

    fn born(&mut self, name: &str, command: &str) -> Result<Actor, TestbedError> {
        let pid = self.command(command)?;
        Ok(Actor {
            directory: self.directory.clone(),
            name: name.to_owned(),
            pid: pid.unsigned_abs(),
            stream: reach(&self.directory, name)?,
            child: None,
        })
    }

    /// Has it run this program under another name, with a descriptor as its standard input
    /// if one is given.
    ///
    /// # Errors
    /// See [`Actor::command`].
    pub fn exec(&mut self, program: &str, stdin: Option<i32>) -> Result<(), TestbedError> {
        let file = beside("slowpath-actor", "SLOWPATH_ACTOR")?;
        let link = self.directory.join(program);
        if !link.exists() {
            std::os::unix::fs::symlink(&file, &link)
                .map_err(TestbedError::io("link", link.to_string_lossy()))?;
        }
        let stdin = stdin.map(|fd| format!(" {fd}")).unwrap_or_default();
        self.command(&format!("exec {program}{stdin}"))?;
        self.stream = reach(&self.directory, &self.name)?;
        Ok(())
    }

    /// Ends it and waits until its sockets are closed.
    ///
    /// # Errors
    /// It cannot be waited for.
    pub fn exit(mut self) -> Result<(), TestbedError> {
        // It may end before it has answered.
        let _ = self.command("exit");
        if let Some(mut child) = self.child.take() {
            child
                .wait()
                .map_err(TestbedError::io("wait for", &self.name))?;
        }
        Ok(())
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        let _ = writeln!(self.stream.get_mut(), "exit");
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The reading end of a pipe that no process but this one writes to: actors end when it
/// closes, and so with this process, however that ends.
fn life() -> Result<RawFd, TestbedError> {
    static LIFE: OnceLock<(PipeReader, PipeWriter)> = OnceLock::new();
    if let Some((reader, _)) = LIFE.get() {
        return Ok(reader.as_raw_fd());
    }
    let failed = || TestbedError::io("make", "a pipe");
    let (reader, writer) = std::io::pipe().map_err(failed())?;
    // SAFETY: numbers; actors are to inherit this end.
    if unsafe { libc::fcntl(reader.as_raw_fd(), libc::F_SETFD, 0) } < 0 {
        return Err(failed()(std::io::Error::last_os_error()));
    }
    // Another thread may have been faster.
    Ok(LIFE.get_or_init(|| (reader, writer)).0.as_raw_fd())
}

/// Connects to it, as soon as it listens.
fn reach(directory: &Path, name: &str) -> Result<BufReader<UnixStream>, TestbedError> {
    let path = directory.join(name);
    let patience = Instant::now() + PATIENCE;
    loop {
        match UnixStream::connect(&path) {
            Ok(stream) => {
                stream
                    .set_read_timeout(Some(PATIENCE))
                    .map_err(TestbedError::io("set up", name))?;
                return Ok(BufReader::new(stream));
            }
            Err(error) if Instant::now() > patience => {
                return Err(TestbedError::io("reach", name)(error));
            }
            Err(_) => std::thread::yield_now(),
        }
    }
}
