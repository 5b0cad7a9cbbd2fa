// SPDX-License-Identifier: Apache-2.0
//! The real peer of a connection, where this host translates its addresses.
//!
//! What enters: a connection's namespace and addresses. What leaves: the peer's address as
//! it is beyond the translation, if conntrack knows that it is another one.
//!
//! # Which tuple is whose
//! An entry of conntrack has two tuples, each the source and destination of a packet when
//! it meets the host, before anything is changed: `original` of the packets of the end
//! that opened the connection, `reply` of the other's. Without translation one is the other
//! reversed. A socket hands its packets to the host with its local address as their source
//! and its remote address as their destination, so one of the two tuples is (local,
//! remote). **The peer's packets are those of the other tuple: the real peer is its
//! source**, and its destination is what the peer takes this end for.
//!
//! | translation, end | socket (local, remote) is | real peer |
//! |---|---|---|
//! | DNAT or redirect, the client | `original` | the reply's source: the server reached |
//! | DNAT or redirect, the server | `reply` | the original's source: the remote itself |
//! | SNAT or masquerade, the client | `original` | the reply's source: the remote itself |
//! | SNAT or masquerade, the server | `reply` | the original's source: the client |
//! | none, either | either | the remote itself |
//!
//! Where the real peer is the remote itself, none is reported.
//!
//! # Which namespace is asked
//! Its own, in which sockets are translated by the hooks `output` and `input`; then, for the
//! addresses that this gave, those in which a host translates for its containers: the one
//! that slowpath runs in and, where slowpath is in a container itself, the first process's
//! ([`Conntrack::with_host`]). So on the host both ends of a published port and of a service have
//! their real peer. Only the own one, if one address is a loopback's: those stay in their
//! namespace. Others on the way (a router in a namespace of its own) are not asked.
//!
//! # What is promised
//! A namespace whose `nf_conntrack_count` is 0 is asked nothing. Nothing is guessed: no entry
//! with exactly the socket's addresses, no real peer; entries in zones other than 0 are
//! not found. At most [`MAX_NAMESPACES`] namespaces are kept open, and let go within
//! [`SEARCHES`] once the name or process by which they were found is gone. Asking needs
//! CAP_NET_ADMIN, other namespaces CAP_SYS_ADMIN (setns). To look whether it may ask it
//! asks once at the start; the kernel then loads `nf_conntrack_netlink` if only
//! `nf_conntrack` is there. Without that it asks nothing and loads nothing.

mod socket;
#[cfg(test)]
mod tests;
pub mod wire;

pub use socket::AskError;

use crate::namespaces;
use rustc_hash::{FxHashMap, FxHashSet};
use rustix::io::Errno;
use slowpath_model::{FourTuple, Micros, MonoNanos};
use socket::ConntrackSocket;
use std::fs::{self, File};
use std::io;
use std::mem;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use thiserror::Error;
use wire::Tuple;

/// Namespaces are looked for this often at most, and so rarely that it takes a
/// four-hundredth of the time; as often is looked whether those that are open are still there.
pub const SEARCHES: Micros = Micros(1_000_000);

/// Namespaces that are kept open, besides the own one.
pub const MAX_NAMESPACES: usize = 1_024;

/// A namespace that was not found, or may not be entered, is looked for again after that.
const FORGET: Micros = Micros(10_000_000);

/// Entries of the thread's namespace; not there while `nf_conntrack` is not loaded.
const COUNT: &str = "/proc/sys/net/netfilter/nf_conntrack_count";

/// Why conntrack cannot be asked.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The number of entries cannot be read.
    #[error("opening {COUNT}: {0}; is the module nf_conntrack loaded?")]
    Count(#[source] io::Error),
    /// No netlink socket for netfilter.
    #[error("opening a netfilter netlink socket: {0}; is CONFIG_NETFILTER_NETLINK in this kernel?")]
    Socket(#[source] io::Error),
    /// The kernel answers no process without the capability.
    #[error("conntrack answers only with CAP_NET_ADMIN")]
    Permission,
    /// The kernel does not know the question.
    #[error(
        "this kernel cannot be asked for connections ({0}); load the module nf_conntrack_netlink"
    )]
    Unsupported(#[source] AskError),
    /// The first question failed otherwise.
    #[error(transparent)]
    Ask(AskError),
}

/// One namespace.
#[derive(Debug)]
struct Namespace {
    count: File,
    socket: ConntrackSocket,
    /// Whether it has entries, as read in this round.
    tracks: Option<bool>,
    /// By which it was found; `None` of the own one and the host's.
    path: Option<PathBuf>,
}

impl Namespace {
    /// Of the calling thread's namespace.
    fn open(path: Option<PathBuf>) -> Result<Self, OpenError> {
        Ok(Namespace {
            count: File::open(COUNT).map_err(OpenError::Count)?,
            socket: ConntrackSocket::open().map_err(OpenError::Socket)?,
            tracks: None,
            path,
        })
    }

    fn tracks(&mut self) -> bool {
        let Namespace { count, tracks, .. } = self;
        *tracks.get_or_insert_with(|| {
            let mut text = [0; 16];
            count
                .read_at(&mut text, 0)
                .is_ok_and(|length| text[..length].iter().any(|b| matches!(b, b'1'..=b'9')))
        })
    }
}

/// What is known of a connection's real peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is another one than the socket's.
    Peer(SocketAddr),
    /// It is the socket's, or conntrack knows nothing of it.
    Same,
    /// The namespace has not been looked for yet: ask again in a later round.
    Later,
}

/// What was done, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Questions to the kernel.
    pub asked: u64,
    /// Those that it did not answer as it should.
    pub failed: u64,
}

/// Conntrack of this namespace and, where they may be entered, of the others.
#[derive(Debug)]
pub struct Conntrack {
    own: u32,
    here: Namespace,
    host: Option<(u32, Namespace)>,
    others: FxHashMap<u32, Namespace>,
    /// Namespaces that the next search is for.
    wanted: FxHashSet<u32>,
    /// Namespaces that a search did not find or could not enter.
    absent: FxHashSet<u32>,
    next_search: MonoNanos,
    next_check: MonoNanos,
    next_forget: MonoNanos,
    now: MonoNanos,
    counts: Counts,
}

impl Conntrack {
    /// Opens conntrack of the calling thread's namespace and asks it something.
    ///
    /// # Errors
    /// See [`OpenError`]; nothing is left behind.
    pub fn open() -> Result<Self, OpenError> {
        let mut here = Namespace::open(None)?;
        let unspecified = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        let nothing = Tuple {
            source: unspecified,
            destination: unspecified,
        };
        here.socket
            .ask(&nothing)
            .map_err(|error| match error.errno() {
                Some(Errno::PERM) => OpenError::Permission,
                // nfnetlink_rcv_msg says EINVAL where nothing answers for conntrack.
                Some(Errno::INVAL | Errno::OPNOTSUPP) => OpenError::Unsupported(error),
                _ => OpenError::Ask(error),
            })?;
        Ok(Conntrack {
            own: fs::metadata("/proc/thread-self/ns/net").map_or(0, |m| m.ino() as u32),
            here,
            host: None,
            others: FxHashMap::default(),
            wanted: FxHashSet::default(),
            absent: FxHashSet::default(),
            next_search: MonoNanos(0),
            next_check: MonoNanos(0),
            next_forget: MonoNanos(0),
            now: MonoNanos(0),
            counts: Counts::default(),
        })
    }

    /// Asks the namespace of that process, too, if it is another one and may be entered.
    pub fn with_host(mut self, process: u32) -> Self {
        let file = File::open(format!("/proc/{process}/ns/net")).ok();
        let inode = file
            .as_ref()
            .and_then(|f| Some(f.metadata().ok()?.ino() as u32));
        if let (Some(file), Some(inode)) = (file, inode.filter(|i| *i != self.own)) {
            let opened = Mutex::new(None);
            namespaces::within(&[file], |_| {
                if let (Ok(mut opened), Ok(namespace)) = (opened.lock(), Namespace::open(None)) {
                    *opened = Some(namespace);
                }
            });
            let namespace = opened.into_inner().ok().flatten();
            self.host = namespace.map(|namespace| (inode, namespace));
        }
        self
    }

    /// A round of questions begins.
    pub fn begin(&mut self, now: MonoNanos) {
        self.now = now;
        self.here.tracks = None;
        if let Some((_, host)) = &mut self.host {
            host.tracks = None;
        }
        if now >= self.next_check {
            self.next_check = now + SEARCHES;
            // An open socket keeps its namespace alive, with all its devices.
            self.others.retain(|inode, namespace| {
                let path = namespace.path.as_deref();
                path.is_some_and(|path| inode_of(path) == Some(*inode))
            });
        }
        if now >= self.next_forget {
            self.next_forget = now + FORGET;
            self.absent.clear();
        }
        for namespace in self.others.values_mut() {
            namespace.tracks = None;
        }
    }

    /// The real peer of the connection with those addresses in that namespace.
    pub fn real_peer(&mut self, netns: u32, socket: &FourTuple) -> Answer {
        let mut beyond = *socket;
        let host = self.host.as_ref().map(|(inode, _)| *inode);
        if netns != self.own && host != Some(netns) {
            if !self.others.contains_key(&netns) && !self.absent.contains(&netns) {
                if self.wanted.len() < MAX_NAMESPACES {
                    self.wanted.insert(netns);
                }
                if self.now < self.next_search {
                    return Answer::Later;
                }
                self.search();
            }
            if let Some(namespace) = self.others.get_mut(&netns) {
                translate(namespace, &mut beyond, &mut self.counts);
            }
            if beyond.local.ip().is_loopback() || beyond.remote.ip().is_loopback() {
                return answer(socket, &beyond);
            }
        }
        if host != Some(netns) {
            translate(&mut self.here, &mut beyond, &mut self.counts);
        }
        let inside = [beyond.local, beyond.remote].map(|end| end.ip().is_loopback());
        if let Some((inode, namespace)) = &mut self.host
            && (*inode == netns || inside == [false; 2])
        {
            translate(namespace, &mut beyond, &mut self.counts);
        }
        answer(socket, &beyond)
    }

    /// What was done since the start.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Namespaces kept open besides the own one.
    pub fn other_namespaces(&self) -> usize {
        self.others.len()
    }

    /// Looks for the namespaces that are wanted.
    fn search(&mut self) {
        let started = crate::monotonic();
        let wanted = mem::take(&mut self.wanted);
        let mut new = Vec::new();
        let mut paths: FxHashMap<u32, PathBuf> = FxHashMap::default();
        for path in namespaces::candidates() {
            let Some(inode) = inode_of(&path) else {
                continue;
            };
            if !wanted.contains(&inode)
                || paths.contains_key(&inode)
                || self.others.len() + paths.len() >= MAX_NAMESPACES
            {
                continue;
            }
            if let Ok(file) = File::open(&path) {
                new.push(file);
                paths.insert(inode, path);
            }
        }
        let found = Mutex::new(Vec::new());
        namespaces::within(&new, |file| {
            let inode = file.metadata().map(|m| m.ino() as u32);
            if let (Ok(inode), Ok(mut found)) = (inode, found.lock())
                && let Some(path) = paths.get(&inode)
                && let Ok(namespace) = Namespace::open(Some(path.clone()))
            {
                found.push((inode, namespace));
            }
        });
        self.others.extend(found.into_inner().unwrap_or_default());
        if self.absent.len() >= MAX_NAMESPACES {
            self.absent.clear();
        }
        let open = &self.others;
        self.absent
            .extend(wanted.into_iter().filter(|w| !open.contains_key(w)));
        let ended = crate::monotonic();
        let rest = Micros(400 * ended.since(started).0);
        self.next_search = ended + rest.max(SEARCHES);
    }
}

fn inode_of(path: &Path) -> Option<u32> {
    fs::metadata(path).ok().map(|m| m.ino() as u32)
}

/// Puts the addresses beyond what the namespace translates into `socket`.
fn translate(namespace: &mut Namespace, socket: &mut FourTuple, counts: &mut Counts) {
    if !namespace.tracks() {
        return;
    }
    counts.asked += 1;
    match namespace.socket.ask(&Tuple::sent_by(socket)) {
        Ok(Some(entry)) => *socket = entry.beyond(socket).unwrap_or(*socket),
        Ok(None) => {}
        Err(_) => counts.failed += 1,
    }
}

fn answer(socket: &FourTuple, beyond: &FourTuple) -> Answer {
    if Tuple::sent_by(socket).destination == beyond.remote {
        Answer::Same
    } else {
        Answer::Peer(beyond.remote)
    }
}
