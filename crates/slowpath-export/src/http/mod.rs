// SPDX-License-Identifier: Apache-2.0
//! `/metrics` and `/healthz` of the agent, over [`slowpath_http`].
//!
//! Everything is bounded: clients at once ([`MAX_CLIENTS`]), bytes of a request
//! ([`MAX_REQUEST`]), the time a client may take ([`PATIENCE`]), clients accepted in a
//! second ([`MAX_RATE`]; further ones wait in the kernel's queue). When all are in use, the
//! server disconnects the oldest client. It renders a page once for each state of the agent,
//! and all clients share it.

mod pages;
mod routes;

pub use crate::counters::{HttpCounters, Status};

use crate::state::Board;
use pages::Pages;
use slowpath_http::{Events, Limits};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// Clients at once.
pub const MAX_CLIENTS: usize = 32;

/// Longest request, in bytes.
pub const MAX_REQUEST: usize = 8 << 10;

/// Clients accepted in a second.
pub const MAX_RATE: u32 = 100;

/// Time from the connection to the end of the answer.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// Headers of a request.
const MAX_HEADERS: usize = 64;

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The address is not to be had.
    #[error("cannot serve metrics on {address}: {source}")]
    Listen {
        /// Which.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// No thread, or nothing to wait with.
    #[error("cannot start the server of metrics: {0}")]
    Start(#[source] io::Error),
}

impl From<slowpath_http::ServerError> for ServerError {
    fn from(error: slowpath_http::ServerError) -> Self {
        match error {
            slowpath_http::ServerError::Listen { address, source } => {
                ServerError::Listen { address, source }
            }
            slowpath_http::ServerError::Start(source) => ServerError::Start(source),
        }
    }
}

/// A server, until it is dropped.
#[derive(Debug)]
pub struct Server {
    server: slowpath_http::Server,
}

impl Server {
    /// Serves what is on the board. States older than `interval` says are no sign of
    /// health: three times that, at least a minute.
    ///
    /// # Errors
    /// See [`ServerError`].
    pub fn start(
        address: SocketAddr,
        board: Arc<Board>,
        interval: Duration,
    ) -> Result<Self, ServerError> {
        let limits = Limits {
            clients: MAX_CLIENTS,
            accepted_a_second: MAX_RATE,
            head_bytes: MAX_REQUEST,
            headers: MAX_HEADERS,
            patience: PATIENCE,
        };
        let router = routes::router(Pages::new(board.clone(), interval));
        let server = slowpath_http::Server::start(
            "metrics",
            address,
            limits,
            router,
            Arc::new(Counting(board)),
        )?;
        Ok(Server { server })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }
}

/// Counts what the routes never get to know of.
struct Counting(Arc<Board>);

impl Events for Counting {
    fn refused(&self, status: u16) {
        if let Some(status) = Status::ALL.into_iter().find(|s| s.code() == status) {
            self.0.http.answered(status);
        }
    }

    fn dropped(&self) {
        self.0.http.dropped_one();
    }
}
