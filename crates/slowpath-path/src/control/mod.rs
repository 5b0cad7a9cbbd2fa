// SPDX-License-Identifier: Apache-2.0
//! The control protocol of OWAMP (RFC 4656 section 3) and TWAMP (RFC 5357 section 3): both ends as machines without
//! sockets.
//!
//! What enters: octets of the peer, random octets, the clock. What leaves: octets for the peer
//! ([`Client::output`], [`Server::output`]) and events. Ports are opened, sessions run and
//! deadlines kept by whoever drives a machine.
//!
//! What is promised: no count of a peer makes a machine allocate or compute more than its limits; a message
//! that does not verify ends the connection before anything in it is believed.

mod channel;
mod client;
mod credentials;
mod message;
mod request;
mod server;
mod stop;

pub use client::{Client, ClientEvent};
pub use credentials::Credentials;
pub use message::{
    Accept, AcceptSession, Fetch, FetchAck, Greeting, Modes, SendStamp, ServerStart, SetUp, Stop,
    StoppedSession,
};
pub use request::{Direction, SessionRequest};
pub use server::{Limits, Server, ServerEvent};

/// Why a control connection ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// The server offers no mode at all: it refuses this client (RFC 4656 section 3.1).
    #[error("the server refuses to talk to this address (it offers no mode)")]
    Refused,
    /// No mode is in both lists.
    #[error(
        "no common mode: the server offers {offered}, and {wanted} was asked for; change -A, or give -u and -k"
    )]
    NoCommonMode {
        /// Of the server.
        offered: Modes,
        /// Of the client.
        wanted: Modes,
    },
    /// A PBKDF2 count past [`MOST_ROUNDS`](crate::keys::MOST_ROUNDS).
    #[error("the server asks for {0} rounds of PBKDF2, more than {most}: it would keep this machine busy", most = crate::keys::MOST_ROUNDS)]
    TooManyRounds(u32),
    /// The peer's message has a digest that does not fit: another key, or changed on the way.
    #[error(
        "a message of the peer does not verify: its key is another, or it was changed on the way"
    )]
    BadDigest,
    /// The peer knows no such key, or the token does not open.
    #[error("the peer does not know the key {0}, or its passphrase is another")]
    BadKey(String),
    /// A message that this state does not allow, or fields that no RFC has.
    #[error("the peer's {0} is not what the protocol allows")]
    Malformed(&'static str),
    /// More than the limits allow.
    #[error("the peer's {what} is {found}, more than {most}")]
    OverLimit {
        /// Of what.
        what: &'static str,
        /// How much was asked.
        found: u64,
        /// How much is allowed.
        most: u64,
    },
    /// The peer answered no.
    #[error("the peer refused {what}: {accept}")]
    Declined {
        /// What.
        what: &'static str,
        /// Its reason.
        accept: Accept,
    },
}
