// SPDX-License-Identifier: Apache-2.0
//! A ring of the last minutes: all connections are recorded all the time, and those that a caller asks for are kept.
//!
//! What enters: a recorder's events through a joiner ([`Joins`]), the time, and the connections that a caller asks for ([`Ring::keep`]). What leaves: recordings, one a connection,
//! each the bytes of a file ([`Saved`]). A connection can only be replayed from its opening; so the ring holds it from there on, encoded, and drops it as a whole.
//!
//! What is promised: the ring never holds more than [`Options::bytes`] when [`Ring::work`] has returned. Where space is short it drops, in this order, the connection that ended longest ago and was not
//! asked for, the one that opened longest ago and was not asked for, and then one that was asked for, which is saved as far as it is; and at any time one that by itself takes more than a quarter. All of it is counted ([`Counts`]), and a
//! connection that is asked for and is not there has a reason ([`Missing`]). What leaves can be replayed, as far as the recording shows: a connection of which that is known to be impossible
//! is not held any more ([`Missing::Unreplayable`]). No I/O, no clocks.

mod connection;
mod store;

pub use crate::updates::{Joins, Update};
pub use store::Ring;

use slowpath_recording::{Moment, Settings, Unreplayable};
use std::net::SocketAddr;
use std::time::Duration;

/// How much is held, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Bytes, in memory.
    pub bytes: usize,
    /// How long a connection is held after its end.
    pub age: Duration,
    /// A connection that was asked for is saved at its end; if it lives on, after this time, and then again each time after twice as long, if it is asked for again.
    pub patience: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            bytes: 64 << 20,
            age: Duration::from_secs(600),
            patience: Duration::from_secs(60),
        }
    }
}

/// A recording of one connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Saved {
    /// Its number; a later recording of the same one has all of an earlier one and more.
    pub number: u64,
    /// Who connected, and to whom.
    pub addresses: [SocketAddr; 2],
    /// Its first run.
    pub opened: Moment,
    /// When its end was observed; `None`: it lives.
    pub ended: Option<Moment>,
    /// Why it was asked for, each reason once.
    pub reasons: Vec<String>,
    /// Runs of each end.
    pub runs: [u64; 2],
    /// The other end is on another machine.
    pub one_sided: bool,
    /// It lives, but nothing further of it is held: there was no room.
    pub cut_short: bool,
    /// The file.
    pub file: Vec<u8>,
}

/// A connection that was asked for, and of which nothing is kept after all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unkept {
    /// Who connected, and to whom.
    pub addresses: [SocketAddr; 2],
    /// Why it was asked for.
    pub reasons: Vec<String>,
    /// Why nothing is kept.
    pub missing: Missing,
}

/// Whether a replay can have the settings of a connection with these addresses; otherwise why not.
pub type SettingsCheck = fn([SocketAddr; 2], &Settings) -> Result<(), String>;

/// Why a connection that is asked for is not there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Missing {
    /// Nothing is known of it.
    #[error(
        "it was not recorded: it is older than the recorder, its handshake was not observed, is not of IPv4 or not of a recorded port, or ended too long ago"
    )]
    Unknown,
    /// It had to go.
    #[error("there was no room for it in the ring, which a larger one has")]
    Dropped,
    /// It was not taken.
    #[error("it was opened while recording would have taken more CPU time than it may")]
    Refused,
    /// It cannot be encoded.
    #[error("what was recorded of it makes no sense")]
    Nonsense,
    /// It cannot be replayed.
    #[error("{0}")]
    Unreplayable(Unreplayable),
    /// No replay can have its settings.
    #[error("it cannot be replayed: {0}")]
    Settings(String),
}

/// What happened to connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Both ends were observed, or one whose other end is on another machine.
    pub opened: u64,
    /// Of those the latter: one-sided ends.
    pub one_sided: u64,
    /// They ended.
    pub ended: u64,
    /// They ended, were not asked for, and their time was over.
    pub forgotten: u64,
    /// They ended, were not asked for, and there was no room.
    pub dropped_ended: u64,
    /// They lived, were not asked for, and there was no room.
    pub dropped_living: u64,
    /// They lived, were not asked for, and each took more than a quarter of the ring.
    pub dropped_large: u64,
    /// They had been asked for; they were saved while they lived, and nothing further was held.
    pub cut_short: u64,
    /// What was recorded of them could not be encoded.
    pub nonsense: u64,
    /// They cannot be replayed: events were lost, or the program did what no replay can do.
    pub unreplayable: u64,
    /// They were asked for.
    pub asked: u64,
    /// They were asked for in vain.
    pub missing: u64,
    /// Recordings that left.
    pub saved: u64,
    /// Sockets whose other end is elsewhere, and that were not kept.
    pub halves: u64,
    /// Opened while the ring took none ([`Ring::refuse`]).
    pub refused: u64,
    /// Events that came.
    pub events: u64,
    /// Runs of handlers.
    pub runs: u64,
    /// Bytes that those took which were encoded.
    pub encoded_bytes: u64,
    /// Runs that were encoded.
    pub encoded_runs: u64,
}
