// SPDX-License-Identifier: Apache-2.0
//! How commands find a network that is up in another process: a socket in the abstract
//! name space, which is gone when its process is.
//!
//! A question is one line, an answer one line of JSON. Root and the network's own user may
//! ask.

use super::error::LabError;
use super::holder::CLONE_NEWTIME;
use super::{Lab, Report, system};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::mpsc::Sender;
use std::time::Duration;

/// All names begin so.
const PREFIX: &str = "slowpath-lab/";
/// The longest name.
const MOST_NAME: usize = 64;
/// The longest line: an answer of the largest network.
const MOST_LINE: u64 = 16 << 20;
/// How long a question may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// A question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// What is up?
    Status,
    /// Go down.
    Down,
}

impl Question {
    fn word(self) -> &'static str {
        match self {
            Question::Status => "status",
            Question::Down => "down",
        }
    }
}

/// A question that waits for its answer.
#[derive(Debug)]
pub struct PendingQuestion {
    /// Which.
    pub question: Question,
    stream: UnixStream,
}

impl PendingQuestion {
    /// Answers it. Whoever asked may have gone.
    pub fn answer(mut self, answer: &impl Serialize) {
        if let Ok(text) = serde_json::to_string(answer) {
            let _ = writeln!(self.stream, "{text}");
        }
    }
}

/// A host of a network that is up.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HostStatus {
    /// Its name.
    pub name: String,
    /// Its address.
    pub ipv4: Ipv4Addr,
    /// Its other address.
    pub ipv6: Ipv6Addr,
    /// Its namespaces, as descriptors of the emulator: network, processes, time.
    pub descriptors: (i32, i32, Option<i32>),
}

/// A router of a network that is up.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RouterStatus {
    /// Its name.
    pub name: String,
    /// Its address.
    pub ipv4: Ipv4Addr,
    /// Its other address.
    pub ipv6: Ipv6Addr,
}

/// A network that is up.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Status {
    /// Its name.
    pub name: String,
    /// The emulator's process.
    pub pid: u32,
    /// Its hosts.
    pub hosts: Vec<HostStatus>,
    /// Its routers.
    pub routers: Vec<RouterStatus>,
    /// What happened so far, as in [`Report`].
    pub report: serde_json::Value,
    /// What makes it untrustworthy.
    pub complaint: Option<String>,
}

impl Status {
    /// Of a network of this process.
    pub fn of(name: &str, lab: &Lab, report: &Report) -> Self {
        let host = |host: &super::Host| HostStatus {
            name: host.name().to_owned(),
            ipv4: host.ipv4(),
            ipv6: host.ipv6(),
            descriptors: host.descriptors(),
        };
        let router = |(name, ipv4, ipv6): (&str, _, _)| RouterStatus {
            name: name.to_owned(),
            ipv4,
            ipv6,
        };
        Status {
            name: name.to_owned(),
            pid: std::process::id(),
            hosts: lab.hosts().iter().map(host).collect(),
            routers: lab.routers().map(router).collect(),
            report: serde_json::to_value(report).unwrap_or_default(),
            complaint: report.complaint(),
        }
    }

    /// Moves this process into a host: its network, and for children its processes and its
    /// clock. Only while it has one thread. Children end with the network.
    ///
    /// # Errors
    /// There is no such host (`NotFound`), or its namespaces cannot be entered.
    pub fn enter(&self, host: &str) -> io::Result<()> {
        let found = self.hosts.iter().find(|known| known.name == host);
        let found = found.ok_or(io::ErrorKind::NotFound)?;
        let open = |fd: i32| File::open(format!("/proc/{}/fd/{fd}", self.pid));
        let (network, processes, time) = found.descriptors;
        if let Some(time) = time {
            system::enter(&open(time)?, CLONE_NEWTIME)?;
        }
        let (network, processes) = (open(network)?, open(processes)?);
        system::enter(&network, libc::CLONE_NEWNET)?;
        system::enter(&processes, libc::CLONE_NEWPID)
    }
}

fn address(name: &str) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("{PREFIX}{name}"))
}

fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    !name.is_empty() && name.len() <= MOST_NAME && name.chars().all(plain)
}

/// Listens for questions to a network of that name and hands them on, on a thread of its own.
///
/// # Errors
/// The name is taken or none, or the system refuses.
pub fn listen<T: From<PendingQuestion> + Send + 'static>(
    name: &str,
    questions: Sender<T>,
) -> Result<(), LabError> {
    if !is_name(name) {
        return Err(LabError::Name(name.to_owned()));
    }
    let bound = address(name).and_then(|address| UnixListener::bind_addr(&address));
    let listener = bound.map_err(|source| match source.kind() {
        io::ErrorKind::AddrInUse => LabError::NameTaken(name.to_owned()),
        _ => LabError::system("listen for commands")(source),
    })?;
    std::thread::Builder::new()
        .name("lab-control".to_owned())
        .spawn(move || {
            for stream in listener.incoming().flatten() {
                // A question that is none, or from someone else, gets no answer.
                if let Some(asked) = question(stream)
                    && questions.send(asked.into()).is_err()
                {
                    return;
                }
            }
        })
        .map_err(LabError::system("listen for commands"))?;
    Ok(())
}

fn question(stream: UnixStream) -> Option<PendingQuestion> {
    if !may_ask(&stream) {
        return None;
    }
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    stream.set_write_timeout(Some(PATIENCE)).ok()?;
    let mut line = String::new();
    BufReader::new((&stream).take(MOST_NAME as u64))
        .read_line(&mut line)
        .ok()?;
    let question = [Question::Status, Question::Down]
        .into_iter()
        .find(|question| question.word() == line.trim())?;
    Some(PendingQuestion { question, stream })
}

/// Root, or the user that this process runs as.
fn may_ask(stream: &UnixStream) -> bool {
    // SAFETY: ucred is plain data for which all zeroes are valid.
    let mut peer: libc::ucred = unsafe { std::mem::zeroed() };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes into the structure.
    let result = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut length,
        )
    };
    // SAFETY: geteuid takes no argument and cannot fail.
    result == 0 && (peer.uid == 0 || peer.uid == unsafe { libc::geteuid() })
}

/// The names of the networks that are up on this machine, sorted.
///
/// # Errors
/// The kernel's list of sockets cannot be read.
pub fn names() -> io::Result<Vec<String>> {
    let text = std::fs::read_to_string("/proc/net/unix")?;
    let marked = format!("@{PREFIX}");
    let mut names: Vec<String> = text
        .lines()
        .filter_map(|line| line.split_ascii_whitespace().last()?.strip_prefix(&marked))
        .filter(|name| is_name(name))
        .map(str::to_owned)
        .collect();
    names.sort_unstable();
    names.dedup();
    Ok(names)
}

/// Asks a network; the answer to both questions is its [`Status`].
///
/// # Errors
/// No network of that name is up, or it does not answer.
pub fn ask(name: &str, question: Question) -> io::Result<Status> {
    let mut stream = UnixStream::connect_addr(&address(name)?)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    writeln!(stream, "{}", question.word())?;
    let mut line = String::new();
    BufReader::new(stream.take(MOST_LINE)).read_line(&mut line)?;
    if line.is_empty() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(serde_json::from_str(&line)?)
}
