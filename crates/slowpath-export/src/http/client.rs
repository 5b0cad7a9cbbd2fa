// SPDX-License-Identifier: Apache-2.0
//! One client: reads its request, writes its answer, waits for nothing.

use super::MAX_REQUEST;
use super::request::{Answer, Request};
use rustix::event::PollFlags;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes read after the answer, at most, before the connection is closed: closing with
/// unread bytes resets it, and the client may lose the answer.
const MAX_LINGER: usize = 64 << 10;

/// Time that a client has to close its side after the answer.
const LINGER: Duration = Duration::from_secs(1);

/// What comes of a client when something can be done with it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// It waits.
    Waits,
    /// A request is complete.
    Asks(Request),
    /// It has gone or has been served.
    Done,
}

#[derive(Debug)]
enum Stage {
    Reading(Vec<u8>),
    Writing {
        header: Vec<u8>,
        body: Arc<str>,
        written: usize,
    },
    Closing {
        read: usize,
    },
}

#[derive(Debug)]
pub(super) struct Client {
    stream: TcpStream,
    stage: Stage,
    deadline: Instant,
}

impl Client {
    /// `stream` does not block.
    pub(super) fn new(stream: TcpStream, deadline: Instant) -> Self {
        Client {
            stream,
            stage: Stage::Reading(Vec::new()),
            deadline,
        }
    }

    pub(super) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    pub(super) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Whether it got its answer.
    pub(super) fn answered(&self) -> bool {
        matches!(self.stage, Stage::Closing { .. })
    }

    /// What to wait for.
    pub(super) fn interest(&self) -> PollFlags {
        match self.stage {
            Stage::Reading(_) | Stage::Closing { .. } => PollFlags::IN,
            Stage::Writing { .. } => PollFlags::OUT,
        }
    }

    /// Does what can be done without waiting.
    pub(super) fn go_on(&mut self, now: Instant) -> Progress {
        match self.step(now) {
            Ok(progress) => progress,
            Err(error) if error.kind() == ErrorKind::WouldBlock => Progress::Waits,
            Err(error) if error.kind() == ErrorKind::Interrupted => Progress::Waits,
            Err(_) => Progress::Done,
        }
    }

    fn step(&mut self, now: Instant) -> io::Result<Progress> {
        match &mut self.stage {
            Stage::Reading(bytes) => {
                let mut buffer = [0; 1024];
                loop {
                    let room = buffer.len().min(MAX_REQUEST - bytes.len());
                    let read = self.stream.read(&mut buffer[..room])?;
                    if read == 0 {
                        return Ok(Progress::Done);
                    }
                    bytes.extend(&buffer[..read]);
                    if let Some(request) = Request::parse(bytes) {
                        return Ok(Progress::Asks(request));
                    }
                }
            }
            Stage::Writing {
                header,
                body,
                written,
            } => {
                loop {
                    let rest = match written.checked_sub(header.len()) {
                        None => &header[*written..],
                        Some(within) => &body.as_bytes()[within..],
                    };
                    if rest.is_empty() {
                        break;
                    }
                    let count = self.stream.write(rest)?;
                    if count == 0 {
                        return Ok(Progress::Done);
                    }
                    *written += count;
                }
                self.stream.shutdown(Shutdown::Write)?;
                self.stage = Stage::Closing { read: 0 };
                self.deadline = self.deadline.min(now + LINGER);
                Ok(Progress::Waits)
            }
            Stage::Closing { read } => {
                let mut buffer = [0; 4096];
                loop {
                    let count = self.stream.read(&mut buffer)?;
                    *read += count;
                    if count == 0 || *read > MAX_LINGER {
                        return Ok(Progress::Done);
                    }
                }
            }
        }
    }

    /// Begins to answer.
    pub(super) fn answer(&mut self, answer: &Answer, head: bool) {
        self.stage = Stage::Writing {
            header: answer.header().into_bytes(),
            body: if head {
                Arc::from("")
            } else {
                answer.body.clone()
            },
            written: 0,
        };
    }
}
