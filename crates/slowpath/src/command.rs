// SPDX-License-Identifier: Apache-2.0
//! Runs the command of `slowpath watch -- COMMAND`.

use crate::events::Event;
use crate::failure::Failure;
use slowpath_agent::child_in_proc;
use slowpath_machine::family_tree::{Family, adopt_orphans};
use std::io::{BufRead, BufReader, Read};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::Sender;
use std::thread;
use std::time::{Duration, Instant};

/// Where the command's output goes. Standard output is ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Both of its streams to our standard error; it keeps standard input.
    StandardError,
    /// Line by line as [`Event::CommandOutput`]; it has no standard input.
    Events,
}

/// A command that runs.
#[derive(Debug)]
pub struct Running {
    /// Its process and all that descend from it.
    pub family: Family,
    pid: u32,
    ended: Option<ExitStatus>,
}

/// How long a command that was asked to end may take.
const GRACE: Duration = Duration::from_secs(2);

/// Starts `words`; [`Event::CommandEnded`] reports when it has ended.
///
/// # Errors
/// [`Failure::Spawn`] when it does not start.
pub fn start(words: &[String], output: Output, events: &Sender<Event>) -> Result<Running, Failure> {
    let (program, arguments) = words
        .split_first()
        .ok_or_else(|| Failure::Usage("no command after `--`".to_owned()))?;
    let failed = |error| Failure::Spawn {
        program: program.clone(),
        error,
    };
    adopt_orphans();
    let mut command = Command::new(program);
    command.args(arguments);
    end_with_this_thread(&mut command);
    match output {
        Output::StandardError => {
            let stderr = std::io::stderr().as_fd().try_clone_to_owned();
            command.stdout(Stdio::from(stderr.map_err(failed)?));
        }
        Output::Events => {
            command
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped());
        }
    }
    let mut child = command.spawn().map_err(failed)?;
    let pid = child.id();
    let family = Family::of(child_in_proc(pid));
    family.keep_walking().map_err(failed)?;
    if let Some(out) = child.stdout.take() {
        forward(out, events.clone()).map_err(failed)?;
    }
    if let Some(err) = child.stderr.take() {
        forward(err, events.clone()).map_err(failed)?;
    }
    wait(child, events.clone()).map_err(failed)?;
    Ok(Running {
        family,
        pid,
        ended: None,
    })
}

/// Has the kernel ask the command to end when the calling thread does, which is the process's first: a kill
/// leaves nothing behind (PR_SET_PDEATHSIG(2const)). Not what the command starts in turn.
fn end_with_this_thread(command: &mut Command) {
    let parent = std::process::id();
    let ask = move || {
        // SAFETY: both calls take plain numbers and are async-signal-safe.
        let (asked, now) = unsafe {
            let asked = libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM);
            (asked, libc::getppid())
        };
        if asked != 0 {
            return Err(std::io::Error::last_os_error());
        }
        // It may have ended before.
        match u32::try_from(now) == Ok(parent) {
            true => Ok(()),
            false => Err(std::io::ErrorKind::NotFound.into()),
        }
    };
    // SAFETY: `ask` allocates nothing and takes no lock.
    unsafe {
        command.pre_exec(ask);
    }
}

fn wait(mut child: Child, events: Sender<Event>) -> std::io::Result<()> {
    thread::Builder::new()
        .name("command".to_owned())
        .spawn(move || {
            if let Ok(status) = child.wait() {
                // The view has ended: nothing is lost.
                let _ = events.send(Event::CommandEnded(status));
            }
        })?;
    Ok(())
}

fn forward(stream: impl Read + Send + 'static, events: Sender<Event>) -> std::io::Result<()> {
    thread::Builder::new()
        .name("output".to_owned())
        .spawn(move || {
            let mut reader = BufReader::new(stream);
            let mut line = Vec::new();
            while let Ok(1..) = reader.read_until(b'\n', &mut line) {
                let text = String::from_utf8_lossy(&line).trim_end().to_owned();
                line.clear();
                if events.send(Event::CommandOutput(text)).is_err() {
                    break;
                }
            }
        })?;
    Ok(())
}

impl Running {
    /// Notes that it has ended.
    pub fn note_end(&mut self, status: ExitStatus) {
        self.ended = Some(status);
    }

    /// How it ended, if it has.
    pub fn ended(&self) -> Option<ExitStatus> {
        self.ended
    }

    /// Asks it to end if it has not, as the same signal did to us, and waits a little.
    pub fn end(&mut self, events: &std::sync::mpsc::Receiver<Event>) {
        if self.ended.is_some() {
            return;
        }
        if let Ok(pid) = i32::try_from(self.pid) {
            // SAFETY: kill takes plain numbers; the process has not been waited for, or its
            // end would have been noted, but for a moment in which the call does nothing worse
            // than fail.
            unsafe {
                libc::kill(pid, libc::SIGTERM);
            }
        }
        let deadline = Instant::now() + GRACE;
        while let Ok(event) =
            events.recv_timeout(deadline.saturating_duration_since(Instant::now()))
        {
            if let Event::CommandEnded(status) = event {
                self.ended = Some(status);
                break;
            }
        }
    }
}
