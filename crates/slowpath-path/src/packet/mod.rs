// SPDX-License-Identifier: Apache-2.0
//! Test packets of OWAMP, TWAMP and STAMP: octets to values and back, in every mode.
//!
//! What enters: a buffer as large as the packet. What leaves: values of which each was in the packet, or the reason
//! why it is none. A packet in authenticated or encrypted mode that does not verify says nothing.

mod cipher;
mod oneway;
mod reflected;
pub mod stamp;

pub use cipher::Protection;
pub use oneway::{TestPacket, header_length, read_test, write_test};
pub use reflected::{Reply, read_reply, reply_length, write_reply};

/// Why octets are no test packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PacketError {
    /// Fewer octets than the headers of its mode.
    #[error("the packet has {found} octets, fewer than the {least} of its mode")]
    TooShort {
        /// Octets.
        found: usize,
        /// Octets of the headers.
        least: usize,
    },
    /// The digest is another: another key, or changed on the way.
    #[error("the packet does not verify")]
    BadDigest,
    /// A multiplier of 0: RFC 4656 section 4.1.2 has such packets discarded.
    #[error("the packet's error estimate is none")]
    NoErrorEstimate,
    /// It belongs to another session.
    #[error("the packet is of another session")]
    OtherSession,
}

/// Checks that headers fit.
fn at_least(bytes: &[u8], least: usize) -> Result<(), PacketError> {
    match bytes.len() < least {
        true => Err(PacketError::TooShort {
            found: bytes.len(),
            least,
        }),
        false => Ok(()),
    }
}

/// Four octets as a number; the caller has checked the length.
fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Eight octets as a time; the caller has checked the length.
fn time(bytes: &[u8], at: usize) -> crate::time::Timestamp {
    crate::time::Timestamp((u64::from(word(bytes, at)) << 32) | u64::from(word(bytes, at + 4)))
}

/// Writes octets at a place; the caller has checked the length.
fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}
