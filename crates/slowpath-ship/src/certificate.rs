// SPDX-License-Identifier: Apache-2.0
//! Keys, certificates and requests for them.

use crate::identity::{HostName, host_of_san_uri, san_uri};
use rcgen::string::Ia5String;
use rcgen::{CertificateParams, DistinguishedName, PKCS_ECDSA_P256_SHA256, SanType};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::path::PathBuf;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

/// What is wrong with a key, a certificate or their directory.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// Nothing was joined there.
    #[error(
        "{} has no identity: join a server with 'slowpath agent join SERVER --token T'",
        .0.display()
    )]
    NotJoined(PathBuf),
    /// A file cannot be read or written.
    #[error("cannot {operation} {}: {source}", path.display())]
    Io {
        /// What was tried.
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A key or certificate is not one.
    #[error("the {0} cannot be read; join the server again")]
    Unreadable(&'static str),
    /// A key or a request for a certificate cannot be made.
    #[error("cannot make a {what}: {source}")]
    Make {
        /// What.
        what: &'static str,
        /// Why not.
        source: rcgen::Error,
    },
}

/// A private key and the certificates for it, PEM, in one text: they change as one.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyPair {
    pem: String,
}

impl std::fmt::Debug for KeyPair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyPair").finish_non_exhaustive()
    }
}

impl KeyPair {
    /// From the text of a file.
    pub fn from_pem(pem: String) -> Self {
        KeyPair { pem }
    }

    /// Key and certificates, to be kept from others.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// The certificate and those between it and the CA's, DER.
    ///
    /// # Errors
    /// There is none.
    pub fn chain(&self) -> Result<Vec<Vec<u8>>, KeyError> {
        certificates(&self.pem)
    }
}

/// What a host's certificate says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFacts {
    /// Whose it is.
    pub host: HostName,
    /// From when to when it is valid, seconds since 1970.
    pub valid: (i64, i64),
    /// Its public key (SubjectPublicKeyInfo, DER).
    pub public_key: Vec<u8>,
}

impl CertificateFacts {
    /// Reads a certificate (DER).
    ///
    /// # Errors
    /// It is none, or names no host.
    pub fn read(der: &[u8]) -> Result<Self, KeyError> {
        let unreadable = || KeyError::Unreadable("host's certificate");
        let (_, certificate) = X509Certificate::from_der(der).map_err(|_| unreadable())?;
        let names = certificate
            .subject_alternative_name()
            .map_err(|_| unreadable())?
            .ok_or_else(unreadable)?;
        let host = names
            .value
            .general_names
            .iter()
            .find_map(|name| match name {
                GeneralName::URI(uri) => host_of_san_uri(uri),
                _ => None,
            });
        let validity = certificate.validity();
        Ok(CertificateFacts {
            host: host.ok_or_else(unreadable)?,
            valid: (
                validity.not_before.timestamp(),
                validity.not_after.timestamp(),
            ),
            public_key: certificate.public_key().raw.to_vec(),
        })
    }

    /// Days until it expires, negative afterwards.
    pub fn days_left(&self, now_seconds: i64) -> f64 {
        (self.valid.1 - now_seconds) as f64 / 86_400.0
    }

    /// When it should be renewed, seconds since 1970: at half of its life, ± 10 % of that life as
    /// `draw` in [0, 1) says.
    pub fn renew_at(&self, draw: f64) -> i64 {
        let life = (self.valid.1 - self.valid.0) as f64;
        self.valid.0 + (life * (0.4 + 0.2 * draw)) as i64
    }
}

/// The certificates in a PEM text, DER.
///
/// # Errors
/// There is none, or one cannot be read.
pub fn certificates(pem: &str) -> Result<Vec<Vec<u8>>, KeyError> {
    let found: Result<Vec<Vec<u8>>, _> = CertificateDer::pem_slice_iter(pem.as_bytes())
        .map(|certificate| certificate.map(|der| der.to_vec()))
        .collect();
    found
        .ok()
        .filter(|found| !found.is_empty())
        .ok_or(KeyError::Unreadable("certificate"))
}

/// A new key, ECDSA on P-256.
pub(crate) fn new_key() -> Result<rcgen::KeyPair, KeyError> {
    rcgen::KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(|source| KeyError::Make {
        what: "key",
        source,
    })
}

/// A request for a certificate of `host`, PEM.
pub(crate) fn request(key: &rcgen::KeyPair, host: &HostName) -> Result<String, KeyError> {
    let make = |source| KeyError::Make {
        what: "request for a certificate",
        source,
    };
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    let uri = Ia5String::try_from(san_uri(host)).map_err(make)?;
    params.subject_alt_names = vec![SanType::URI(uri)];
    params
        .serialize_request(key)
        .and_then(|csr| csr.pem())
        .map_err(make)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::CertificateSigningRequestParams;

    #[test]
    fn a_certificate_is_renewed_around_half_of_its_life() {
        let facts = CertificateFacts {
            host: "web-17".parse().unwrap(),
            valid: (1_000_000, 1_000_000 + 30 * 86_400),
            public_key: Vec::new(),
        };
        let day = |days: i64| 1_000_000 + days * 86_400;
        assert_eq!(facts.renew_at(0.0), day(12));
        assert_eq!(facts.renew_at(0.5), day(15));
        assert!(facts.renew_at(0.999_999) <= day(18));
        assert!((facts.days_left(day(31)) + 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_request_names_the_host_and_no_one_else() {
        let host: HostName = "web-17.example.org".parse().unwrap();
        let csr = request(&new_key().unwrap(), &host).unwrap();
        let params = CertificateSigningRequestParams::from_pem(&csr)
            .unwrap()
            .params;
        let uri = Ia5String::try_from("slowpath:host/web-17.example.org").unwrap();
        assert_eq!(params.subject_alt_names, [SanType::URI(uri)]);
        assert_eq!(params.distinguished_name, DistinguishedName::new());
    }

    #[test]
    fn what_is_no_certificate_of_a_host_is_refused() {
        let key = new_key().unwrap();
        let nameless = CertificateParams::default().self_signed(&key).unwrap();
        let server = CertificateParams::new(vec!["web-17".to_owned()]).unwrap();
        let server = server.self_signed(&key).unwrap();
        for der in [&nameless.der()[..], server.der(), b"", b"no certificate"] {
            assert!(CertificateFacts::read(der).is_err());
        }
        assert!(certificates("").is_err());
        assert!(certificates(&key.serialize_pem()).is_err());
    }
}
