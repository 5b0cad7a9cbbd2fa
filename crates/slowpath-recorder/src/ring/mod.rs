// SPDX-License-Identifier: Apache-2.0
//! A ring of the last minutes: connections are recorded all the time, and those that a caller asks for are kept.
//!
//! What enters: a recorder's events by way of what joins them ([`Joins`]), the time, and who is asked for ([`Ring::keep`]). What leaves: recordings, one a connection,
//! each the bytes of a file ([`Saved`]). A connection can only be replayed from its opening; so it is held from there on, encoded, and given up as a whole.
//!
//! What is promised: what is held is never more than [`Options::bytes`] when [`Ring::work`] has returned; what goes for want of room is, in this order, what ended longest ago and was not
//! asked for, what opened longest ago and was not asked for, and then what was asked for, which is saved as far as it is; and at any time one that by itself takes more than a quarter. All of it is counted ([`Counts`]), and who is asked for
//! and is not there has a reason ([`Missing`]). No I/O, no clocks.

mod held;
mod hold;

pub use hold::Ring;

use crate::stock::NotEvents;
use slowpath_recording::{End, Moment, OneSided, Packet, Run, Settings};
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

/// What makes runs of a recorder's events, as they come.
pub trait Joins {
    /// Takes whole events; gives their number.
    ///
    /// # Errors
    /// If they are none.
    fn take(&mut self, events: &[u8]) -> Result<u64, NotEvents>;
    /// The sockets that are recorded, by their keys in the events.
    fn sockets(&self) -> Vec<u64> {
        Vec::new()
    }
    /// How many of a socket's events were lost so far; none: it is not recorded any more. To be said, if there are further losses, before [`Joins::settle`].
    fn lost(&mut self, _socket: u64, _events: Option<u32>) {}
    /// Hands out what is final now. `lost`: events that were lost in all.
    fn settle(&mut self, now: Moment, lost: u64, told: &mut Vec<Told>);
    /// What there is of both ends' runs that was not reported, as if they were over now; nothing of a connection that is not known any more.
    fn rest(&self, number: u64) -> Option<[End; 2]>;
    /// The same of a one-sided end, with its packets: sent, came.
    fn rest_alone(&self, _number: u64) -> Option<(End, [Vec<Packet>; 2])> {
        None
    }
    /// Bytes that a connection takes that was reported and is not over.
    fn bytes(&self, number: u64) -> usize;
    /// Forgets a connection; gives its sockets that live.
    fn forget(&mut self, number: u64) -> Vec<u64>;
}

/// What has become known. Numbers are given once, from 1 on, in the order of opening.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// Both ends of a connection were observed.
    Opened {
        /// Its number.
        number: u64,
        /// Who connected, and to whom.
        addresses: [SocketAddr; 2],
        /// What both ends have that is not the kernel's default.
        settings: Settings,
        /// Ticks a second.
        hz: u32,
        /// When it was opened, as far as that is known now.
        at: Moment,
    },
    /// An end whose other end is on another machine.
    OneSided {
        /// Its number.
        number: u64,
        /// Who it is, without runs and packets.
        alone: Box<OneSided>,
        /// Ticks a second.
        hz: u32,
        /// When it was opened, as far as that is known now.
        at: Moment,
    },
    /// Further packets of a one-sided end.
    Packets {
        /// Its number.
        number: u64,
        /// Sent, and came.
        packets: [Vec<Packet>; 2],
    },
    /// Further runs of one end.
    Runs {
        /// The connection.
        number: u64,
        /// 0: the end that connected; 1: the other.
        end: usize,
        /// Final, with their checks.
        runs: Vec<Run>,
    },
    /// Both ends are over, or the one-sided one (the other is empty): their last runs, and whether something is missing.
    Closed {
        /// The connection.
        number: u64,
        /// Of the runs those that were not reported.
        ends: [End; 2],
    },
    /// A socket whose other end is not here, or whose settings were lost: nothing more is wanted of it.
    Half {
        /// Its key in the events.
        socket: u64,
        /// It has not closed.
        lives: bool,
    },
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
    /// The end, and how many events of it are there before some are missing.
    pub gap: Option<(usize, u64)>,
    /// It lives, but nothing further of it is held: there was no room.
    pub cut_short: bool,
    /// The file.
    pub file: Vec<u8>,
}

/// Why who is asked for is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
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
}

/// What happened to connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Both ends were observed, or one whose other end is on another machine.
    pub opened: u64,
    /// Of those the latter.
    pub alone: u64,
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
