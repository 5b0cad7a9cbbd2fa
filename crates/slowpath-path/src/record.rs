// SPDX-License-Identifier: Apache-2.0
//! What is known of one test packet, as OWAMP's receivers keep it.

use crate::time::{ErrorEstimate, Timestamp};

/// Octets of a record in a fetch response and in a session file (RFC 4656 section 3.9).
pub const RECORD: usize = 25;

/// One packet at its receiver, or one that did not come (RFC 4656 section 3.9).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    /// Its number, from 0.
    pub sequence: u32,
    /// When it was sent, by the sender's clock; of a lost one, when it was to be sent.
    pub sent: Timestamp,
    /// How wrong that may be.
    pub sent_error: ErrorEstimate,
    /// When it came, by the receiver's clock; [`Timestamp::NONE`]: it did not, within the timeout.
    pub received: Timestamp,
    /// How wrong that may be.
    pub received_error: ErrorEstimate,
    /// TTL or hop limit on arrival; 255 of a lost one, and where it is not known.
    pub ttl: u8,
}

impl Record {
    /// Whether it did not come.
    #[must_use]
    pub fn lost(&self) -> bool {
        !self.received.is_some()
    }

    /// Receiver's clock at arrival less sender's clock at departure, ns; `None` of a lost one.
    #[must_use]
    pub fn delay(&self) -> Option<i64> {
        (!self.lost()).then(|| self.received.nanos_since(self.sent))
    }

    /// Its 25 octets.
    #[must_use]
    pub fn to_wire(&self) -> [u8; RECORD] {
        let mut bytes = [0; RECORD];
        bytes[..4].copy_from_slice(&self.sequence.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.sent_error.to_wire());
        bytes[6..8].copy_from_slice(&self.received_error.to_wire());
        bytes[8..16].copy_from_slice(&self.sent.0.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.received.0.to_be_bytes());
        bytes[24] = self.ttl;
        bytes
    }

    /// From its 25 octets; `None` where an error estimate is none.
    #[must_use]
    pub fn from_wire(bytes: &[u8; RECORD]) -> Option<Self> {
        let time = |at: usize| {
            Timestamp(u64::from_be_bytes(
                bytes[at..at + 8].try_into().expect("eight octets"),
            ))
        };
        Some(Record {
            sequence: u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]),
            sent_error: ErrorEstimate::from_wire([bytes[4], bytes[5]])?,
            received_error: ErrorEstimate::from_wire([bytes[6], bytes[7]])?,
            sent: time(8),
            received: time(16),
            ttl: bytes[24],
        })
    }
}

/// Packets that the sender never sent: from `first` to `last`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SkipRange {
    /// The first.
    pub first: u32,
    /// The last.
    pub last: u32,
}

impl SkipRange {
    /// Its eight octets.
    #[must_use]
    pub fn to_wire(self) -> [u8; 8] {
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&self.first.to_be_bytes());
        bytes[4..].copy_from_slice(&self.last.to_be_bytes());
        bytes
    }

    /// From its eight octets; `None` where it ends before it begins.
    #[must_use]
    pub fn from_wire(bytes: [u8; 8]) -> Option<Self> {
        let [a, b, c, d, e, f, g, h] = bytes;
        let range = SkipRange {
            first: u32::from_be_bytes([a, b, c, d]),
            last: u32::from_be_bytes([e, f, g, h]),
        };
        (range.first <= range.last).then_some(range)
    }

    /// How many packets; never 0.
    #[must_use]
    pub fn packets(self) -> u64 {
        u64::from(self.last) - u64::from(self.first) + 1
    }
}
