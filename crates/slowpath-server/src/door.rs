// SPDX-License-Identifier: Apache-2.0
//! TLS 1.3: who gets in.
//!
//! A client without a certificate gets in; what it may ask is the routes' to decide. One with a
//! certificate gets in if a CA of ours signed it, it names a host and was not revoked. An expired one
//! gets in as long as it can be renewed. Nothing is resumed: a resumed session would outlive a
//! revocation.

use crate::ca::{Ca, Identity, RENEWABLE_US, Revocations};
use crate::clock::Clock;
use crate::refusals::{Reason, Refusals};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig,
    SignatureScheme,
};
use slowpath_http::sessions::{Established, Handshake};
use std::io;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// The server's configuration cannot be made.
#[derive(Debug, thiserror::Error)]
#[error("cannot use the server's certificates: {0}")]
pub struct DoorError(String);

impl DoorError {
    fn of(error: impl ToString) -> Self {
        DoorError(error.to_string())
    }
}

/// The certificates of the CAs that are trusted.
#[derive(Debug)]
pub struct Bundle {
    /// As PEM.
    pub pem: String,
    /// Their hash, in hexadecimal.
    pub hash: String,
}

/// Shakes hands with agents.
#[derive(Debug)]
pub struct Door {
    open: RwLock<(Arc<ServerConfig>, Arc<Bundle>)>,
    revocations: Arc<Revocations>,
    clock: Clock,
    refusals: Arc<Refusals>,
}

impl Door {
    /// For the certificates that the CA has now.
    ///
    /// # Errors
    /// They cannot be used.
    pub fn new(ca: &Ca, clock: Clock, refusals: Arc<Refusals>) -> Result<Self, DoorError> {
        let revocations = ca.revocations();
        Ok(Door {
            open: RwLock::new(open(ca, &revocations, &clock)?),
            revocations,
            clock,
            refusals,
        })
    }

    /// Uses the certificates that the CA has now, for handshakes from now on.
    ///
    /// # Errors
    /// They cannot be used; the former ones stay.
    pub fn reload(&self, ca: &Ca) -> Result<(), DoorError> {
        let changed = open(ca, &self.revocations, &self.clock)?;
        *self.open.write().unwrap_or_else(PoisonError::into_inner) = changed;
        Ok(())
    }

    /// The certificates of the CAs that are trusted.
    pub fn bundle(&self) -> Arc<Bundle> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        open.1.clone()
    }

    fn config(&self) -> Arc<ServerConfig> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        open.0.clone()
    }
}

impl Handshake for Door {
    type Stream = TlsStream<TcpStream>;
    type Peer = Arc<Identity>;

    async fn shake(
        &self,
        stream: TcpStream,
    ) -> io::Result<Established<Self::Stream, Arc<Identity>>> {
        let shaken = TlsAcceptor::from(self.config()).accept(stream).await;
        let stream = shaken.inspect_err(|error| {
            if let Some(reason) = reason(error) {
                self.refusals.count(reason);
            }
        })?;
        let certificate = stream.get_ref().1.peer_certificates();
        let peer = match certificate.and_then(|all| all.first()) {
            None => None,
            // The verifier has read it already.
            Some(der) => Some(Arc::new(Identity::of(der).map_err(io::Error::other)?)),
        };
        Ok(Established { stream, peer })
    }

    fn name(peer: &Arc<Identity>) -> &str {
        peer.host.as_str()
    }
}

/// Why a handshake failed; `None`: the client has gone.
fn reason(error: &io::Error) -> Option<Reason> {
    let error = error.get_ref()?.downcast_ref::<rustls::Error>()?;
    Some(match error {
        rustls::Error::InvalidCertificate(CertificateError::Revoked) => Reason::Revoked,
        rustls::Error::InvalidCertificate(
            CertificateError::Expired | CertificateError::ExpiredContext { .. },
        ) => Reason::Expired,
        rustls::Error::InvalidCertificate(_) => Reason::Certificate,
        _ => Reason::Tls,
    })
}

fn open(
    ca: &Ca,
    revocations: &Arc<Revocations>,
    clock: &Clock,
) -> Result<(Arc<ServerConfig>, Arc<Bundle>), DoorError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    for certificate in ca.authorities.bundle() {
        roots.add(certificate.clone()).map_err(DoorError::of)?;
    }
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
    let verifier = ClientVerifier {
        signed: verifier
            .allow_unauthenticated()
            .build()
            .map_err(DoorError::of)?,
        revocations: revocations.clone(),
    };
    let (certificate, key) = ca.authorities.server();
    let config = ServerConfig::builder_with_details(provider, Arc::new(clock.clone()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(DoorError::of)?
        .with_client_cert_verifier(Arc::new(verifier))
        .with_single_cert(vec![certificate], key);
    let mut config = config.map_err(DoorError::of)?;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let bundle = Bundle {
        pem: ca.authorities.bundle_pem(),
        hash: ca.authorities.bundle_hash().to_string(),
    };
    Ok((Arc::new(config), Arc::new(bundle)))
}

/// Adds to the verification of signatures and times: expired ones may renew, revoked ones may
/// nothing, and it must name a host.
#[derive(Debug)]
struct ClientVerifier {
    signed: Arc<dyn ClientCertVerifier>,
    revocations: Arc<Revocations>,
}

impl ClientCertVerifier for ClientVerifier {
    fn client_auth_mandatory(&self) -> bool {
        self.signed.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.signed.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let verify = |at| self.signed.verify_client_cert(certificate, between, at);
        let verified = match verify(now) {
            Err(rustls::Error::InvalidCertificate(CertificateError::ExpiredContext {
                time,
                not_after,
            })) if is_renewable(time, not_after) => verify(not_after)?,
            other => other?,
        };
        let identity = Identity::of(certificate).map_err(|_| {
            rustls::Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure)
        })?;
        if self.revocations.is_revoked(&identity) {
            return Err(CertificateError::Revoked.into());
        }
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.signed
            .verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.signed
            .verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.signed.supported_verify_schemes()
    }
}

fn is_renewable(now: UnixTime, not_after: UnixTime) -> bool {
    let since = now.as_secs().saturating_sub(not_after.as_secs());
    Duration::from_secs(since) <= Duration::from_micros(RENEWABLE_US as u64)
}
