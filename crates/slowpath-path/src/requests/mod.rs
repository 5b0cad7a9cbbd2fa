// SPDX-License-Identifier: Apache-2.0
//! Requests of one slowpath to another, over TCP: what OWAMP and TWAMP have no message for.
//!
//! What enters: octets of a connection, nonces. What leaves: typed messages ([`message`]), proofs that both ends know a
//! key ([`Proofs`]), frames ([`Channel`]); at the edge [`Link`], a connection with deadlines.
//!
//! ```text
//!  server                                            client
//!  greeting: version, whether a key is needed, nonce ─►
//!                    ◄─ Opening::Control: key's name, nonce, proof   or  Opening::Data: token
//!  Opened: its own proof, or why not ─►
//!                    ◄─ Command::Ask: a Request
//!  Answer::Accepted with a token, or Refused ─►      (the client connects for data, with the token)
//!                    ◄─ Command::Start, Command::Stop
//!  Answer::Started, Finished with the result ─►
//! ```
//!
//! A message is JSON behind its length; with a key, HMAC-SHA256 over direction, number and text follows, so that
//! messages of others, replayed and reordered ones are noticed.
//!
//! What is promised: a server connects to no one. All connections are made by the client to the port that it asks at,
//! and a token of 128 random bits, which is good from the client's address only, joins them. No message is longer than
//! [`MOST_OCTETS`]; no count of a peer takes memory.
//!
//! A further request is a variant of [`message::Request`] and an arm where the server dispatches it.

mod channel;
pub(crate) mod client;
mod link;
pub mod message;

pub use channel::{
    Channel, ChannelError, GREETING, Greeting, GreetingError, NONCE, Nonce, Proofs, Side,
};
pub use client::{RequestError, Requester};
pub use link::{Link, LinkError};

/// The version of this protocol. A client and a server of different versions do not talk.
pub const VERSION: u16 = 1;

/// The port that requests are answered at unless another is named. OWAMP has 861, TWAMP 862: the next one, in the range
/// that needs no privilege, below the ports that Linux chooses for clients (32768 and more) and not assigned by IANA.
pub const PORT: u16 = 8863;

/// Octets of a message, at most.
pub const MOST_OCTETS: usize = 256 * 1024;

/// Octets of a message of a client that has not proven anything yet.
pub const MOST_OPENING_OCTETS: usize = 1024;
