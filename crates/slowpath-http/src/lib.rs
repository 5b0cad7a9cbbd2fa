// SPDX-License-Identifier: Apache-2.0
//! A listener for HTTP/1.1 around an [`axum`] router, with limits that no client gets past.
//!
//! What enters: an address, [`Limits`], a router. What leaves: its answers, and through
//! [`Events`] what the router never learns of: heads that are not HTTP or too long, and clients
//! that were sent away.
//!
//! What is promised:
//!
//! - One thread, which no client can block; it exists only while a [`Server`] does.
//! - Clients at once, clients accepted in a second, the bytes and headers of a request's head and
//!   the whole time a client may stay are bounded. When all places are taken, the client that is
//!   there longest goes; clients past the rate wait in the kernel's queue.
//! - A connection carries one request, except where the peer is known: [`sessions`]. It is closed in two steps, so that the answer arrives even
//!   if the client sent more than was read.
//!
//! What it never does: know what it serves.

mod client;
mod clients;
mod io;
mod server;
pub mod sessions;

pub use server::{Server, ServerError};

use std::time::Duration;

/// What clients may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Clients at once; at least one.
    pub clients: usize,
    /// Clients accepted in a second; at least one.
    pub accepted_a_second: u32,
    /// Bytes of a request's head: request line and headers. hyper reads 8,192 at least.
    pub head_bytes: usize,
    /// Headers of a request.
    pub headers: usize,
    /// Time from the connection to the end of the answer.
    pub patience: Duration,
}

/// What happens to clients without the router's knowledge. Called from the server's thread.
pub trait Events: Send + Sync {
    /// A request's head was answered with this status, because it is not HTTP (400) or exceeds
    /// its limits (431, RFC 6585 section 5). Called before the client can read its answer to the
    /// end.
    fn refused(&self, status: u16);

    /// A client was sent away without its answer: too slow, or too many.
    fn dropped(&self);
}
