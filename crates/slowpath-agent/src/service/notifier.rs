// SPDX-License-Identifier: Apache-2.0
//! What a service reports to systemd: sd_notify(3) over the socket in `$NOTIFY_SOCKET`.

use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

/// How long a report waits while the manager's queue is full.
const PATIENCE: Duration = Duration::from_millis(500);

/// Reports to systemd; does nothing where no `$NOTIFY_SOCKET` is set.
#[derive(Debug)]
pub struct Notifier {
    socket: Option<(UnixDatagram, SocketAddr)>,
    watchdog: Option<Duration>,
    alive: Option<Instant>,
}

impl Notifier {
    /// For this process's environment.
    pub fn of_this_process() -> Self {
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
    pub fn alive_every(&self) -> Option<Duration> {
        self.watchdog.map(|time| time / 2)
    }

    /// Reports that the service has started, or has been reloaded.
    pub fn ready(&self) {
        self.send("READY=1");
    }

    /// Reports that the configuration is being read again; `now` is on the monotonic clock.
    pub fn reloading(&self, now: Duration) {
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={}", now.as_micros()));
    }

    /// Reports that the service is stopping.
    pub fn stopping(&self) {
        self.send("STOPPING=1");
    }

    /// Reports one line about the present state.
    pub fn status(&self, text: &str) {
        self.send(&format!("STATUS={text}"));
    }

    /// Reports to the watchdog, at most four times in its time; without a watchdog does nothing.
    pub fn alive(&mut self, now: Instant) {
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
            // The manager need not listen.
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
