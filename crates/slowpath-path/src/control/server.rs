// SPDX-License-Identifier: Apache-2.0
//! The server's end of a control connection.

use super::ControlError;
use super::channel::Channel;
use super::credentials::Credentials;
use super::message::{
    Accept, AcceptSession, FETCH_SESSION, Fetch, FetchAck, Greeting, Modes, REQUEST_SESSION,
    REQUEST_TWO_WAY, SEND_STAMPS, START_SESSIONS, STOP_SESSIONS, SendStamp, ServerStart, SetUp,
    Stop, block, exact,
};
use super::request::{PREAMBLE, SessionRequest};
use super::stop::{StopReader, write_stop};
use crate::keys::{self, Block, SessionKeys};
use crate::record::{RECORD, Record, SkipRange};
use crate::time::Timestamp;

/// What a client may ask for; more is refused by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Slots of a schedule.
    pub slots: u32,
    /// Packets of a session.
    pub packets: u32,
    /// Padding of a packet, octets.
    pub padding: u32,
    /// Sessions of a connection.
    pub sessions: usize,
}

/// What a server has to do. Until it has answered, nothing further is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerEvent {
    /// The connection is set up.
    Ready {
        /// How it is protected.
        mode: Modes,
        /// Which key it has.
        key: Option<String>,
    },
    /// Open a port: answer by [`Server::answer_request`].
    Request(SessionRequest),
    /// Start all sessions: answer by [`Server::answer_start`].
    Start,
    /// The client ended the sessions.
    Stop(Stop),
    /// Give records: answer by [`Server::refuse_fetch`], or [`Server::begin_fetch`] and what follows.
    Fetch(Fetch),
    /// Give the send stamps of a session: answer by [`Server::begin_stamps`] and what follows.
    SendStamps(Block),
}

#[derive(Debug)]
enum State {
    SetUp,
    Idle,
    Slots {
        request: SessionRequest,
        left: u32,
    },
    /// An answer is due.
    Answer,
    Running(StopReader),
    Ended,
}

/// The server's machine.
#[derive(Debug)]
pub struct Server {
    channel: Channel,
    state: State,
    greeting: Greeting,
    secrets: Vec<Credentials>,
    vector: Block,
    started: Timestamp,
    limits: Limits,
    two_way: bool,
    mode: Modes,
    keys: Option<SessionKeys>,
    sessions: usize,
    keeps_latest: bool,
}

impl Server {
    /// A server that greets with `modes`, those with keys only if there are `secrets`. `random` becomes challenge,
    /// salt and initialisation vector. `two_way`: TWAMP. `started`: since when the server runs.
    #[must_use]
    pub fn new(
        modes: Modes,
        secrets: Vec<Credentials>,
        random: [u8; 48],
        started: Timestamp,
        limits: Limits,
        two_way: bool,
    ) -> Self {
        let modes = if secrets.is_empty() {
            modes.and(Modes(!14))
        } else {
            modes
        };
        let greeting = Greeting {
            modes,
            challenge: block(&random, 0),
            salt: block(&random, 16),
            rounds: keys::OFFERED_ROUNDS,
            gives_stamps: !two_way,
        };
        let mut channel = Channel::default();
        channel.write_clear(&greeting.to_wire());
        Server {
            channel,
            state: State::SetUp,
            greeting,
            secrets,
            vector: block(&random, 32),
            started,
            limits,
            two_way,
            mode: Modes::default(),
            keys: None,
            sessions: 0,
            keeps_latest: false,
        }
    }

    /// Takes octets of the client.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.channel.feed(bytes);
    }

    /// Octets for the client; they are gone from here.
    pub fn output(&mut self) -> Vec<u8> {
        self.channel.output()
    }

    /// Whether the set-up is complete: until then the peer is no one that may ask for anything.
    #[must_use]
    pub fn ready(&self) -> bool {
        !matches!(self.state, State::SetUp | State::Ended)
    }

    /// Whether the client's receivers keep packets that were sent less than the timeout before the stop.
    #[must_use]
    pub fn keeps_latest(&self) -> bool {
        self.keeps_latest
    }

    /// How the connection is protected.
    #[must_use]
    pub fn mode(&self) -> Modes {
        self.mode
    }

    /// The keys of a test session; `None` where test packets are open.
    #[must_use]
    pub fn test_keys(&self, session: &Block) -> Option<SessionKeys> {
        let protected = self.mode.has(Modes::AUTHENTICATED.or(Modes::ENCRYPTED));
        let keys = self.keys.as_ref().filter(|_| protected)?;
        Some(keys::test_keys(keys, session))
    }

    /// The next event; `None` until more octets come or an answer is given.
    ///
    /// # Errors
    /// The client does what the protocol or the limits do not allow. What is to be sent may still say so; then the
    /// connection is over.
    pub fn next_event(&mut self) -> Result<Option<ServerEvent>, ControlError> {
        let event = match &mut self.state {
            State::SetUp => self.read_set_up(),
            State::Idle => self.read_command(),
            State::Slots { .. } => self.read_slots(),
            State::Answer | State::Ended => return Ok(None),
            State::Running(reader) => match reader.read(&mut self.channel) {
                Ok(Some(stop)) => {
                    self.state = State::Idle;
                    self.sessions = 0;
                    Ok(Some(ServerEvent::Stop(stop)))
                }
                other => other.map(|_| None),
            },
        };
        if event.is_err() {
            self.state = State::Ended;
        }
        event
    }

    fn read_set_up(&mut self) -> Result<Option<ServerEvent>, ControlError> {
        let Some(octets) = self.channel.read_clear::<164>() else {
            return Ok(None);
        };
        let mut set_up = SetUp::from_wire(&octets);
        self.keeps_latest = self.greeting.gives_stamps && set_up.mode.has(Modes::KEEPS_LATEST);
        if self.keeps_latest {
            set_up.mode = set_up.mode.and(Modes(!Modes::KEEPS_LATEST.0));
        }
        let protection = set_up.mode.and(Modes::PROTECTIONS);
        let offered = set_up.mode.and(self.greeting.modes) == set_up.mode;
        if !offered || protection.0.count_ones() != 1 {
            self.write_start(Accept::Refused);
            return Err(ControlError::Malformed("choice of a mode"));
        }
        let name = String::from_utf8_lossy(&set_up.key).into_owned();
        if protection.secured() {
            let Greeting {
                salt,
                challenge,
                rounds,
                ..
            } = self.greeting;
            let secret = self.secrets.iter().find(|secret| secret.name == name);
            // An unknown name takes as long as a wrong passphrase.
            let passphrase = secret.map_or(&b""[..], |secret| &secret.passphrase);
            let opened = keys::open_token(passphrase, &salt, rounds, &challenge, &set_up.token);
            let Some(keys) = opened.filter(|_| secret.is_some()) else {
                self.write_start(Accept::Refused);
                return Err(ControlError::BadKey(name));
            };
            self.keys = Some(keys);
        }
        self.mode = set_up.mode;
        let vector = set_up.vector;
        let (clear, last) = self.server_start(Accept::Accepted).to_wire();
        self.channel.write_clear(&clear);
        if let Some(keys) = &self.keys {
            self.channel.secure(keys, self.vector, vector);
        }
        self.channel.write(&last);
        self.state = State::Idle;
        Ok(Some(ServerEvent::Ready {
            mode: self.mode,
            key: protection.secured().then_some(name),
        }))
    }

    fn server_start(&self, accept: Accept) -> ServerStart {
        ServerStart {
            accept,
            vector: self.vector,
            started: self.started,
        }
    }

    /// A refusal, in clear.
    fn write_start(&mut self, accept: Accept) {
        let (clear, _) = self.server_start(accept).to_wire();
        self.channel.write_clear(&clear);
        self.channel.write_clear(&[0; 16]);
    }

    fn read_command(&mut self) -> Result<Option<ServerEvent>, ControlError> {
        let Some(first) = self.channel.peek(16) else {
            return Ok(None);
        };
        match (first[0], self.two_way) {
            (REQUEST_SESSION, false) | (REQUEST_TWO_WAY, true) => self.read_request(),
            (START_SESSIONS, _) => {
                let Some(message) = self.channel.read_message(32) else {
                    return Ok(None);
                };
                message?;
                self.state = State::Answer;
                Ok(Some(ServerEvent::Start))
            }
            // Both ends may send it; the second one comes here.
            (STOP_SESSIONS, _) => {
                let mut reader = StopReader::new(self.two_way);
                match reader.read(&mut self.channel)? {
                    Some(stop) => Ok(Some(ServerEvent::Stop(stop))),
                    None => {
                        self.state = State::Running(reader);
                        Ok(None)
                    }
                }
            }
            (FETCH_SESSION, false) => {
                let Some(message) = self.channel.read_message(48).transpose()? else {
                    return Ok(None);
                };
                self.state = State::Answer;
                Ok(Some(ServerEvent::Fetch(Fetch::from_wire(&exact(
                    &message,
                )?))))
            }
            (SEND_STAMPS, false) => {
                let Some(message) = self.channel.read_message(48).transpose()? else {
                    return Ok(None);
                };
                self.state = State::Answer;
                Ok(Some(ServerEvent::SendStamps(block(&message, 16))))
            }
            _ => Err(ControlError::Malformed("command")),
        }
    }

    fn read_request(&mut self) -> Result<Option<ServerEvent>, ControlError> {
        let Some(message) = self.channel.read_message(PREAMBLE + 16).transpose()? else {
            return Ok(None);
        };
        let (request, left) = match SessionRequest::from_preamble(&message) {
            Ok(read) => read,
            Err(error) => {
                self.refuse_session(Accept::NotSupported);
                return Err(error);
            }
        };
        self.check(&request, left)?;
        if self.two_way {
            self.state = State::Answer;
            return Ok(Some(ServerEvent::Request(request)));
        }
        self.state = State::Slots { request, left };
        self.read_slots()
    }

    /// The limits, before anything is kept.
    fn check(&mut self, request: &SessionRequest, slots: u32) -> Result<(), ControlError> {
        let packets = match &request.direction {
            super::Direction::OneWay { packets, .. } => *packets,
            super::Direction::TwoWay { .. } => 0,
        };
        let Limits { sessions, .. } = self.limits;
        let checks = [
            (
                "number of slots",
                u64::from(slots),
                u64::from(self.limits.slots),
            ),
            (
                "number of packets",
                packets.into(),
                self.limits.packets.into(),
            ),
            (
                "padding",
                request.padding.into(),
                self.limits.padding.into(),
            ),
            (
                "number of sessions",
                self.sessions as u64 + 1,
                sessions as u64,
            ),
        ];
        for (what, found, most) in checks {
            if found > most {
                // Slots may follow without end: the answer goes out, and the connection ends.
                self.refuse_session(Accept::PermanentLimit);
                return Err(ControlError::OverLimit { what, found, most });
            }
        }
        Ok(())
    }

    fn refuse_session(&mut self, accept: Accept) {
        let refusal = AcceptSession {
            accept,
            port: 0,
            session: [0; 16],
            reflected: 0,
            server: 0,
        };
        self.channel.write_message(&refusal.to_wire());
    }

    fn read_slots(&mut self) -> Result<Option<ServerEvent>, ControlError> {
        let State::Slots { request, left } = &mut self.state else {
            return Ok(None);
        };
        while *left > 0 {
            let Some(octets) = self.channel.read(16) else {
                return Ok(None);
            };
            request.add_slot(&exact(&octets)?)?;
            *left -= 1;
        }
        let Some(verified) = self.channel.read_digest() else {
            return Ok(None);
        };
        verified?;
        let request = request.clone();
        self.state = State::Answer;
        Ok(Some(ServerEvent::Request(request)))
    }

    /// Answers [`ServerEvent::Request`].
    pub fn answer_request(&mut self, answer: &AcceptSession) {
        self.sessions += usize::from(answer.accept == Accept::Accepted);
        self.channel.write_message(&answer.to_wire());
        self.state = State::Idle;
    }

    /// Answers [`ServerEvent::Start`].
    pub fn answer_start(&mut self, accept: Accept) {
        let mut message = [0; 16];
        message[0] = accept.to_wire();
        self.channel.write_message(&message);
        self.state = match accept {
            Accept::Accepted => State::Running(StopReader::new(self.two_way)),
            _ => State::Idle,
        };
    }

    /// Ends all sessions from this end (RFC 4656 section 3.8; not in TWAMP). The client's own message follows.
    pub fn stop(&mut self, stop: &Stop) {
        write_stop(&mut self.channel, stop, None);
    }

    /// Answers [`ServerEvent::Fetch`] with no.
    pub fn refuse_fetch(&mut self, accept: Accept) {
        let ack = FetchAck {
            accept,
            finished: 0,
            next_sequence: 0,
            skips: 0,
            records: 0,
        };
        self.channel.write_message(&ack.to_wire());
        self.state = State::Idle;
    }

    /// Answers [`ServerEvent::Fetch`]: as many records as `ack` says must follow, in multiples of 16 but the last
    /// ones.
    pub fn begin_fetch(&mut self, ack: &FetchAck, request: &SessionRequest, skips: &[SkipRange]) {
        self.channel.write_message(&ack.to_wire());
        self.channel.write_message(&request.preamble());
        for slot in request.slots() {
            self.channel.write(&slot.to_wire());
        }
        self.channel.write_digest();
        let mut octets: Vec<u8> = skips.iter().flat_map(|skip| skip.to_wire()).collect();
        octets.resize(octets.len().next_multiple_of(16), 0);
        self.channel.write_message(&octets);
    }

    /// The next records: a multiple of 16, or the last ones.
    pub fn fetch_records(&mut self, records: &[Record]) {
        let mut octets = Vec::with_capacity(records.len() * RECORD + 16);
        for record in records {
            octets.extend_from_slice(&record.to_wire());
        }
        octets.resize(octets.len().next_multiple_of(16), 0);
        self.channel.write(&octets);
    }

    /// All records have been given.
    pub fn end_fetch(&mut self) {
        self.channel.write_digest();
        self.state = State::Idle;
    }

    /// Answers [`ServerEvent::SendStamps`]; `count` stamps must follow. `dropped`: packets of the session that a full
    /// buffer of this host dropped, where it received.
    pub fn begin_stamps(&mut self, accept: Accept, count: u32, dropped: Option<u32>) {
        let mut message = [0; 16];
        message[0] = accept.to_wire();
        message[1] = u8::from(dropped.is_some());
        message[4..8].copy_from_slice(&dropped.unwrap_or(0).to_be_bytes());
        message[12..].copy_from_slice(&count.to_be_bytes());
        self.channel.write_message(&message);
    }

    /// The next stamps.
    pub fn stamps(&mut self, stamps: &[SendStamp]) {
        for stamp in stamps {
            self.channel.write(&stamp.to_wire());
        }
    }

    /// All stamps have been given.
    pub fn end_stamps(&mut self) {
        self.end_fetch();
    }
}
