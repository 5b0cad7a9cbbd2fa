// SPDX-License-Identifier: Apache-2.0
//! The agent's own small server: one thread, no client of which can hold it up.
//!
//! Everything is bounded: clients at once ([`MAX_CLIENTS`]), bytes of a request
//! ([`MAX_REQUEST`]), the time a client may take ([`PATIENCE`]), clients accepted in a
//! second ([`MAX_RATE`]; further ones wait in the kernel's queue). When all places are
//! taken, the client that has been there longest goes. A page is made once for each state
//! of the agent and shared by all who read it.

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
