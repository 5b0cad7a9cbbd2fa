// SPDX-License-Identifier: Apache-2.0
//! The command, from its start to the end of all that it started.

use super::{InitError, Order, say};
use crate::guest::wire::{Frames, FromGuest, Status, ToGuest};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, kill_process_group};
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A sign of life so often.
const BEAT: Duration = Duration::from_secs(1);
/// After the polite request to stop.
const GRACE: Duration = Duration::from_secs(2);
/// Read at once.
const CHUNK: usize = 64 * 1024;
/// Ctrl-D: what a terminal makes the end of input of.
const END_OF_INPUT: u8 = 4;

/// Wraps what came from an output.
type Wrap = fn(Vec<u8>) -> FromGuest;

struct Running {
    pid: Pid,
    /// Its outputs, and what a message of each is.
    outputs: Vec<(File, Wrap)>,
    /// Its terminal's keyboard.
    keyboard: Option<File>,
    /// One message when it has ended.
    ended: io::PipeReader,
    status: Option<Status>,
    kill_at: Option<Instant>,
}

/// Runs the order's command, passing its output on.
pub fn run(order: &Order, port: &mut File) -> Result<Status, InitError> {
    let mut running = start(order)?;
    let mut frames = Frames::default();
    let mut beat = Instant::now();
    loop {
        let ready = wait(&running, port, beat + BEAT)?;
        if beat.elapsed() >= BEAT {
            say(port, &FromGuest::Beat)?;
            beat = Instant::now();
        }
        // Outputs first: what it said last comes out before its end does.
        let mut still = Vec::new();
        for ((mut output, wrap), ready) in running.outputs.drain(..).zip(ready.outputs) {
            if !ready || pass_on(&mut output, wrap, port)? {
                still.push((output, wrap));
            }
        }
        running.outputs = still;
        if ready.port {
            listen(port, &mut frames, &mut running)?;
        }
        if ready.ended && running.status.is_none() {
            running.status = Some(read_status(&mut running.ended)?);
            running.kill_at = None;
            kill_everything();
        }
        if running.kill_at.is_some_and(|at| Instant::now() >= at) {
            running.kill_at = None;
            let _ = kill_process_group(running.pid, Signal::KILL);
        }
        if let Some(status) = running.status
            && running.outputs.is_empty()
        {
            return Ok(status);
        }
    }
}

fn start(order: &Order) -> Result<Running, InitError> {
    let Some((program, arguments)) = order.command.split_first() else {
        let empty = io::Error::from(io::ErrorKind::InvalidInput);
        return Err(InitError::of("run", "an empty command")(empty));
    };
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env_clear()
        .envs(&order.environment)
        .current_dir("/root");
    let starting = || InitError::of("start", format!("`{program}`"));
    let mut terminal = None;
    match order.terminal {
        None => {
            command
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .process_group(0);
        }
        Some(size) => {
            let (ours, theirs) =
                open_terminal(size).map_err(InitError::of("open", "a terminal"))?;
            let theirs = || theirs.try_clone().map(Stdio::from);
            command
                .stdin(theirs().map_err(starting())?)
                .stdout(theirs().map_err(starting())?)
                .stderr(theirs().map_err(starting())?);
            // SAFETY: between fork and exec only two system calls are made; standard input
            // is the terminal by then.
            unsafe {
                command.pre_exec(|| {
                    rustix::process::setsid()?;
                    rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())?;
                    Ok(())
                });
            }
            terminal = Some(File::from(ours));
        }
    }
    let mut child = command.spawn().map_err(starting())?;
    // The command holds copies of the terminal's other end.
    drop(command);
    let pid = Pid::from_child(&child);
    let mut outputs: Vec<(File, Wrap)> = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        outputs.push((OwnedFd::from(stdout).into(), FromGuest::Stdout));
    }
    if let Some(stderr) = child.stderr.take() {
        outputs.push((OwnedFd::from(stderr).into(), FromGuest::Stderr));
    }
    let keyboard = match terminal {
        Some(terminal) => {
            let copy = terminal.try_clone().map_err(starting())?;
            outputs.push((copy, FromGuest::Stdout));
            Some(terminal)
        }
        None => None,
    };
    let (ended, report) = io::pipe().map_err(starting())?;
    std::thread::Builder::new()
        .spawn(move || bury(pid, report))
        .map_err(starting())?;
    Ok(Running {
        pid,
        outputs,
        keyboard,
        ended,
        status: None,
        kill_at: None,
    })
}

fn open_terminal((columns, rows): (u16, u16)) -> rustix::io::Result<(OwnedFd, OwnedFd)> {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    grantpt(&ours)?;
    unlockpt(&ours)?;
    let theirs = ioctl_tiocgptpeer(&ours, OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
    let size = Winsize {
        ws_col: columns,
        ws_row: rows,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(&ours, size)?;
    Ok((ours, theirs))
}

/// Waits for every process that ends, as the first process must, and reports how the command
/// did.
fn bury(command: Pid, mut report: io::PipeWriter) {
    loop {
        match rustix::process::wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid == command => {
                let signal = status.terminating_signal();
                let code = status.exit_status().unwrap_or(-1);
                let status = signal.map_or(Status::Exited(code), Status::Signalled);
                let line = serde_json::to_vec(&status).unwrap_or_default();
                let _ = report.write_all(&line);
            }
            Ok(_) | Err(Errno::INTR) => {}
            // No process is left, so the command is not either.
            Err(_) => return,
        }
    }
}

fn read_status(ended: &mut io::PipeReader) -> Result<Status, InitError> {
    let mut line = [0; 64];
    let length = ended
        .read(&mut line)
        .map_err(InitError::of("wait for", "the command"))?;
    serde_json::from_slice(&line[..length]).map_err(InitError::of("wait for", "the command"))
}

/// What the command left running ends with it.
fn kill_everything() {
    // SAFETY: kill takes two numbers. -1: every process but the first, which this is.
    unsafe {
        libc::kill(-1, libc::SIGKILL);
    }
}

struct Ready {
    outputs: Vec<bool>,
    port: bool,
    ended: bool,
}

fn wait(running: &Running, port: &File, next_beat: Instant) -> Result<Ready, InitError> {
    let until = running.kill_at.map_or(next_beat, |at| at.min(next_beat));
    let timeout = until.saturating_duration_since(Instant::now());
    let timeout = Timespec::try_from(timeout).ok();
    let mut fds: Vec<PollFd> = running
        .outputs
        .iter()
        .map(|(output, _)| PollFd::new(output, PollFlags::IN))
        .collect();
    fds.push(PollFd::new(port, PollFlags::IN));
    if running.status.is_none() {
        fds.push(PollFd::from_borrowed_fd(
            running.ended.as_fd(),
            PollFlags::IN,
        ));
    }
    match poll(&mut fds, timeout.as_ref()) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(InitError::of("watch", "the command")(error)),
    }
    let mut ready = fds.iter().map(|fd| !fd.revents().is_empty());
    Ok(Ready {
        outputs: ready.by_ref().take(running.outputs.len()).collect(),
        port: ready.next().unwrap_or(false),
        ended: ready.next().unwrap_or(false),
    })
}

/// Passes output on; false at its end.
fn pass_on(output: &mut File, wrap: Wrap, port: &mut File) -> Result<bool, InitError> {
    let mut bytes = vec![0; CHUNK];
    match output.read(&mut bytes) {
        Ok(0) => Ok(false),
        Ok(length) => {
            bytes.truncate(length);
            say(port, &wrap(bytes))?;
            Ok(true)
        }
        Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(true),
        // A terminal that no process holds open any more (pty(7)).
        Err(e) if e.raw_os_error() == Some(libc::EIO) => Ok(false),
        Err(e) => Err(InitError::of("read", "the command's output")(e)),
    }
}

fn listen(port: &mut File, frames: &mut Frames, running: &mut Running) -> Result<(), InitError> {
    let mut bytes = vec![0; CHUNK];
    let length = match port.read(&mut bytes) {
        Ok(length) => length,
        Err(e) if e.kind() == io::ErrorKind::Interrupted => 0,
        Err(e) => return Err(InitError::of("read", "the port")(e)),
    };
    frames.push(&bytes[..length]);
    let understanding = || InitError::of("understand", "the port");
    while let Some(frame) = frames
        .next_frame()
        .map_err(io::Error::other)
        .map_err(understanding())?
    {
        match ToGuest::decode(frame)
            .map_err(io::Error::other)
            .map_err(understanding())?
        {
            ToGuest::Stop => {
                let _ = kill_process_group(running.pid, Signal::TERM);
                running.kill_at = Some(Instant::now() + GRACE);
            }
            ToGuest::Input(typed) => {
                let Some(keyboard) = &mut running.keyboard else {
                    continue;
                };
                let typed = match typed.is_empty() {
                    true => vec![END_OF_INPUT],
                    false => typed,
                };
                // A terminal whose program has ended takes nothing; its end is reported separately.
                let _ = keyboard.write_all(&typed);
            }
        }
    }
    Ok(())
}
