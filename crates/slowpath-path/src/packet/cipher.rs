// SPDX-License-Identifier: Apache-2.0
//! How a session's packets are protected (RFC 4656 section 4.1.2, RFC 5357 section 4.2.1).

use super::PacketError;
use crate::keys::{Authenticator, Chain, SessionKeys};

/// The protection of a test session's packets.
#[derive(Clone, Debug)]
pub enum Protection {
    /// None.
    Open,
    /// The first block, which has the sequence number, is encrypted and authenticated; times are in clear, so that
    /// they can be written last.
    Authenticated(Box<PacketKeys>),
    /// All headers are encrypted and authenticated.
    Encrypted(Box<PacketKeys>),
}

/// The keys of a test session, expanded.
#[derive(Clone, Debug)]
pub struct PacketKeys {
    chain: Chain,
    digest: Authenticator,
}

impl PacketKeys {
    fn new(keys: &SessionKeys) -> Box<Self> {
        Box::new(PacketKeys {
            chain: Chain::new(&keys.aes, [0; 16]),
            digest: Authenticator::new(&keys.hmac),
        })
    }
}

impl Protection {
    /// Authenticated mode.
    #[must_use]
    pub fn authenticated(keys: &SessionKeys) -> Self {
        Protection::Authenticated(PacketKeys::new(keys))
    }

    /// Encrypted mode.
    #[must_use]
    pub fn encrypted(keys: &SessionKeys) -> Self {
        Protection::Encrypted(PacketKeys::new(keys))
    }

    /// Whether packets are in clear.
    #[must_use]
    pub fn open(&self) -> bool {
        matches!(self, Protection::Open)
    }

    /// Encrypts the headers in place, `blocks` of them in encrypted mode, and writes the digest after them at `at`.
    pub(super) fn seal(&self, bytes: &mut [u8], blocks: usize, at: usize) {
        let (keys, covered) = match self {
            Protection::Open => return,
            Protection::Authenticated(keys) => (keys, 16),
            Protection::Encrypted(keys) => (keys, blocks * 16),
        };
        let mut digest = keys.digest.clone();
        digest.add(&bytes[..covered]);
        let digest = digest.digest();
        keys.chain.clone().encrypt(&mut bytes[..covered]);
        bytes[at..at + 16].copy_from_slice(&digest);
    }

    /// Decrypts the headers in place and verifies the digest at `at`.
    pub(super) fn open_headers(
        &self,
        bytes: &mut [u8],
        blocks: usize,
        at: usize,
    ) -> Result<(), PacketError> {
        let (keys, covered) = match self {
            Protection::Open => return Ok(()),
            Protection::Authenticated(keys) => (keys, 16),
            Protection::Encrypted(keys) => (keys, blocks * 16),
        };
        keys.chain.clone().decrypt(&mut bytes[..covered]);
        let mut digest = keys.digest.clone();
        digest.add(&bytes[..covered]);
        match digest.verify(&bytes[at..at + 16]) {
            true => Ok(()),
            false => Err(PacketError::BadDigest),
        }
    }
}
