// SPDX-License-Identifier: Apache-2.0
//! The operator's commands, over `DIR/admin.sock`: one line of JSON, one line of JSON.
//!
//! Who may: the file is its owner's only (0600), and the process at the other end must be root's or
//! the same user's (unix(7), SO_PEERCRED).

use serde::{Deserialize, Serialize};
use slowpath_ship::identity::HostName;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// The most bytes of a command; an answer may be the status of a large fleet.
const MOST_COMMAND: u64 = 64 << 10;
const MOST_ANSWER: u64 = 256 << 20;
/// How long either end waits for the other.
const PATIENCE: Duration = Duration::from_secs(30);

/// What an operator asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "kebab-case")]
pub enum Command {
    /// A token for this host.
    Invite {
        /// Its name.
        host: String,
    },
    /// This host's certificates no longer count.
    Revoke {
        /// Its name.
        host: String,
    },
    /// The next CA.
    Roll {
        /// It signs at once, though there may be hosts that do not have it.
        now: bool,
    },
    /// How the fleet is doing.
    Status,
}

/// What comes back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// What was asked for, or was done.
    Done(String),
    /// Why not.
    Refused(String),
}

/// Carries out commands.
pub trait Operator: Send + Sync + 'static {
    /// Carries one out.
    ///
    /// # Errors
    /// Why it cannot.
    fn carry_out(&self, command: Command) -> Result<String, String>;
}

/// The socket of a server, until it is dropped.
#[derive(Debug)]
pub struct AdminSocket {
    path: PathBuf,
    listener: Arc<UnixListener>,
    stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Where the socket is in a state directory.
pub fn socket_path(directory: &Path) -> PathBuf {
    directory.join("admin.sock")
}

impl AdminSocket {
    /// Listens in a state directory whose lock the caller has: what is left of an earlier server
    /// makes room.
    ///
    /// # Errors
    /// The socket cannot be made.
    pub fn start(directory: &Path, operator: Arc<dyn Operator>) -> io::Result<Self> {
        let path = socket_path(directory);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        // The directory is its owner's only, so no one else connects before the mode is set.
        let listener = Arc::new(UnixListener::bind(&path)?);
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600))?;
        let stopped = Arc::new(AtomicBool::new(false));
        let of_thread = (listener.clone(), stopped.clone());
        let thread = thread::Builder::new()
            .name("admin".to_owned())
            .spawn(move || listen(&of_thread.0, &of_thread.1, &*operator))?;
        Ok(AdminSocket {
            path,
            listener,
            stopped,
            thread: Some(thread),
        })
    }
}

impl Drop for AdminSocket {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::SeqCst);
        // It wakes the thread with EINVAL (unix_accept in Linux), whatever became of the file.
        let _ = rustix::net::shutdown(&*self.listener, rustix::net::Shutdown::Both);
        let _ = std::fs::remove_file(&self.path);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// One after the other: commands are few, and each is over soon.
fn listen(listener: &UnixListener, stopped: &AtomicBool, operator: &dyn Operator) {
    for stream in listener.incoming() {
        if stopped.load(Ordering::SeqCst) {
            return;
        }
        match stream {
            // Whoever asks and goes away is not reported.
            Ok(stream) => drop(answer(&stream, operator)),
            Err(_) => thread::sleep(Duration::from_millis(100)),
        }
    }
}

fn answer(mut stream: &UnixStream, operator: &dyn Operator) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let peer = rustix::net::sockopt::socket_peercred(stream)?;
    let is_allowed = peer.uid.is_root() || peer.uid == rustix::process::geteuid();
    let mut line = String::new();
    BufReader::new(stream.take(MOST_COMMAND)).read_line(&mut line)?;
    if line.is_empty() {
        return Ok(());
    }
    let answer = if is_allowed {
        match serde_json::from_str(&line) {
            Ok(command) => match operator.carry_out(command) {
                Ok(text) => Answer::Done(text),
                Err(text) => Answer::Refused(text),
            },
            Err(error) => Answer::Refused(format!("this is no command: {error}")),
        }
    } else {
        Answer::Refused("only root and the server's user may give commands".to_owned())
    };
    let mut text = serde_json::to_vec(&answer)?;
    text.push(b'\n');
    stream.write_all(&text)
}

/// Why a command was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// No server runs in this directory.
    #[error("no server runs in {}", .0.display())]
    NotRunning(PathBuf),
    /// The server cannot be asked.
    #[error("cannot ask the server at {}: {source}", path.display())]
    Connection {
        /// Its socket.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The server refuses.
    #[error("{0}")]
    Refused(String),
}

/// Gives a command to the server of a state directory.
///
/// # Errors
/// See [`AdminError`].
pub fn ask(directory: &Path, command: &Command) -> Result<String, AdminError> {
    let path = socket_path(directory);
    let failed = |source: io::Error| AdminError::Connection {
        path: path.clone(),
        source,
    };
    let stream = UnixStream::connect(&path).map_err(|error| match error.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => {
            AdminError::NotRunning(directory.to_owned())
        }
        _ => failed(error),
    })?;
    let exchange = || -> io::Result<Answer> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut text = serde_json::to_vec(command)?;
        text.push(b'\n');
        (&stream).write_all(&text)?;
        let mut line = String::new();
        BufReader::new((&stream).take(MOST_ANSWER)).read_line(&mut line)?;
        Ok(serde_json::from_str(&line)?)
    };
    match exchange().map_err(failed)? {
        Answer::Done(text) => Ok(text),
        Answer::Refused(text) => Err(AdminError::Refused(text)),
    }
}

/// A host's name as an operator wrote it.
///
/// # Errors
/// What is wrong with it.
pub fn host_name(text: &str) -> Result<HostName, String> {
    text.parse()
        .map_err(|error| format!("{text:?} is no name of a host: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Echo;

    impl Operator for Echo {
        fn carry_out(&self, command: Command) -> Result<String, String> {
            match command {
                Command::Invite { host } => Ok(host),
                _ => Err("not this one".to_owned()),
            }
        }
    }

    #[test]
    fn commands_are_carried_out_one_after_the_other() {
        let folder = tempfile::tempdir().unwrap();
        let invite = Command::Invite {
            host: "web-1".to_owned(),
        };
        let none = ask(folder.path(), &invite).unwrap_err();
        assert!(matches!(none, AdminError::NotRunning(_)));
        let socket = AdminSocket::start(folder.path(), Arc::new(Echo)).unwrap();
        let path = socket_path(folder.path());
        let mode = path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600);
        assert_eq!(ask(folder.path(), &invite).unwrap(), "web-1");
        let refused = ask(folder.path(), &Command::Status).unwrap_err();
        assert_eq!(refused.to_string(), "not this one");
        let mut stream = UnixStream::connect(&path).unwrap();
        stream.write_all(b"nonsense\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert!(text.contains("this is no command"), "{text}");
        // Of a server that was killed.
        drop(socket);
        assert!(!path.exists());
        let again = AdminSocket::start(folder.path(), Arc::new(Echo)).unwrap();
        assert_eq!(ask(folder.path(), &invite).unwrap(), "web-1");
        drop(again);
    }
}
