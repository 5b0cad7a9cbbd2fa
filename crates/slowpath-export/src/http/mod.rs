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

pub use request::{Answer, Status};
pub use server::{Server, ServerError};

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Clients at once.
pub const MAX_CLIENTS: usize = 32;

/// Longest request, in bytes.
pub const MAX_REQUEST: usize = 8 << 10;

/// Clients accepted in a second.
pub const MAX_RATE: u32 = 100;

/// Time from the connection to the end of the answer.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// What the server counts.
#[derive(Debug, Default)]
pub struct HttpCounters {
    answers: [AtomicU64; Status::ALL.len()],
    dropped: AtomicU64,
}

impl HttpCounters {
    fn answered(&self, status: Status) {
        self.answers[status as usize].fetch_add(1, Ordering::Relaxed);
    }

    fn dropped_many(&self, count: u64) {
        self.dropped.fetch_add(count, Ordering::Relaxed);
    }

    /// Answers by status.
    pub fn answers(&self) -> impl Iterator<Item = (u16, u64)> {
        let counts = Status::ALL.into_iter().zip(&self.answers);
        counts.map(|(status, count)| (status.code(), count.load(Ordering::Relaxed)))
    }

    /// Clients sent away without an answer.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}
