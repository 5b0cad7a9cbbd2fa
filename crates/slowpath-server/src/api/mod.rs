// SPDX-License-Identifier: Apache-2.0
//! What agents may ask: the routes of [`slowpath_ship::answers`].

mod batch;
mod body;
mod identity;
mod refused;

use crate::ca::{Ca, Identity};
use crate::clock::Clock;
use crate::door::{Door, DoorError};
use crate::hosts::Hosts;
use crate::intake::Intake;
use crate::journal::Journal;
use crate::refusals::Refusals;
use crate::state::{self, StateError};
use axum::Router;
use axum::body::Body;
use axum::routing::{get, post};
use slowpath_http::sessions::Session;
use slowpath_ship::answers::{self, RefusalKind, ServerState};
use slowpath_ship::batch::Reader;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Semaphore;

pub(crate) use refused::Refused;

/// Bytes of bodies in memory at once, as they travel and decompressed.
pub const BODIES: usize = 256 << 20;

/// Large batches that are read or wait to be flushed at once.
const LARGE_AT_ONCE: usize = 12;

/// What a request carries: who asks.
pub(crate) type Asking = axum::Extension<Session<Arc<Identity>>>;

/// What the routes share with the operator's commands.
pub struct Api {
    pub(crate) ca: Mutex<Ca>,
    pub(crate) door: Arc<Door>,
    pub(crate) hosts: Mutex<Hosts>,
    pub(crate) intake: Arc<dyn Intake>,
    pub(crate) clock: Clock,
    pub(crate) refusals: Arc<Refusals>,
    pub(crate) journal: Arc<dyn Journal>,
    /// The server's id, and what was drawn when it started.
    pub(crate) id: String,
    pub(crate) start: String,
    bodies: Arc<Semaphore>,
    large: Semaphore,
    reader: Mutex<Reader>,
    batches: AtomicU64,
}

impl std::fmt::Debug for Api {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Api").finish_non_exhaustive()
    }
}

/// The parts of an [`Api`].
pub struct Parts {
    /// Who may ship.
    pub ca: Ca,
    /// Who gets in.
    pub door: Arc<Door>,
    /// What is known of hosts.
    pub hosts: Hosts,
    /// Where batches go.
    pub intake: Arc<dyn Intake>,
    /// The time.
    pub clock: Clock,
    /// Who is refused.
    pub refusals: Arc<Refusals>,
    /// Where lines for the operator go.
    pub journal: Arc<dyn Journal>,
    /// The server's id, and what was drawn when it started.
    pub id_and_start: (String, String),
}

impl Api {
    /// Of these parts.
    ///
    /// # Errors
    /// There is no memory to decompress in.
    pub fn new(parts: Parts) -> std::io::Result<Self> {
        let (id, start) = parts.id_and_start;
        Ok(Api {
            ca: Mutex::new(parts.ca),
            door: parts.door,
            hosts: Mutex::new(parts.hosts),
            intake: parts.intake,
            clock: parts.clock,
            refusals: parts.refusals,
            journal: parts.journal,
            id,
            start,
            bodies: Arc::new(Semaphore::new(body::units(BODIES) as usize)),
            large: Semaphore::new(LARGE_AT_ONCE),
            reader: Mutex::new(Reader::new()?),
            batches: AtomicU64::new(0),
        })
    }

    /// The routes.
    pub fn router(self: &Arc<Self>) -> Router {
        Router::new()
            .route(answers::BATCH, post(batch::post))
            .route(answers::SEGMENTS, post(batch::segments))
            .route(answers::CA, get(identity::ca))
            .route(answers::JOIN, post(identity::join))
            .route(answers::RENEW, post(identity::renew))
            .with_state(self.clone())
    }

    /// Batches that were flushed since the start.
    pub fn batches(&self) -> u64 {
        self.batches.load(Ordering::Relaxed)
    }

    /// What is due now: the server's own certificate, the next CA, CAs that are over. Returns
    /// what was done.
    ///
    /// # Errors
    /// The state cannot be kept, or not be used.
    pub fn renew_authorities(&self) -> Result<Vec<&'static str>, UpkeepError> {
        let now = self.clock.now();
        let mut ca = self.ca();
        let mut done = Vec::new();
        if ca.authorities.has_next() {
            let hash = ca.authorities.bundle_hash().to_string();
            if self.hosts().have_bundle(&hash, now) && ca.authorities.switch(now)? {
                done.push(
                    "the next CA signs from now on: every host that was here in 7 days has it",
                );
            }
        }
        if ca.authorities.renew_server(now)? {
            done.push("the server's certificate was renewed");
        }
        if ca.authorities.forget_retired(now)? {
            done.push("a CA is no longer trusted: all that it signed is over");
        }
        if !done.is_empty() {
            self.door.reload(&ca)?;
        }
        Ok(done)
    }

    /// Writes what is known of hosts, if it has changed.
    ///
    /// # Errors
    /// [`StateError::Write`].
    pub fn save_hosts(&self) -> Result<(), StateError> {
        let changes = self.hosts().take_changes();
        match changes {
            Some((path, records)) => state::write_json(&path, &records),
            None => Ok(()),
        }
    }

    pub(crate) fn ca(&self) -> MutexGuard<'_, Ca> {
        // What is in memory follows what is on the disk, also after a panic in between.
        self.ca.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn hosts(&self) -> MutexGuard<'_, Hosts> {
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> ServerState {
        ServerState {
            server: self.id.clone(),
            start: self.start.clone(),
            ca: self.door.bundle().hash.clone(),
        }
    }

    /// What is passed on, or the refusal once the body has been read: who still sends would find
    /// the connection reset, and no answer.
    async fn passed<T>(
        &self,
        result: Result<T, Refused>,
        body: Body,
    ) -> Result<(T, Body), Refused> {
        match result {
            Ok(passed) => Ok((passed, body)),
            Err(refused) => {
                body::discard(body).await;
                Err(refused)
            }
        }
    }

    /// Who asks, if the certificate counts.
    fn identified(&self, asking: &Asking) -> Result<Arc<Identity>, Refused> {
        let Some(peer) = &asking.0.peer else {
            return Err(self.refuse(
                RefusalKind::Certificate,
                "this wants a certificate: 'slowpath agent join' gets one",
            ));
        };
        if self.ca().revocations().is_revoked(peer) {
            return Err(self.refuse(
                RefusalKind::Revoked,
                "the certificate was revoked; 'slowpath server invite HOST' lets the host join anew",
            ));
        }
        Ok(peer.clone())
    }

    /// Who asks, if the certificate counts and holds.
    fn authorised(&self, asking: &Asking) -> Result<Arc<Identity>, Refused> {
        let peer = self.identified(asking)?;
        if peer.expires < self.clock.now() {
            let text = "the certificate has expired; it may renew, and nothing else";
            return Err(self.refuse(RefusalKind::Expired, text));
        }
        Ok(peer)
    }
}

/// Why upkeep failed.
#[derive(Debug, thiserror::Error)]
pub enum UpkeepError {
    /// The state cannot be kept.
    #[error(transparent)]
    State(#[from] StateError),
    /// The state cannot be used.
    #[error(transparent)]
    Door(#[from] DoorError),
}
