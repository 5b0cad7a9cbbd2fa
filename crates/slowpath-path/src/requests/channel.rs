// SPDX-License-Identifier: Apache-2.0
//! Greeting, proofs and frames: octets in, messages out.

use super::message::Octets;
use super::{MOST_OCTETS, MOST_OPENING_OCTETS, VERSION};
use hmac::{Hmac, KeyInit, Mac};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::Sha256;
use std::fmt;
use subtle::ConstantTimeEq;

/// Octets of a nonce.
pub const NONCE: usize = 32;

/// Random octets of one end, used once.
pub type Nonce = [u8; NONCE];

/// Octets of a greeting.
pub const GREETING: usize = 48;

/// What a greeting begins with: not as an OWAMP greeting of a slowpath does.
const MAGIC: &[u8; 8] = b"spathreq";

/// The bit of the greeting that a key is needed.
const KEYED: u16 = 1;

/// Octets of a tag: all of HMAC-SHA256.
const TAG: usize = 32;

/// Octets of a frame's length.
const HEAD: usize = 4;

/// Rounds of PBKDF2, fixed by this version: no peer chooses them. They make guesses of a weak passphrase from a recorded
/// exchange a few thousand times dearer, as OWAMP's do.
const ROUNDS: u32 = 4_096;

/// The first octets of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Greeting {
    /// Whether clients have to prove that they know a key.
    pub keyed: bool,
    /// The server's nonce.
    pub nonce: Nonce,
}

/// Why octets are no greeting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GreetingError {
    /// Another protocol.
    #[error("it does not speak slowpath's protocol for requests: another program listens there")]
    Protocol,
    /// Another version.
    #[error(
        "it speaks version {0} of slowpath's requests, this slowpath {VERSION}: use the same release at both ends"
    )]
    Version(u16),
}

impl Greeting {
    /// As octets.
    #[must_use]
    pub fn encode(&self) -> [u8; GREETING] {
        let mut octets = [0; GREETING];
        octets[..8].copy_from_slice(MAGIC);
        octets[8..10].copy_from_slice(&VERSION.to_be_bytes());
        let flags = if self.keyed { KEYED } else { 0 };
        octets[10..12].copy_from_slice(&flags.to_be_bytes());
        octets[16..].copy_from_slice(&self.nonce);
        octets
    }

    /// From octets.
    ///
    /// # Errors
    /// Another protocol, or another version.
    pub fn decode(octets: &[u8; GREETING]) -> Result<Self, GreetingError> {
        if octets[..8] != MAGIC[..] {
            return Err(GreetingError::Protocol);
        }
        let version = u16::from_be_bytes([octets[8], octets[9]]);
        if version != VERSION {
            return Err(GreetingError::Version(version));
        }
        let flags = u16::from_be_bytes([octets[10], octets[11]]);
        let mut nonce = [0; NONCE];
        nonce.copy_from_slice(&octets[16..]);
        Ok(Greeting {
            keyed: flags & KEYED != 0,
            nonce,
        })
    }
}

/// An end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The one that asks.
    Client,
    /// The one that answers.
    Server,
}

impl Side {
    fn label(self) -> &'static [u8] {
        match self {
            Side::Client => b"client",
            Side::Server => b"server",
        }
    }

    fn other(self) -> Self {
        match self {
            Side::Client => Side::Server,
            Side::Server => Side::Client,
        }
    }
}

/// HMAC-SHA256 over parts, each behind its length.
fn digest(key: &[u8], parts: &[&[u8]]) -> [u8; TAG] {
    let mut mac: Hmac<Sha256> =
        KeyInit::new_from_slice(key).expect("HMAC takes keys of every length");
    for part in parts {
        mac.update(&(part.len() as u64).to_be_bytes());
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

/// What both ends can prove of a key to each other, for one connection.
#[derive(Clone)]
pub struct Proofs {
    key: [u8; TAG],
    server: Nonce,
    client: Nonce,
    name: String,
}

impl fmt::Debug for Proofs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Proofs")
    }
}

impl Proofs {
    /// Of a key, by its name and passphrase, and the nonces of both ends.
    #[must_use]
    pub fn new(name: &str, passphrase: &[u8], server: Nonce, client: Nonce) -> Self {
        Proofs {
            key: pbkdf2::pbkdf2_hmac_array::<Sha256, TAG>(passphrase, &server, ROUNDS),
            server,
            client,
            name: name.to_owned(),
        }
    }

    fn of(&self, purpose: &[u8]) -> [u8; TAG] {
        let name = self.name.as_bytes();
        let version = VERSION.to_be_bytes();
        let parts = [purpose, &version, &self.server, &self.client, name];
        digest(&self.key, &parts)
    }

    /// What an end sends.
    #[must_use]
    pub fn proof(&self, side: Side) -> Octets<32> {
        Octets(self.of(side.label()))
    }

    /// Whether that is what the end with the key would have sent, in constant time.
    #[must_use]
    pub fn verify(&self, side: Side, proof: &Octets<32>) -> bool {
        self.of(side.label()).ct_eq(&proof.0).into()
    }
}

/// Why octets are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChannelError {
    /// Longer than allowed.
    #[error("a message of {0} octets, more than are allowed")]
    TooLong(usize),
    /// Its tag is another.
    #[error("a message that was not written with the key, or not in this place")]
    Tag,
    /// It is not what was due.
    #[error("a message that is not one of the protocol's")]
    Message,
}

/// Frames of one connection, both directions.
pub struct Channel {
    side: Side,
    /// The key of the tags.
    key: Option<[u8; TAG]>,
    sent: u64,
    received: u64,
    input: Vec<u8>,
    most: usize,
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channel")
            .field("side", &self.side)
            .finish_non_exhaustive()
    }
}

impl Channel {
    /// Before anything is proven: short messages without tags.
    #[must_use]
    pub fn new(side: Side) -> Self {
        Channel {
            side,
            key: None,
            sent: 0,
            received: 0,
            input: Vec::new(),
            most: MOST_OPENING_OCTETS,
        }
    }

    /// From now on messages have their full length, and with a key their tags.
    pub fn open(&mut self, proofs: Option<&Proofs>) {
        self.most = MOST_OCTETS;
        self.key = proofs.map(|proofs| proofs.of(b"messages"));
        self.sent = 0;
        self.received = 0;
    }

    fn tag(&self, side: Side, number: u64, text: &[u8]) -> Option<[u8; TAG]> {
        let number = number.to_be_bytes();
        self.key
            .map(|key| digest(&key, &[side.label(), &number, text]))
    }

    /// A message as it goes out.
    ///
    /// # Errors
    /// It is too long.
    pub fn seal(&mut self, message: &impl Serialize) -> Result<Vec<u8>, ChannelError> {
        let text = serde_json::to_vec(message).map_err(|_| ChannelError::Message)?;
        if text.len() > self.most {
            return Err(ChannelError::TooLong(text.len()));
        }
        // At most MOST_OCTETS.
        let mut frame = (text.len() as u32).to_be_bytes().to_vec();
        frame.extend_from_slice(&text);
        frame.extend(self.tag(self.side, self.sent, &text).iter().flatten());
        self.sent += 1;
        Ok(frame)
    }

    /// Takes octets in.
    pub fn feed(&mut self, octets: &[u8]) {
        self.input.extend_from_slice(octets);
    }

    /// How many octets can be taken in without those of a further message, so that a reader does not take data that
    /// follow the message.
    ///
    /// # Errors
    /// The message is too long.
    pub fn missing(&self) -> Result<usize, ChannelError> {
        let Some(head) = self.input.first_chunk::<HEAD>() else {
            return Ok(HEAD - self.input.len());
        };
        let whole = HEAD + self.length(*head)? + self.tag_length();
        Ok(whole.saturating_sub(self.input.len()))
    }

    fn tag_length(&self) -> usize {
        if self.key.is_some() { TAG } else { 0 }
    }

    fn length(&self, head: [u8; HEAD]) -> Result<usize, ChannelError> {
        let length = u32::from_be_bytes(head) as usize;
        if length > self.most {
            return Err(ChannelError::TooLong(length));
        }
        Ok(length)
    }

    /// The next message, when it is whole.
    ///
    /// # Errors
    /// It is too long, its tag is another, or it is not what was due.
    pub fn message<T: DeserializeOwned>(&mut self) -> Result<Option<T>, ChannelError> {
        let Some(head) = self.input.first_chunk::<HEAD>() else {
            return Ok(None);
        };
        let length = self.length(*head)?;
        let whole = HEAD + length + self.tag_length();
        let Some(frame) = self.input.get(HEAD..whole) else {
            return Ok(None);
        };
        let (text, tag) = frame.split_at(length);
        if let Some(expected) = self.tag(self.side.other(), self.received, text)
            && !bool::from(expected[..].ct_eq(tag))
        {
            return Err(ChannelError::Tag);
        }
        self.received += 1;
        let message = serde_json::from_slice(text).map_err(|_| ChannelError::Message)?;
        self.input.drain(..whole);
        Ok(Some(message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::OnceLock;

    fn keyed(side: Side, passphrase: &[u8]) -> Channel {
        // The rounds of the usual one are computed once.
        static SECRET: OnceLock<Proofs> = OnceLock::new();
        let new = |passphrase| Proofs::new("alice", passphrase, [1; 32], [2; 32]);
        let secret = SECRET.get_or_init(|| new(b"secret"));
        let mut channel = Channel::new(side);
        match passphrase {
            b"secret" => channel.open(Some(secret)),
            other => channel.open(Some(&new(other))),
        }
        channel
    }

    #[test]
    fn a_greeting_is_read_as_it_was_written_and_no_other_is_taken() {
        let greeting = Greeting {
            keyed: true,
            nonce: [7; 32],
        };
        let octets = greeting.encode();
        assert_eq!(Greeting::decode(&octets), Ok(greeting));
        let mut newer = octets;
        newer[9] = 9;
        assert_eq!(Greeting::decode(&newer), Err(GreetingError::Version(9)));
        assert_eq!(Greeting::decode(&[0; 48]), Err(GreetingError::Protocol));
    }

    /// RFC 4231 test case 2: the primitive by itself, without parts behind lengths.
    #[test]
    fn the_digest_is_hmac_sha256() {
        let mut mac: Hmac<Sha256> = KeyInit::new_from_slice(b"Jefe").expect("a key");
        mac.update(b"what do ya want for nothing?");
        let digest: [u8; 32] = mac.finalize().into_bytes().into();
        assert_eq!(digest[..4], [0x5b, 0xdc, 0xc1, 0x46]);
    }

    #[test]
    fn a_proof_holds_for_its_key_its_side_and_its_nonces_only() {
        let ours = Proofs::new("alice", b"secret", [1; 32], [2; 32]);
        let proof = ours.proof(Side::Client);
        assert!(ours.verify(Side::Client, &proof));
        assert!(!ours.verify(Side::Server, &proof), "a reflected proof");
        for other in [
            Proofs::new("alice", b"Secret", [1; 32], [2; 32]),
            Proofs::new("bob", b"secret", [1; 32], [2; 32]),
            Proofs::new("alice", b"secret", [9; 32], [2; 32]),
            Proofs::new("alice", b"secret", [1; 32], [9; 32]),
        ] {
            assert!(!other.verify(Side::Client, &proof));
        }
    }

    #[test]
    fn messages_that_are_replayed_changed_or_reflected_are_refused() {
        let (mut client, mut server) = (
            keyed(Side::Client, b"secret"),
            keyed(Side::Server, b"secret"),
        );
        let frame = client.seal(&"hello").expect("short");
        server.feed(&frame);
        assert_eq!(server.message::<String>(), Ok(Some("hello".to_owned())));
        server.feed(&frame);
        assert_eq!(
            server.message::<String>(),
            Err(ChannelError::Tag),
            "replayed"
        );
        let mut changed = client.seal(&"hello").expect("short");
        changed[6] ^= 1;
        let mut server = keyed(Side::Server, b"secret");
        server.feed(&changed);
        assert_eq!(
            server.message::<String>(),
            Err(ChannelError::Tag),
            "changed"
        );
        let mut other = keyed(Side::Server, b"other");
        other.feed(&frame);
        assert_eq!(
            other.message::<String>(),
            Err(ChannelError::Tag),
            "another key"
        );
        let mut itself = keyed(Side::Client, b"secret");
        itself.feed(&frame);
        assert_eq!(
            itself.message::<String>(),
            Err(ChannelError::Tag),
            "reflected"
        );
    }

    #[test]
    fn a_length_past_the_limit_is_refused_before_anything_is_kept() {
        let mut channel = Channel::new(Side::Server);
        channel.feed(&u32::MAX.to_be_bytes());
        let refused = Err(ChannelError::TooLong(u32::MAX as usize));
        assert_eq!(channel.message::<String>(), refused);
        assert_eq!(
            channel.missing(),
            Err(ChannelError::TooLong(u32::MAX as usize))
        );
        // Before the opening 1,024 octets are the most, after it 256 KiB.
        let mut channel = Channel::new(Side::Server);
        assert!(channel.seal(&"x".repeat(1_023)).is_err());
        channel.open(None);
        assert!(channel.seal(&"x".repeat(200_000)).is_ok());
    }

    proptest! {
        #[test]
        fn frames_cut_anywhere_give_the_same_messages(
            texts in prop::collection::vec("[a-z]{0,50}", 0..5),
            cut in 1usize..40,
            secret: bool,
        ) {
            let channel = |side| match secret {
                true => keyed(side, b"secret"),
                false => Channel::new(side),
            };
            let (mut client, mut server) = (channel(Side::Client), channel(Side::Server));
            let octets: Vec<u8> =
                texts.iter().flat_map(|text| client.seal(text).expect("short")).collect();
            let mut read = Vec::new();
            for part in octets.chunks(cut) {
                server.feed(part);
                while let Some(text) = server.message::<String>().expect("ours") {
                    read.push(text);
                }
            }
            prop_assert_eq!(read, texts);
        }

        #[test]
        fn any_octets_are_read_or_refused(octets in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut channel = Channel::new(Side::Server);
            channel.feed(&octets);
            let _ = channel.missing();
            let _ = channel.message::<serde_json::Value>();
        }
    }
}
