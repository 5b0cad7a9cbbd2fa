// SPDX-License-Identifier: Apache-2.0
//! A server that runs: its listeners, its operator, its upkeep.

use crate::admin::{AdminSocket, Command, Operator, host_name};
use crate::api::{Api, Parts};
use crate::ca::{Ca, Identity, Random};
use crate::clock::Clock;
use crate::door::{Door, DoorError};
use crate::hosts::Hosts;
use crate::intake::Intake;
use crate::journal::Journal;
use crate::refusals::Refusals;
use crate::state::{self, StateDirectory, StateError};
use crate::status::{self, HostStatus, Running, Status};
use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use slowpath_http::ServerError;
use slowpath_http::sessions::{SessionLimits, SessionServer, Sessions};
use slowpath_model::WallMicros;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How often what is due is looked for: a revocation that met a handshake under way is done by
/// then.
const UPKEEP: Duration = Duration::from_secs(1);
/// How often certificates are looked at, and hosts are written, in rounds of upkeep.
const ROUNDS: u32 = 30;

/// The limits of `docs/decisions/0044-fleet.md`.
pub const LIMITS: SessionLimits = SessionLimits {
    sessions: 10_000,
    of_one_peer: 4,
    anonymous: 64,
    silent: 1_024,
    handshakes: 256,
    handshake: Duration::from_secs(10),
    crowded_handshake: Duration::from_secs(1),
    head_bytes: 8 << 10,
    headers: 64,
    head: Duration::from_secs(10),
    request: Duration::from_secs(60),
    idle: Duration::from_secs(15 * 60),
    anonymous_idle: Duration::from_secs(10),
};

/// Those of the listener for metrics.
const METRICS_LIMITS: slowpath_http::Limits = slowpath_http::Limits {
    clients: 32,
    accepted_a_second: 100,
    head_bytes: 8 << 10,
    headers: 64,
    patience: Duration::from_secs(10),
};

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Its state.
    #[error(transparent)]
    State(#[from] StateError),
    /// Its certificates.
    #[error(transparent)]
    Door(#[from] DoorError),
    /// A listener.
    #[error(transparent)]
    Listener(#[from] ServerError),
    /// The log.
    #[error("{0}")]
    Intake(String),
    /// The socket for commands.
    #[error("cannot listen on {}: {source}", path.display())]
    Admin {
        /// Where.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A thread, or memory.
    #[error("cannot start: {0}")]
    Start(#[from] io::Error),
}

/// What a server is started with.
pub struct Options {
    /// Where agents connect to.
    pub listen: SocketAddr,
    /// Where `/metrics` and `/healthz` are; `None`: nowhere.
    pub metrics: Option<SocketAddr>,
    /// What clients may take.
    pub limits: SessionLimits,
    /// The time.
    pub clock: Clock,
    /// Random bytes.
    pub random: Random,
    /// Where lines for the operator go.
    pub journal: Arc<dyn Journal>,
}

/// A server, until it is dropped.
pub struct Server {
    // In the order in which they end.
    admin: AdminSocket,
    sessions: SessionServer<Arc<Identity>>,
    metrics: Option<slowpath_http::Server>,
    upkeep: Upkeep,
    overseer: Arc<Overseer>,
    _directory: Arc<StateDirectory>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").finish_non_exhaustive()
    }
}

/// What the operator's commands, the metrics and upkeep share.
struct Overseer {
    api: Arc<Api>,
    directory: PathBuf,
    since: WallMicros,
    sessions: OnceLock<Sessions<Arc<Identity>>>,
}

impl Server {
    /// Starts the server of a state directory; batches go to the intake.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn start(
        directory: Arc<StateDirectory>,
        intake: Arc<dyn Intake>,
        mut options: Options,
    ) -> Result<Self, StartError> {
        let path = directory.path().to_owned();
        let mut start = [0; 8];
        (options.random)(&mut start);
        let id = server_id(&path, &mut options.random)?;
        let ca = Ca::load(&directory, options.random)?;
        let refusals = Arc::new(Refusals::default());
        let door = Arc::new(Door::new(&ca, options.clock.clone(), refusals.clone())?);
        let since = options.clock.now();
        let api = Arc::new(Api::new(Parts {
            ca,
            door: door.clone(),
            hosts: Hosts::load(&path)?,
            intake,
            clock: options.clock,
            refusals: refusals.clone(),
            journal: options.journal,
            id_and_start: (id, hex(&start)),
        })?);
        let served = (
            api.router(),
            refusals.clone() as Arc<dyn slowpath_http::Events>,
        );
        let sessions = SessionServer::start("fleet", options.listen, options.limits, door, served)?;
        let overseer = Arc::new(Overseer {
            api,
            directory: path.clone(),
            since,
            sessions: OnceLock::from(sessions.sessions()),
        });
        let metrics = match options.metrics {
            Some(address) => Some(serve_metrics(address, &overseer, refusals)?),
            None => None,
        };
        let upkeep = Upkeep::start(overseer.clone())?;
        let admin = AdminSocket::start(&path, overseer.clone());
        let admin = admin.map_err(|source| StartError::Admin {
            path: crate::admin::socket_path(&path),
            source,
        })?;
        Ok(Server {
            admin,
            sessions,
            metrics,
            upkeep,
            overseer,
            _directory: directory,
        })
    }

    /// Where agents connect to.
    pub fn address(&self) -> SocketAddr {
        self.sessions.address()
    }

    /// Where `/metrics` and `/healthz` are.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics.as_ref().map(slowpath_http::Server::address)
    }

    /// How the fleet is doing.
    pub fn status(&self) -> Status {
        self.overseer.status()
    }

    /// The counts of who was refused.
    pub fn refusals(&self) -> &Refusals {
        &self.overseer.api.refusals
    }

    /// Ends it, with what is known of hosts on the disk.
    ///
    /// # Errors
    /// [`StateError::Write`].
    pub fn stop(self) -> Result<(), StateError> {
        let Server {
            admin,
            sessions,
            metrics,
            upkeep,
            overseer,
            _directory,
        } = self;
        drop((admin, sessions, metrics, upkeep));
        overseer.api.save_hosts()
    }
}

/// What the server is called in names of files; drawn once.
///
/// # Errors
/// The state cannot be read or written.
pub fn server_id(directory: &Path, random: &mut Random) -> Result<String, StateError> {
    let path = directory.join("server.json");
    if let Some(id) = state::read_json::<String>(&path)? {
        return Ok(id);
    }
    let mut id = [0; 4];
    random(&mut id);
    let id = hex(&id);
    state::write_json(&path, &id)?;
    Ok(id)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn serve_metrics(
    address: SocketAddr,
    overseer: &Arc<Overseer>,
    refusals: Arc<Refusals>,
) -> Result<slowpath_http::Server, ServerError> {
    let of_metrics = overseer.clone();
    let of_health = overseer.clone();
    let router = Router::new()
        .route(
            "/metrics",
            get(move || {
                let text = of_metrics.status().metrics();
                async move { ([("content-type", "text/plain; version=0.0.4")], text) }
            }),
        )
        .route(
            "/healthz",
            get(move || {
                let health = of_health.health();
                async move { health }
            }),
        );
    slowpath_http::Server::start("metrics", address, METRICS_LIMITS, router, refusals)
}

impl Overseer {
    fn status(&self) -> Status {
        let api = &self.api;
        let now = api.clock.now();
        let ca = api.ca();
        let names = ca.authorities.names().to_vec();
        let certificate_expires_us = ca.authorities.server_expires().0;
        let next_ca = ca.authorities.has_next();
        drop(ca);
        let refused = api.refusals.counts();
        let refused = refused.map(|(reason, count)| (reason.to_owned(), count));
        let running = Running {
            since_us: self.since.0,
            sessions: self.sessions.get().map_or(0, Sessions::peers),
            batches: api.batches(),
            intake: api.intake.counts(),
            store: api.intake.store(),
            refused: refused.collect(),
        };
        let hosts = api.hosts();
        let all = hosts.records().iter();
        Status {
            server: api.id.clone(),
            names,
            now_us: now.0,
            certificate_expires_us,
            next_ca,
            running: Some(running),
            disk: status::disk(&self.directory).ok(),
            hosts: all
                .map(|(name, record)| (name.clone(), HostStatus::of(record, now)))
                .collect(),
        }
    }

    /// Whether the disk can still be written, by what is known of it.
    fn health(&self) -> (StatusCode, String) {
        match status::disk(&self.directory) {
            Ok(disk) if disk.free_bytes == 0 => {
                let text = "the disk is full\n".to_owned();
                (StatusCode::SERVICE_UNAVAILABLE, text)
            }
            Ok(_) => (StatusCode::OK, "ok\n".to_owned()),
            Err(error) => {
                let text = format!("the state directory cannot be reached: {error}\n");
                (StatusCode::SERVICE_UNAVAILABLE, text)
            }
        }
    }

    /// Closes what revoked hosts have open. Returns how many connections.
    fn close_revoked(&self) -> usize {
        let revocations = self.api.ca().revocations();
        let sessions = self.sessions.get();
        sessions.map_or(0, |all| {
            all.close_where(|peer| revocations.is_revoked(peer))
        })
    }

    fn roll(&self, at_once: bool) -> Result<String, String> {
        let now = self.api.clock.now();
        let mut ca = self.api.ca();
        let made = ca.authorities.roll(now);
        let made = made.map_err(|error| error.to_string())?;
        if at_once {
            let switched = ca.authorities.switch(now);
            switched.map_err(|error| error.to_string())?;
        }
        let reloaded = self.api.door.reload(&ca);
        reloaded.map_err(|error| error.to_string())?;
        Ok(rolled_text(made, at_once).to_owned())
    }
}

/// What a roll of the CA has done.
pub(crate) fn rolled_text(made: bool, at_once: bool) -> &'static str {
    match (made, at_once) {
        (_, true) => {
            "the next CA signs from now on; hosts that do not have it yet fetch it when they \
             connect by a connection that is still open, others have to be invited anew"
        }
        (true, false) => {
            "there is a next CA; it signs once every host that was here in 7 days has it, and the \
             old one is trusted until all that it signed is over"
        }
        (false, false) => "the next CA is there already, and waits until every host has it",
    }
}

impl Operator for Overseer {
    fn carry_out(&self, command: Command) -> Result<String, String> {
        let now = self.api.clock.now();
        match command {
            Command::Invite { host } => {
                let host = host_name(&host)?;
                let token = self.api.ca().invite(host, now);
                token.map(|it| it.to_string()).map_err(|e| e.to_string())
            }
            Command::Revoke { host } => {
                let host = host_name(&host)?;
                let revocations = self.api.ca().revocations();
                let revoked = revocations.revoke(&host, now);
                revoked.map_err(|error| error.to_string())?;
                let closed = self.close_revoked();
                self.api.journal.say(&format!("{host} was revoked"));
                Ok(format!(
                    "{host} was revoked, and {} closed",
                    slowpath_text::plural(closed as u64, "connection")
                ))
            }
            Command::Roll { now } => self.roll(now),
            Command::Status => {
                serde_json::to_string(&self.status()).map_err(|error| error.to_string())
            }
        }
    }
}

/// The thread that does what is due.
struct Upkeep {
    /// Its end stops the thread.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Upkeep {
    fn start(overseer: Arc<Overseer>) -> io::Result<Self> {
        let (stop, stopped) = channel::<()>();
        let thread = thread::Builder::new()
            .name("upkeep".to_owned())
            .spawn(move || {
                let mut round = 0u32;
                while stopped.recv_timeout(UPKEEP) == Err(RecvTimeoutError::Timeout) {
                    overseer.close_revoked();
                    overseer.api.intake.tick(overseer.api.clock.now());
                    round = round.wrapping_add(1);
                    if round.is_multiple_of(ROUNDS) {
                        overseer.upkeep();
                    }
                }
            })?;
        Ok(Upkeep {
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

impl Drop for Upkeep {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            // A panic of that thread has been printed.
            let _ = thread.join();
        }
    }
}

impl Overseer {
    fn upkeep(&self) {
        let journal = &self.api.journal;
        match self.api.renew_authorities() {
            Ok(done) => done.iter().for_each(|line| journal.say(line)),
            Err(error) => journal.warn(&error.to_string()),
        }
        if let Err(error) = self.api.save_hosts() {
            journal.warn(&error.to_string());
        }
    }
}
