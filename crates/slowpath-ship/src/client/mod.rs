// SPDX-License-Identifier: Apache-2.0
//! Talks to a server: one request at a time on a connection that stays open, TLS 1.3 only.
//!
//! [`Policy`] decides what an answer leads to; [`Connection`] only sends and receives.

mod address;
mod policy;

pub use address::{DEFAULT_PORT, ServerAddress, ServerChoice};
pub use policy::{Policy, Step};

use crate::answers::{self, MAX_ANSWER, Refusal, RefusalKind};
use crate::certificate::{KeyError, KeyPair};
use rustls::ProtocolVersion;
use rustls::crypto::{CryptoProvider, ring};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;
use std::time::Duration;
use ureq::http::{Response, header::RETRY_AFTER};
use ureq::tls::{Certificate, ClientCert, PrivateKey, RootCerts, TlsConfig};
use ureq::{Agent, Body};

/// A request that has no answer by then has none.
const ANSWER: Duration = Duration::from_secs(30);
const CONNECT: Duration = Duration::from_secs(10);
/// As long as a server keeps a connection without requests.
const IDLE: Duration = Duration::from_secs(15 * 60);

/// Why there is no answer that was asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The server refused.
    #[error("the server answers {status}: {}", refusal.message)]
    Refused {
        /// The HTTP status.
        status: u16,
        /// What it says.
        refusal: Box<Refusal>,
        /// How long the server wants to be left in peace.
        retry_after: Option<Duration>,
    },
    /// There is no answer, or none of this protocol.
    #[error("{0}")]
    NoAnswer(String),
}

/// Whom a connection trusts, and who it is.
#[derive(Clone, Copy, Debug)]
pub enum Trust<'a> {
    /// Anyone: only to ask for what is then compared with a fingerprint.
    Unverified,
    /// Servers with a certificate of these CAs (DER); this client stays without a name.
    Verified(&'a [Vec<u8>]),
    /// The same, as the host that the key's certificate names.
    Mutual(&'a [Vec<u8>], &'a KeyPair),
}

/// A connection to a server, made when it is first needed, and again when it broke.
pub struct Connection {
    agent: Agent,
    server: ServerAddress,
}

impl Connection {
    /// A connection to `server`; nothing is sent yet.
    ///
    /// # Errors
    /// The key or a certificate cannot be read.
    pub fn new(server: &ServerAddress, trust: Trust<'_>) -> Result<Self, KeyError> {
        let tls = TlsConfig::builder().unversioned_rustls_crypto_provider(tls13_only());
        let roots = |cas: &[Vec<u8>]| {
            let cas = cas.iter().map(|ca| Certificate::from_der(ca).to_owned());
            RootCerts::Specific(Arc::new(cas.collect()))
        };
        let tls = match trust {
            Trust::Unverified => tls.disable_verification(true),
            Trust::Verified(cas) => tls.root_certs(roots(cas)),
            Trust::Mutual(cas, pair) => {
                let chain = pair.chain()?;
                let chain: Vec<_> = chain
                    .iter()
                    .map(|certificate| Certificate::from_der(certificate).to_owned())
                    .collect();
                let key = PrivateKey::from_pem(pair.pem().as_bytes())
                    .map_err(|_| KeyError::Unreadable("key"))?;
                tls.root_certs(roots(cas))
                    .client_cert(Some(ClientCert::new_with_certs(&chain, key)))
            }
        };
        let config = Agent::config_builder()
            .tls_config(tls.build())
            .http_status_as_error(false)
            .https_only(true)
            .max_redirects(0)
            .proxy(None)
            .user_agent(concat!("slowpath/", env!("CARGO_PKG_VERSION")))
            .timeout_connect(Some(CONNECT))
            .timeout_global(Some(ANSWER))
            .max_idle_age(IDLE)
            .max_idle_connections(1)
            .build();
        Ok(Connection {
            agent: config.into(),
            server: server.clone(),
        })
    }

    /// Sends a batch.
    ///
    /// # Errors
    /// See [`Failure`].
    pub fn batch(&self, body: &[u8]) -> Result<answers::Flushed, Failure> {
        let request = self.agent.post(self.server.url(answers::BATCH));
        let response = request.content_type(answers::BATCH_TYPE).send(body);
        read(response)
    }

    /// Sends JSON.
    ///
    /// # Errors
    /// See [`Failure`].
    pub fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, Failure> {
        let body = serde_json::to_vec(body).map_err(|e| Failure::NoAnswer(e.to_string()))?;
        let request = self.agent.post(self.server.url(path));
        let response = request.content_type(answers::JSON_TYPE).send(&body[..]);
        read(response)
    }

    /// Asks for JSON.
    ///
    /// # Errors
    /// See [`Failure`].
    pub fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        read(self.agent.get(self.server.url(path)).call())
    }
}

/// ring's provider without what TLS 1.2 needs: rustls then offers TLS 1.3 only.
fn tls13_only() -> Arc<CryptoProvider> {
    let mut provider = ring::default_provider();
    provider
        .cipher_suites
        .retain(|suite| suite.version().version == ProtocolVersion::TLSv1_3);
    Arc::new(provider)
}

fn read<T: DeserializeOwned>(response: Result<Response<Body>, ureq::Error>) -> Result<T, Failure> {
    let mut response = response.map_err(|e| Failure::NoAnswer(e.to_string()))?;
    let status = response.status().as_u16();
    let retry_after = response
        .headers()
        .get(RETRY_AFTER)
        .and_then(|value| value.to_str().ok()?.trim().parse().ok())
        .map(Duration::from_secs);
    let body = response.body_mut().with_config().limit(MAX_ANSWER);
    let body = body
        .read_to_vec()
        .map_err(|e| Failure::NoAnswer(e.to_string()))?;
    if status == 200 {
        return serde_json::from_slice(&body)
            .map_err(|e| Failure::NoAnswer(format!("the answer is not a slowpath server's: {e}")));
    }
    let refusal = serde_json::from_slice(&body).unwrap_or_else(|_| {
        let error = match status {
            429 | 503 => RefusalKind::Busy,
            507 => RefusalKind::Full,
            413 => RefusalKind::TooLarge,
            _ => RefusalKind::Unknown,
        };
        Box::new(Refusal::new(
            error,
            "without a reason that a slowpath server gives",
        ))
    });
    Err(Failure::Refused {
        status,
        refusal,
        retry_after,
    })
}
