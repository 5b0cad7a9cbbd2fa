// SPDX-License-Identifier: Apache-2.0
//! Shipping as one thread of the agent, which runs only if a server was joined.

mod report;
mod turn;

pub use report::{ShipStatus, StopReason};

use crate::client::{ServerAddress, ServerChoice};
use crate::keys::{Identity, KeyError};
use crate::queue::Queue;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use turn::Ship;

/// `ship-limit` unless stated, bytes: more than 24 h of 150 connections
/// (`docs/decisions/0044-fleet.md`).
pub const DEFAULT_LIMIT: u64 = 64 << 20;
/// `ship-interval` unless stated.
pub const DEFAULT_INTERVAL: Duration = Duration::from_secs(5);

/// What is shipped, and where to.
#[derive(Clone, Debug)]
pub struct ShipperOptions {
    /// The log's directory; its writer has [`slowpath_store::Options::ship`] set.
    pub log: PathBuf,
    /// The directory of this host's identity.
    pub identity: PathBuf,
    /// The server, if it is no longer where it was joined.
    pub server: Option<ServerAddress>,
    /// The most bytes that wait in `LOG/ship`.
    pub limit: u64,
    /// How often what is new is sent; drawn ± 50 %.
    pub interval: Duration,
}

/// What an agent's settings say of shipping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShipSelection {
    /// Which server.
    pub server: ServerChoice,
    /// The directory of this host's identity; `None`: there is none.
    pub state: Option<PathBuf>,
    /// The most bytes that wait in `LOG/ship`.
    pub limit: u64,
    /// How often what is new is sent.
    pub interval: Duration,
}

impl ShipSelection {
    /// What is to be shipped of the log in `log`: `None` unless there is a log, and a server was
    /// joined.
    ///
    /// # Errors
    /// The identity cannot be read.
    pub fn options(&self, log: Option<&Path>) -> Result<Option<ShipperOptions>, KeyError> {
        let (Some(log), Some(identity)) = (log, &self.state) else {
            return Ok(None);
        };
        if self.server == ServerChoice::None || !Identity::exists(identity) {
            return Ok(None);
        }
        Identity::read(identity)?;
        Ok(Some(ShipperOptions {
            log: log.to_owned(),
            identity: identity.clone(),
            server: match &self.server {
                ServerChoice::At(address) => Some(address.clone()),
                ServerChoice::Joined | ServerChoice::None => None,
            },
            limit: self.limit,
            interval: self.interval,
        }))
    }
}

/// The identity's directory unless one is named: beside what is shipped.
pub fn identity_of(log: &Path) -> PathBuf {
    log.join("identity")
}

/// Why shipping does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// There is no usable identity.
    #[error("cannot ship the log: {0}")]
    Identity(#[from] KeyError),
    /// The queue cannot be read.
    #[error("cannot read what waits to be shipped in {}: {source}", log.display())]
    Queue {
        /// The log's directory.
        log: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// There is no thread, no memory, or no randomness.
    #[error("cannot start the thread that ships the log: {0}")]
    System(io::Error),
}

/// How urgent a line of the journal is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// Something that an administrator may want to know.
    Notice,
    /// Something that an administrator may want to mend.
    Warning,
}

/// Takes lines for the journal.
pub type Journal = Box<dyn FnMut(Urgency, &str) + Send>;

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<SharedState>,
    wake: Condvar,
}

#[derive(Debug, Default)]
struct SharedState {
    stop: bool,
    status: ShipStatus,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, SharedState> {
        // A thread that panicked left a status behind, not a broken invariant.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Knows how shipping fares.
#[derive(Clone, Debug)]
pub struct ShipWatch(Arc<Shared>);

impl ShipWatch {
    /// How shipping fares.
    pub fn status(&self) -> ShipStatus {
        self.0.lock().status.clone()
    }
}

/// The thread that ships.
#[derive(Debug)]
pub struct Shipper {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Shipper {
    /// Starts to ship; `journal` gets a line when that begins to fail, goes on failing for an hour,
    /// and works again.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn start(options: ShipperOptions, journal: Journal) -> Result<Self, StartError> {
        let identity = Identity::read(&options.identity)?;
        let queue =
            Queue::open(&options.log, options.limit).map_err(|source| StartError::Queue {
                log: options.log.clone(),
                source,
            })?;
        let ship = Ship::new(options, identity, queue, journal).map_err(StartError::System)?;
        let shared = Arc::new(Shared::default());
        shared.lock().status = ship.status();
        let of_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("ship".to_owned())
            .spawn(move || run(ship, &of_thread))
            .map_err(StartError::System)?;
        Ok(Shipper {
            shared,
            thread: Some(thread),
        })
    }

    /// How shipping fares.
    pub fn status(&self) -> ShipStatus {
        self.shared.lock().status.clone()
    }

    /// How shipping fares, for whoever outlives the shipper.
    pub fn watch(&self) -> ShipWatch {
        ShipWatch(Arc::clone(&self.shared))
    }

    /// Sends what is there as far as one more turn of each kind goes, at most for as long as a
    /// request takes, and ends.
    pub fn stop(mut self) -> ShipStatus {
        self.end();
        self.status()
    }

    fn end(&mut self) {
        self.shared.lock().stop = true;
        self.shared.wake.notify_all();
        if let Some(thread) = self.thread.take() {
            // Its panic was reported by the hook.
            let _ = thread.join();
        }
    }
}

impl Drop for Shipper {
    fn drop(&mut self) {
        self.end();
    }
}

/// How often `ship/status` is written.
const STATUS_EVERY: Duration = Duration::from_secs(10);

fn run(mut ship: Ship, shared: &Shared) {
    let began = Instant::now();
    let mut written: Option<Instant> = None;
    loop {
        let wait = ship.turn(began.elapsed());
        let status = ship.status();
        if written.is_none_or(|written| written.elapsed() >= STATUS_EVERY) {
            written = Some(Instant::now());
            ship.write(&status);
        }
        let mut state = shared.lock();
        state.status = status;
        if state.stop {
            break;
        }
        if !wait.is_zero() {
            let waited = shared
                .wake
                .wait_timeout_while(state, wait, |state| !state.stop);
            let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
            if state.stop {
                break;
            }
        }
    }
    ship.last_turn(began.elapsed());
    let status = ship.status();
    ship.write(&status);
    shared.lock().status = status;
}
