// SPDX-License-Identifier: Apache-2.0
//! Keys of OWAMP and TWAMP, and the two ways in which they use AES and HMAC (RFC 4656 sections 3.1, 3.2 and
//! 4.1.2).
//!
//! These modes protect a measurement from those on the path who would forge it. AES-CBC with a chained HMAC of
//! SHA-1 is what the RFC of 2006 has; nothing else depends on it.

use aes::Aes128;
use aes::cipher::{BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};
use hmac::{Hmac, Mac};
use sha1::Sha1;
use std::fmt;
use subtle::ConstantTimeEq;

/// One block of AES, and the size of all that the control protocol is made of.
pub type Block = [u8; 16];

/// Rounds of PBKDF2 that a peer may ask for: 2²⁰, half a second. A count of 2³¹, which the field allows, would
/// take a quarter of an hour (RFC 4656 section 3.1 advises limits).
pub const MOST_ROUNDS: u32 = 1 << 20;

/// Rounds that a server asks for; RFC 4656 section 3.1: at least 1,024.
pub const OFFERED_ROUNDS: u32 = 2_048;

/// AES in CBC that runs on from message to message in one direction.
#[derive(Clone)]
pub struct Chain {
    key: Aes128,
    last: Block,
}

impl fmt::Debug for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Chain")
    }
}

impl Chain {
    /// A chain that begins with an initialisation vector.
    #[must_use]
    pub fn new(key: &Block, vector: Block) -> Self {
        Chain {
            key: Aes128::new(&(*key).into()),
            last: vector,
        }
    }

    /// Encrypts whole blocks in place; octets after the last whole block stay.
    pub fn encrypt(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_exact_mut(16) {
            for (byte, last) in chunk.iter_mut().zip(self.last) {
                *byte ^= last;
            }
            self.last = apply(chunk, |block| self.key.encrypt_block(block));
        }
    }

    /// Decrypts whole blocks in place; octets after the last whole block stay.
    pub fn decrypt(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_exact_mut(16) {
            let mut cipher = [0; 16];
            cipher.copy_from_slice(chunk);
            apply(chunk, |block| self.key.decrypt_block(block));
            for (byte, last) in chunk.iter_mut().zip(self.last) {
                *byte ^= last;
            }
            self.last = cipher;
        }
    }
}

/// Runs the cipher over 16 octets in place and returns them.
fn apply(chunk: &mut [u8], cipher: impl FnOnce(&mut aes::Block)) -> Block {
    let mut block = [0; 16];
    block.copy_from_slice(chunk);
    let mut block = aes::Block::from(block);
    cipher(&mut block);
    let block: Block = block.into();
    chunk.copy_from_slice(&block);
    block
}

/// HMAC-SHA1 cut to 16 octets, over all since the last one.
#[derive(Clone)]
pub struct Authenticator {
    fresh: Hmac<Sha1>,
    running: Hmac<Sha1>,
}

impl fmt::Debug for Authenticator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Authenticator")
    }
}

impl Authenticator {
    /// With a key.
    #[must_use]
    pub fn new(key: &[u8; 32]) -> Self {
        let fresh: Hmac<Sha1> =
            KeyInit::new_from_slice(key).expect("HMAC takes keys of every length");
        Authenticator {
            running: fresh.clone(),
            fresh,
        }
    }

    /// Adds octets.
    pub fn add(&mut self, bytes: &[u8]) {
        self.running.update(bytes);
    }

    /// The digest of all since the last one, and begins anew.
    pub fn digest(&mut self) -> Block {
        let whole = std::mem::replace(&mut self.running, self.fresh.clone())
            .finalize()
            .into_bytes();
        let mut cut = [0; 16];
        cut.copy_from_slice(&whole[..16]);
        cut
    }

    /// Whether the digest of all since the last one is this, in constant time; begins anew.
    #[must_use]
    pub fn verify(&mut self, digest: &[u8]) -> bool {
        self.digest().ct_eq(digest).into()
    }
}

/// The session keys that a client draws (RFC 4656 section 3.1, Token).
#[derive(Clone, PartialEq, Eq)]
pub struct SessionKeys {
    /// Of AES.
    pub aes: Block,
    /// Of HMAC.
    pub hmac: [u8; 32],
}

impl fmt::Debug for SessionKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionKeys")
    }
}

/// The key of a passphrase (PBKDF2 with HMAC-SHA1, RFC 4656 section 3.1). The caller has limited `rounds`.
fn passphrase_key(passphrase: &[u8], salt: &Block, rounds: u32) -> Block {
    pbkdf2::pbkdf2_hmac_array::<Sha1, 16>(passphrase, salt, rounds)
}

/// The token that proves knowledge of a passphrase and carries the session keys.
#[must_use]
pub fn token(
    passphrase: &[u8],
    salt: &Block,
    rounds: u32,
    challenge: &Block,
    keys: &SessionKeys,
) -> [u8; 64] {
    let mut token = [0; 64];
    token[..16].copy_from_slice(challenge);
    token[16..32].copy_from_slice(&keys.aes);
    token[32..].copy_from_slice(&keys.hmac);
    Chain::new(&passphrase_key(passphrase, salt, rounds), [0; 16]).encrypt(&mut token);
    token
}

/// The session keys in a token; `None` where it does not answer the challenge.
#[must_use]
pub fn open_token(
    passphrase: &[u8],
    salt: &Block,
    rounds: u32,
    challenge: &Block,
    token: &[u8; 64],
) -> Option<SessionKeys> {
    let mut plain = *token;
    Chain::new(&passphrase_key(passphrase, salt, rounds), [0; 16]).decrypt(&mut plain);
    bool::from(plain[..16].ct_eq(challenge)).then(|| SessionKeys {
        aes: plain[16..32].try_into().expect("16 octets"),
        hmac: plain[32..].try_into().expect("32 octets"),
    })
}

/// The keys of a test session: the control session's, encrypted with the test session's identifier as the key (RFC
/// 4656 section 4.1.2): one block of AES's, HMAC's by CBC with a vector of zeros.
#[must_use]
pub fn test_keys(control: &SessionKeys, session: &Block) -> SessionKeys {
    let mut keys = control.clone();
    Chain::new(session, [0; 16]).encrypt(&mut keys.aes);
    Chain::new(session, [0; 16]).encrypt(&mut keys.hmac);
    keys
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_token_opens_with_its_passphrase_only() {
        let keys = SessionKeys {
            aes: [3; 16],
            hmac: [4; 32],
        };
        let sealed = token(b"secret", &[1; 16], 1_024, &[2; 16], &keys);
        let opened = open_token(b"secret", &[1; 16], 1_024, &[2; 16], &sealed);
        assert_eq!(opened, Some(keys));
        assert_eq!(
            open_token(b"other", &[1; 16], 1_024, &[2; 16], &sealed),
            None
        );
        assert_eq!(
            open_token(b"secret", &[9; 16], 1_024, &[2; 16], &sealed),
            None
        );
        assert_eq!(
            open_token(b"secret", &[1; 16], 1_025, &[2; 16], &sealed),
            None
        );
        assert_eq!(
            open_token(b"secret", &[1; 16], 1_024, &[9; 16], &sealed),
            None
        );
    }

    /// RFC 6070's second vector, of which the first 16 octets count here.
    #[test]
    fn passphrases_give_the_keys_of_rfc_6070() {
        let derived = pbkdf2::pbkdf2_hmac_array::<Sha1, 20>(b"password", b"salt", 4096);
        assert_eq!(derived[..4], [0x4b, 0x00, 0x79, 0x01]);
    }

    /// NIST SP 800-38A F.2.1, the first two blocks.
    #[test]
    fn chains_are_cbc_of_sp_800_38a() {
        let hex = |text: &str| -> Vec<u8> {
            let byte = |i: usize| u8::from_str_radix(&text[i..i + 2], 16).expect("hex");
            (0..text.len()).step_by(2).map(byte).collect()
        };
        let key: Block = hex("2b7e151628aed2a6abf7158809cf4f3c")
            .try_into()
            .expect("16");
        let vector: Block = hex("000102030405060708090a0b0c0d0e0f")
            .try_into()
            .expect("16");
        let mut bytes = hex("6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51");
        let mut chain = Chain::new(&key, vector);
        // The chain runs on between calls.
        chain.encrypt(&mut bytes[..16]);
        chain.encrypt(&mut bytes[16..]);
        let cipher = "7649abac8119b246cee98e9b12e9197d5086cb9b507219ee95db113a917678b2";
        assert_eq!(bytes, hex(cipher));
    }

    proptest! {
        #[test]
        fn decryption_undoes_encryption(key: [u8; 16], iv: [u8; 16], text in "[a-z]{0,80}") {
            let mut bytes = text.clone().into_bytes();
            Chain::new(&key, iv).encrypt(&mut bytes);
            Chain::new(&key, iv).decrypt(&mut bytes);
            prop_assert_eq!(bytes, text.into_bytes());
        }
    }
}
