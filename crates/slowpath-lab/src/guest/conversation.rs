// SPDX-License-Identifier: Apache-2.0
//! The machine outside talks with the guest, from its first word to its last.
//!
//! What enters: the guest's messages, its console, what is typed. What leaves: the command's
//! output to a sink, its results to a [`Receiver`], and how it ended. What is promised: it
//! ends, whatever the guest does: a kernel that does not come up, hangs, panics or vanishes
//! has an error of its own; memory is bounded.

use super::console::Console;
use super::results::{Receiver, Results};
use super::wire::{Done, Frames, FromGuest, Hello, Status, ToGuest, VERSION, WireError};
use super::{GuestError, Stream};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Lines of the console in a message.
const QUOTED: usize = 15;
/// Read at once.
const CHUNK: usize = 256 * 1024;
/// Typed bytes under way at most.
const TYPED: usize = 4096;

/// How long to wait for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// From start to the first word.
    pub boot: Duration,
    /// Between two signs of life. The guest gives one every second.
    pub silence: Duration,
    /// For the command; none: for ever.
    pub command: Option<Duration>,
    /// For the results of a command that was stopped.
    pub stop: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Patience {
            boot: Duration::from_secs(90),
            silence: Duration::from_secs(30),
            command: None,
            stop: Duration::from_secs(20),
        }
    }
}

/// How it went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ending {
    /// First words.
    pub hello: Hello,
    /// How the command ended.
    pub status: Status,
    /// What came out.
    pub results: Results,
    /// From start to the first word.
    pub boot: Duration,
    /// From the first word to the last.
    pub ran: Duration,
}

/// The lines to the guest.
#[derive(Debug)]
pub struct Lines<'a> {
    /// Messages.
    pub talk: UnixStream,
    /// The kernel's console.
    pub console: UnixStream,
    /// What is typed, if the command has a terminal.
    pub typed: Option<BorrowedFd<'a>>,
}

enum Phase {
    Booting,
    Running(Hello, Duration, Instant),
    Stopping(Instant),
}

/// Where the command's output goes.
pub type Sink<'a> = &'a mut dyn FnMut(Stream, &[u8]) -> io::Result<()>;

/// Talks until the guest has said its last word.
///
/// # Errors
/// The guest did not come up, broke, or its command ran out of time; output or results
/// cannot be kept.
pub fn converse(
    lines: Lines<'_>,
    patience: Patience,
    results: Option<Receiver>,
    sink: Sink<'_>,
) -> Result<Ending, GuestError> {
    for line in [&lines.talk, &lines.console] {
        line.set_nonblocking(true)
            .map_err(GuestError::system("watch the guest"))?;
    }
    let begun = Instant::now();
    let conversation = Conversation {
        lines,
        patience,
        results,
        sink,
        begun,
        heard: begun,
        phase: Phase::Booting,
        console: Console::default(),
        console_open: true,
        frames: Frames::default(),
        unsent: Vec::new(),
        buffer: vec![0; CHUNK],
    };
    conversation.run()
}

struct Conversation<'a> {
    lines: Lines<'a>,
    patience: Patience,
    results: Option<Receiver>,
    sink: Sink<'a>,
    begun: Instant,
    heard: Instant,
    phase: Phase,
    console: Console,
    console_open: bool,
    frames: Frames,
    unsent: Vec<u8>,
    buffer: Vec<u8>,
}

/// What may be read or written without waiting.
#[derive(Clone, Copy)]
struct Ready {
    talk: PollFlags,
    console: bool,
    typed: bool,
}

impl Conversation<'_> {
    fn run(mut self) -> Result<Ending, GuestError> {
        loop {
            let ready = self.wait()?;
            if ready.console {
                self.read_console()?;
            }
            if ready.typed {
                self.read_typed()?;
            }
            if ready.talk.contains(PollFlags::OUT) {
                self.send()?;
            }
            if ready
                .talk
                .intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR)
            {
                let ended = match self.lines.talk.read(&mut self.buffer) {
                    Ok(0) => true,
                    Ok(length) => {
                        self.frames.push(&self.buffer[..length]);
                        if let Some(done) = self.listen()? {
                            return self.finish(done);
                        }
                        // What was done with the words may have taken long.
                        self.heard = Instant::now();
                        false
                    }
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => false,
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => false,
                    Err(e) if e.kind() == io::ErrorKind::ConnectionReset => true,
                    Err(e) => return Err(GuestError::system("listen to the guest")(e)),
                };
                if ended {
                    return Err(self.gone());
                }
            } else {
                self.judge_silence()?;
            }
            self.judge_command();
        }
    }

    /// Waits for something to happen, or for patience to end.
    fn wait(&self) -> Result<Ready, GuestError> {
        let left = |since: Instant, limit: Duration| limit.saturating_sub(since.elapsed());
        let mut timeout = match &self.phase {
            Phase::Booting => left(self.begun, self.patience.boot),
            Phase::Running(_, _, at) => match self.patience.command {
                Some(limit) => left(*at, limit),
                None => Duration::MAX,
            },
            Phase::Stopping(at) => left(*at, self.patience.stop),
        };
        if !matches!(self.phase, Phase::Booting) {
            timeout = timeout.min(left(self.heard, self.patience.silence));
        }
        // A millisecond more, so that the limit has passed when time is up.
        let timeout = timeout.saturating_add(Duration::from_millis(1));
        let timeout = Timespec::try_from(timeout).ok();
        let mut talk = PollFlags::IN;
        talk.set(PollFlags::OUT, !self.unsent.is_empty());
        let mut fds = vec![PollFd::new(&self.lines.talk, talk)];
        let console = self.console_open.then_some(self.lines.console.as_fd());
        let typed = self.lines.typed.filter(|_| self.unsent.len() < TYPED);
        let after = console.iter().chain(&typed);
        fds.extend(after.map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)));
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => {
                return Ok(Ready {
                    talk: PollFlags::empty(),
                    console: false,
                    typed: false,
                });
            }
            Err(error) => return Err(GuestError::system("watch the guest")(error)),
        }
        let mut events = fds.iter().map(PollFd::revents);
        let mut next = |wanted: bool| match wanted {
            true => events.next().unwrap_or(PollFlags::empty()),
            false => PollFlags::empty(),
        };
        Ok(Ready {
            talk: next(true),
            console: !next(console.is_some()).is_empty(),
            typed: !next(typed.is_some()).is_empty(),
        })
    }

    /// Hears all whole messages; the last one ends it.
    fn listen(&mut self) -> Result<Option<Done>, GuestError> {
        while let Some(frame) = self.frames.next_frame()? {
            let message = FromGuest::decode(frame)?;
            if matches!(self.phase, Phase::Booting) {
                match message {
                    FromGuest::Hello(hello) if hello.version != VERSION => {
                        let theirs = hello.version;
                        return Err(WireError::Version { theirs }.into());
                    }
                    FromGuest::Hello(hello) => {
                        let now = Instant::now();
                        self.phase = Phase::Running(hello, now - self.begun, now);
                    }
                    FromGuest::Trouble(reason) => return Err(GuestError::Inside { reason }),
                    _ => return Err(unexpected("a message before the first word")),
                }
                continue;
            }
            match message {
                FromGuest::Hello(_) => return Err(unexpected("a second first word")),
                FromGuest::Beat => {}
                FromGuest::Stdout(bytes) => self.pass_on(Stream::Stdout, &bytes)?,
                FromGuest::Stderr(bytes) => self.pass_on(Stream::Stderr, &bytes)?,
                FromGuest::Entry(entry) => self.receiver()?.entry(entry)?,
                FromGuest::Data(bytes) => self.receiver()?.data(&bytes)?,
                FromGuest::EntryEnd(end) => self.receiver()?.end(end)?,
                FromGuest::Done(done) => return Ok(Some(done)),
                FromGuest::Trouble(reason) => return Err(GuestError::Inside { reason }),
            }
        }
        Ok(None)
    }

    fn pass_on(&mut self, stream: Stream, bytes: &[u8]) -> Result<(), GuestError> {
        (self.sink)(stream, bytes).map_err(GuestError::Output)
    }

    fn receiver(&mut self) -> Result<&mut Receiver, GuestError> {
        self.results
            .as_mut()
            .ok_or_else(|| unexpected("a file that was not asked for"))
    }

    fn finish(self, done: Done) -> Result<Ending, GuestError> {
        let kept = self.results.is_some();
        let results = match self.results {
            Some(receiver) => receiver.finish(done.left_out)?,
            None => Results::default(),
        };
        match self.phase {
            Phase::Booting => Err(unexpected("the last word before the first")),
            Phase::Running(hello, boot, at) => Ok(Ending {
                hello,
                status: done.status,
                results,
                boot,
                ran: at.elapsed(),
            }),
            Phase::Stopping(..) => Err(GuestError::TimedOut {
                after: self.patience.command.unwrap_or_default(),
                results_kept: kept,
                console: self.console.last(QUOTED),
            }),
        }
    }

    /// The guest's line is closed.
    fn gone(mut self) -> GuestError {
        // The emulator is ending: what it had to say on the other line is there or coming.
        let limit = Instant::now() + self.patience.stop;
        while self.console_open && Instant::now() < limit {
            let mut fds = [PollFd::new(&self.lines.console, PollFlags::IN)];
            let second = Timespec {
                tv_sec: 1,
                tv_nsec: 0,
            };
            if poll(&mut fds, Some(&second)).is_err() || self.read_console().is_err() {
                break;
            }
        }
        match self.console.panic() {
            Some(reason) => GuestError::Panicked {
                reason,
                console: self.console.trouble(QUOTED),
            },
            None => GuestError::Ended {
                console: self.console.last(QUOTED),
            },
        }
    }

    /// Nothing was heard: is it over? Called only when nothing is there to be read, so that
    /// a slow reader of ours does not pass for a silent guest.
    fn judge_silence(&self) -> Result<(), GuestError> {
        let console = || self.console.clone().last(QUOTED);
        let silence = self.heard.elapsed();
        match &self.phase {
            Phase::Booting if self.begun.elapsed() > self.patience.boot => {
                Err(GuestError::NotBooted {
                    after: self.patience.boot,
                    console: console(),
                })
            }
            Phase::Booting => Ok(()),
            Phase::Stopping(at) if at.elapsed() > self.patience.stop => Err(GuestError::TimedOut {
                after: self.patience.command.unwrap_or_default(),
                results_kept: false,
                console: console(),
            }),
            _ if silence > self.patience.silence => Err(match self.console.panic() {
                Some(reason) => GuestError::Panicked {
                    reason,
                    console: self.console.clone().trouble(QUOTED),
                },
                None => GuestError::Hung {
                    silence,
                    console: console(),
                },
            }),
            _ => Ok(()),
        }
    }

    /// A command whose time is over is asked to stop, once.
    fn judge_command(&mut self) {
        let Phase::Running(_, _, at) = &self.phase else {
            return;
        };
        if self
            .patience
            .command
            .is_some_and(|limit| at.elapsed() > limit)
        {
            self.phase = Phase::Stopping(Instant::now());
            self.unsent.extend(ToGuest::Stop.encode());
        }
    }

    fn read_console(&mut self) -> Result<(), GuestError> {
        match self.lines.console.read(&mut self.buffer) {
            Ok(0) => self.console_open = false,
            Ok(length) => self.console.push(&self.buffer[..length]),
            Err(e)
                if matches!(
                    e.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) => {}
            Err(e) if e.kind() == io::ErrorKind::ConnectionReset => self.console_open = false,
            Err(e) => return Err(GuestError::system("read the guest's console")(e)),
        }
        Ok(())
    }

    fn read_typed(&mut self) -> Result<(), GuestError> {
        let Some(typed) = self.lines.typed else {
            return Ok(());
        };
        let mut bytes = [0; TYPED];
        let length = match rustix::io::read(typed, &mut bytes) {
            Ok(length) => length,
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => return Ok(()),
            Err(error) => return Err(GuestError::system("read standard input")(error)),
        };
        if length == 0 {
            self.lines.typed = None;
        }
        let message = ToGuest::Input(bytes[..length].to_vec());
        self.unsent.extend(message.encode());
        Ok(())
    }

    fn send(&mut self) -> Result<(), GuestError> {
        match self.lines.talk.write(&self.unsent) {
            Ok(length) => {
                self.unsent.drain(..length);
            }
            // Its end is noticed when it is read.
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => self.unsent.clear(),
            Err(e)
                if matches!(
                    e.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) => {}
            Err(e) => return Err(GuestError::system("talk to the guest")(e)),
        }
        Ok(())
    }
}

fn unexpected(what: &'static str) -> GuestError {
    WireError::Order { what }.into()
}
