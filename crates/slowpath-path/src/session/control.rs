// SPDX-License-Identifier: Apache-2.0
//! A client's control connection on a TCP socket.

use super::{PathError, TestOptions, random};
use crate::control::{
    Accept, AcceptSession, Client, ClientEvent, ControlError, Fetch, Modes, SendStamp,
    SessionRequest, Stop,
};
use crate::keys::{Block, SessionKeys};
use crate::packet::Protection;
use crate::record::{Record, SkipRange};
use socket2::{Domain, SockAddr, Socket, Type};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long a server may take for an answer.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// How long one read waits.
const READ: Duration = Duration::from_millis(20);

/// The connection.
#[derive(Debug)]
pub(super) struct Control<'a> {
    peer: SocketAddr,
    stream: TcpStream,
    client: Client,
    interrupted: &'a AtomicBool,
}

/// A fetched session.
#[derive(Clone, Debug, Default)]
pub(super) struct Fetched {
    pub(super) finished: u8,
    pub(super) next_sequence: u32,
    pub(super) request: Option<SessionRequest>,
    pub(super) skips: Vec<SkipRange>,
    pub(super) records: Vec<Record>,
}

impl<'a> Control<'a> {
    /// Connects and sets the connection up.
    pub(super) fn open(
        options: &TestOptions,
        two_way: bool,
        interrupted: &'a AtomicBool,
    ) -> Result<Self, PathError> {
        let peer = options.peer;
        let failed = |source| PathError::Connect { peer, source };
        let socket = Socket::new(Domain::for_address(peer), Type::STREAM, None).map_err(failed)?;
        if let Some(local) = options.local {
            let local = SockAddr::from(SocketAddr::new(local, 0));
            socket
                .bind(&local)
                .map_err(PathError::io("bind to the local address"))?;
        }
        socket
            .connect_timeout(&peer.into(), PATIENCE)
            .map_err(failed)?;
        let stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(READ)).map_err(failed)?;
        stream.set_write_timeout(Some(PATIENCE)).map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        let wanted = if two_way {
            options.modes.or(Modes::SYMMETRICAL_SIZE)
        } else {
            options.modes.and(Modes(7))
        };
        let client = Client::new(wanted, options.credentials.clone(), random()?, two_way);
        let mut control = Control {
            peer,
            stream,
            client,
            interrupted,
        };
        match control.wait("the greeting", PATIENCE)? {
            ClientEvent::Ready { .. } => Ok(control),
            _ => Err(control.unexpected()),
        }
    }

    pub(super) fn local(&self) -> Result<SocketAddr, PathError> {
        self.stream
            .local_addr()
            .map_err(PathError::io("learn the local address"))
    }

    pub(super) fn mode(&self) -> Modes {
        self.client.mode()
    }

    pub(super) fn gives_stamps(&self) -> bool {
        self.client.gives_stamps()
    }

    /// How packets of a session are protected.
    pub(super) fn protection(&self, session: &Block) -> Protection {
        let keys: Option<SessionKeys> = self.client.test_keys(session);
        match keys {
            Some(keys) if self.mode().has(Modes::ENCRYPTED) => Protection::encrypted(&keys),
            Some(keys) => Protection::authenticated(&keys),
            None => Protection::Open,
        }
    }

    fn control_error(&self, source: ControlError) -> PathError {
        PathError::Control {
            peer: self.peer,
            source,
        }
    }

    pub(super) fn unexpected(&self) -> PathError {
        self.control_error(ControlError::Malformed("order of messages"))
    }

    fn flush(&mut self) -> Result<(), PathError> {
        let output = self.client.output();
        self.stream
            .write_all(&output)
            .map_err(PathError::io("write to the control connection"))
    }

    /// The next event, if there is one within a read's time.
    pub(super) fn poll(&mut self, what: &'static str) -> Result<Option<ClientEvent>, PathError> {
        let next = |control: &mut Self| {
            let event = control.client.next_event();
            event.map_err(|source| control.control_error(source))
        };
        if let Some(event) = next(self)? {
            self.flush()?;
            return Ok(Some(event));
        }
        self.flush()?;
        let mut buffer = [0; 16_384];
        match self.stream.read(&mut buffer) {
            Ok(0) => Err(PathError::Closed {
                peer: self.peer,
                what,
            }),
            Ok(length) => {
                self.client.feed(&buffer[..length]);
                let event = next(self)?;
                self.flush()?;
                Ok(event)
            }
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                ) =>
            {
                Ok(None)
            }
            Err(error) => Err(PathError::io("read from the control connection")(error)),
        }
    }

    /// Waits for an event.
    pub(super) fn wait(
        &mut self,
        what: &'static str,
        patience: Duration,
    ) -> Result<ClientEvent, PathError> {
        let deadline = Instant::now() + patience;
        loop {
            if let Some(event) = self.poll(what)? {
                return Ok(event);
            }
            if self.interrupted.load(Ordering::Relaxed) {
                return Err(PathError::Interrupted);
            }
            if Instant::now() > deadline {
                return Err(PathError::Silent {
                    peer: self.peer,
                    what,
                });
            }
        }
    }

    /// Asks for a session.
    pub(super) fn request(&mut self, request: &SessionRequest) -> Result<AcceptSession, PathError> {
        self.client.request(request);
        match self.wait("the request of a session", PATIENCE)? {
            ClientEvent::Session(answer) if answer.accept == Accept::Accepted => Ok(answer),
            ClientEvent::Session(answer) => Err(self.control_error(ControlError::Declined {
                what: "the session",
                accept: answer.accept,
            })),
            _ => Err(self.unexpected()),
        }
    }

    /// Starts all sessions.
    pub(super) fn start(&mut self) -> Result<(), PathError> {
        self.client.start();
        match self.wait("the start of sessions", PATIENCE)? {
            ClientEvent::Started(Accept::Accepted) => Ok(()),
            ClientEvent::Started(accept) => Err(self.control_error(ControlError::Declined {
                what: "the start of sessions",
                accept,
            })),
            _ => Err(self.unexpected()),
        }
    }

    /// Ends all sessions.
    pub(super) fn stop(&mut self, stop: &Stop, sessions: u32) -> Result<(), PathError> {
        self.client.stop(stop, sessions);
        self.flush()
    }

    /// Fetches all records of a session.
    pub(super) fn fetch(&mut self, session: Block, most: u32) -> Result<Fetched, PathError> {
        let fetch = Fetch {
            begin: 0,
            end: u32::MAX,
            session,
        };
        self.client.fetch(&fetch, most);
        let mut fetched = Fetched::default();
        loop {
            match self.wait("the request of records", PATIENCE)? {
                ClientEvent::FetchAck(ack) if ack.accept == Accept::Accepted => {
                    fetched.finished = ack.finished;
                    fetched.next_sequence = ack.next_sequence;
                }
                ClientEvent::FetchAck(ack) => {
                    return Err(self.control_error(ControlError::Declined {
                        what: "the records of the session",
                        accept: ack.accept,
                    }));
                }
                ClientEvent::Fetching(request) => fetched.request = Some(request),
                ClientEvent::Skips(skips) => fetched.skips = skips,
                ClientEvent::Records(records) => fetched.records.extend(records),
                ClientEvent::Fetched => return Ok(fetched),
                _ => return Err(self.unexpected()),
            }
        }
    }

    /// Asks one of our servers when the packets of a session left, and how many it dropped itself.
    pub(super) fn stamps(
        &mut self,
        session: &Block,
        most: u32,
    ) -> Result<(Vec<SendStamp>, Option<u32>), PathError> {
        self.client.send_stamps(session, most);
        let mut all = Vec::new();
        loop {
            match self.wait("the request of send stamps", PATIENCE)? {
                ClientEvent::Stamps(stamps) => all.extend(stamps),
                ClientEvent::AllStamps { dropped, .. } => return Ok((all, dropped)),
                _ => return Err(self.unexpected()),
            }
        }
    }
}
