// SPDX-License-Identifier: Apache-2.0
//! Listening sockets, whichever tier reads them, and what their namespaces count
//! (`/proc/net/netstat`).
//!
//! A namespace's counters of listening move only while something listens in it. So they
//! are read once where a namespace is met, and then only in rounds in which one of its
//! listeners shows something.

use crate::namespaces::{self, Namespaces};
use slowpath_model::{ListenCounters, ListenSettings, ListenerSnapshot};
use std::collections::HashMap;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// One listener, observed once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerSighting {
    /// What was observed.
    pub snapshot: ListenerSnapshot,
    /// Its namespace's settings.
    pub settings: ListenSettings,
    /// What it had dropped when the observer first met it; `None` where this sighting is the
    /// first.
    pub first_drops: Option<u64>,
    /// The namespace's cookie (`net->net_cookie`, Linux 5.12), which distinguishes namespaces
    /// with the same inode number; 0 where it is not known.
    pub netns_cookie: u64,
    /// Inode number of the socket, where owners are found by it.
    pub inode: Option<u32>,
}

/// What one round over the listeners found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListenerRound {
    /// Listeners that have something to show, or all of them.
    pub sightings: Vec<ListenerSighting>,
    /// Whether these are all that live.
    pub complete: bool,
    /// Listeners for which no storage or room was to be had, since the start.
    pub dropped: u64,
}

/// The counters in the text of `/proc/net/netstat`: pairs of lines, names and numbers.
pub fn parse_netstat(text: &str) -> ListenCounters {
    let mut counters = ListenCounters::default();
    let mut lines = text.lines();
    while let (Some(names), Some(values)) = (lines.next(), lines.next()) {
        let (Some(names), Some(values)) = (
            names.strip_prefix("TcpExt:"),
            values.strip_prefix("TcpExt:"),
        ) else {
            continue;
        };
        for (name, value) in names.split_whitespace().zip(values.split_whitespace()) {
            let place = match name {
                "ListenOverflows" => &mut counters.overflows,
                "ListenDrops" => &mut counters.drops,
                "TCPReqQFullDrop" => &mut counters.queue_full_drops,
                "TCPReqQFullDoCookies" => &mut counters.queue_full_cookies,
                "SyncookiesSent" => &mut counters.cookies_sent,
                _ => continue,
            };
            *place = value.parse().ok();
        }
    }
    counters
}

fn read(path: &Path) -> Option<ListenCounters> {
    Some(parse_netstat(&fs::read_to_string(path).ok()?))
}

/// `/proc/net/netstat` of the thread that calls.
const OWN: &str = "/proc/thread-self/net/netstat";

/// The counters of the calling thread's namespace.
pub fn own_counters() -> Option<ListenCounters> {
    read(Path::new(OWN))
}

/// A namespace's counters, kept open: it can be read from anywhere, and keeps its
/// namespace alive.
#[derive(Debug)]
pub(crate) struct OpenNetstat(File);

impl OpenNetstat {
    /// Of the calling thread's namespace.
    pub(crate) fn open() -> Option<Self> {
        File::open(OWN).ok().map(OpenNetstat)
    }

    /// The counters now.
    pub(crate) fn read(&self) -> Option<ListenCounters> {
        // Some 4 KiB of names and numbers; the file grows with the kernel.
        let mut text = vec![0; 32 * 1024];
        let mut length = 0;
        loop {
            match self.0.read_at(text.get_mut(length..)?, length as u64) {
                Ok(0) => break,
                Ok(n) => length += n,
                Err(_) => return None,
            }
        }
        Some(parse_netstat(std::str::from_utf8(&text[..length]).ok()?))
    }
}

/// The cookie of the calling thread's namespace; 0 if the kernel gives none.
fn own_cookie() -> u64 {
    const SO_NETNS_COOKIE: libc::c_int = 71;
    let Ok(socket) = rustix::net::socket(
        rustix::net::AddressFamily::INET,
        rustix::net::SocketType::DGRAM,
        None,
    ) else {
        return 0;
    };
    let mut cookie = 0u64;
    let mut length = size_of::<u64>() as libc::socklen_t;
    // SAFETY: `cookie` has room for the `length` bytes that the call writes.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_NETNS_COOKIE,
            (&raw mut cookie).cast(),
            &mut length,
        )
    };
    if result == 0 { cookie } else { 0 }
}

/// The settings of the calling thread's namespace.
pub fn own_settings() -> ListenSettings {
    let number = |path: &str| {
        let text = fs::read_to_string(Path::new("/proc/sys/net").join(path)).ok()?;
        text.trim().parse::<u32>().ok()
    };
    ListenSettings {
        somaxconn: number("core/somaxconn"),
        max_syn_backlog: number("ipv4/tcp_max_syn_backlog"),
        syncookies: number("ipv4/tcp_syncookies"),
        abort_on_overflow: number("ipv4/tcp_abort_on_overflow").map(|n| n != 0),
    }
}

/// Reads the counters of namespaces by their inode numbers, and remembers how it got there.
#[derive(Debug, Default)]
pub struct Netstats {
    paths: HashMap<u32, PathBuf>,
}

/// Ways to namespaces that are remembered; beyond, they are looked for each time.
const MAX_PATHS: usize = 4_096;

impl Netstats {
    /// The counters of those namespaces, as far as they can be reached now, by inode number and
    /// cookie.
    pub fn of(wanted: Namespaces) -> HashMap<(u32, u64), ListenCounters> {
        let found = Mutex::new(HashMap::new());
        let read = || {
            let inode = fs::metadata("/proc/thread-self/ns/net").map(|m| m.ino() as u32);
            if let (Ok(inode), Some(counters), Ok(mut found)) =
                (inode, own_counters(), found.lock())
            {
                found.insert((inode, own_cookie()), counters);
            }
        };
        match wanted {
            Namespaces::Own => read(),
            Namespaces::All => {
                namespaces::in_each(read);
            }
        }
        found.into_inner().unwrap_or_default()
    }

    /// The counters of the namespace with that inode number; `pid` is a process that may be
    /// in it. `None` if no way leads there.
    pub fn counters(&mut self, netns: u32, pid: Option<u32>) -> Option<ListenCounters> {
        let known = self.paths.get(&netns).cloned();
        let hint = pid.map(|pid| PathBuf::from(format!("/proc/{pid}/ns/net")));
        let way = [known, hint]
            .into_iter()
            .flatten()
            .find(|path| leads_to(path, netns))
            .or_else(|| namespaces::candidates().find(|path| leads_to(path, netns)))?;
        if self.paths.len() < MAX_PATHS || self.paths.contains_key(&netns) {
            self.paths.insert(netns, way.clone());
        }
        match way.strip_prefix("/proc") {
            // `/proc/PID/net` is the process's namespace.
            Ok(_) => read(&way.parent()?.parent()?.join("net/netstat")),
            Err(_) => entered(&way),
        }
    }

    /// Forgets the way to a namespace.
    pub fn forget(&mut self, netns: u32) {
        self.paths.remove(&netns);
    }
}

fn leads_to(path: &Path, netns: u32) -> bool {
    fs::metadata(path).is_ok_and(|m| m.ino() as u32 == netns)
}

/// The counters of a namespace that only a name keeps alive: read from inside, on a thread
/// that ends there.
fn entered(path: &Path) -> Option<ListenCounters> {
    let namespace = File::open(path).ok()?;
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            // SAFETY: changes only this thread's namespace; the thread ends here.
            let entered = unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) };
            (entered == 0).then(own_counters).flatten()
        });
        reader.join().ok().flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_by_name() {
        let text = "TcpExt: SyncookiesSent ListenOverflows ListenDrops TCPReqQFullDoCookies TCPReqQFullDrop\n\
                    TcpExt: 7 3 5 9 2\n\
                    IpExt: InNoRoutes ListenDrops\n\
                    IpExt: 0 77\n";
        assert_eq!(
            parse_netstat(text),
            ListenCounters {
                overflows: Some(3),
                drops: Some(5),
                queue_full_drops: Some(2),
                queue_full_cookies: Some(9),
                cookies_sent: Some(7),
            }
        );
    }

    #[test]
    fn what_is_not_there_is_unknown() {
        for text in [
            "",
            "TcpExt:",
            "TcpExt: ListenDrops\n",
            "TcpExt: ListenDrops\nTcpExt: x\n",
        ] {
            assert_eq!(parse_netstat(text), ListenCounters::default(), "{text:?}");
        }
    }

    #[test]
    fn an_open_file_gives_what_a_fresh_one_does() {
        let open = OpenNetstat::open().unwrap();
        let known = |c: ListenCounters| c.drops.is_some() && c.queue_full_cookies.is_some();
        assert!(known(open.read().unwrap()) && known(open.read().unwrap()));
    }

    #[test]
    fn this_namespace_is_found_by_its_number() {
        let own = fs::metadata("/proc/thread-self/ns/net").unwrap().ino() as u32;
        let found = Netstats::default().counters(own, None).unwrap();
        assert!(found.drops.is_some() && found.overflows.is_some());
        assert_eq!(Netstats::default().counters(1, Some(1)), None);
    }
}
