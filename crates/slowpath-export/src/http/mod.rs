// SPDX-License-Identifier: Apache-2.0
//! The agent's own small HTTP server: one thread, which no client can block.
//!
//! Everything is bounded: clients at once ([`MAX_CLIENTS`]), bytes of a request
//! ([`MAX_REQUEST`]), the time a client may take ([`PATIENCE`]), clients accepted in a
//! second ([`MAX_RATE`]; further ones wait in the kernel's queue). When all are in use, the
//! server disconnects the oldest client. It renders a page once for each state of the agent,
//! and all clients share it.

mod client;
mod request;
mod server;

pub use crate::counters::{HttpCounters, Status};
pub use request::Answer;
pub use server::{Server, ServerError};

use std::time::Duration;

/// Clients at once.
pub const MAX_CLIENTS: usize = 32;

/// Longest request, in bytes.
pub const MAX_REQUEST: usize = 8 << 10;

/// Clients accepted in a second.
pub const MAX_RATE: u32 = 100;

/// Time from the connection to the end of the answer.
pub const PATIENCE: Duration = Duration::from_secs(10);
