// SPDX-License-Identifier: Apache-2.0
//! A blocking client over TLS, which may do what no agent does.

use crate::setting::PATIENCE;
use rcgen::{CertificateParams, KeyPair, SanType};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::time_provider::TimeProvider;
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme,
    StreamOwned,
};
use serde_json::{Value, json};
use slowpath_model::WallMicros;
use slowpath_ship::identity::Token;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

/// What a host has after it joined.
#[derive(Clone)]
pub struct Credentials {
    pub certificate: String,
    pub key: String,
    pub bundle: String,
}

/// A signing request, PEM.
pub fn request(key: &KeyPair, uri: Option<&str>) -> String {
    let mut params = CertificateParams::default();
    if let Some(uri) = uri {
        params.subject_alt_names = vec![SanType::URI(uri.try_into().unwrap())];
    }
    params.serialize_request(key).unwrap().pem().unwrap()
}

pub struct Client {
    stream: StreamOwned<ClientConnection, TcpStream>,
}

pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.text()))
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Its status and why.
    pub fn refusal(&self) -> (u16, String) {
        let error = self.json()["error"].as_str().unwrap_or("none").to_owned();
        (self.status, error)
    }
}

pub fn refused(status: u16, error: &str) -> (u16, String) {
    (status, error.to_owned())
}

impl Client {
    pub fn new(address: SocketAddr, config: ClientConfig) -> Self {
        Client::over(TcpStream::connect(address).unwrap(), config)
    }

    pub fn over(stream: TcpStream, config: ClientConfig) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let connection = ClientConnection::new(Arc::new(config), name).unwrap();
        Client {
            stream: StreamOwned::new(connection, stream),
        }
    }

    /// One that takes any server: as an agent before it has compared the fingerprint.
    pub fn unverified(address: SocketAddr) -> Self {
        let config = builder(Arc::new(AnyTime))
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyServer))
            .with_no_client_auth();
        Client::new(address, config)
    }

    pub fn anonymous(address: SocketAddr, bundle: &str, now: WallMicros) -> Self {
        let config = builder(Arc::new(FixedTime(now)))
            .with_root_certificates(roots(bundle))
            .with_no_client_auth();
        Client::new(address, config)
    }

    pub fn host(address: SocketAddr, credentials: &Credentials, now: WallMicros) -> Self {
        Client::new(address, host_config(credentials, now))
    }

    pub fn get(&mut self, path: &str) -> Answer {
        self.try_ask(&head("GET", path, ""), b"").unwrap()
    }

    pub fn ship(&mut self, body: &[u8]) -> Answer {
        self.try_ship(body).unwrap()
    }

    pub fn try_ship(&mut self, body: &[u8]) -> io::Result<Answer> {
        self.post("/v1/batch", "application/octet-stream", body)
    }

    pub fn join(&mut self, token: &Token, csr: &str) -> Answer {
        self.post_json("/v1/join", &json!({"token": token.to_string(), "csr": csr}))
    }

    pub fn renew(&mut self, csr: &str) -> Answer {
        self.post_json("/v1/renew", &json!({ "csr": csr }))
    }

    pub fn post_json(&mut self, path: &str, body: &Value) -> Answer {
        let body = body.to_string();
        self.post(path, "application/json", body.as_bytes())
            .unwrap()
    }

    pub fn post(&mut self, path: &str, content: &str, body: &[u8]) -> io::Result<Answer> {
        let fields = format!(
            "Content-Type: {content}\r\nContent-Length: {}\r\n",
            body.len()
        );
        self.try_ask(&head("POST", path, &fields), body)
    }

    /// Sends these bytes and reads an answer.
    pub fn try_ask(&mut self, head: &str, body: &[u8]) -> io::Result<Answer> {
        self.stream.write_all(head.as_bytes())?;
        self.stream.write_all(body)?;
        self.stream.flush()?;
        let mut text = Vec::new();
        while !text.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            if self.stream.read(&mut byte)? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            text.push(byte[0]);
        }
        let head = String::from_utf8(text).unwrap();
        let field = |name: &str| {
            let mut lines = head.lines();
            lines.find_map(|line| line.strip_prefix(name)?.trim().parse::<usize>().ok())
        };
        let mut body = vec![0; field("Content-Length:").unwrap_or(0)];
        self.stream.read_exact(&mut body)?;
        let status = head[9..12].parse().unwrap();
        Ok(Answer { status, head, body })
    }

    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)?;
        self.stream.flush()
    }

    /// Reads until the server closes; how it did.
    pub fn end(&mut self) -> io::Result<()> {
        let mut rest = Vec::new();
        self.stream.read_to_end(&mut rest).map(drop)
    }
}

pub fn head(method: &str, path: &str, fields: &str) -> String {
    format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n")
}

fn builder(
    time: Arc<dyn TimeProvider>,
) -> rustls::ConfigBuilder<ClientConfig, rustls::WantsVerifier> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    ClientConfig::builder_with_details(provider, time)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
}

pub fn host_config(credentials: &Credentials, now: WallMicros) -> ClientConfig {
    let chain = CertificateDer::pem_slice_iter(credentials.certificate.as_bytes());
    let chain = chain.map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_slice(credentials.key.as_bytes()).unwrap();
    builder(Arc::new(FixedTime(now)))
        .with_root_certificates(roots(&credentials.bundle))
        .with_client_auth_cert(chain, key)
        .unwrap()
}

fn roots(bundle: &str) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
        roots.add(certificate.unwrap()).unwrap();
    }
    roots
}

#[derive(Debug)]
struct FixedTime(WallMicros);

impl TimeProvider for FixedTime {
    fn current_time(&self) -> Option<UnixTime> {
        let since = Duration::from_micros(self.0.0 as u64);
        Some(UnixTime::since_unix_epoch(since))
    }
}

#[derive(Debug)]
struct AnyTime;

impl TimeProvider for AnyTime {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::now())
    }
}

#[derive(Debug)]
struct AnyServer;

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        unreachable!("TLS 1.3 only")
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ECDSA_NISTP256_SHA256]
    }
}
