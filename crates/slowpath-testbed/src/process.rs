// SPDX-License-Identifier: Apache-2.0
//! Workload processes: started, given commands, and read.

use crate::workload::{Ready, Report};
use crate::{Namespace, TestbedError};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

/// How long a workload may stay silent: far longer than any scenario lasts, so that a
/// stuck one is an error and not a hang.
const PATIENCE_MS: i32 = 120_000;

const PROGRAM: &str = "slowpath-workload";

/// A running workload. Dropping it ends it.
#[derive(Debug)]
pub struct Process {
    role: String,
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    ready: Ready,
}

impl Process {
    /// Starts the workload program in a namespace and waits for its first line.
    ///
    /// # Errors
    /// The program is missing, or its first line is not [`Ready`].
    pub fn start(
        namespace: &Namespace,
        role: &str,
        arguments: Vec<String>,
    ) -> Result<Self, TestbedError> {
        let program = program()?;
        let mut child = namespace
            .command(&program)?
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(TestbedError::io("start", program.to_string_lossy()))?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            unreachable!("both were asked for as pipes");
        };
        let mut process = Process {
            role: role.to_owned(),
            child,
            input: Some(input),
            output: BufReader::new(output),
            ready: Ready {
                pid: 0,
                port: 0,
                connections: Vec::new(),
            },
        };
        process.ready = process.read_line()?;
        Ok(process)
    }

    /// What it said when its sockets stood.
    pub fn ready(&self) -> &Ready {
        &self.ready
    }

    /// Starts its work.
    ///
    /// # Errors
    /// It has ended.
    pub fn go(&mut self) -> Result<(), TestbedError> {
        self.say("go\n")
    }

    /// Asks it to end its work.
    ///
    /// # Errors
    /// It has ended.
    pub fn stop(&mut self) -> Result<(), TestbedError> {
        self.say("stop\n")
    }

    /// Waits for the end of its work. Its sockets stay open.
    ///
    /// # Errors
    /// It ended without a report.
    pub fn report(&mut self) -> Result<Report, TestbedError> {
        self.read_line()
    }

    /// Lets it close its sockets and waits until it has exited.
    ///
    /// # Errors
    /// It cannot be waited for.
    pub fn finish(mut self) -> Result<std::process::ExitStatus, TestbedError> {
        self.input = None;
        self.child
            .wait()
            .map_err(TestbedError::io("wait for", PROGRAM))
    }

    /// Kills it (SIGKILL) and waits until it is gone.
    ///
    /// # Errors
    /// It cannot be killed or waited for.
    pub fn kill(mut self) -> Result<std::process::ExitStatus, TestbedError> {
        self.child
            .kill()
            .and_then(|()| self.child.wait())
            .map_err(TestbedError::io("kill", PROGRAM))
    }

    fn say(&mut self, line: &str) -> Result<(), TestbedError> {
        let Some(input) = self.input.as_mut() else {
            return Err(self.failed("its input is closed".to_owned()));
        };
        match input.write_all(line.as_bytes()) {
            Ok(()) => Ok(()),
            Err(e) => Err(self.failed(format!("does not listen: {e}"))),
        }
    }

    fn read_line<T: DeserializeOwned>(&mut self) -> Result<T, TestbedError> {
        if self.output.buffer().is_empty() && !self.speaks() {
            return Err(self.failed(format!("said nothing for {PATIENCE_MS} ms")));
        }
        let mut line = String::new();
        self.output
            .read_line(&mut line)
            .map_err(TestbedError::io("read from", PROGRAM))?;
        serde_json::from_str(&line).map_err(|e| {
            let reason = match line.is_empty() {
                true => "ended without a word; its standard error says why".to_owned(),
                false => format!("said {line:?}: {e}"),
            };
            self.failed(reason)
        })
    }

    /// Waits for output or its end; false if neither comes in time.
    fn speaks(&self) -> bool {
        let mut fd = libc::pollfd {
            fd: self.output.get_ref().as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one descriptor, which stays open during the call.
        unsafe { libc::poll(&raw mut fd, 1, PATIENCE_MS) != 0 }
    }

    fn failed(&self, reason: String) -> TestbedError {
        TestbedError::Workload {
            role: self.role.clone(),
            reason,
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.input = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The command line that says the same as `options`: one flag a field, dashes for
/// underscores.
pub(crate) fn arguments(subcommand: &str, options: &impl Serialize) -> Vec<String> {
    let mut arguments = vec![subcommand.to_owned()];
    let value = serde_json::to_value(options).unwrap_or_default();
    for (field, value) in value.as_object().into_iter().flatten() {
        let flag = format!("--{}", field.replace('_', "-"));
        match value {
            serde_json::Value::Null | serde_json::Value::Bool(false) => {}
            serde_json::Value::Bool(true) => arguments.push(flag),
            serde_json::Value::String(text) => arguments.extend([flag, text.clone()]),
            other => arguments.extend([flag, other.to_string()]),
        }
    }
    arguments
}

fn program() -> Result<PathBuf, TestbedError> {
    beside(PROGRAM, "SLOWPATH_WORKLOAD")
}

/// The program that a variable names, or the one beside the running program or, for a test,
/// one folder up.
pub(crate) fn beside(program: &str, variable: &str) -> Result<PathBuf, TestbedError> {
    if let Some(path) = std::env::var_os(variable) {
        return Ok(path.into());
    }
    let me = std::env::current_exe().map_err(TestbedError::io("find", "the running program"))?;
    me.ancestors()
        .skip(1)
        .take(2)
        .map(|dir| dir.join(program))
        .find(|path| path.is_file())
        .ok_or_else(|| TestbedError::Workload {
            role: program.to_owned(),
            reason: format!(
                "is not beside {}; build it with `cargo build -p slowpath-testbed --bins` \
                 or name it in {variable}",
                me.display()
            ),
        })
}

#[cfg(test)]
mod tests {
    use super::arguments;
    use crate::workload::{DriveMode, DriveOptions, ServeOptions};
    use clap::Parser;

    #[derive(Parser)]
    struct Drive {
        #[command(flatten)]
        options: DriveOptions,
    }

    #[derive(Parser)]
    struct Serve {
        #[command(flatten)]
        options: ServeOptions,
    }

    #[test]
    fn arguments_say_what_the_options_said() {
        let drive = DriveOptions {
            mode: DriveMode::WriteWriteRead,
            seconds: Some(1.5),
            nodelay: true,
            cc: Some("reno".to_owned()),
            ..DriveOptions::to("[::ffff:10.0.0.1]:80".parse().expect("an address"))
        };
        let parsed = Drive::try_parse_from(arguments("drive", &drive)).expect("parses");
        assert_eq!(parsed.options, drive);
        let serve = ServeOptions {
            read_rate: Some(7),
            delay_acks: true,
            ..ServeOptions::default()
        };
        let parsed = Serve::try_parse_from(arguments("serve", &serve)).expect("parses");
        assert_eq!(parsed.options, serve);
    }
}
