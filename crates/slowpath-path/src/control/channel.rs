// SPDX-License-Identifier: Apache-2.0
//! The two octet streams of a control connection: blocks, their encryption and their digests (RFC 4656 sections
//! 3.1 and 3.2).

use super::ControlError;
use crate::keys::{Authenticator, Block, Chain, SessionKeys};

/// Both directions.
#[derive(Debug, Default)]
pub(super) struct Channel {
    incoming: Vec<u8>,
    /// Decrypted octets of the message that is being read.
    message: Vec<u8>,
    outgoing: Vec<u8>,
    secured: Option<Secured>,
}

#[derive(Debug)]
struct Secured {
    send: Chain,
    receive: Chain,
    send_digest: Authenticator,
    receive_digest: Authenticator,
}

impl Channel {
    /// Takes octets of the peer.
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        self.incoming.extend_from_slice(bytes);
    }

    /// Octets that wait to be read.
    pub(super) fn waiting(&self) -> usize {
        self.incoming.len()
    }

    /// From here on both directions are encrypted.
    pub(super) fn secure(&mut self, keys: &SessionKeys, send: Block, receive: Block) {
        self.secured = Some(Secured {
            send: Chain::new(&keys.aes, send),
            receive: Chain::new(&keys.aes, receive),
            send_digest: Authenticator::new(&keys.hmac),
            receive_digest: Authenticator::new(&keys.hmac),
        });
    }

    /// Octets outside of encryption, all or none.
    pub(super) fn read_clear<const N: usize>(&mut self) -> Option<[u8; N]> {
        let bytes = self.incoming.get(..N)?.try_into().ok()?;
        self.incoming.drain(..N);
        Some(bytes)
    }

    /// The first `length` octets of the message, a multiple of 16, as soon as they are there.
    pub(super) fn peek(&mut self, length: usize) -> Option<&[u8]> {
        let missing = length.saturating_sub(self.message.len());
        if missing > self.incoming.len() {
            return None;
        }
        let from = self.message.len();
        self.message.extend(self.incoming.drain(..missing));
        if let Some(secured) = &mut self.secured {
            secured.receive.decrypt(&mut self.message[from..]);
        }
        Some(&self.message[..length])
    }

    /// The next `length` octets, a multiple of 16; they count for the next digest.
    pub(super) fn read(&mut self, length: usize) -> Option<Vec<u8>> {
        self.peek(length)?;
        let bytes: Vec<u8> = self.message.drain(..length).collect();
        if let Some(secured) = &mut self.secured {
            secured.receive_digest.add(&bytes);
        }
        Some(bytes)
    }

    /// Checks the next 16 octets as the digest of all that was read since the last one. Without keys they are not
    /// looked at (RFC 4656 section 3.2).
    pub(super) fn read_digest(&mut self) -> Option<Result<(), ControlError>> {
        self.peek(16)?;
        let digest: Vec<u8> = self.message.drain(..16).collect();
        let right = match &mut self.secured {
            Some(secured) => secured.receive_digest.verify(&digest),
            None => true,
        };
        Some(if right {
            Ok(())
        } else {
            Err(ControlError::BadDigest)
        })
    }

    /// A message of `length` octets, the last 16 of them its digest.
    pub(super) fn read_message(&mut self, length: usize) -> Option<Result<Vec<u8>, ControlError>> {
        self.peek(length)?;
        let bytes = self.read(length - 16)?;
        Some(self.read_digest()?.map(|()| bytes))
    }

    /// Sends octets outside of encryption.
    pub(super) fn write_clear(&mut self, bytes: &[u8]) {
        self.outgoing.extend_from_slice(bytes);
    }

    /// Sends octets, a multiple of 16; they count for the next digest.
    pub(super) fn write(&mut self, bytes: &[u8]) {
        let from = self.outgoing.len();
        self.outgoing.extend_from_slice(bytes);
        if let Some(secured) = &mut self.secured {
            secured.send_digest.add(bytes);
            secured.send.encrypt(&mut self.outgoing[from..]);
        }
    }

    /// Sends the digest of all since the last one, or zeros.
    pub(super) fn write_digest(&mut self) {
        let from = self.outgoing.len();
        let digest = match &mut self.secured {
            Some(secured) => secured.send_digest.digest(),
            None => [0; 16],
        };
        self.outgoing.extend_from_slice(&digest);
        if let Some(secured) = &mut self.secured {
            secured.send.encrypt(&mut self.outgoing[from..]);
        }
    }

    /// Sends a message and its digest.
    pub(super) fn write_message(&mut self, bytes: &[u8]) {
        self.write(bytes);
        self.write_digest();
    }

    /// What is to be sent; it is gone from here.
    pub(super) fn output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.outgoing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pair(secured: bool) -> (Channel, Channel) {
        let (mut one, mut other) = (Channel::default(), Channel::default());
        if secured {
            let keys = SessionKeys {
                aes: [1; 16],
                hmac: [2; 32],
            };
            one.secure(&keys, [3; 16], [4; 16]);
            other.secure(&keys, [4; 16], [3; 16]);
        }
        (one, other)
    }

    proptest! {
        #[test]
        fn messages_arrive_however_the_stream_is_cut(
            secured: bool,
            blocks in proptest::collection::vec(1usize..5, 1..6),
            cut in 1usize..40,
        ) {
            let (mut one, mut other) = pair(secured);
            for (number, blocks) in blocks.iter().enumerate() {
                one.write_message(&vec![number as u8; blocks * 16]);
            }
            let stream = one.output();
            let mut pieces = stream.chunks(cut);
            for (number, blocks) in blocks.iter().enumerate() {
                let message = loop {
                    match other.read_message(blocks * 16 + 16) {
                        Some(message) => break message,
                        None => other.feed(pieces.next().expect("not all has come")),
                    }
                };
                prop_assert_eq!(message, Ok(vec![number as u8; blocks * 16]));
            }
        }

        #[test]
        fn a_changed_bit_does_not_verify(bit in 0usize..48 * 8) {
            let (mut one, mut other) = pair(true);
            one.write_message(&[5; 32]);
            let mut stream = one.output();
            stream[bit / 8] ^= 1 << (bit % 8);
            other.feed(&stream);
            prop_assert_eq!(other.read_message(48), Some(Err(ControlError::BadDigest)));
        }
    }
}
