// SPDX-License-Identifier: Apache-2.0
//! The applications of a run, and the account that each keeps of its own calls.
//!
//! Sockets do not block: how many bytes the kernel has taken is known at every moment, and
//! so is when the application wants to write and cannot.

use crate::plan::{Pace, Plan, Traffic};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::set_tcp_quickack;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// `CLOCK_MONOTONIC` in nanoseconds.
pub fn monotonic() -> u64 {
    nanos(ClockId::Monotonic)
}

/// `CLOCK_REALTIME` in nanoseconds, which captures use.
pub fn realtime() -> u64 {
    nanos(ClockId::Realtime)
}

fn nanos(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    // Neither is negative.
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// A running sum at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// When, `CLOCK_MONOTONIC`.
    pub at: u64,
    /// Bytes since the connection began.
    pub total: u64,
}

/// A stretch of time, `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// Its beginning.
    pub from: u64,
    /// Its end.
    pub to: u64,
}

impl Span {
    /// Its length in nanoseconds.
    pub fn length(self) -> u64 {
        self.to.saturating_sub(self.from)
    }
}

/// What an application did with its end of a connection.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Log {
    /// Bytes that the kernel took, after each write.
    pub written: Vec<Step>,
    /// When it wanted to write and the kernel had no room.
    pub wanting: Vec<Span>,
    /// Bytes read, after each read.
    pub read: Vec<Step>,
}

/// An application's end of a connection.
pub struct End<'a> {
    socket: TcpStream,
    log: Log,
    /// Insists on delaying acknowledgements.
    insist: bool,
    stop: &'a AtomicBool,
}

/// How long a call waits before it looks whether the run is over.
const LOOK: i64 = 20_000_000;

impl<'a> End<'a> {
    /// Takes an end over; its calls return when `stop` is true.
    ///
    /// # Errors
    /// The socket refuses.
    pub fn new(socket: TcpStream, insist: bool, stop: &'a AtomicBool) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(End {
            socket,
            log: Log::default(),
            insist,
            stop,
        })
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Waits until the socket is ready; `false`: the run is over. Nothing is tried before: a
    /// write that no caller asked for would be taken beyond the send buffer.
    fn wait(&self, for_what: PollFlags) -> io::Result<bool> {
        let timeout = Timespec {
            tv_sec: 0,
            tv_nsec: LOOK,
        };
        while !self.stopped() {
            match poll(&mut [PollFd::new(&self.socket, for_what)], Some(&timeout)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {
                    if self.insist {
                        // After an ACK that it delayed the kernel forgets.
                        set_tcp_quickack(&self.socket, false)?;
                    }
                }
                Ok(_) => return Ok(true),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(false)
    }

    /// Hands bytes to the kernel as it takes them; `false`: the run was over before.
    ///
    /// # Errors
    /// The connection broke.
    pub fn send(&mut self, bytes: usize) -> io::Result<bool> {
        let data = vec![7; bytes.min(65_536)];
        let mut left = bytes;
        let mut wanting = None;
        while left > 0 {
            match (&self.socket).write(&data[..left.min(data.len())]) {
                Ok(n) => {
                    let at = monotonic();
                    let before = self.log.written.last().map_or(0, |step| step.total);
                    let total = before + n as u64;
                    self.log.written.push(Step { at, total });
                    left -= n;
                    if let Some(from) = wanting.take() {
                        self.log.wanting.push(Span { from, to: at });
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    wanting.get_or_insert_with(monotonic);
                    if !self.wait(PollFlags::OUT)? {
                        break;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if let Some(from) = wanting {
            // Its last call was refused: it still wants.
            self.log.wanting.push(Span { from, to: u64::MAX });
        }
        Ok(left == 0)
    }

    /// Reads `bytes`; `false`: the run was over, or the peer closed, before.
    ///
    /// # Errors
    /// The connection broke.
    pub fn receive(&mut self, bytes: usize) -> io::Result<bool> {
        let mut left = bytes;
        while left > 0 {
            match self.take(left)? {
                0 => return Ok(false),
                n => left -= n,
            }
        }
        Ok(true)
    }

    /// Reads what is there, `most` bytes at most; 0: the run is over, or the peer closed.
    fn take(&mut self, most: usize) -> io::Result<usize> {
        let mut data = [0; 16_384];
        let room = most.min(data.len());
        loop {
            if self.insist {
                // Off before the data comes and again before it is read: the kernel insists
                // on leaving it (docs/decisions/0006-testbed.md).
                set_tcp_quickack(&self.socket, false)?;
            }
            match (&self.socket).read(&mut data[..room]) {
                Ok(n) => {
                    let before = self.log.read.last().map_or(0, |step| step.total);
                    let total = before + n as u64;
                    let at = monotonic();
                    self.log.read.push(Step { at, total });
                    return Ok(n);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if !self.wait(PollFlags::IN)? {
                        return Ok(0);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Passes on what comes in, until the run is over or the peer has closed.
    ///
    /// # Errors
    /// A connection broke.
    pub fn relay(&mut self, to: &mut End<'_>) -> io::Result<()> {
        loop {
            match self.take(usize::MAX)? {
                0 => return Ok(()),
                n => {
                    if !to.send(n)? {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Does nothing for a while; `false`: the run is over.
    pub fn pause(&self, time: Duration) -> bool {
        let until = monotonic() + time.as_nanos() as u64;
        loop {
            let left = until.saturating_sub(monotonic());
            if left == 0 || self.stopped() {
                return !self.stopped();
            }
            std::thread::sleep(Duration::from_nanos(left.min(LOOK as u64)));
        }
    }

    /// Gives the socket back, still open, with the account.
    pub fn finish(self) -> (TcpStream, Log) {
        (self.socket, self.log)
    }
}

/// What the opening end does until the run is over.
///
/// # Errors
/// The connection broke.
pub fn client(end: &mut End<'_>, plan: &Plan) -> io::Result<()> {
    match &plan.traffic {
        Traffic::Bulk { write } => while end.send(*write as usize)? {},
        Traffic::Messages { bytes, pause_us } => {
            while end.send(*bytes as usize)? && end.pause(Duration::from_micros(*pause_us)) {}
        }
        Traffic::Exchange {
            parts,
            response,
            pause_us,
            ..
        } => loop {
            for part in parts {
                if !end.send(*part as usize)? {
                    return Ok(());
                }
            }
            let pause = Duration::from_micros(*pause_us);
            if !end.receive(*response as usize)? || !end.pause(pause) {
                return Ok(());
            }
        },
    }
    Ok(())
}

/// What the accepting end does until the run is over.
///
/// # Errors
/// The connection broke.
pub fn server(end: &mut End<'_>, plan: &Plan) -> io::Result<()> {
    match &plan.traffic {
        Traffic::Exchange {
            parts,
            response,
            think_us,
            ..
        } => {
            let request = parts.iter().map(|part| *part as usize).sum();
            let think = Duration::from_micros(*think_us);
            while end.receive(request)? && end.pause(think) && end.send(*response as usize)? {}
            Ok(())
        }
        Traffic::Bulk { .. } | Traffic::Messages { .. } => read(end, plan.pace),
    }
}

/// Reads until the run is over.
///
/// # Errors
/// The connection broke.
pub fn read(end: &mut End<'_>, pace: Pace) -> io::Result<()> {
    match pace {
        Pace::Quick => while end.take(usize::MAX)? > 0 {},
        Pace::Slow { bytes, pause_us } => {
            let pause = Duration::from_micros(pause_us);
            while end.receive(bytes as usize)? && end.pause(pause) {}
        }
    }
    Ok(())
}
