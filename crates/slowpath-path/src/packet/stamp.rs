// SPDX-License-Identifier: Apache-2.0
//! Packets of STAMP (RFC 8762) with its extensions (RFC 8972): session identifier, padding and follow-up telemetry.
//!
//! Both directions have the same length: 44 octets in open mode, 112 in authenticated, whose digest is HMAC-SHA-256
//! cut to 16 octets and which encrypts nothing. Extensions follow in open mode; with a key they would need a
//! digest of their own, and none are sent.

use super::oneway::TestPacket;
use super::reflected::Reply;
use super::{PacketError, at_least, put, time, word};
use crate::time::{ErrorEstimate, Timestamp, from_precision_time};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use subtle::ConstantTimeEq;

/// Octets of a packet in open mode.
pub const OPEN: usize = 44;

/// Octets of a packet in authenticated mode.
pub const AUTHENTICATED: usize = 112;

/// Octets of the follow-up telemetry, with its head.
pub const FOLLOW_UP: usize = 20;

/// Octets of the head of an extension.
const HEAD: usize = 4;

const TYPE_PADDING: u8 = 1;
const TYPE_FOLLOW_UP: u8 = 7;

/// U: the reflector does not know the type. A sender sets it (RFC 8972 section 4).
const UNRECOGNISED: u8 = 0x80;
/// M: its length does not fit.
const MALFORMED: u8 = 0x40;

/// The digest's key.
#[derive(Clone)]
pub struct StampKey(Hmac<Sha256>);

impl std::fmt::Debug for StampKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("StampKey")
    }
}

impl StampKey {
    /// From a passphrase that both ends know.
    #[must_use]
    pub fn new(passphrase: &[u8]) -> Self {
        StampKey(Hmac::new_from_slice(passphrase).expect("HMAC takes keys of every length"))
    }

    fn digest(&self, bytes: &[u8]) -> [u8; 16] {
        let mut mac = self.0.clone();
        mac.update(bytes);
        let mut cut = [0; 16];
        cut.copy_from_slice(&mac.finalize().into_bytes()[..16]);
        cut
    }

    fn verify(&self, bytes: &[u8]) -> Result<(), PacketError> {
        let right = self.digest(&bytes[..96]).ct_eq(&bytes[96..AUTHENTICATED]);
        if right.into() {
            Ok(())
        } else {
            Err(PacketError::BadDigest)
        }
    }
}

/// Octets of a packet without extensions.
#[must_use]
pub fn length(key: Option<&StampKey>) -> usize {
    if key.is_some() { AUTHENTICATED } else { OPEN }
}

/// When a reply before this one really left (RFC 8972 section 4.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FollowUp {
    /// The reflector's number of that reply.
    pub sequence: u32,
    /// When it left.
    pub sent: Timestamp,
}

/// Writes a sender's packet into a buffer of its whole length. In open mode the octets after the 44 become a
/// request for follow-up telemetry, if there is room and it is asked for, and padding.
///
/// # Panics
/// If the buffer is shorter than [`length`].
pub fn write_test(
    bytes: &mut [u8],
    packet: &TestPacket,
    session: u16,
    follow_up: bool,
    key: Option<&StampKey>,
) {
    let stamp = if key.is_some() { 16 } else { 4 };
    bytes[..length(key)].fill(0);
    put(bytes, 0, &packet.sequence.to_be_bytes());
    put(bytes, stamp, &packet.sent.0.to_be_bytes());
    put(bytes, stamp + 8, &packet.error.to_wire());
    put(bytes, stamp + 10, &session.to_be_bytes());
    match key {
        Some(key) => {
            let digest = key.digest(&bytes[..96]);
            put(bytes, 96, &digest);
        }
        None => write_extensions(&mut bytes[OPEN..], follow_up),
    }
}

fn write_extensions(mut rest: &mut [u8], follow_up: bool) {
    if follow_up && rest.len() >= FOLLOW_UP {
        let (head, after) = rest.split_at_mut(FOLLOW_UP);
        head.fill(0);
        head[..HEAD].copy_from_slice(&[UNRECOGNISED, TYPE_FOLLOW_UP, 0, 16]);
        rest = after;
    }
    if rest.len() >= HEAD {
        let length = (rest.len() - HEAD).min(usize::from(u16::MAX)) as u16;
        let [high, low] = length.to_be_bytes();
        rest[..HEAD].copy_from_slice(&[UNRECOGNISED, TYPE_PADDING, high, low]);
    }
}

/// Reads a sender's packet: it and its session's identifier. Times in PTP's format become NTP's.
///
/// # Errors
/// It is none.
pub fn read_test(bytes: &[u8], key: Option<&StampKey>) -> Result<(TestPacket, u16), PacketError> {
    at_least(bytes, length(key))?;
    let stamp = match key {
        Some(key) => {
            key.verify(bytes)?;
            16
        }
        None => 4,
    };
    let error = ErrorEstimate::from_wire([bytes[stamp + 8], bytes[stamp + 9]])
        .ok_or(PacketError::NoErrorEstimate)?;
    let packet = TestPacket {
        sequence: word(bytes, 0),
        sent: stamped(time(bytes, stamp), error),
        error,
    };
    Ok((packet, (word(bytes, stamp + 8) & 0xffff) as u16))
}

/// A time by its Z bit (RFC 8762 section 4.2.1).
fn stamped(time: Timestamp, error: ErrorEstimate) -> Timestamp {
    match error.precision_time() {
        true => from_precision_time(time.0),
        false => time,
    }
}

/// Turns a sender's packet into the reply, in place: the length stays. `raw` is what the sender had written: its
/// octets go back as they came. Extensions that are not known get their U bit, follow-up telemetry the
/// reply before this one.
///
/// # Panics
/// If the buffer is shorter than [`length`].
pub fn reflect(
    bytes: &mut [u8],
    reply: &Reply,
    follow_up: Option<FollowUp>,
    key: Option<&StampKey>,
) {
    let whole = length(key);
    let stamp = if key.is_some() { 16 } else { 4 };
    let mut sender = [0; 10];
    sender.copy_from_slice(&bytes[stamp..stamp + 10]);
    let mut session = [0; 2];
    session.copy_from_slice(&bytes[stamp + 10..stamp + 12]);
    let sequence = word(bytes, 0).to_be_bytes();
    bytes[..whole].fill(0);
    put(bytes, 0, &reply.sequence.to_be_bytes());
    put(bytes, stamp, &reply.sent.0.to_be_bytes());
    put(bytes, stamp + 8, &reply.error.to_wire());
    put(bytes, stamp + 10, &session);
    let (received, number, sent, ttl) = match key {
        Some(_) => (32, 48, 64, 80),
        None => (16, 24, 28, 40),
    };
    put(bytes, received, &reply.received.0.to_be_bytes());
    put(bytes, number, &sequence);
    put(bytes, sent, &sender);
    bytes[ttl] = reply.ttl;
    match key {
        Some(key) => {
            let digest = key.digest(&bytes[..96]);
            put(bytes, 96, &digest);
        }
        None => reflect_extensions(&mut bytes[OPEN..], follow_up),
    }
}

fn reflect_extensions(mut rest: &mut [u8], follow_up: Option<FollowUp>) {
    while rest.len() >= HEAD {
        let length = usize::from(u16::from_be_bytes([rest[2], rest[3]]));
        if length > rest.len() - HEAD {
            rest[0] |= MALFORMED;
            return;
        }
        let kind = rest[1];
        let (this, after) = rest.split_at_mut(HEAD + length);
        this[0] = match kind {
            TYPE_PADDING => 0,
            TYPE_FOLLOW_UP if length == 16 => 0,
            TYPE_FOLLOW_UP => MALFORMED,
            _ => UNRECOGNISED,
        };
        if kind == TYPE_FOLLOW_UP && length == 16 {
            this[HEAD..].fill(0);
            if let Some(follow_up) = follow_up {
                put(this, HEAD, &follow_up.sequence.to_be_bytes());
                put(this, HEAD + 4, &follow_up.sent.0.to_be_bytes());
                // SW Local: a software stamp of the kernel (RFC 8972 table 5).
                this[HEAD + 12] = 2;
            }
        }
        rest = after;
    }
}

/// Reads a reply, its session's identifier and its follow-up telemetry.
///
/// # Errors
/// It is none.
pub fn read_reply(
    bytes: &[u8],
    key: Option<&StampKey>,
) -> Result<(Reply, u16, Option<FollowUp>), PacketError> {
    at_least(bytes, length(key))?;
    let (stamp, received, number, sent, ttl) = match key {
        Some(key) => {
            key.verify(bytes)?;
            (16, 32, 48, 64, 80)
        }
        None => (4, 16, 24, 28, 40),
    };
    let estimate = |at: usize| {
        ErrorEstimate::from_wire([bytes[at], bytes[at + 1]]).ok_or(PacketError::NoErrorEstimate)
    };
    let (error, sender_error) = (estimate(stamp + 8)?, estimate(sent + 8)?);
    let reply = Reply {
        sequence: word(bytes, 0),
        sent: stamped(time(bytes, stamp), error),
        error,
        received: stamped(time(bytes, received), error),
        request: TestPacket {
            sequence: word(bytes, number),
            sent: stamped(time(bytes, sent), sender_error),
            error: sender_error,
        },
        ttl: bytes[ttl],
    };
    let session = (word(bytes, stamp + 8) & 0xffff) as u16;
    let follow_up = if key.is_none() {
        find_follow_up(&bytes[OPEN..])
    } else {
        None
    };
    Ok((reply, session, follow_up))
}

fn find_follow_up(mut rest: &[u8]) -> Option<FollowUp> {
    while rest.len() >= HEAD {
        let length = usize::from(u16::from_be_bytes([rest[2], rest[3]]));
        let (flags, kind) = (rest[0], rest[1]);
        let value = rest.get(HEAD..HEAD + length)?;
        if kind == TYPE_FOLLOW_UP && length == 16 {
            let sent = time(value, 4);
            let known = flags & (UNRECOGNISED | MALFORMED) == 0 && sent.is_some();
            return known.then(|| FollowUp {
                sequence: word(value, 0),
                sent,
            });
        }
        rest = &rest[HEAD + length..];
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn reply(numbers: [u32; 2], times: [u64; 3], ttl: u8) -> Reply {
        let error = ErrorEstimate::new(std::time::Duration::from_micros(5), true);
        Reply {
            request: TestPacket {
                sequence: numbers[0],
                sent: Timestamp(times[0]),
                error,
            },
            ttl,
            received: Timestamp(times[1]),
            sequence: numbers[1],
            sent: Timestamp(times[2]),
            error,
        }
    }

    proptest! {
        #[test]
        fn a_packet_goes_there_and_back(
            (with_key, ask) in any::<(bool, bool)>(),
            extra in 0usize..80,
            numbers in any::<[u32; 2]>(),
            times in any::<[u64; 3]>(),
            (session, ttl) in any::<(u16, u8)>(),
        ) {
            let key = with_key.then(|| StampKey::new(b"secret"));
            let reply = reply(numbers, times, ttl);
            let mut bytes = vec![0; length(key.as_ref()) + extra];
            write_test(&mut bytes, &reply.request, session, ask, key.as_ref());
            prop_assert_eq!(read_test(&bytes, key.as_ref()), Ok((reply.request, session)));
            let before = FollowUp { sequence: 77, sent: Timestamp(88) };
            reflect(&mut bytes, &reply, Some(before), key.as_ref());
            let (read, session_back, follow_up) = read_reply(&bytes, key.as_ref()).expect("ours");
            prop_assert_eq!((read, session_back), (reply, session));
            let expected = ask && !with_key && extra >= FOLLOW_UP;
            prop_assert_eq!(follow_up, expected.then_some(before));
        }

        #[test]
        fn any_octets_are_reflected_or_refused(with_key: bool, bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let key = with_key.then(|| StampKey::new(b"secret"));
            let mut bytes = bytes;
            let _ = read_reply(&bytes, key.as_ref());
            if read_test(&bytes, key.as_ref()).is_ok() {
                let length = bytes.len();
                reflect(&mut bytes, &reply([1; 2], [2; 3], 3), None, key.as_ref());
                prop_assert_eq!(bytes.len(), length);
            }
        }
    }

    #[test]
    fn extensions_that_are_not_known_get_their_u_bit() {
        let mut bytes = vec![0; OPEN];
        bytes[13] = 1;
        bytes.extend([0, 99, 0, 2, 5, 6, UNRECOGNISED, TYPE_PADDING, 0, 0]);
        reflect(&mut bytes, &reply([1; 2], [2; 3], 3), None, None);
        assert_eq!(
            bytes[OPEN..],
            [UNRECOGNISED, 99, 0, 2, 5, 6, 0, TYPE_PADDING, 0, 0]
        );
    }
}
