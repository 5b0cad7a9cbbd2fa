// SPDX-License-Identifier: Apache-2.0
//! How a host gets a certificate and its successors.

use super::identity::joining_key;
use super::{CertificateFacts, Identity, KeyError, KeyPair, certificates, new_key, request};
use crate::answers::{self, CaAnswer, CertificateAnswer, JoinRequest, RenewRequest};
use crate::client::{Connection, Failure, ServerAddress, Trust};
use crate::identity::{HostName, Sha256, Token};
use std::path::Path;

/// Why a host has no new certificate.
#[derive(Debug, thiserror::Error)]
pub enum EnrolmentError {
    /// A key, a certificate or a file.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The server gave no certificate.
    #[error("{server} gives no certificate: {failure}")]
    Refused {
        /// Which server.
        server: ServerAddress,
        /// Why.
        failure: Failure,
    },
    /// Someone else answers there, or the token is of another server.
    #[error(
        "{server} is not the server that made the token: none of its CA certificates has the \
         fingerprint {fingerprint}; check the address, or ask for a new token if that server's CA \
         was rolled since"
    )]
    OtherServer {
        /// Which server.
        server: ServerAddress,
        /// What the token states.
        fingerprint: Sha256,
    },
    /// The certificate is for another key or host.
    #[error("{server} gave a certificate for another {what}; report this to whoever runs it")]
    OtherCertificate {
        /// Which server.
        server: ServerAddress,
        /// What is another one.
        what: &'static str,
    },
}

/// Joins a server: makes a key in `dir` and gets a certificate for the host that the token names.
///
/// The CA's certificate is first asked for without verification and compared with the token's
/// fingerprint; then all is verified by it, as kubeadm's join does.
///
/// # Errors
/// See [`EnrolmentError`]. The key of an attempt without an answer is used again by the next one.
pub fn join(dir: &Path, server: &ServerAddress, token: &Token) -> Result<Identity, EnrolmentError> {
    let refused = |failure| EnrolmentError::Refused {
        server: server.clone(),
        failure,
    };
    let stated: CaAnswer = Connection::new(server, Trust::Unverified)?
        .get(answers::CA)
        .map_err(refused)?;
    let ca = certificates(&stated.bundle)
        .unwrap_or_default()
        .into_iter()
        .find(|ca| Sha256::of(ca) == token.fingerprint)
        .ok_or_else(|| EnrolmentError::OtherServer {
            server: server.clone(),
            fingerprint: token.fingerprint,
        })?;
    let key = joining_key(dir)?;
    let asked = JoinRequest {
        token: token.to_string(),
        csr: request(&key, &token.host)?,
    };
    let answer: CertificateAnswer = Connection::new(server, Trust::Verified(&[ca]))?
        .post(answers::JOIN, &asked)
        .map_err(refused)?;
    let pair = checked(server, &key, &token.host, &answer)?;
    certificates(&answer.bundle)?;
    Ok(Identity::write(dir, server, &answer.bundle, &pair)?)
}

/// Gets the successor of an identity's certificate, for a new key.
///
/// # Errors
/// See [`EnrolmentError`]; the identity stays as it was.
pub fn renew(identity: &mut Identity, server: &ServerAddress) -> Result<(), EnrolmentError> {
    let trust = Trust::Mutual(&identity.bundle, &identity.pair);
    let connection = Connection::new(server, trust)?;
    let key = new_key()?;
    let asked = RenewRequest {
        csr: request(&key, &identity.facts.host)?,
    };
    let answer: CertificateAnswer =
        connection
            .post(answers::RENEW, &asked)
            .map_err(|failure| EnrolmentError::Refused {
                server: server.clone(),
                failure,
            })?;
    let pair = checked(server, &key, &identity.facts.host, &answer)?;
    identity.replace_bundle(&answer.bundle)?;
    identity.replace_pair(pair)?;
    Ok(())
}

/// Gets the server's bundle of CAs over a connection that is verified by the one before.
///
/// # Errors
/// See [`EnrolmentError`]; the identity stays as it was.
pub fn fetch_bundle(
    identity: &mut Identity,
    server: &ServerAddress,
    connection: &Connection,
) -> Result<(), EnrolmentError> {
    let answer: CaAnswer =
        connection
            .get(answers::CA)
            .map_err(|failure| EnrolmentError::Refused {
                server: server.clone(),
                failure,
            })?;
    Ok(identity.replace_bundle(&answer.bundle)?)
}

/// The key with its certificate, if that is for this key and host.
fn checked(
    server: &ServerAddress,
    key: &rcgen::KeyPair,
    host: &HostName,
    answer: &CertificateAnswer,
) -> Result<KeyPair, EnrolmentError> {
    let other = |what| EnrolmentError::OtherCertificate {
        server: server.clone(),
        what,
    };
    let pair = KeyPair::from_pem(format!("{}{}", key.serialize_pem(), answer.certificate));
    let facts = CertificateFacts::read(&pair.chain()?[0])?;
    if facts.public_key != rcgen::PublicKeyData::subject_public_key_info(key) {
        return Err(other("key"));
    }
    if facts.host != *host {
        return Err(other("host"));
    }
    Ok(pair)
}
