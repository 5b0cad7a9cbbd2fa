// SPDX-License-Identifier: Apache-2.0
//! The pusher's thread.

use super::{Endpoint, Options, Queue, SecurityError, security};
use crate::catalogue;
use crate::counters::Outcome;
use crate::otlp::{self, Resource, pairs};
use crate::state::Board;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Time that one attempt may take.
const ATTEMPT: Duration = Duration::from_secs(10);

/// Time that the last attempt may take when the agent ends.
const LAST_ATTEMPT: Duration = Duration::from_secs(2);

/// Longest answer that is read, in bytes.
const MAX_ANSWER: u64 = 64 << 10;

/// Why there is no pusher.
#[derive(Debug, thiserror::Error)]
pub enum PusherError {
    /// There is no thread to be had.
    #[error("cannot start pushing metrics: {0}")]
    Thread(#[from] io::Error),
    /// No one can vouch for the collector.
    #[error("cannot push metrics to {endpoint}: {source}")]
    Security {
        /// The collector.
        endpoint: Endpoint,
        /// Why.
        source: SecurityError,
    },
}

/// Pushes what is on the board, until it is dropped; then once more.
#[derive(Debug)]
pub struct Pusher {
    /// Its end stops the thread.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Pusher {
    /// Pushes every `interval`.
    ///
    /// # Errors
    /// There is no thread to be had, or no certificate to verify the collector by.
    pub fn start(
        endpoint: Endpoint,
        options: &Options,
        interval: Duration,
        resource: Resource,
        board: Arc<Board>,
    ) -> Result<Self, PusherError> {
        let (stop, stopped) = channel();
        let mut client = ureq::Agent::config_builder();
        if endpoint.is_secure() {
            let tls = security::configure(options.certificate.as_deref());
            client = client.tls_config(tls.map_err(|source| PusherError::Security {
                endpoint: endpoint.clone(),
                source,
            })?);
        }
        let client: ureq::Agent = client
            .timeout_global(Some(ATTEMPT))
            .http_status_as_error(false)
            // The address is configured: no proxy, no detour.
            .proxy(None)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .user_agent(concat!("slowpath-agent/", env!("CARGO_PKG_VERSION")))
            .build()
            .into();
        let mut worker = Worker {
            client,
            endpoint,
            headers: pairs(&options.headers).collect(),
            gzip: options.gzip,
            interval,
            resource,
            board,
            queue: Queue::default(),
            pushed: None,
            began: Instant::now(),
            random: Random::default(),
        };
        let thread = thread::Builder::new()
            .name("otlp".to_owned())
            .spawn(move || worker.run(&stopped))?;
        Ok(Pusher {
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

impl Drop for Pusher {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            // A panic of that thread has been printed.
            let _ = thread.join();
        }
    }
}

struct Worker {
    client: ureq::Agent,
    endpoint: Endpoint,
    headers: Vec<(String, String)>,
    gzip: bool,
    interval: Duration,
    resource: Resource,
    board: Arc<Board>,
    queue: Queue,
    /// When the state that was taken last had been left on the board.
    pushed: Option<Instant>,
    /// The zero of the queue's clock.
    began: Instant,
    random: Random,
}

impl Worker {
    fn run(&mut self, stopped: &Receiver<()>) {
        // The first one after an interval: until then nothing has happened.
        let mut next = self.interval;
        loop {
            let now = self.began.elapsed();
            let until = self.queue.due().map_or(next, |due| due.min(next));
            match stopped.recv_timeout(until.saturating_sub(now)) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(RecvTimeoutError::Disconnected) => break,
            }
            let now = self.began.elapsed();
            if now >= next {
                // Times that an attempt took too long are passed over.
                while next <= now {
                    next += self.interval;
                }
                self.take();
            }
            if self.queue.next(now).is_some() {
                self.attempt(ATTEMPT);
            }
        }
        self.take();
        let end = Instant::now() + LAST_ATTEMPT;
        while !self.queue.is_empty() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() || !self.attempt(left) {
                break;
            }
        }
    }

    /// Makes a batch of the latest state, if there is one that was not pushed.
    fn take(&mut self) {
        let Some((state, left)) = self.board.latest() else {
            return;
        };
        if self.pushed.replace(left) == Some(left) {
            return;
        }
        let Board { http, push, .. } = &*self.board;
        let families = catalogue::families(&state, http, push);
        let batch = otlp::encode(
            &families,
            &self.resource,
            state.version,
            state.started,
            state.at,
        );
        let dropped = self.queue.push(batch);
        self.board.push.drop_points(dropped);
    }

    /// Tries the oldest batch; whether it is off the queue.
    fn attempt(&mut self, timeout: Duration) -> bool {
        // On the last attempt no pause is kept.
        let Some(batch) = self.queue.next(Duration::MAX) else {
            return false;
        };
        let outcome = self.send(&batch.body, timeout);
        let before = self.queue.len();
        let now = self.began.elapsed();
        let lost = self.queue.done(&outcome, now, self.random.next());
        self.board.push.drop_points(lost);
        self.board.push.count(&outcome);
        self.queue.len() < before
    }

    fn send(&self, body: &[u8], timeout: Duration) -> Outcome {
        let mut request = self
            .client
            .post(self.endpoint.url())
            .config()
            .timeout_global(Some(timeout))
            .build()
            .header("content-type", "application/x-protobuf");
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let compressed = if self.gzip { compressed(body) } else { None };
        if compressed.is_some() {
            request = request.header("content-encoding", "gzip");
        }
        let body = compressed.as_deref().unwrap_or(body);
        let mut answer = match request.send(body) {
            Ok(answer) => answer,
            Err(error) => {
                let reason = format!("pushing to {}: {error}", self.endpoint);
                return Outcome::Later {
                    after: None,
                    reason,
                };
            }
        };
        let status = answer.status().as_u16();
        if answer.status().is_success() {
            let body = answer.body_mut().with_config().limit(MAX_ANSWER);
            let (refused, reason) = otlp::refused(&body.read_to_vec().unwrap_or_default());
            return Outcome::Delivered {
                refused,
                reason: format!("{} refused {refused} points: {reason}", self.endpoint),
            };
        }
        let reason = format!("{} answers with status {status}", self.endpoint);
        match status {
            429 | 502 | 503 | 504 => Outcome::Later {
                after: answer
                    .headers()
                    .get("retry-after")
                    .and_then(|value| value.to_str().ok()?.trim().parse().ok())
                    .map(Duration::from_secs),
                reason,
            },
            _ => Outcome::Refused { reason },
        }
    }
}

/// With gzip's framing (RFC 1952); quick rather than small.
fn compressed(body: &[u8]) -> Option<Vec<u8>> {
    let mut out = GzEncoder::new(Vec::new(), Compression::fast());
    // Writing to memory does not fail.
    out.write_all(body).ok()?;
    out.finish().ok()
}

/// Enough randomness to keep many agents' times different (xorshift64, Marsaglia 2003).
struct Random(u64);

impl Default for Random {
    fn default() -> Self {
        use std::hash::{BuildHasher, RandomState};
        // Not zero, which xorshift would stay at.
        Random(RandomState::new().hash_one(0) | 1)
    }
}

impl Random {
    fn next(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        // 53 bits: as many as a double has.
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }
}
