// SPDX-License-Identifier: Apache-2.0
//! The client's end of a control connection.

use super::ControlError;
use super::channel::Channel;
use super::credentials::Credentials;
use super::message::{
    Accept, AcceptSession, Fetch, FetchAck, Greeting, Modes, SEND_STAMPS, START_SESSIONS,
    SendStamp, SetUp, Stop, block, exact, long, word,
};
use super::request::{PREAMBLE, SessionRequest};
use super::stop::{StopReader, write_stop};
use crate::keys::{self, Block, SessionKeys};
use crate::record::{RECORD, Record, SkipRange};
use crate::time::Timestamp;

/// Records that are read at a time: 16 fill 25 blocks (RFC 4656 section 3.9).
const CHUNK: usize = 16;

/// Slots of a fetched session.
const MOST_SLOTS: u32 = 1 << 16;

/// What a client learns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientEvent {
    /// The connection is set up.
    Ready {
        /// How it is protected.
        mode: Modes,
        /// When the server started.
        started: Timestamp,
    },
    /// The answer to [`Client::request`].
    Session(AcceptSession),
    /// The answer to [`Client::start`].
    Started(Accept),
    /// The server ended the sessions.
    Stopped(Stop),
    /// The answer to [`Client::fetch`]; if it is accepted, the session, its skips and records follow.
    FetchAck(FetchAck),
    /// The session that is fetched.
    Fetching(SessionRequest),
    /// Packets that were never sent.
    Skips(Vec<SkipRange>),
    /// The next records, at most 16.
    Records(Vec<Record>),
    /// All records have come and verify.
    Fetched,
    /// The next send stamps of [`Client::send_stamps`].
    Stamps(Vec<SendStamp>),
    /// All stamps have come.
    AllStamps {
        /// Whether the server knows the session.
        accept: Accept,
        /// Packets of the session that the server's full buffer dropped; `None`: it does not say.
        dropped: Option<u32>,
    },
}

/// Where the conversation is.
#[derive(Debug)]
enum State {
    Greeting,
    Start {
        keys: SessionKeys,
        vector: Block,
    },
    Idle,
    Accepting,
    Starting,
    Running(StopReader),
    FetchAck {
        most: u32,
    },
    FetchPreamble(FetchAck),
    FetchSlots {
        ack: FetchAck,
        request: SessionRequest,
        left: u32,
    },
    FetchSkips {
        ack: FetchAck,
        skips: Vec<SkipRange>,
    },
    FetchRecords {
        left: u32,
    },
    StampCount {
        most: u32,
    },
    Stamps {
        left: u32,
        accept: Accept,
        dropped: Option<u32>,
    },
    Ended,
}

/// The client's machine. It speaks after [`Client::feed`] and after its own commands.
#[derive(Debug)]
pub struct Client {
    channel: Channel,
    state: State,
    wanted: Modes,
    credentials: Option<Credentials>,
    random: [u8; 64],
    two_way: bool,
    mode: Modes,
    gives_stamps: bool,
}

impl Client {
    /// A client that accepts `wanted` modes. Modes with keys are left out without `credentials`. `random` becomes
    /// the session keys and the initialisation vector. `two_way`: TWAMP.
    #[must_use]
    pub fn new(
        wanted: Modes,
        credentials: Option<Credentials>,
        random: [u8; 64],
        two_way: bool,
    ) -> Self {
        let open = Modes(!14);
        Client {
            channel: Channel::default(),
            state: State::Greeting,
            wanted: if credentials.is_some() {
                wanted
            } else {
                wanted.and(open)
            },
            credentials,
            random,
            two_way,
            mode: Modes::default(),
            gives_stamps: false,
        }
    }

    /// Takes octets of the server.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.channel.feed(bytes);
    }

    /// Octets for the server; they are gone from here.
    pub fn output(&mut self) -> Vec<u8> {
        self.channel.output()
    }

    /// The mode that was chosen.
    #[must_use]
    pub fn mode(&self) -> Modes {
        self.mode
    }

    /// Whether the server gives the kernel's send stamps.
    #[must_use]
    pub fn gives_stamps(&self) -> bool {
        self.gives_stamps
    }

    /// The keys of a test session; `None` where test packets are open.
    #[must_use]
    pub fn test_keys(&self, session: &Block) -> Option<SessionKeys> {
        let protected = Modes::AUTHENTICATED.or(Modes::ENCRYPTED);
        (self.mode.has(protected)).then(|| keys::test_keys(&self.session_keys(), session))
    }

    fn session_keys(&self) -> SessionKeys {
        SessionKeys {
            aes: block(&self.random, 0),
            hmac: self.random[16..48].try_into().expect("32 octets"),
        }
    }

    /// Asks for a session.
    pub fn request(&mut self, request: &SessionRequest) {
        self.channel.write_message(&request.preamble());
        if !self.two_way {
            for slot in request.slots() {
                self.channel.write(&slot.to_wire());
            }
            self.channel.write_digest();
        }
        self.state = State::Accepting;
    }

    /// Starts all sessions.
    pub fn start(&mut self) {
        let mut message = [0; 16];
        message[0] = START_SESSIONS;
        self.channel.write_message(&message);
        self.state = State::Starting;
    }

    /// Ends all sessions. `sessions` of TWAMP is how many ran. The server's own message may come after it.
    pub fn stop(&mut self, stop: &Stop, sessions: u32) {
        write_stop(&mut self.channel, stop, self.two_way.then_some(sessions));
        if self.two_way {
            self.state = State::Idle;
        }
    }

    /// Asks for records, once all sessions ended; more than `most` are refused.
    pub fn fetch(&mut self, fetch: &Fetch, most: u32) {
        self.channel.write_message(&fetch.to_wire());
        self.state = State::FetchAck { most };
    }

    /// Asks a server that [`gives_stamps`](Self::gives_stamps) when the packets of a session really left.
    pub fn send_stamps(&mut self, session: &Block, most: u32) {
        let mut message = [0; 32];
        message[0] = SEND_STAMPS;
        message[16..].copy_from_slice(session);
        self.channel.write_message(&message);
        self.state = State::StampCount { most };
    }

    /// The next event; `None` until more octets come.
    ///
    /// # Errors
    /// The server does what the protocol does not allow: the connection is over.
    pub fn next_event(&mut self) -> Result<Option<ClientEvent>, ControlError> {
        let event = self.advance();
        if event.is_err() {
            self.state = State::Ended;
        }
        event
    }

    fn advance(&mut self) -> Result<Option<ClientEvent>, ControlError> {
        match &mut self.state {
            State::Greeting => self.read_greeting(),
            State::Start { .. } => self.read_start(),
            State::Idle | State::Ended => Ok(None),
            State::Accepting => self.read_accept(),
            State::Starting => self.read_started(),
            State::Running(reader) => {
                let stop = reader.read(&mut self.channel)?;
                if stop.is_some() {
                    self.state = State::Idle;
                }
                Ok(stop.map(ClientEvent::Stopped))
            }
            State::FetchAck { .. } => self.read_fetch_ack(),
            State::FetchPreamble(_) => self.read_fetch_preamble(),
            State::FetchSlots { .. } => self.read_fetch_slots(),
            State::FetchSkips { .. } => self.read_fetch_skips(),
            State::FetchRecords { .. } => self.read_fetch_records(),
            State::StampCount { .. } | State::Stamps { .. } => self.read_stamps(),
        }
    }

    fn read_greeting(&mut self) -> Result<Option<ClientEvent>, ControlError> {
        let Some(octets) = self.channel.read_clear::<64>() else {
            return Ok(None);
        };
        let greeting = Greeting::from_wire(&octets);
        let offered = greeting.modes;
        if !offered.has(Modes::PROTECTIONS) {
            return Err(ControlError::Refused);
        }
        let common = offered.and(self.wanted);
        let no_common = ControlError::NoCommonMode {
            offered,
            wanted: self.wanted,
        };
        let protection = common
            .and(Modes::PROTECTIONS)
            .strictest()
            .ok_or(no_common)?;
        self.mode = protection.or(common.and(Modes(!Modes::PROTECTIONS.0)));
        self.gives_stamps = greeting.gives_stamps;
        let keys = self.session_keys();
        let vector = block(&self.random, 48);
        let mark = match greeting.gives_stamps {
            true => Modes::KEEPS_LATEST,
            false => Modes(0),
        };
        let mut set_up = SetUp {
            mode: self.mode.or(mark),
            key: Vec::new(),
            token: [0; 64],
            vector: [0; 16],
        };
        if self.mode.secured() {
            if greeting.rounds > keys::MOST_ROUNDS {
                return Err(ControlError::TooManyRounds(greeting.rounds));
            }
            let credentials = self
                .credentials
                .as_ref()
                .ok_or(ControlError::Malformed("choice of a mode"))?;
            let Greeting {
                salt,
                challenge,
                rounds,
                ..
            } = greeting;
            set_up.key = credentials.name.clone().into_bytes();
            set_up.token = keys::token(&credentials.passphrase, &salt, rounds, &challenge, &keys);
            set_up.vector = vector;
        }
        self.channel.write_clear(&set_up.to_wire());
        self.state = State::Start { keys, vector };
        self.read_start()
    }

    fn read_start(&mut self) -> Result<Option<ClientEvent>, ControlError> {
        let State::Start { keys, vector } = &self.state else {
            return Ok(None);
        };
        if self.channel.waiting() < 48 {
            return Ok(None);
        }
        let Some(clear) = self.channel.read_clear::<32>() else {
            return Ok(None);
        };
        let accept = Accept::from_wire(clear[15]);
        if accept != Accept::Accepted {
            let key = self.credentials.as_ref().filter(|_| self.mode.secured());
            return Err(match key {
                Some(credentials) => ControlError::BadKey(credentials.name.clone()),
                None => ControlError::Declined {
                    what: "the connection",
                    accept,
                },
            });
        }
        if self.mode.secured() {
            self.channel.secure(keys, *vector, block(&clear, 16));
        }
        let Some(last) = self.channel.read(16) else {
            return Ok(None);
        };
        self.state = State::Idle;
        Ok(Some(ClientEvent::Ready {
            mode: self.mode,
            started: Timestamp(long(&last, 0)),
        }))
    }

    fn read_accept(&mut self) -> Result<Option<ClientEvent>, ControlError> {
        let Some(message) = self.channel.read_message(48).transpose()? else {
            return Ok(None);
        };
        self.state = State::Idle;
        let accept = AcceptSession::from_wire(&exact(&message)?);
        Ok(Some(ClientEvent::Session(accept)))
    }

    fn read_started(&mut self) -> Result<Option<ClientEvent>, ControlError> {
        let Some(message) = self.channel.read_message(32).transpose()? else {
            return Ok(None);
        };
        let accept = Accept::from_wire(message[0]);
        self.state = match accept {
            Accept::Accepted if !self.two_way => State::Running(StopReader::new(false)),
            _ => State::Idle,
        };
        Ok(Some(ClientEvent::Started(accept)))
    }

    fn read_fetch_ack(&mut self) -> Result<Option<ClientEvent>, ControlError> {
        let State::FetchAck { most } = self.state else {
            return Ok(None);
        };
        let Some(message) = self.channel.read_message(32).transpose()? else {
            return Ok(None);
        };
        let ack = FetchAck::from_wire(&exact(&message)?);
        for (what, found) in [
            ("number of records", ack.records),
            ("number of skips", ack.skips),
        ] {
            if found > most {
                let (found, most) = (found.into(), most.into());
                return Err(ControlError::OverLimit { what, found, most });
            }
        }
        self.state = match ack.accept {
            Accept::Accepted => State::FetchPreamble(ack),
            _ => State::Idle,
        };
        Ok(Some(ClientEvent::FetchAck(ack)))
    }

    fn read_fetch_preamble(&mut self) -> Result<Option<ClientEvent>, ControlError> {
        let State::FetchPreamble(ack) = self.state else {
            return Ok(None);
        };
        let Some(message) = self.channel.read_message(PREAMBLE + 16).transpose()? else {
            return Ok(None);
        };
        let (request, left) = SessionRequest::from_preamble(&message)?;
        if left > MOST_SLOTS {
            return Err(ControlError::OverLimit {
                what: "number of slots",
                found: left.into(),
                most: MOST_SLOTS.into(),
            });
        }
        self.state = State::FetchSlots { ack, request, left };
        self.read_fetch_slots()
    }

    fn read_fetch_slots(&mut self) -> Result<Option<ClientEvent>, ControlError> {
        let State::FetchSlots { ack, request, left } = &mut self.state else {
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
        let (ack, request) = (*ack, request.clone());
        self.state = State::FetchSkips {
            ack,
            skips: Vec::new(),
        };
        Ok(Some(ClientEvent::Fetching(request)))
    }

    fn read_fetch_skips(&mut self) -> Result<Option<ClientEvent>, ControlError> {
        let State::FetchSkips { ack, skips } = &mut self.state else {
            return Ok(None);
        };
        while skips.len() < ack.skips as usize {
            let Some(octets) = self.channel.read(16) else {
                return Ok(None);
            };
            for chunk in octets.chunks_exact(8) {
                if skips.len() < ack.skips as usize {
                    let range = SkipRange::from_wire(exact(chunk)?)
                        .ok_or(ControlError::Malformed("skipped range"))?;
                    skips.push(range);
                }
            }
        }
        let Some(verified) = self.channel.read_digest() else {
            return Ok(None);
        };
        verified?;
        let skips = std::mem::take(skips);
        self.state = State::FetchRecords { left: ack.records };
        Ok(Some(ClientEvent::Skips(skips)))
    }

    fn read_fetch_records(&mut self) -> Result<Option<ClientEvent>, ControlError> {
        let State::FetchRecords { left } = &mut self.state else {
            return Ok(None);
        };
        if *left == 0 {
            let Some(verified) = self.channel.read_digest() else {
                return Ok(None);
            };
            verified?;
            self.state = State::Idle;
            return Ok(Some(ClientEvent::Fetched));
        }
        let count = CHUNK.min(*left as usize);
        let Some(octets) = self.channel.read((count * RECORD).next_multiple_of(16)) else {
            return Ok(None);
        };
        let records: Option<Vec<Record>> = octets
            .chunks_exact(RECORD)
            .take(count)
            .map(|chunk| Record::from_wire(chunk.try_into().expect("25 octets")))
            .collect();
        *left -= count as u32;
        let records = records.ok_or(ControlError::Malformed("record's error estimate"))?;
        Ok(Some(ClientEvent::Records(records)))
    }

    fn read_stamps(&mut self) -> Result<Option<ClientEvent>, ControlError> {
        if let State::StampCount { most } = self.state {
            let Some(message) = self.channel.read_message(32).transpose()? else {
                return Ok(None);
            };
            let left = word(&message, 12);
            if left > most {
                let (found, most) = (left.into(), most.into());
                let what = "number of send stamps";
                return Err(ControlError::OverLimit { what, found, most });
            }
            let accept = Accept::from_wire(message[0]);
            let dropped = (message[1] != 0).then(|| word(&message, 4));
            self.state = State::Stamps {
                left,
                accept,
                dropped,
            };
        }
        let State::Stamps {
            left,
            accept,
            dropped,
        } = &mut self.state
        else {
            return Ok(None);
        };
        if *left == 0 {
            let Some(verified) = self.channel.read_digest() else {
                return Ok(None);
            };
            verified?;
            let (accept, dropped) = (*accept, *dropped);
            self.state = State::Idle;
            return Ok(Some(ClientEvent::AllStamps { accept, dropped }));
        }
        let count = CHUNK.min(*left as usize);
        let Some(octets) = self.channel.read(count * 16) else {
            return Ok(None);
        };
        *left -= count as u32;
        let stamps = octets.chunks_exact(16);
        let stamps = stamps.map(|chunk| SendStamp::from_wire(&block(chunk, 0)));
        Ok(Some(ClientEvent::Stamps(stamps.collect())))
    }
}
