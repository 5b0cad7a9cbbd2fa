// SPDX-License-Identifier: Apache-2.0
//! What a reflector of TWAMP sends back (RFC 5357 section 4.2.1; at least 112 octets with a digest, erratum 5045).

use super::oneway::TestPacket;
use super::{PacketError, Protection, at_least, put, time, word};
use crate::time::{ErrorEstimate, Timestamp};

/// A reflected packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// What the sender had written.
    pub request: TestPacket,
    /// TTL or hop limit with which that came; 0, with which nothing comes: the reflector does not say.
    pub ttl: u8,
    /// When it came.
    pub received: Timestamp,
    /// The reflector's own count.
    pub sequence: u32,
    /// When the reply was sent.
    pub sent: Timestamp,
    /// How wrong the reflector's times may be.
    pub error: ErrorEstimate,
}

/// Octets before the padding: 41 in open mode, else 112.
#[must_use]
pub fn reply_length(protection: &Protection) -> usize {
    if protection.open() { 41 } else { 112 }
}

/// Octets up to the sender's error estimate, in open mode: some reflectors (twampy) end there if they do not pad.
const WITHOUT_TTL: usize = 38;

/// Where fields stand, in open mode and with a digest.
struct Layout {
    sent: usize,
    received: usize,
    request: usize,
    request_sent: usize,
    ttl: usize,
}

fn layout(protection: &Protection) -> Layout {
    match protection.open() {
        true => Layout {
            sent: 4,
            received: 16,
            request: 24,
            request_sent: 28,
            ttl: 40,
        },
        false => Layout {
            sent: 16,
            received: 32,
            request: 48,
            request_sent: 64,
            ttl: 80,
        },
    }
}

/// Writes a reply's headers into a buffer of its whole length; the padding stays.
///
/// # Panics
/// If the buffer is shorter than [`reply_length`].
pub fn write_reply(bytes: &mut [u8], reply: &Reply, protection: &Protection) {
    let at = layout(protection);
    bytes[..reply_length(protection)].fill(0);
    put(bytes, 0, &reply.sequence.to_be_bytes());
    put(bytes, at.sent, &reply.sent.0.to_be_bytes());
    put(bytes, at.sent + 8, &reply.error.to_wire());
    put(bytes, at.received, &reply.received.0.to_be_bytes());
    put(bytes, at.request, &reply.request.sequence.to_be_bytes());
    put(bytes, at.request_sent, &reply.request.sent.0.to_be_bytes());
    put(bytes, at.request_sent + 8, &reply.request.error.to_wire());
    bytes[at.ttl] = reply.ttl;
    protection.seal(bytes, 6, 96);
}

/// Reads a reply, decrypting it in place.
///
/// # Errors
/// It is none of this session's.
pub fn read_reply(bytes: &mut [u8], protection: &Protection) -> Result<Reply, PacketError> {
    let least = match protection.open() {
        true => WITHOUT_TTL,
        false => reply_length(protection),
    };
    at_least(bytes, least)?;
    protection.open_headers(bytes, 6, 96)?;
    let at = layout(protection);
    let estimate = |at: usize| {
        ErrorEstimate::from_wire([bytes[at], bytes[at + 1]]).ok_or(PacketError::NoErrorEstimate)
    };
    Ok(Reply {
        sequence: word(bytes, 0),
        sent: time(bytes, at.sent),
        error: estimate(at.sent + 8)?,
        received: time(bytes, at.received),
        request: TestPacket {
            sequence: word(bytes, at.request),
            sent: time(bytes, at.request_sent),
            error: estimate(at.request_sent + 8)?,
        },
        ttl: bytes.get(at.ttl).copied().unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::super::oneway::tests::protection;
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_reply_may_end_before_the_ttl() {
        let reply = Reply {
            request: TestPacket {
                sequence: 7,
                sent: Timestamp(1 << 40),
                error: ErrorEstimate::UNKNOWN,
            },
            ttl: 250,
            received: Timestamp(2 << 40),
            sequence: 5,
            sent: Timestamp(3 << 40),
            error: ErrorEstimate::UNKNOWN,
        };
        let mut bytes = [0; 41];
        write_reply(&mut bytes, &reply, &Protection::Open);
        // 4 + 8 + 2 + 2 + 8 + 4 + 8 + 2 octets (RFC 5357 section 4.2.1).
        let read = read_reply(&mut bytes[..38], &Protection::Open);
        assert_eq!(read, Ok(Reply { ttl: 0, ..reply }));
        assert!(read_reply(&mut bytes[..37], &Protection::Open).is_err());
    }

    proptest! {
        #[test]
        fn replies_arrive_as_they_were_sent(mode: u8, numbers: [u32; 2], times: [u64; 3], ttl: u8) {
            let protection = protection(mode);
            let reply = Reply {
                request: TestPacket {
                    sequence: numbers[0],
                    sent: Timestamp(times[0]),
                    error: ErrorEstimate::UNKNOWN,
                },
                ttl,
                received: Timestamp(times[1]),
                sequence: numbers[1],
                sent: Timestamp(times[2]),
                error: ErrorEstimate::UNKNOWN,
            };
            let mut bytes = vec![0xaa; reply_length(&protection) + 9];
            write_reply(&mut bytes, &reply, &protection);
            prop_assert_eq!(read_reply(&mut bytes, &protection), Ok(reply));
        }

        #[test]
        fn any_octets_are_read_or_refused(mode: u8, bytes in proptest::collection::vec(any::<u8>(), 0..160)) {
            let _ = read_reply(&mut bytes.clone(), &protection(mode));
        }
    }
}
