// SPDX-License-Identifier: Apache-2.0
//! A thread a peer, and the listener for metrics.

use super::board::Board;
use crate::report::PathReport;
use crate::session::PathError;
use crate::socket::{monotonic, sleep_until};
use axum::Router;
use axum::http::header;
use axum::response::IntoResponse;
use axum::routing::get;
use slowpath_http::{Events, Limits, Server, ServerError};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// The longest pause after a failure.
pub const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// The pause after the first failure.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// Stretches of one peer at a time: while one waits for its last packets the next has begun.
const AT_ONCE: usize = 2;

/// How a peer is measured for one stretch. A set flag ends it early.
pub type Measurement = Arc<dyn Fn(&AtomicBool) -> Result<PathReport, PathError> + Send + Sync>;

/// What is started.
pub struct MeshStart {
    /// Each peer's name and how it is measured.
    pub peers: Vec<(String, Measurement)>,
    /// How long a stretch is.
    pub stretch: Duration,
    /// Where metrics are served; `None`: nowhere.
    pub listen: Option<SocketAddr>,
}

/// A mesh that runs, until it is dropped.
pub struct Mesh {
    board: Arc<Board>,
    server: Option<Server>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

/// Clients of the listener that were sent away are not counted.
struct Uncounted;

impl Events for Uncounted {
    fn refused(&self, _: u16) {}
    fn dropped(&self) {}
}

impl Mesh {
    /// Starts the listener and a thread a peer.
    ///
    /// # Errors
    /// The address is not to be had.
    pub fn start(start: MeshStart) -> Result<Self, ServerError> {
        let board = Arc::new(Board::new(
            start.peers.iter().map(|(name, _)| name.as_str()),
        ));
        let server = start
            .listen
            .map(|address| serve(address, &board))
            .transpose()?;
        let stop = Arc::new(AtomicBool::new(false));
        let count = start.peers.len().max(1) as u32;
        let threads = (0..).zip(start.peers).map(|(number, (name, measurement))| {
            let peer = Arc::new(Peer {
                name,
                measurement,
                board: Arc::clone(&board),
                stop: Arc::clone(&stop),
                running: AtomicUsize::new(0),
                failed: AtomicBool::new(false),
            });
            // Not all at the same moment.
            let first = start.stretch.min(Duration::from_secs(10)) * number / count;
            let stretch = start.stretch;
            thread::spawn(move || peer.run(first, stretch))
        });
        Ok(Mesh {
            threads: threads.collect(),
            board,
            server,
            stop,
        })
    }

    /// Where metrics are served.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        self.server.as_ref().map(Server::address)
    }

    /// What is known.
    #[must_use]
    pub fn board(&self) -> &Board {
        &self.board
    }
}

impl Drop for Mesh {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A panic of that thread has been printed.
            let _ = thread.join();
        }
    }
}

fn serve(address: SocketAddr, board: &Arc<Board>) -> Result<Server, ServerError> {
    let limits = Limits {
        clients: 16,
        accepted_a_second: 100,
        head_bytes: 8 << 10,
        headers: 64,
        patience: Duration::from_secs(10),
    };
    let board = Arc::clone(board);
    let metrics = move || {
        let text = board.text();
        let kind = [(
            header::CONTENT_TYPE,
            "text/plain; version=0.0.4; charset=utf-8",
        )];
        async move { (kind, text).into_response() }
    };
    let router = Router::new().route("/metrics", get(metrics));
    Server::start("metrics", address, limits, router, Arc::new(Uncounted))
}

struct Peer {
    name: String,
    measurement: Measurement,
    board: Arc<Board>,
    stop: Arc<AtomicBool>,
    running: AtomicUsize,
    failed: AtomicBool,
}

/// How long to wait after a number of failures in a row.
fn pause(failures: u32) -> Duration {
    let doubled = FIRST_PAUSE.saturating_mul(1 << failures.saturating_sub(1).min(16));
    doubled.min(LONGEST_PAUSE)
}

fn nanos(length: Duration) -> i64 {
    i64::try_from(length.as_nanos()).unwrap_or(i64::MAX)
}

impl Peer {
    fn run(self: &Arc<Self>, first: Duration, stretch: Duration) {
        let mut due = monotonic() + nanos(first);
        let mut failures = 0u32;
        let mut threads: Vec<JoinHandle<()>> = Vec::new();
        while sleep_until(due, &self.stop) {
            threads.retain(|thread| !thread.is_finished());
            if self.failed.swap(false, Ordering::AcqRel) {
                failures += 1;
            } else if failures > 0 && self.running.load(Ordering::Acquire) == 0 {
                failures = 0;
            }
            let busy = self.running.load(Ordering::Acquire);
            // After a failure one at a time.
            if busy < AT_ONCE && (failures == 0 || busy == 0) {
                self.running.fetch_add(1, Ordering::AcqRel);
                let peer = Arc::clone(self);
                threads.push(thread::spawn(move || peer.stretch()));
            }
            let now = monotonic();
            due = match failures {
                // A host that was asleep does not catch up.
                0 => (due + nanos(stretch)).max(now),
                failures => now + nanos(pause(failures).max(stretch.min(FIRST_PAUSE))),
            };
        }
        for thread in threads {
            let _ = thread.join();
        }
    }

    fn stretch(&self) {
        match (self.measurement)(&self.stop) {
            Ok(report) => {
                let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
                let at = now.map_or(0.0, |since| since.as_secs_f64());
                self.board.measured(&self.name, &report, at);
            }
            // A signal is no failure of the peer.
            Err(PathError::Interrupted) => {}
            Err(_) if self.stop.load(Ordering::Relaxed) => {}
            Err(error) => {
                eprintln!("slowpath: {}: {error}", self.name);
                self.board.failed(&self.name);
                self.failed.store(true, Ordering::Release);
            }
        }
        self.running.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_five_minutes() {
        let seconds: Vec<u64> = (1..=10).map(|n| pause(n).as_secs()).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300]);
        assert_eq!(pause(u32::MAX), LONGEST_PAUSE);
    }
}
