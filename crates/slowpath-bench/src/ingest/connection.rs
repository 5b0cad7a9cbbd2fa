// SPDX-License-Identifier: Apache-2.0
//! TLS and HTTP of one agent: one request at a time, with a full handshake for each connection.

use super::identities::Identity;
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde::de::DeserializeOwned;
use slowpath_ship::answers::{Refusal, RefusalKind};
use slowpath_ship::client::Failure;
use std::error::Error;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// As long as the agent's own client waits for an answer, and for a connection.
const ANSWER: Duration = Duration::from_secs(30);
const CONNECT: Duration = Duration::from_secs(10);
/// The longest head of an answer.
const HEAD: usize = 4 << 10;

/// What all agents of a process verify the server by.
pub(super) struct Trust {
    provider: Arc<CryptoProvider>,
    verifier: Arc<WebPkiServerVerifier>,
    name: ServerName<'static>,
    /// Where the server is, and from which address of the loopback network agents connect.
    server: SocketAddr,
    from: Ipv4Addr,
}

impl Trust {
    pub(super) fn new(
        bundle: &str,
        server: SocketAddr,
        from: Ipv4Addr,
    ) -> Result<Self, Box<dyn Error>> {
        let provider = Arc::new(ring::default_provider());
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
            roots.add(certificate?)?;
        }
        let verifier =
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone());
        Ok(Trust {
            verifier: verifier.build()?,
            provider,
            name: ServerName::IpAddress(server.ip().into()),
            server,
            from,
        })
    }
}

/// An agent's end.
pub(super) struct Connection {
    connector: TlsConnector,
    stream: Option<TlsStream<TcpStream>>,
}

impl Connection {
    /// Nothing is connected yet.
    pub(super) fn new(trust: &Trust, identity: &Identity) -> Result<Self, Box<dyn Error>> {
        let chain = CertificateDer::pem_slice_iter(identity.certificate.as_bytes());
        let chain = chain.collect::<Result<Vec<_>, _>>()?;
        let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes())?;
        let mut config = ClientConfig::builder_with_provider(trust.provider.clone())
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_webpki_verifier(trust.verifier.clone())
            .with_client_auth_cert(chain, key)?;
        config.resumption = Resumption::disabled();
        Ok(Connection {
            connector: Arc::new(config).into(),
            stream: None,
        })
    }

    /// Sends a request and gives the answer's JSON; connects first where that is needed.
    pub(super) async fn post<T: DeserializeOwned>(
        &mut self,
        trust: &Trust,
        (path, media): (&str, &str),
        body: &[u8],
    ) -> Result<T, Failure> {
        let answer = match timeout(ANSWER, self.exchange(trust, (path, media), body)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => {
                self.stream = None;
                return Err(Failure::NoAnswer(error.to_string()));
            }
            Err(_) => {
                self.stream = None;
                return Err(Failure::NoAnswer("no answer in 30 s".to_owned()));
            }
        };
        if answer.status == 200 {
            let read = serde_json::from_slice(&answer.body);
            return read.map_err(|error| Failure::NoAnswer(error.to_string()));
        }
        let refusal = serde_json::from_slice(&answer.body)
            .unwrap_or_else(|_| Refusal::new(RefusalKind::Unknown, "without a reason"));
        Err(Failure::Refused {
            status: answer.status,
            refusal: Box::new(refusal),
            retry_after: answer.retry_after,
        })
    }

    async fn exchange(
        &mut self,
        trust: &Trust,
        (path, media): (&str, &str),
        body: &[u8],
    ) -> io::Result<Answer> {
        if self.stream.as_ref().is_none_or(is_over) {
            self.stream = None;
            self.stream = Some(timeout(CONNECT, self.connect(trust)).await??);
        }
        let stream = self.stream.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: {media}\r\nContent-Length: {}\r\n\r\n",
            trust.server,
            body.len()
        );
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(body).await?;
        stream.flush().await?;
        let answer = Answer::read(stream).await?;
        if answer.closes {
            self.stream = None;
        }
        Ok(answer)
    }

    async fn connect(&self, trust: &Trust) -> io::Result<TlsStream<TcpStream>> {
        let socket = TcpSocket::new_v4()?;
        socket.bind(SocketAddr::from((trust.from, 0)))?;
        let stream = socket.connect(trust.server).await?;
        stream.set_nodelay(true)?;
        self.connector.connect(trust.name.clone(), stream).await
    }
}

/// Whether the server closed an idle connection: what comes then without a request is its alert or
/// the end.
fn is_over(stream: &TlsStream<TcpStream>) -> bool {
    let (tcp, _) = stream.get_ref();
    !matches!(tcp.try_read(&mut [0]), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
}

struct Answer {
    status: u16,
    retry_after: Option<Duration>,
    closes: bool,
    body: Vec<u8>,
}

impl Answer {
    async fn read(stream: &mut TlsStream<TcpStream>) -> io::Result<Answer> {
        let malformed = || io::Error::other("the answer is no HTTP");
        let mut bytes = Vec::with_capacity(512);
        let end = loop {
            if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
                break end + 4;
            }
            if bytes.len() > HEAD {
                return Err(malformed());
            }
            if stream.read_buf(&mut bytes).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        };
        let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
        let field = |name: &str| {
            let mut lines = head.lines().filter_map(|line| line.split_once(':'));
            lines
                .find(|(it, _)| *it == name)
                .map(|(_, value)| value.trim())
        };
        let status = head.split(' ').nth(1).and_then(|it| it.parse().ok());
        let length = field("content-length").and_then(|it| it.parse().ok());
        let length: usize = length.ok_or_else(malformed)?;
        let answer = Answer {
            status: status.ok_or_else(malformed)?,
            retry_after: field("retry-after")
                .and_then(|it| it.parse().ok())
                .map(Duration::from_secs),
            closes: field("connection") == Some("close"),
            body: Vec::new(),
        };
        let mut body = bytes.split_off(end);
        while body.len() < length {
            if stream.read_buf(&mut body).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(Answer { body, ..answer })
    }
}
