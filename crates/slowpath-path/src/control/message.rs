// SPDX-License-Identifier: Apache-2.0
//! The messages of the control protocol but the request of a session: octets to values and back.

use super::ControlError;
use crate::keys::Block;
use crate::record::SkipRange;
use crate::time::Timestamp;
use std::fmt;

/// Modes that a server offers, or the one that a client chooses, as bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Modes(pub u32);

impl Modes {
    /// Nothing is protected (RFC 4656 section 3.1).
    pub const OPEN: Modes = Modes(1);
    /// Control is encrypted, test packets are authenticated.
    pub const AUTHENTICATED: Modes = Modes(2);
    /// Both are encrypted.
    pub const ENCRYPTED: Modes = Modes(4);
    /// Control is encrypted, test packets are open (RFC 5618).
    pub const MIXED: Modes = Modes(8);
    /// Reflectors return octets of the padding (RFC 6038 section 3).
    pub const REFLECT_OCTETS: Modes = Modes(32);
    /// Packets are as large on the way back (RFC 6038 section 5).
    pub const SYMMETRICAL_SIZE: Modes = Modes(64);

    /// Ours, chosen by a client of a server whose greeting has our mark: its receivers keep packets that were sent less
    /// than the timeout before the stop, which RFC 4656 section 3.8 has others discard.
    pub const KEEPS_LATEST: Modes = Modes(1 << 30);

    /// How packets may be protected: exactly one of these is chosen.
    pub const PROTECTIONS: Modes = Modes(15);

    /// Those in both.
    #[must_use]
    pub fn and(self, other: Modes) -> Modes {
        Modes(self.0 & other.0)
    }

    /// Those in either.
    #[must_use]
    pub fn or(self, other: Modes) -> Modes {
        Modes(self.0 | other.0)
    }

    /// Whether one of `other` is in it.
    #[must_use]
    pub fn has(self, other: Modes) -> bool {
        self.0 & other.0 != 0
    }

    /// The strictest way of protection in it.
    #[must_use]
    pub fn strictest(self) -> Option<Modes> {
        [
            Self::ENCRYPTED,
            Self::AUTHENTICATED,
            Self::MIXED,
            Self::OPEN,
        ]
        .into_iter()
        .find(|&mode| self.has(mode))
    }

    /// Whether the control connection has keys.
    #[must_use]
    pub fn secured(self) -> bool {
        self.has(Modes(14))
    }
}

impl fmt::Display for Modes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = [
            (Self::OPEN, "open"),
            (Self::AUTHENTICATED, "authenticated"),
            (Self::ENCRYPTED, "encrypted"),
            (Self::MIXED, "mixed"),
        ];
        let names: Vec<&str> = names
            .into_iter()
            .filter_map(|(mode, name)| self.has(mode).then_some(name))
            .collect();
        match names.is_empty() {
            true => f.write_str("none"),
            false => f.write_str(&names.join(", ")),
        }
    }
}

/// Answers of a server (RFC 4656 section 3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Accept {
    /// Yes.
    Accepted,
    /// No, for a reason that is not given.
    Refused,
    /// The server failed.
    InternalError,
    /// Some part of the request is not supported.
    NotSupported,
    /// A limit that does not pass.
    PermanentLimit,
    /// A limit that passes.
    TemporaryLimit,
}

impl Accept {
    const ALL: [Accept; 6] = [
        Accept::Accepted,
        Accept::Refused,
        Accept::InternalError,
        Accept::NotSupported,
        Accept::PermanentLimit,
        Accept::TemporaryLimit,
    ];

    /// As it goes on the wire.
    #[must_use]
    pub fn to_wire(self) -> u8 {
        self as u8
    }

    /// From the wire; values that RFC 4656 does not have are a refusal.
    #[must_use]
    pub fn from_wire(value: u8) -> Self {
        Self::ALL
            .get(usize::from(value))
            .copied()
            .unwrap_or(Accept::Refused)
    }
}

impl fmt::Display for Accept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Accept::Accepted => "accepted",
            Accept::Refused => "refused without a reason",
            Accept::InternalError => "it failed inside",
            Accept::NotSupported => "it does not support that",
            Accept::PermanentLimit => "that is over its limits",
            Accept::TemporaryLimit => "it has no room now; try later",
        })
    }
}

/// In the first 12 octets of our servers' greeting, which RFC 4656 leaves unused: the server has the command
/// [`SEND_STAMPS`].
const MARK: [u8; 12] = *b"slowpath-1\0\0";

/// Numbers of commands (RFC 4656 section 3.4, RFC 5357 section 3.4).
pub(super) const REQUEST_SESSION: u8 = 1;
pub(super) const START_SESSIONS: u8 = 2;
pub(super) const STOP_SESSIONS: u8 = 3;
pub(super) const FETCH_SESSION: u8 = 4;
pub(super) const REQUEST_TWO_WAY: u8 = 5;
/// Ours: asks for the kernel's send stamps of a session, which the packets could not carry.
pub(super) const SEND_STAMPS: u8 = 200;

/// A server's first message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Greeting {
    /// What it offers; nothing: it refuses.
    pub modes: Modes,
    /// To be returned in the token.
    pub challenge: Block,
    /// For PBKDF2.
    pub salt: Block,
    /// Rounds of PBKDF2.
    pub rounds: u32,
    /// It is a slowpath that gives send stamps.
    pub gives_stamps: bool,
}

impl Greeting {
    /// Its 64 octets.
    #[must_use]
    pub fn to_wire(&self) -> [u8; 64] {
        let mut bytes = [0; 64];
        if self.gives_stamps {
            bytes[..12].copy_from_slice(&MARK);
        }
        bytes[12..16].copy_from_slice(&self.modes.0.to_be_bytes());
        bytes[16..32].copy_from_slice(&self.challenge);
        bytes[32..48].copy_from_slice(&self.salt);
        bytes[48..52].copy_from_slice(&self.rounds.to_be_bytes());
        bytes
    }

    /// From its 64 octets.
    #[must_use]
    pub fn from_wire(bytes: &[u8; 64]) -> Self {
        Greeting {
            gives_stamps: bytes[..12] == MARK,
            modes: Modes(word(bytes, 12)),
            challenge: block(bytes, 16),
            salt: block(bytes, 32),
            rounds: word(bytes, 48),
        }
    }
}

/// A client's answer to the greeting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetUp {
    /// The mode that it chooses; 0: it ends here.
    pub mode: Modes,
    /// Which key, at most 80 octets.
    pub key: Vec<u8>,
    /// Challenge and session keys, encrypted.
    pub token: [u8; 64],
    /// From which the client's chain begins.
    pub vector: Block,
}

impl SetUp {
    /// Its 164 octets; a longer key name is cut.
    #[must_use]
    pub fn to_wire(&self) -> [u8; 164] {
        let mut bytes = [0; 164];
        bytes[..4].copy_from_slice(&self.mode.0.to_be_bytes());
        let length = self.key.len().min(80);
        bytes[4..4 + length].copy_from_slice(&self.key[..length]);
        bytes[84..148].copy_from_slice(&self.token);
        bytes[148..].copy_from_slice(&self.vector);
        bytes
    }

    /// From its 164 octets.
    #[must_use]
    pub fn from_wire(bytes: &[u8; 164]) -> Self {
        let key = &bytes[4..84];
        let length = key.iter().position(|&b| b == 0).unwrap_or(80);
        let mut token = [0; 64];
        token.copy_from_slice(&bytes[84..148]);
        SetUp {
            mode: Modes(word(bytes, 0)),
            key: key[..length].to_vec(),
            token,
            vector: block(bytes, 148),
        }
    }
}

/// A server's second message: 32 octets in clear, then a block that is encrypted where there are keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerStart {
    /// Whether it goes on.
    pub accept: Accept,
    /// From which the server's chain begins.
    pub vector: Block,
    /// When the server started.
    pub started: Timestamp,
}

impl ServerStart {
    /// The clear part and the last block.
    #[must_use]
    pub fn to_wire(&self) -> ([u8; 32], Block) {
        let (mut clear, mut last) = ([0; 32], [0; 16]);
        clear[15] = self.accept.to_wire();
        clear[16..].copy_from_slice(&self.vector);
        last[..8].copy_from_slice(&self.started.0.to_be_bytes());
        (clear, last)
    }
}

/// A server's answer to the request of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AcceptSession {
    /// Whether.
    pub accept: Accept,
    /// The server's port.
    pub port: u16,
    /// The session's identifier.
    pub session: Block,
    /// Octets that the client asked to have back (RFC 6038 section 3.3).
    pub reflected: u16,
    /// Octets that reflected packets are to contain.
    pub server: u16,
}

impl AcceptSession {
    /// Its 32 octets without the digest.
    #[must_use]
    pub fn to_wire(&self) -> [u8; 32] {
        let mut bytes = [0; 32];
        bytes[0] = self.accept.to_wire();
        bytes[2..4].copy_from_slice(&self.port.to_be_bytes());
        bytes[4..20].copy_from_slice(&self.session);
        bytes[20..22].copy_from_slice(&self.reflected.to_be_bytes());
        bytes[22..24].copy_from_slice(&self.server.to_be_bytes());
        bytes
    }

    /// From its 32 octets.
    #[must_use]
    pub fn from_wire(bytes: &[u8; 32]) -> Self {
        AcceptSession {
            accept: Accept::from_wire(bytes[0]),
            port: u16::from_be_bytes([bytes[2], bytes[3]]),
            session: block(bytes, 4),
            reflected: u16::from_be_bytes([bytes[20], bytes[21]]),
            server: u16::from_be_bytes([bytes[22], bytes[23]]),
        }
    }
}

/// What a sender reports of a session that ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoppedSession {
    /// Which.
    pub session: Block,
    /// One more than the number of the last packet that was sent.
    pub next_sequence: u32,
    /// Packets that were never sent, in order.
    pub skips: Vec<SkipRange>,
}

/// The end of all sessions (RFC 4656 section 3.8). TWAMP's has a count and no sessions (RFC 5357 section 3.8).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stop {
    /// Whether the sessions went well.
    pub accept: Accept,
    /// Of each that the peer sent.
    pub sessions: Vec<StoppedSession>,
}

/// A request for the records of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fetch {
    /// The first sequence number.
    pub begin: u32,
    /// The last; 0xffffffff with 0: all, of a session that has ended.
    pub end: u32,
    /// Which session.
    pub session: Block,
}

impl Fetch {
    /// Its 32 octets without the digest.
    #[must_use]
    pub fn to_wire(&self) -> [u8; 32] {
        let mut bytes = [0; 32];
        bytes[0] = FETCH_SESSION;
        bytes[8..12].copy_from_slice(&self.begin.to_be_bytes());
        bytes[12..16].copy_from_slice(&self.end.to_be_bytes());
        bytes[16..].copy_from_slice(&self.session);
        bytes
    }

    /// From its 32 octets.
    #[must_use]
    pub fn from_wire(bytes: &[u8; 32]) -> Self {
        Fetch {
            begin: word(bytes, 8),
            end: word(bytes, 12),
            session: block(bytes, 16),
        }
    }

    /// Whether all records are asked for.
    #[must_use]
    pub fn whole(&self) -> bool {
        self.begin == 0 && self.end == u32::MAX
    }
}

/// What goes before fetched records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchAck {
    /// Whether records follow.
    pub accept: Accept,
    /// 0: the session goes on, or broke off; 1: it ended; 2: it did not end and records are missing.
    pub finished: u8,
    /// One more than the last packet sent, of a session that has ended.
    pub next_sequence: u32,
    /// Ranges that follow.
    pub skips: u32,
    /// Records that follow.
    pub records: u32,
}

impl FetchAck {
    /// Its 16 octets without the digest.
    #[must_use]
    pub fn to_wire(&self) -> Block {
        let mut bytes = [0; 16];
        bytes[0] = self.accept.to_wire();
        bytes[1] = self.finished;
        bytes[4..8].copy_from_slice(&self.next_sequence.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.skips.to_be_bytes());
        bytes[12..].copy_from_slice(&self.records.to_be_bytes());
        bytes
    }

    /// From its 16 octets.
    #[must_use]
    pub fn from_wire(bytes: &Block) -> Self {
        FetchAck {
            accept: Accept::from_wire(bytes[0]),
            finished: bytes[1],
            next_sequence: word(bytes, 4),
            skips: word(bytes, 8),
            records: word(bytes, 12),
        }
    }
}

/// When a packet really left, by the sender's kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendStamp {
    /// Its number.
    pub sequence: u32,
    /// When.
    pub sent: Timestamp,
}

impl SendStamp {
    /// Its 16 octets.
    #[must_use]
    pub fn to_wire(&self) -> Block {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&self.sequence.to_be_bytes());
        bytes[8..].copy_from_slice(&self.sent.0.to_be_bytes());
        bytes
    }

    /// From its 16 octets.
    #[must_use]
    pub fn from_wire(bytes: &Block) -> Self {
        SendStamp {
            sequence: word(bytes, 0),
            sent: Timestamp(long(bytes, 8)),
        }
    }
}

/// Four octets as a number. The offsets here are constants within fixed messages.
pub(super) fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Eight octets as a number.
pub(super) fn long(bytes: &[u8], at: usize) -> u64 {
    (u64::from(word(bytes, at)) << 32) | u64::from(word(bytes, at + 4))
}

/// Sixteen octets.
pub(super) fn block(bytes: &[u8], at: usize) -> Block {
    let mut block = [0; 16];
    block.copy_from_slice(&bytes[at..at + 16]);
    block
}

/// Octets that a message of an exact length is made of.
pub(super) fn exact<const N: usize>(bytes: &[u8]) -> Result<[u8; N], ControlError> {
    bytes
        .try_into()
        .map_err(|_| ControlError::Malformed("message"))
}
