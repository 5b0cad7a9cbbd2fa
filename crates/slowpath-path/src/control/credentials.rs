// SPDX-License-Identifier: Apache-2.0
//! What a client proves that it knows, in modes with keys (RFC 4656 section 3.1).

/// A passphrase and the name by which the server finds it.
#[derive(Clone)]
pub struct Credentials {
    /// The key's name (KeyID), at most 80 octets.
    pub name: String,
    /// Its passphrase.
    pub passphrase: Vec<u8>,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Credentials({})", self.name)
    }
}
