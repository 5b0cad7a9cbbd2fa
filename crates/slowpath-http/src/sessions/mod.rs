// SPDX-License-Identifier: Apache-2.0
//! Connections that stay open: after a handshake that says who is there, request after request.
//!
//! What enters: an address, [`SessionLimits`], a [`Handshake`], a router. What leaves: its
//! answers; each request carries its [`Session`] as an extension.
//!
//! What is promised:
//!
//! - Who sends nothing takes nothing that others need: a handshake begins with the client's first
//!   byte, and those that are silent give way to newer ones.
//! - Handshakes at once and sessions are bounded; further clients wait in the kernel's queue. Slow
//!   handshakes give way as soon as all their places are taken.
//! - Clients without an identity are few, and the oldest of them gives way; those with one never
//!   give way to other peers, and one peer has few connections.
//! - Each state of a connection has its own deadline.
//! - [`Sessions::close_where`] ends connections at once.

mod activity;
mod connection;
mod io;
mod registry;
mod server;

pub use registry::Sessions;
pub use server::SessionServer;

use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// Makes a session of a connection: who is there, and how bytes are read and written.
pub trait Handshake: Send + Sync + 'static {
    /// The connection from then on.
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;
    /// Who is there.
    type Peer: Clone + Send + Sync + 'static;

    /// Shakes hands. A failure is the implementation's to count.
    fn shake(
        &self,
        stream: TcpStream,
    ) -> impl Future<Output = std::io::Result<Established<Self::Stream, Self::Peer>>> + Send;

    /// The name that connections of one peer share: the bound
    /// [`SessionLimits::of_one_peer`] is on it.
    fn name(peer: &Self::Peer) -> &str;
}

/// What a handshake makes.
#[derive(Debug)]
pub struct Established<S, P> {
    /// The connection.
    pub stream: S,
    /// Who is there; `None`: a client without an identity.
    pub peer: Option<P>,
}

/// The connection of a request, an extension of it.
#[derive(Clone, Debug)]
pub struct Session<P> {
    /// The client's end.
    pub address: SocketAddr,
    /// Who is there; `None`: a client without an identity.
    pub peer: Option<P>,
}

/// What clients may take. Every number is at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionLimits {
    /// Sessions of peers, and handshakes, at once.
    pub sessions: usize,
    /// Sessions of one peer; the oldest makes room.
    pub of_one_peer: usize,
    /// Sessions without an identity; the oldest makes room.
    pub anonymous: usize,
    /// Connections that sent nothing yet; the oldest makes room.
    pub silent: usize,
    /// Handshakes at once.
    pub handshakes: usize,
    /// Time from the connection to the end of its handshake.
    pub handshake: Duration,
    /// The same while all places for handshakes are taken.
    pub crowded_handshake: Duration,
    /// Bytes of a request's head: request line and headers. hyper reads 8,192 at least.
    pub head_bytes: usize,
    /// Headers of a request.
    pub headers: usize,
    /// Time from the first byte of a request's head to its last.
    pub head: Duration,
    /// Time from the end of a request's head to its answer.
    pub request: Duration,
    /// Time between requests.
    pub idle: Duration,
    /// Time between requests without an identity.
    pub anonymous_idle: Duration,
}
