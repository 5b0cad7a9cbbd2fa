// SPDX-License-Identifier: Apache-2.0
//! What a service tells systemd: sd_notify(3) over the socket in `$NOTIFY_SOCKET`.

use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

/// How long a full queue of the manager is waited for.
const PATIENCE: Duration = Duration::from_millis(500);

/// Tells systemd, or nobody.
#[derive(Debug)]
pub(super) struct Notifier {
    socket: Option<(UnixDatagram, SocketAddr)>,
    watchdog: Option<Duration>,
    alive: Option<Instant>,
}

impl Notifier {
    /// For this process's environment.
    pub(super) fn of_this_process() -> Self {
        let number = |name| std::env::var(name).ok()?.parse::<u64>().ok();
        // sd_watchdog_enabled(3): the variable may be meant for another process.
        let mine = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        Notifier {
            socket: std::env::var_os("NOTIFY_SOCKET")
                .as_deref()
                .and_then(address)
                .and_then(|address| {
                    let socket = UnixDatagram::unbound().ok()?;
                    // A manager that does not read must not stop the polls for long.
                    socket.set_write_timeout(Some(PATIENCE)).ok()?;
                    Some((socket, address))
                }),
            watchdog: number("WATCHDOG_USEC")
                .filter(|usec| mine && *usec > 0)
                .map(Duration::from_micros),
            alive: None,
        }
    }

    /// How often [`Notifier::alive`] has to be called at least, if at all: half the time
    /// after which systemd takes the service for dead.
    pub(super) fn alive_every(&self) -> Option<Duration> {
        self.watchdog.map(|time| time / 2)
    }

    /// Started, or reloaded.
    pub(super) fn ready(&self) {
        self.send("READY=1");
    }

    /// The configuration is being read again; `now` is on the monotonic clock.
    pub(super) fn reloading(&self, now: Duration) {
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={}", now.as_micros()));
    }

    /// The end begins.
    pub(super) fn stopping(&self) {
        self.send("STOPPING=1");
    }

    /// One line about the present state.
    pub(super) fn status(&self, text: &str) {
        self.send(&format!("STATUS={text}"));
    }

    /// Not dead; said four times in the watchdog's time at most.
    pub(super) fn alive(&mut self, now: Instant) {
        let due = |last: Instant, time: Duration| now.duration_since(last) >= time / 4;
        if let Some(time) = self.watchdog
            && self.alive.is_none_or(|last| due(last, time))
        {
            self.alive = Some(now);
            self.send("WATCHDOG=1");
        }
    }

    fn send(&self, text: &str) {
        if let Some((socket, address)) = &self.socket {
            // Nobody has to listen.
            let _ = socket.send_to_addr(text.as_bytes(), address);
        }
    }
}

/// A path, or with `@` before it an abstract name.
fn address(name: &OsStr) -> Option<SocketAddr> {
    match name.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name).ok(),
        [b'/', ..] => SocketAddr::from_pathname(name).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_paths_or_abstract() {
        let abstract_name = address(OsStr::new("@/org/x")).unwrap();
        assert_eq!(abstract_name.as_abstract_name(), Some(&b"/org/x"[..]));
        let path = address(OsStr::new("/run/systemd/notify")).unwrap();
        assert!(path.as_pathname().is_some());
        assert!(address(OsStr::new("vsock:2:3")).is_none());
        assert!(address(OsStr::new("")).is_none());
    }
}
