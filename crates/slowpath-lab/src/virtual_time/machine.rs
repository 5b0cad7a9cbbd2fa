// SPDX-License-Identifier: Apache-2.0
//! The kernel's process: started, listened to, and never left behind.

use super::error::RunError;
use super::kernel::Kernel;
use super::plan::{Options, Plan};
use slowpath_switch::Time;
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// Lines of the console that are kept.
const LINES: usize = 30;
/// Lines on their way from the console: more make the kernel wait.
const QUEUE: usize = 256;
/// The longest line of a console that is kept whole.
const MAX_LINE: u64 = 4096;
/// What the driver says now and then.
const SAYS: &str = "slowpath-lab: at ";

/// How far a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Virtual time; 0 during the warm-up.
    pub now: Time,
    /// Where it ends at the latest.
    pub until: Time,
}

/// A kernel that is killed when this is dropped. It leads its own session, and what it started
/// dies with it.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        if !matches!(self.0.try_wait(), Ok(Some(_))) {
            // The group first: it is there once the kernel has made itself its leader.
            // SAFETY: a system call without pointers; a child that has not been waited for
            // keeps its number, and so does its group.
            unsafe { libc::kill(-(self.0.id() as libc::pid_t), libc::SIGKILL) };
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
}

/// The kernel's program with its arguments.
pub fn command(kernel: &Kernel, plan: &Plan, options: &Options, folder: &Path) -> Command {
    let mut command = Command::new(&kernel.path);
    command
        .current_dir(folder)
        .env_clear()
        .arg(format!("slowpath_seed={}", plan.seed))
        .arg("time-travel=inf-cpu")
        .arg(format!("time-travel-start={}", plan.epoch))
        .arg(format!("mem={}M", plan.memory()))
        .arg(format!("ipv6.disable={}", u8::from(!plan.has_ipv6())))
        .arg(format!(
            "tcp_cubic.hystart={}",
            u8::from(plan.sysctls.hystart)
        ))
        .args([
            "con=null",
            "con0=null,fd:1",
            "uml_dir=.",
            "umid=kernel",
            "panic=-1",
        ])
        .args(options.path.arguments(folder));
    command
}

fn start(
    kernel: &Kernel,
    plan: &Plan,
    options: &Options,
    folder: &Path,
) -> Result<Running, RunError> {
    let mut command = command(kernel, plan, options, folder);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let parent = std::process::id();
    // SAFETY: two system calls without pointers; nothing is allocated or locked.
    unsafe {
        command.pre_exec(move || {
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
                return Err(std::io::Error::last_os_error());
            }
            // It may have died before that: nothing would report that.
            if libc::getppid() as u32 != parent {
                return Err(std::io::Error::from_raw_os_error(libc::ESRCH));
            }
            Ok(())
        });
    }
    let child = command.spawn().map_err(|error| RunError::Start {
        path: kernel.path.clone(),
        error,
    })?;
    Ok(Running(child))
}

/// Runs a kernel to its end; how long that took.
///
/// # Errors
/// The kernel fails, dies or hangs.
pub fn run(
    kernel: &Kernel,
    plan: &Plan,
    options: &Options,
    folder: &Path,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Duration, RunError> {
    let begun = Instant::now();
    let mut running = start(kernel, plan, options, folder)?;
    let (to, lines) = sync_channel(QUEUE);
    let reader = running
        .0
        .stdout
        .take()
        .map(|console| std::thread::spawn(move || listen(BufReader::new(console), &to)));
    let heard = follow(&lines, plan, options.patience, progress);
    drop(lines);
    if let Err(last) = heard {
        drop(running);
        return Err(RunError::Hung {
            seconds: options.patience.as_secs(),
            lines: joined(&last),
        });
    }
    let status = running.0.wait();
    let wall = begun.elapsed();
    if let Some(reader) = reader {
        // It ends with the console.
        let _ = reader.join();
    }
    // The kernel's own folder for its process number.
    let _ = std::fs::remove_dir_all(folder.join("kernel"));
    match (heard, status) {
        (Ok(_), Ok(status)) if status.success() => Ok(wall),
        (Ok(last) | Err(last), status) => Err(RunError::Died {
            status: status.map_or_else(|error| error.to_string(), |status| status.to_string()),
            lines: joined(&last),
        }),
    }
}

fn joined(lines: &VecDeque<String>) -> String {
    lines
        .iter()
        .map(|line| format!("  {line}"))
        .collect::<Vec<_>>()
        .join("\n")
}

/// The console's lines, until it is closed or the reader has gone.
fn listen(mut console: impl BufRead, to: &SyncSender<String>) {
    let mut line = Vec::new();
    loop {
        line.clear();
        match console.by_ref().take(MAX_LINE).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let text = String::from_utf8_lossy(&line).trim_end().to_owned();
        if to.send(text).is_err() {
            return;
        }
    }
}

/// Follows what the kernel says; its last lines, as an error if it fell silent.
fn follow(
    lines: &Receiver<String>,
    plan: &Plan,
    patience: Duration,
    progress: &mut dyn FnMut(&Progress),
) -> Result<VecDeque<String>, VecDeque<String>> {
    let mut last = VecDeque::new();
    loop {
        match lines.recv_timeout(patience) {
            Ok(line) => {
                if let Some(now) = said(&line) {
                    progress(&Progress {
                        now,
                        until: plan.until,
                    });
                    continue;
                }
                if last.len() == LINES {
                    last.pop_front();
                }
                if !line.is_empty() {
                    last.push_back(line);
                }
            }
            Err(RecvTimeoutError::Timeout) => return Err(last),
            Err(RecvTimeoutError::Disconnected) => return Ok(last),
        }
    }
}

/// The time that a line of progress says.
fn said(line: &str) -> Option<Time> {
    let (_, rest) = line.split_once(SAYS)?;
    let picoseconds: i64 = rest.split_once(' ')?.0.parse().ok()?;
    Some(Time(picoseconds.max(0) as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_read_from_the_console() {
        assert_eq!(said("slowpath-lab: at 1500 ps"), Some(Time(1500)));
        assert_eq!(said("[ 1.0] slowpath-lab: at -20 ps"), Some(Time::ZERO));
        assert_eq!(said("slowpath-lab: done"), None);
        assert_eq!(said("slowpath-lab: at night"), None);
    }
}
