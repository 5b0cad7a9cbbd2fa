// SPDX-License-Identifier: Apache-2.0
//! One control connection of a server.

use super::Shared;
use super::admission::Admission;
use super::sessions::{Ends, Session, check};
use crate::control::{
    Accept, AcceptSession, Fetch, FetchAck, Modes, Server, ServerEvent, SessionRequest, Stop,
};
use crate::keys::Block;
use crate::packet::Protection;
use crate::session::{most_records, random};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// A client that does not bring a whole message to its end in so long is sent away, however it trickles.
const PATIENCE: Duration = Duration::from_secs(30);

/// The set-up must be through after this.
const SET_UP: Duration = Duration::from_secs(10);

/// Records that are encoded at a time.
const CHUNK: usize = 512;

/// How one read waits.
const READ: Duration = Duration::from_millis(20);

/// Octets of one read: no more are ever taken in before they are understood.
const OCTETS: usize = 4_096;

/// Why the connection ended.
enum Ending {
    /// The client closed it, or the server ends.
    Closed,
    /// It broke the protocol, or did not get on.
    Failed,
}

struct Connection<'a> {
    stream: TcpStream,
    server: Server,
    ends: Ends,
    sessions: Vec<Session>,
    shared: &'a Arc<Shared>,
    admission: Admission,
    running: Option<Instant>,
    stopped: bool,
    measured: bool,
    deadline: Instant,
}

/// Talks to a client until one of them ends it.
pub(super) fn run(
    stream: TcpStream,
    peer: SocketAddr,
    two_way: bool,
    shared: &Arc<Shared>,
    admission: Admission,
) {
    let Some(mut connection) = Connection::new(stream, peer, two_way, shared, admission) else {
        return;
    };
    if let Err(Ending::Failed) = connection.talk() {
        shared
            .counters
            .failed_connections
            .fetch_add(1, Ordering::Relaxed);
    }
    for session in &mut connection.sessions {
        session.finish();
    }
    if connection.measured && shared.options.once {
        shared.stop.store(true, Ordering::Release);
    }
}

impl<'a> Connection<'a> {
    fn new(
        stream: TcpStream,
        peer: SocketAddr,
        two_way: bool,
        shared: &'a Arc<Shared>,
        admission: Admission,
    ) -> Option<Self> {
        stream.set_nonblocking(false).ok()?;
        stream.set_read_timeout(Some(READ)).ok()?;
        stream.set_write_timeout(Some(SET_UP)).ok()?;
        stream.set_nodelay(true).ok()?;
        let local = stream.local_addr().ok()?.ip();
        let options = &shared.options;
        let features = Modes::REFLECT_OCTETS.or(Modes::SYMMETRICAL_SIZE);
        let modes = match (two_way, options.modes.0) {
            (_, 0) => Modes(0),
            (true, _) => options.modes.or(features),
            (false, _) => options.modes.and(Modes(7)),
        };
        let limits = options.policy.limits;
        let secrets = options.secrets.clone();
        Some(Connection {
            server: Server::new(
                modes,
                secrets,
                random().ok()?,
                shared.started,
                limits,
                two_way,
            ),
            stream,
            ends: Ends {
                local,
                peer: peer.ip(),
            },
            sessions: Vec::new(),
            shared,
            admission,
            running: None,
            stopped: false,
            measured: false,
            deadline: Instant::now() + SET_UP,
        })
    }

    fn talk(&mut self) -> Result<(), Ending> {
        let mut buffer = [0; OCTETS];
        loop {
            while let Some(event) = self.next_event()? {
                self.deadline = Instant::now() + PATIENCE;
                self.handle(event)?;
                self.flush()?;
            }
            self.flush()?;
            self.look_after_sessions()?;
            if self.shared.stop.load(Ordering::Acquire) {
                return Err(Ending::Closed);
            }
            match self.stream.read(&mut buffer) {
                Ok(0) => return Err(Ending::Closed),
                Ok(length) => self.server.feed(&buffer[..length]),
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                    ) => {}
                Err(_) => return Err(Ending::Closed),
            }
            if self.running.is_none() && Instant::now() > self.deadline {
                return Err(Ending::Failed);
            }
        }
    }

    fn next_event(&mut self) -> Result<Option<ServerEvent>, Ending> {
        self.server.next_event().map_err(|error| {
            if matches!(error, crate::control::ControlError::OverLimit { .. }) {
                self.shared
                    .counters
                    .refused_sessions
                    .fetch_add(1, Ordering::Relaxed);
            }
            // It may say why.
            let _ = self.flush();
            Ending::Failed
        })
    }

    fn flush(&mut self) -> Result<(), Ending> {
        let output = self.server.output();
        self.stream.write_all(&output).map_err(|_| Ending::Closed)
    }

    fn handle(&mut self, event: ServerEvent) -> Result<(), Ending> {
        match event {
            ServerEvent::Ready { .. } => {}
            ServerEvent::Request(request) => {
                let answer = self.open_session(request).unwrap_or_else(|accept| {
                    self.shared
                        .counters
                        .refused_sessions
                        .fetch_add(1, Ordering::Relaxed);
                    AcceptSession {
                        accept,
                        port: 0,
                        session: [0; 16],
                        reflected: 0,
                        server: 0,
                    }
                });
                self.server.answer_request(&answer);
            }
            ServerEvent::Start => self.start(),
            ServerEvent::Stop(stop) => self.client_stopped(&stop),
            ServerEvent::Fetch(fetch) => self.fetch(&fetch)?,
            ServerEvent::SendStamps(session) => self.stamps(&session)?,
        }
        Ok(())
    }

    fn open_session(&mut self, request: SessionRequest) -> Result<AcceptSession, Accept> {
        if self.running.is_some() {
            return Err(Accept::Refused);
        }
        if self.stopped {
            // A new round: the sessions of the last one were fetched or never will be.
            self.sessions.clear();
            self.stopped = false;
        }
        check(&request, self.ends, self.shared)?;
        if let crate::control::Direction::OneWay { packets, .. } = request.direction
            && !self.admission.reserve(most_records(packets).into())
        {
            return Err(Accept::TemporaryLimit);
        }
        let server = &self.server;
        let protection = |session: &Block| match server.test_keys(session) {
            Some(keys) if server.mode().has(Modes::ENCRYPTED) => Protection::encrypted(&keys),
            Some(keys) => Protection::authenticated(&keys),
            None => Protection::Open,
        };
        let opened = Session::open(request, self.ends, self.shared, protection);
        let (session, answer) = opened.map_err(|_| Accept::InternalError)?;
        self.sessions.push(session);
        Ok(answer)
    }

    fn start(&mut self) {
        let clock = self.shared.options.clock;
        let started = self
            .sessions
            .iter_mut()
            .all(|session| session.start(clock).is_ok());
        let accept = match (started, self.sessions.is_empty()) {
            (_, true) => Accept::Refused,
            (true, _) => Accept::Accepted,
            (false, _) => Accept::InternalError,
        };
        self.server.answer_start(accept);
        if accept == Accept::Accepted {
            let longest = self
                .sessions
                .iter()
                .map(|session| session.longest(&clock))
                .max();
            self.running = Some(Instant::now() + longest.unwrap_or(PATIENCE));
            let count = self.sessions.len() as u64;
            self.shared
                .counters
                .sessions
                .fetch_add(count, Ordering::Relaxed);
        }
    }

    /// Ends sessions that are through, or past all patience, from this end.
    fn look_after_sessions(&mut self) -> Result<(), Ending> {
        let Some(deadline) = self.running else {
            return Ok(());
        };
        let two_way = self
            .sessions
            .iter()
            .any(|session| session.request().slots().is_empty());
        let late = Instant::now() > deadline;
        if two_way {
            return if late { Err(Ending::Failed) } else { Ok(()) };
        }
        if self.stopped {
            // The client's own message is due.
            return if late { Err(Ending::Failed) } else { Ok(()) };
        }
        // RFC 4656 section 3.8 has a client discard what was sent less than the timeout before this message.
        let waited = self.server.keeps_latest() || self.sessions.iter().all(Session::timed_out);
        if late || waited && self.sessions.iter().all(Session::complete) {
            self.send_stop();
            let timeouts = self.sessions.iter().map(Session::timeout);
            self.running = Some(Instant::now() + PATIENCE + timeouts.max().unwrap_or_default());
            self.flush()?;
        }
        Ok(())
    }

    /// Sends this server's message that ends the sessions.
    fn send_stop(&mut self) {
        // Receivers go on until the client's message: copies may be on their way.
        for session in &mut self.sessions {
            if !session.receives() {
                session.finish();
            }
        }
        let sessions = self.sessions.iter().filter_map(Session::stopped).collect();
        self.server.stop(&Stop {
            accept: Accept::Accepted,
            sessions,
        });
        self.stopped = true;
    }

    fn client_stopped(&mut self, stop: &Stop) {
        for session in &mut self.sessions {
            stop.sessions
                .iter()
                .for_each(|stopped| session.note(stopped));
            session.finish();
        }
        let two_way = self
            .sessions
            .iter()
            .any(|session| session.request().slots().is_empty());
        if self.running.take().is_some() {
            self.measured = true;
            if !self.stopped && !two_way {
                self.send_stop();
            }
        }
        self.stopped = true;
    }

    fn session(&self, id: &Block) -> Option<&Session> {
        self.sessions.iter().find(|session| session.id() == id)
    }

    fn fetch(&mut self, fetch: &Fetch) -> Result<(), Ending> {
        let found = self.session(&fetch.session).and_then(|session| {
            let (finished, next, skips, records) = session.received()?;
            Some((
                finished,
                next,
                skips.to_vec(),
                records,
                session.request().clone(),
            ))
        });
        let Some((finished, next_sequence, skips, mut records, request)) = found else {
            self.server.refuse_fetch(Accept::Refused);
            return Ok(());
        };
        if !fetch.whole() {
            records.retain(|record| (fetch.begin..=fetch.end).contains(&record.sequence));
        }
        let ack = FetchAck {
            accept: Accept::Accepted,
            finished: u8::from(finished),
            next_sequence: if finished { next_sequence } else { 0 },
            skips: if finished { skips.len() as u32 } else { 0 },
            records: records.len() as u32,
        };
        let skips = if finished { &skips[..] } else { &[] };
        self.server.begin_fetch(&ack, &request, skips);
        for chunk in records.chunks(CHUNK) {
            self.server.fetch_records(chunk);
            self.flush()?;
        }
        self.server.end_fetch();
        Ok(())
    }

    fn stamps(&mut self, id: &Block) -> Result<(), Ending> {
        let found = self.session(id).map(|session| {
            let (stamps, dropped) = session.stamps();
            (stamps.to_vec(), dropped)
        });
        let accept = if found.is_some() {
            Accept::Accepted
        } else {
            Accept::Refused
        };
        let (stamps, dropped) = found.unwrap_or_default();
        self.server
            .begin_stamps(accept, stamps.len() as u32, dropped);
        for chunk in stamps.chunks(CHUNK) {
            self.server.stamps(chunk);
            self.flush()?;
        }
        self.server.end_stamps();
        Ok(())
    }
}
