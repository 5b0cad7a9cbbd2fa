// SPDX-License-Identifier: Apache-2.0
//! Certificate signing requests: what of them is taken, and what is refused.

use rcgen::{
    CertificateSigningRequestParams, PKCS_ECDSA_P256_SHA256, PublicKey, PublicKeyData, SanType,
};
use slowpath_ship::identity::{HostName, Sha256, host_of_san_uri};

/// The most bytes of a request in PEM.
pub const MOST: usize = 8 << 10;

/// What is taken of a request: its key, and which host it asks for.
#[derive(Debug)]
pub struct SigningRequest {
    key: PublicKey,
    names: Vec<SanType>,
}

/// Why a request is not signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// It cannot be read, or its signature is not by its key.
    #[error("the certificate signing request cannot be read, or its signature is wrong")]
    Malformed,
    /// Its key is of another kind.
    #[error("the key is not ECDSA P-256")]
    Key,
    /// It asks for another name than that of the invitation or certificate.
    #[error("the certificate signing request asks for another name")]
    Name,
}

impl SigningRequest {
    /// Reads a request and verifies that who made it has the key (RFC 2986 section 4.2).
    ///
    /// # Errors
    /// See [`RequestError`].
    pub fn read(pem: &str) -> Result<Self, RequestError> {
        if pem.len() > MOST {
            return Err(RequestError::Malformed);
        }
        let read = CertificateSigningRequestParams::from_pem(pem);
        let read = read.map_err(|_| RequestError::Malformed)?;
        if read.public_key.algorithm() != &PKCS_ECDSA_P256_SHA256 {
            return Err(RequestError::Key);
        }
        Ok(SigningRequest {
            key: read.public_key,
            names: read.params.subject_alt_names,
        })
    }

    /// Its key, for a certificate of `host`. Without a name it asks for that which it may have.
    ///
    /// # Errors
    /// It asks for any other name.
    pub fn key_for(&self, host: &HostName) -> Result<&PublicKey, RequestError> {
        let is_host = |name: &SanType| match name {
            SanType::URI(uri) => host_of_san_uri(uri.as_str()).as_ref() == Some(host),
            _ => false,
        };
        if self.names.iter().all(is_host) {
            Ok(&self.key)
        } else {
            Err(RequestError::Name)
        }
    }

    /// The digest of its key: who asks again has the same.
    pub fn key_digest(&self) -> Sha256 {
        Sha256::of(self.key.der_bytes())
    }
}
