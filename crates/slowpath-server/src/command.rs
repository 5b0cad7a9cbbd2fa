// SPDX-License-Identifier: Apache-2.0
//! What `slowpath server` does, without its arguments.
//!
//! Commands go to the server that runs in the directory; where none runs they change its state under
//! its lock.

use crate::admin::{self, AdminError, Command, host_name};
use crate::ca::{Ca, system_random};
use crate::clock::Clock;
use crate::hosts::Hosts;
use crate::journal::Journal;
use crate::log::{FleetLog, Retention};
use crate::objects;
use crate::server::{LIMITS, Options, Server, StartError, rolled_text, server_id};
use crate::state::{StateDirectory, StateError};
use crate::status::{self, HostStatus, Status};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Why a command was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The state.
    #[error(transparent)]
    State(#[from] StateError),
    /// The running server.
    #[error(transparent)]
    Admin(#[from] AdminError),
    /// The server did not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// What was asked for is wrong.
    #[error("{0}")]
    Usage(String),
    /// What the running server answered cannot be read.
    #[error("cannot read what the server answered: {0}; it may be of another version")]
    Answer(#[from] serde_json::Error),
}

/// Where a server keeps its state if nothing else is said: what systemd made for the service
/// (systemd.exec(5), `StateDirectory=`), else `/var/lib/slowpath-server`.
pub fn default_directory() -> PathBuf {
    let made = std::env::var_os("STATE_DIRECTORY").map(PathBuf::from);
    made.filter(|directory| directory.is_absolute())
        .unwrap_or_else(|| PathBuf::from("/var/lib/slowpath-server"))
}

/// What a server is run with.
pub struct RunOptions {
    /// Its state directory.
    pub directory: PathBuf,
    /// Where agents connect to.
    pub listen: SocketAddr,
    /// Where `/metrics` and `/healthz` are.
    pub metrics: SocketAddr,
    /// How much is kept.
    pub retention: Retention,
    /// URL of an object store that gets the tables, too.
    pub store: Option<String>,
    /// The time.
    pub clock: Clock,
    /// Where lines for the operator go.
    pub journal: Arc<dyn Journal>,
}

/// How long a command waits for a process that has the directory and does not answer: a server that
/// starts listens for commands last, one that ends has the directory a little longer.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often it is tried meanwhile.
const AGAIN: Duration = Duration::from_millis(50);

/// File descriptors beside those of sessions: files, other listeners, connections that have no
/// session yet.
const OTHER_FILES: u64 = 500 + (LIMITS.silent + LIMITS.handshakes + LIMITS.anonymous) as u64;

/// Starts the server of a directory, which [`init`] made.
///
/// # Errors
/// See [`CommandError`].
pub fn run(options: RunOptions) -> Result<Server, CommandError> {
    let RunOptions {
        directory,
        listen,
        metrics,
        retention,
        store,
        clock,
        journal,
    } = options;
    let state = Arc::new(existing(&directory)?);
    let files = raise_file_limit();
    let mut limits = LIMITS;
    if let Ok(sessions) = usize::try_from(files.saturating_sub(OTHER_FILES)) {
        limits.sessions = limits.sessions.min(sessions.max(16));
    }
    if limits.sessions < LIMITS.sessions {
        journal.warn(&format!(
            "only {} hosts can connect at once: the limit of open files is {files} \
             (LimitNOFILE= of the unit, ulimit -n)",
            limits.sessions
        ));
    }
    let id = server_id(&directory, &mut system_random())?;
    let shared = (clock.clone(), journal.clone());
    let store = store.map(|url| objects::open(&url)).transpose();
    let store = store.map_err(|error| CommandError::Usage(format!("--store: {error}")))?;
    let log = FleetLog::open(&directory, &id, retention, store, shared);
    let log = log.map_err(|error| StartError::Intake(error.to_string()))?;
    let options = Options {
        listen,
        metrics: Some(metrics),
        limits,
        clock,
        random: system_random(),
        journal: journal.clone(),
    };
    let server = Server::start(state, Arc::new(log), options)?;
    journal.say(&format!("takes batches at {}", server.address()));
    if let Some(address) = server.metrics_address() {
        journal.say(&format!("metrics at http://{address}/metrics"));
    }
    Ok(server)
}

/// Raises the limit of open files to what is allowed. Returns it.
fn raise_file_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    // Where that is refused, fewer connections are taken.
    let _ = setrlimit(Resource::Nofile, raised);
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Makes a server for these names: DNS names and addresses by which agents reach it. With
/// `if_missing` one that is there already stays as it is.
///
/// # Errors
/// See [`CommandError`].
pub fn init(
    directory: &Path,
    names: &[String],
    if_missing: bool,
    clock: &Clock,
) -> Result<String, CommandError> {
    if if_missing && existing(directory).is_ok() {
        return Ok(format!("there is a server in {}", directory.display()));
    }
    if names.is_empty() {
        let text = "name the server as agents reach it: --name server.example.org";
        return Err(CommandError::Usage(text.to_owned()));
    }
    let state = StateDirectory::open(directory)?;
    let mut random = system_random();
    let ca = Ca::init(&state, names, clock.now(), system_random())?;
    let id = server_id(directory, &mut random)?;
    Ok(format!(
        "server {id} for {} is made in {}; its CA has the fingerprint {}",
        names.join(", "),
        directory.display(),
        ca.authorities.fingerprint()
    ))
}

/// A token that invites a host.
///
/// # Errors
/// See [`CommandError`].
pub fn invite(directory: &Path, host: &str, clock: &Clock) -> Result<String, CommandError> {
    let name = host_name(host).map_err(CommandError::Usage)?;
    let host = host.to_owned();
    asked_or(directory, &Command::Invite { host }, |state| {
        let mut ca = Ca::load(state, system_random())?;
        Ok(ca.invite(name, clock.now())?.to_string())
    })
}

/// Revokes what a host has, and closes its connections.
///
/// # Errors
/// See [`CommandError`].
pub fn revoke(directory: &Path, host: &str, clock: &Clock) -> Result<String, CommandError> {
    let name = host_name(host).map_err(CommandError::Usage)?;
    let command = Command::Revoke {
        host: host.to_owned(),
    };
    asked_or(directory, &command, |state| {
        let ca = Ca::load(state, system_random())?;
        ca.revocations().revoke(&name, clock.now())?;
        Ok(format!("{name} was revoked; no server runs"))
    })
}

/// Makes the next CA; it signs at once if `at_once`.
///
/// # Errors
/// See [`CommandError`].
pub fn roll(directory: &Path, at_once: bool, clock: &Clock) -> Result<String, CommandError> {
    asked_or(directory, &Command::Roll { now: at_once }, |state| {
        let mut ca = Ca::load(state, system_random())?;
        let made = ca.authorities.roll(clock.now())?;
        if at_once {
            ca.authorities.switch(clock.now())?;
        }
        Ok(rolled_text(made, at_once).to_owned())
    })
}

/// How the fleet is doing.
///
/// # Errors
/// See [`CommandError`].
pub fn status(directory: &Path, clock: &Clock) -> Result<Status, CommandError> {
    match asked_or_own(directory, &Command::Status)? {
        Reply::Answer(text) => Ok(serde_json::from_str(&text)?),
        Reply::Own(state) => at_rest(directory, &state, clock),
    }
}

/// What the last server left.
fn at_rest(
    directory: &Path,
    state: &StateDirectory,
    clock: &Clock,
) -> Result<Status, CommandError> {
    let ca = Ca::load(state, system_random())?;
    let now = clock.now();
    let hosts = Hosts::load(directory)?;
    let hosts = hosts.records().iter();
    Ok(Status {
        server: server_id(directory, &mut system_random())?,
        names: ca.authorities.names().to_vec(),
        now_us: now.0,
        certificate_expires_us: ca.authorities.server_expires().0,
        next_ca: ca.authorities.has_next(),
        running: None,
        disk: status::disk(directory).ok(),
        hosts: hosts
            .map(|(name, record)| (name.clone(), HostStatus::of(record, now)))
            .collect(),
    })
}

fn asked_or(
    directory: &Path,
    command: &Command,
    otherwise: impl FnOnce(&StateDirectory) -> Result<String, CommandError>,
) -> Result<String, CommandError> {
    match asked_or_own(directory, command)? {
        Reply::Answer(text) => Ok(text),
        Reply::Own(state) => otherwise(&state),
    }
}

/// Who carries a command out.
enum Reply {
    /// The server that runs did.
    Answer(String),
    /// None runs: the directory is the caller's.
    Own(StateDirectory),
}

/// Asks the server, or takes the directory; waits for a process that has it and does not answer.
fn asked_or_own(directory: &Path, command: &Command) -> Result<Reply, CommandError> {
    let end = Instant::now() + PATIENCE;
    loop {
        match admin::ask(directory, command) {
            Err(AdminError::NotRunning(_)) => {}
            other => return Ok(Reply::Answer(other?)),
        }
        match existing(directory) {
            Err(StateError::Locked { .. }) if Instant::now() < end => sleep(AGAIN),
            state => return Ok(Reply::Own(state?)),
        }
    }
}

/// The directory of a server; none is made.
fn existing(directory: &Path) -> Result<StateDirectory, StateError> {
    if !directory.join("ca").join("ca.json").exists() {
        return Err(StateError::Missing {
            directory: directory.to_owned(),
        });
    }
    StateDirectory::open(directory)
}

#[cfg(test)]
mod tests {
    use super::*;
    use slowpath_ship::identity::Token;

    #[test]
    fn a_command_waits_for_a_process_that_has_the_directory() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("server");
        let clock = Clock::system();
        init(
            &directory,
            &["server.example.org".to_owned()],
            false,
            &clock,
        )
        .unwrap();
        let held = existing(&directory).unwrap();
        let invited = std::thread::scope(|scope| {
            let invited = scope.spawn(|| invite(&directory, "web-1", &clock));
            // Whether it asked before or asks now, it gets the directory.
            drop(held);
            invited.join().unwrap()
        });
        assert!(invited.unwrap().parse::<Token>().is_ok());
    }

    #[test]
    fn commands_work_where_no_server_runs() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("server");
        let clock = Clock::system();
        let missing = invite(&directory, "web-1", &clock).unwrap_err();
        assert!(missing.to_string().contains("slowpath server init"));
        assert!(!directory.exists());
        let nameless = init(&directory, &[], false, &clock).unwrap_err();
        assert!(matches!(nameless, CommandError::Usage(_)));
        let names = ["server.example.org".to_owned()];
        let made = init(&directory, &names, false, &clock).unwrap();
        assert!(init(&directory, &names, false, &clock).is_err());
        init(&directory, &names, true, &clock).unwrap();
        let token: Token = invite(&directory, "web-1", &clock)
            .unwrap()
            .parse()
            .unwrap();
        assert!(made.contains(&token.fingerprint.to_string()), "{made}");
        assert!(invite(&directory, "../web", &clock).is_err());
        revoke(&directory, "web-1", &clock).unwrap();
        assert!(roll(&directory, false, &clock).unwrap().contains("next CA"));
        let status = status(&directory, &clock).unwrap();
        assert_eq!(status.names, names);
        assert!(status.running.is_none() && status.next_ca);
        roll(&directory, true, &clock).unwrap();
    }
}
