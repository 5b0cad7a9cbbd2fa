// SPDX-License-Identifier: Apache-2.0
//! A client of ndt7 (M-Lab's `spec/ndt7-protocol.md`): one TCP connection, WebSocket messages, ten seconds.
//!
//! A server's measurement messages carry its kernel's statistics. While it sends, they are the sender's, and are judged as
//! our own; while this end sends, its own socket's are.

mod client;
mod measurement;
mod transport;

pub use client::{Ndt7Options, measure_ndt7};
pub use measurement::{AppInfo, FurtherTcpInfo, Measurement, NdtTcpInfo};

use std::io;

/// Why a test did not come about.
#[derive(Debug, thiserror::Error)]
pub enum Ndt7Error {
    /// The address is none.
    #[error(
        "{0:?} is no server of ndt7: write ws://HOST:PORT, wss://HOST, or the URL that a locator gave"
    )]
    Url(String),
    /// The name has no address.
    #[error("cannot find the address of {host}: {source}")]
    Resolve {
        /// The name.
        host: String,
        /// Why.
        source: io::Error,
    },
    /// The server is not there.
    #[error("cannot connect to {server}: {source}")]
    Connect {
        /// Which.
        server: String,
        /// Why.
        source: io::Error,
    },
    /// No authority is trusted here, or its name cannot be checked.
    #[error("cannot check the certificate of {server}: {reason}")]
    Tls {
        /// Which.
        server: String,
        /// Why.
        reason: String,
    },
    /// It does not speak ndt7.
    #[error("{server} does not speak ndt7: {reason}")]
    Handshake {
        /// Which.
        server: String,
        /// How.
        reason: String,
    },
    /// A call to the kernel failed.
    #[error("{0}")]
    Path(#[from] crate::session::PathError),
    /// A socket option is refused.
    #[error("{0}")]
    Socket(#[from] super::tcp::SocketError),
}
