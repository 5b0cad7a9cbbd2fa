// SPDX-License-Identifier: Apache-2.0
//! The command as a child: agents that are killed, and commands that must end.

use crate::Tally;
use std::fs::{self, File};
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A command that takes longer hangs. The slowest ends within a second on an idle machine.
pub(crate) const HANG: Duration = Duration::from_secs(120);
/// Exit status of a Rust program that panicked.
const PANICKED: i32 = 101;

/// A running agent; it ends with this value.
pub(crate) struct Agent {
    child: Child,
    said: PathBuf,
}

impl Agent {
    /// `slowpath agent` with these arguments, and its standard error in a file of `scratch`.
    /// `limit` is a line of shell that comes before, such as `ulimit -n 20`.
    pub(crate) fn start(
        program: &Path,
        arguments: &[&str],
        scratch: &Path,
        limit: &str,
    ) -> io::Result<Agent> {
        let said = scratch.join("agent.err");
        let child = Command::new("sh")
            .args(["-c", &format!("{limit}\nexec \"$@\""), "sh"])
            .arg(program)
            .arg("agent")
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&said)?)
            .spawn()?;
        Ok(Agent { child, said })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it wrote to standard error.
    pub(crate) fn said(&self) -> String {
        let bytes = fs::read(&self.said).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Waits until `holds`; false if the agent ends before, or it takes longer than anything should.
    pub(crate) fn wait_until(&mut self, mut holds: impl FnMut(&Self) -> bool) -> io::Result<bool> {
        let end = Instant::now() + HANG;
        while Instant::now() < end {
            if holds(self) {
                return Ok(true);
            }
            if self.child.try_wait()?.is_some() {
                return Ok(holds(self));
            }
            sleep(Duration::from_millis(5));
        }
        Ok(false)
    }

    pub(crate) fn signal(&self, signal: libc::c_int) {
        // SAFETY: kill takes plain numbers; the child has not been waited for, so the number is
        // its own.
        unsafe { libc::kill(self.child.id() as libc::pid_t, signal) };
    }

    /// kill -9.
    pub(crate) fn kill(mut self) -> io::Result<ExitStatus> {
        self.child.kill()?;
        self.child.wait()
    }

    /// SIGTERM; gives what became of it. One that does not end is killed and counted.
    pub(crate) fn end(mut self, tally: &mut Tally) -> io::Result<Ended> {
        self.signal(libc::SIGTERM);
        let status = wait(&mut self.child)?;
        let ended = Ended {
            status,
            out: String::new(),
            err: self.said(),
        };
        ended.count("agent", tally);
        Ok(ended)
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How a command ended, and what it wrote.
#[derive(Clone, Debug)]
pub(crate) struct Ended {
    /// `None`: it did not end, and was killed.
    pub(crate) status: Option<ExitStatus>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ended {
    /// Runs a command to its end.
    pub(crate) fn of(
        program: &Path,
        arguments: &[String],
        scratch: &Path,
        tally: &mut Tally,
    ) -> io::Result<Ended> {
        let [out, err] = ["out", "err"].map(|name| scratch.join(format!("command.{name}")));
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(File::create(&out)?)
            .stderr(File::create(&err)?)
            .spawn()?;
        let status = wait(&mut child)?;
        let text = |path| fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        let ended = Ended {
            status,
            out: text(&out)?,
            err: text(&err)?,
        };
        ended.count(&arguments.join(" "), tally);
        Ok(ended)
    }

    pub(crate) fn succeeded(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }

    /// Counts a hang, a panic and a death by a signal.
    fn count(&self, what: &str, tally: &mut Tally) {
        let Some(status) = self.status else {
            tally.hangs += 1;
            tally.find(format!("does not end: {what}"));
            return;
        };
        let panicked = status.code() == Some(PANICKED) || self.err.contains("panicked at ");
        if panicked || status.signal().is_some() {
            tally.panics += 1;
            tally.find(format!("{what}: {status}: {}", self.err.trim_end()));
        }
    }
}

/// Waits for a child's end; kills one that does not end.
fn wait(child: &mut Child) -> io::Result<Option<ExitStatus>> {
    let end = Instant::now() + HANG;
    while Instant::now() < end {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        sleep(Duration::from_millis(2));
    }
    child.kill()?;
    child.wait()?;
    Ok(None)
}

/// The arguments as a command takes them.
pub(crate) fn arguments(of: &[&str]) -> Vec<String> {
    of.iter().map(|&argument| argument.to_owned()).collect()
}
