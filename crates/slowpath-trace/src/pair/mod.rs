// SPDX-License-Identifier: Apache-2.0
//! The two ends' captures of one connection, paired.
//!
//! What enters: two [`Recording`]s of a connection, made at different places, with clocks of
//! which nothing is known. What leaves: [`Paired`]: which segments were really lost and
//! which only late, each direction's one-way delays, reordering, and how the two clocks
//! differ, with bounds.
//!
//! What is promised: no clock, no I/O; every segment of both recordings is accounted for
//! once ([`Transit`]); a one-way time comes with what it may be wrong by.
//!
//! **Is it the same connection** ([`pair`]), the first that fits: the same addresses and
//! ports; the same initial sequence numbers of both sides (addresses were translated); of the
//! first [`COMPARED`] data segments of each side nine of ten with the same relative
//! numbers, lengths and IP identifications (sequence numbers were rewritten as well).
//!
//! **Which recording is nearer to the client**: the clocks' difference goes out of the
//! difference of both directions' delays, and that is positive.
//!
//! **The same segment**: the same relative numbers, length, flags, window, timestamps and,
//! where the path does not change it, IP identification. Among several that are alike the latest that
//! can have arrived is taken. What segmentation offload joined or cut is found by its bytes.
//!
//! **The clocks**: see [`slowpath_diagnose::clocks`].

mod matching;
mod recording;

pub use recording::{Passed, Recorder, Recording};
pub use slowpath_diagnose::clocks::Clock;

use crate::segment::Timestamp;
use crate::tcp::Side;
use std::fmt;
use std::time::Duration;

/// Data segments of each side compared where nothing else shows.
pub const COMPARED: usize = 32;

/// How the two recordings were found to be of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Likeness {
    /// By addresses and ports.
    FourTuple,
    /// By both sides' initial sequence numbers: addresses were translated.
    SequenceNumbers,
    /// By lengths, relative numbers and IP identifications.
    Lengths,
}

/// Why two recordings could not be paired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PairError {
    /// They are not of one connection.
    Different,
    /// No segment of the client, or none of the server, is in both.
    NothingInCommon,
    /// Both were made at the same place: which of them is nearer to the client is not known.
    SamePlace,
}

impl fmt::Display for PairError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PairError::Different => "the captures do not hold the same connection",
            PairError::NothingInCommon => {
                "the captures have no segment of the client, or none of the server, in common"
            }
            PairError::SamePlace => "both captures were made at the same place",
        })
    }
}

impl std::error::Error for PairError {}

/// A segment that was sent and did not arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Its frame in the sender's recording.
    pub frame: u64,
    /// Its time there.
    pub time: Timestamp,
    /// Its sequence number, relative to the first of its side.
    pub sequence: u32,
    /// Its payload.
    pub length: u32,
    /// How much of its payload did not arrive: less than all of a super-segment, perhaps.
    pub bytes: u32,
}

/// One-way delays of a direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delays {
    /// How many.
    pub count: u64,
    /// The shortest.
    pub least: Duration,
    /// Half were shorter.
    pub median: Duration,
    /// 95 of 100 were shorter.
    pub high: Duration,
    /// The longest.
    pub most: Duration,
}

/// What happened between the two places to the segments of one side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transit {
    /// Segments in the sender's recording.
    pub sent: u64,
    /// Of these, in the other as well.
    pub arrived: u64,
    /// Of [`arrived`](Self::arrived), joined or cut by segmentation offload.
    pub rejoined: u64,
    /// Of [`sent`](Self::sent), lost: the first [`LOST`].
    pub lost: Vec<Lost>,
    /// All that were lost.
    pub lost_count: u64,
    /// Their payload.
    pub lost_bytes: u64,
    /// Of [`sent`](Self::sent), before the other recording began or after it ended.
    pub outside: u64,
    /// In the receiver's recording only, while the sender's ran: lost by the capture there, or
    /// put in on the way.
    pub unsent: u64,
    /// Arrived after one that was sent later (RFC 4737 section 3).
    pub reordered: u64,
    /// How many overtook the one overtaken by most (RFC 4737 section 4.2).
    pub most_overtaken: u64,
    /// One-way delays of all that arrived whole; `None`: none did.
    pub delays: Option<Delays>,
}

/// Lost segments listed of a direction.
pub const LOST: usize = 1 << 14;

impl Transit {
    /// The part of the segments that was lost, of those that could arrive.
    #[must_use]
    pub fn loss_rate(&self) -> f64 {
        let could = self.arrived + self.lost_count;
        if could == 0 {
            return 0.0;
        }
        self.lost_count as f64 / could as f64
    }
}

/// Two recordings of one connection, paired.
#[derive(Clone, Debug, PartialEq)]
pub struct Paired {
    /// How it was found that they belong to one connection.
    pub likeness: Likeness,
    /// The first of the two recordings is nearer to the client.
    pub first_is_client: bool,
    /// The clock of the recording nearer to the server, against the other's.
    pub clock: Clock,
    /// What the client sent.
    pub from_client: Transit,
    /// What the server sent.
    pub from_server: Transit,
}

impl Paired {
    /// What `side` sent.
    #[must_use]
    pub fn sent_by(&self, side: Side) -> &Transit {
        match side {
            Side::Client => &self.from_client,
            Side::Server => &self.from_server,
        }
    }
}

/// Pairs two recordings of one connection, in any order.
///
/// # Errors
/// They are not of one connection, or do not show enough. See [`PairError`].
pub fn pair(one: &Recording, other: &Recording) -> Result<Paired, PairError> {
    let (likeness, swapped) = matching::likeness(one, other).ok_or(PairError::Different)?;
    let turned;
    let other = if swapped {
        turned = other.turned();
        &turned
    } else {
        other
    };
    matching::pair(one, other, likeness)
}
