// SPDX-License-Identifier: Apache-2.0
//! Active queue management (RFC 7567): queues that drop or mark before they are full.
//!
//! Each manages one queue, of one class of a port, and neither counts the packet on the line.
//! Packets whose transport is ECN-capable are marked where others are dropped, if the
//! configuration says so (RFC 3168 section 7).

mod codel;
mod pie;
mod red;

pub use codel::CoDel;
pub use pie::Pie;
pub use red::Red;

use crate::queue::Depth;
use crate::random::Random;
use crate::time::{Rate, Time};

/// A probability or a share of 1, as a whole number: 1 is this.
pub(crate) const ONE: u64 = 1 << 32;

/// How a queue is managed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aqm {
    /// Random early detection: by the average length (Floyd and Jacobson, IEEE/ACM Transactions on
    /// Networking 1(4), 1993).
    Red(Red),
    /// Controlled delay: by the least time that packets waited (RFC 8289).
    CoDel(CoDel),
    /// Proportional integral controller enhanced: by the waiting time and how it changes (RFC 8033).
    Pie(Pie),
}

/// What is impossible about the management of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AqmError {
    /// The lower threshold is not below the upper one, or they are in different units.
    Thresholds,
    /// A probability that is 0 or more than 1.
    Probability,
    /// The average follows too slowly: its weight is below 2^-16.
    Weight,
    /// A time that is 0, or above 1,000 s.
    Time,
    /// The switch has no such port.
    NoSuchPort,
}

impl core::fmt::Display for AqmError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            AqmError::Thresholds => {
                "the lower threshold is not below the upper one in the same unit"
            }
            AqmError::Probability => "a probability is above 0 and at most 1",
            AqmError::Weight => "the weight of the average is 1/2 to 1/65536",
            AqmError::Time => "times are above 0 and at most 1,000 s",
            AqmError::NoSuchPort => "there is no such port",
        })
    }
}

impl core::error::Error for AqmError {}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Pass,
    Mark,
    Drop,
}

impl Verdict {
    /// Of a packet that is to be dropped, unless it can be marked.
    fn signal(mark: bool) -> Self {
        if mark { Verdict::Mark } else { Verdict::Drop }
    }
}

/// A packet on its way into a queue, or out of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Passing {
    pub now: Time,
    /// What the queue holds: without a packet that comes, and without one that goes.
    pub queue: Depth,
    /// Whether it goes.
    pub leaving: bool,
    pub bytes: u32,
    pub capable: bool,
    /// Of the port's line.
    pub rate: Rate,
}

/// The management of one queue.
#[derive(Clone, Debug)]
pub(crate) enum Manager {
    Red(red::State),
    CoDel(codel::State),
    Pie(pie::State),
}

impl Manager {
    pub fn new(aqm: Aqm) -> Result<Self, AqmError> {
        Ok(match aqm {
            Aqm::Red(red) => Manager::Red(red::State::new(red)?),
            Aqm::CoDel(codel) => Manager::CoDel(codel::State::new(codel)?),
            Aqm::Pie(pie) => Manager::Pie(pie::State::new(pie)?),
        })
    }

    /// A packet comes and finds room.
    pub fn arrives(&mut self, packet: Passing, random: &mut Random) -> Verdict {
        match self {
            Manager::Red(red) => red.arrives(packet, random),
            Manager::CoDel(codel) => {
                codel.arrives(packet);
                Verdict::Pass
            }
            Manager::Pie(pie) => pie.arrives(packet, random),
        }
    }

    /// The first packet, which came at `came`, is to leave.
    pub fn leaves(&mut self, packet: Passing, came: Time) -> Verdict {
        match self {
            Manager::Red(red) => red.leaves(packet),
            Manager::CoDel(codel) => return codel.leaves(packet, came),
            Manager::Pie(pie) => pie.advance(packet),
        }
        Verdict::Pass
    }
}
