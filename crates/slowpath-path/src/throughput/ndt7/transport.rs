// SPDX-License-Identifier: Apache-2.0
//! What WebSocket messages travel over: TCP, or TLS over it, with every octet counted.

use super::Ndt7Error;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A connection whose octets, headers of WebSocket included, are counted.
#[derive(Debug)]
pub(super) struct Transport {
    stream: Stream,
    /// Octets that were read.
    pub(super) read: u64,
    /// Octets that were written.
    pub(super) written: u64,
    /// From then on every call fails: no peer holds the handshake up by octets that trickle.
    pub(super) deadline: Option<Instant>,
}

#[derive(Debug)]
enum Stream {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Transport {
    /// Over TCP as it is.
    pub(super) fn plain(stream: TcpStream) -> Self {
        Self::new(Stream::Plain(stream))
    }

    /// Over TLS, to a server whose certificate an authority that this machine trusts has signed.
    pub(super) fn tls(stream: TcpStream, host: &str) -> Result<Self, Ndt7Error> {
        let failed = |reason: String| Ndt7Error::Tls {
            server: host.to_owned(),
            reason,
        };
        let mut roots = RootCertStore::empty();
        let found = rustls_native_certs::load_native_certs().certs;
        roots.add_parsable_certificates(found);
        if roots.is_empty() {
            let reason =
                "this machine trusts no authority (package ca-certificates, or SSL_CERT_FILE)";
            return Err(failed(reason.to_owned()));
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| failed(error.to_string()))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name =
            ServerName::try_from(host.to_owned()).map_err(|error| failed(error.to_string()))?;
        let connection = ClientConnection::new(Arc::new(config), name)
            .map_err(|error| failed(error.to_string()))?;
        let stream = StreamOwned::new(connection, stream);
        Ok(Self::new(Stream::Tls(Box::new(stream))))
    }

    fn new(stream: Stream) -> Self {
        Transport {
            stream,
            read: 0,
            written: 0,
            deadline: None,
        }
    }

    /// The socket below.
    pub(super) fn socket(&self) -> &TcpStream {
        match &self.stream {
            Stream::Plain(stream) => stream,
            Stream::Tls(stream) => stream.get_ref(),
        }
    }

    /// Waits until octets can be read, or written, for as long as given.
    pub(super) fn wait(&self, write: bool, patience: Duration) {
        let fd: RawFd = self.socket().as_raw_fd();
        let mut poll = libc::pollfd {
            fd,
            events: libc::POLLIN | if write { libc::POLLOUT } else { 0 },
            revents: 0,
        };
        let millis = libc::c_int::try_from(patience.as_millis()).unwrap_or(libc::c_int::MAX);
        // SAFETY: one live pollfd. A call that is interrupted is repeated by the caller's loop.
        unsafe { libc::poll(&mut poll, 1, millis) };
    }

    fn in_time(&self) -> io::Result<()> {
        match self.deadline {
            Some(deadline) if Instant::now() > deadline => Err(ErrorKind::TimedOut.into()),
            _ => Ok(()),
        }
    }
}

impl Read for Transport {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.in_time()?;
        let length = match &mut self.stream {
            Stream::Plain(stream) => stream.read(buffer),
            Stream::Tls(stream) => stream.read(buffer),
        }?;
        self.read += length as u64;
        Ok(length)
    }
}

impl Write for Transport {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        self.in_time()?;
        let length = match &mut self.stream {
            Stream::Plain(stream) => stream.write(octets),
            Stream::Tls(stream) => stream.write(octets),
        }?;
        self.written += length as u64;
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.in_time()?;
        match &mut self.stream {
            Stream::Plain(stream) => stream.flush(),
            Stream::Tls(stream) => stream.flush(),
        }
    }
}
