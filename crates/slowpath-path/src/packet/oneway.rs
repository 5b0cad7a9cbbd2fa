// SPDX-License-Identifier: Apache-2.0
//! Packets of OWAMP (RFC 4656 section 4.1.2), which are also those that a sender of TWAMP sends (RFC 5357 section
//! 4.1.2).

use super::{PacketError, Protection, at_least, put, time, word};
use crate::time::{ErrorEstimate, Timestamp};

/// What a sender writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TestPacket {
    /// Its number.
    pub sequence: u32,
    /// When it was sent.
    pub sent: Timestamp,
    /// How wrong that may be.
    pub error: ErrorEstimate,
}

/// Octets before the padding: 14 in open mode, else 48.
#[must_use]
pub fn header_length(protection: &Protection) -> usize {
    if protection.open() { 14 } else { 48 }
}

/// Writes a packet's headers into a buffer of its whole length; the padding stays.
///
/// # Panics
/// If the buffer is shorter than [`header_length`].
pub fn write_test(bytes: &mut [u8], packet: &TestPacket, protection: &Protection) {
    let stamp = if protection.open() { 4 } else { 16 };
    bytes[..header_length(protection)].fill(0);
    put(bytes, 0, &packet.sequence.to_be_bytes());
    put(bytes, stamp, &packet.sent.0.to_be_bytes());
    put(bytes, stamp + 8, &packet.error.to_wire());
    protection.seal(bytes, 2, 32);
}

/// Reads a packet, decrypting it in place.
///
/// # Errors
/// It is none of this session's.
pub fn read_test(bytes: &mut [u8], protection: &Protection) -> Result<TestPacket, PacketError> {
    at_least(bytes, header_length(protection))?;
    protection.open_headers(bytes, 2, 32)?;
    let stamp = if protection.open() { 4 } else { 16 };
    Ok(TestPacket {
        sequence: word(bytes, 0),
        sent: time(bytes, stamp),
        error: ErrorEstimate::from_wire([bytes[stamp + 8], bytes[stamp + 9]])
            .ok_or(PacketError::NoErrorEstimate)?,
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::keys::SessionKeys;
    use proptest::prelude::*;

    /// One of the three.
    pub(in crate::packet) fn protection(mode: u8) -> Protection {
        let keys = SessionKeys {
            aes: [7; 16],
            hmac: [8; 32],
        };
        match mode % 3 {
            0 => Protection::Open,
            1 => Protection::authenticated(&keys),
            _ => Protection::encrypted(&keys),
        }
    }

    proptest! {
        #[test]
        fn packets_arrive_as_they_were_sent(mode: u8, sequence: u32, sent: u64, padding in 0usize..50) {
            let protection = protection(mode);
            let packet = TestPacket { sequence, sent: Timestamp(sent), error: ErrorEstimate::UNKNOWN };
            let mut bytes = vec![0xaa; header_length(&protection) + padding];
            write_test(&mut bytes, &packet, &protection);
            prop_assert_eq!(read_test(&mut bytes.clone(), &protection), Ok(packet));
            // Times of authenticated packets stand in clear, where a sender can write them last.
            if mode % 3 == 1 {
                prop_assert_eq!(&bytes[16..24], &sent.to_be_bytes());
            }
        }

        #[test]
        fn a_changed_sequence_number_does_not_verify(mode in 1u8..3, bit in 0usize..128) {
            let protection = protection(mode);
            let packet = TestPacket { sequence: 9, sent: Timestamp(5), error: ErrorEstimate::UNKNOWN };
            let mut bytes = vec![0; 60];
            write_test(&mut bytes, &packet, &protection);
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(read_test(&mut bytes, &protection), Err(PacketError::BadDigest));
        }

        #[test]
        fn any_octets_are_read_or_refused(mode: u8, bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
            let _ = read_test(&mut bytes.clone(), &protection(mode));
        }
    }
}
