// SPDX-License-Identifier: Apache-2.0
//! How shipping fares, for the agent's status, metrics and journal.

use crate::answers::RefusalKind;
use crate::batch::ClockOffset;
use crate::queue::QueueStatus;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Why a server refuses this client as such.
pub type StopReason = RefusalKind;

/// How shipping fares. Counts are since it started.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ShipStatus {
    /// When this was so, microseconds since 1970 by this host's clock.
    pub at_us: i64,
    /// The server's address.
    pub server: String,
    /// The host's name in its certificate.
    pub host: String,
    /// What waits, and what is lost.
    pub queue: QueueStatus,
    /// How old the oldest data is that the server does not have, microseconds.
    pub lag_us: u64,
    /// Batches that were flushed.
    pub batches: u64,
    /// Bytes of them as they travelled.
    pub sent_bytes: u64,
    /// Requests that failed or were refused.
    pub failures: u64,
    /// How far this clock is from the server's.
    pub clock_offset: Option<ClockOffset>,
    /// Days until the certificate expires, negative afterwards.
    pub certificate_days: f64,
    /// The server refuses this client, and why.
    pub stopped: Option<StopReason>,
    /// What failed last, until something succeeds.
    pub last_error: Option<String>,
}

/// The most bytes of `ship/status`.
const MOST: u64 = 1 << 20;

impl ShipStatus {
    /// What the shipper of the log in `log` wrote last.
    ///
    /// # Errors
    /// Nothing ships that log, or its status cannot be read.
    pub fn read(log: &Path) -> io::Result<Self> {
        let bytes = slowpath_files::read(&file(log), MOST)?;
        serde_json::from_slice(&bytes).map_err(io::Error::other)
    }

    pub(super) fn write(&self, log: &Path) -> io::Result<()> {
        // Numbers, texts and maps with text keys: nothing that JSON cannot say.
        let json = serde_json::to_vec(self).unwrap_or_default();
        slowpath_files::write(&file(log), json)
    }

    /// For people, at a later moment: one line each for where, what waits, what is lost, the
    /// certificate, the clock, and what fails.
    pub fn lines(&self, now_us: i64) -> Vec<String> {
        let queue = &self.queue;
        let age = seconds(now_us.saturating_sub(self.at_us));
        let mut lines = vec![
            format!(
                "ships as {} to {}; as of {age} s ago",
                self.host, self.server
            ),
            format!(
                "waiting: {} bytes of {} segments, the oldest for {} s; {} bytes kept",
                queue.waiting_bytes,
                queue.waiting_segments,
                self.lag_us / 1_000_000,
                queue.ship_bytes
            ),
        ];
        for (reason, bytes) in &queue.lost_bytes {
            lines.push(format!("lost: {bytes} bytes, {}", reason.as_str()));
        }
        for segment in &queue.conflicts {
            lines.push(format!(
                "conflict: the server has other bytes of segment {segment}"
            ));
        }
        if queue.newer > 0 {
            lines.push(format!(
                "{} segments are too new for the server",
                queue.newer
            ));
        }
        lines.push(format!(
            "certificate: {:.1} days left",
            self.certificate_days
        ));
        if let Some(offset) = self.clock_offset {
            lines.push(format!(
                "clock: {} us behind the server's, give or take {} us",
                offset.offset_us, offset.error_us
            ));
        }
        lines.extend(
            self.last_error
                .iter()
                .map(|error| format!("failing: {error}")),
        );
        lines
    }
}

fn file(log: &Path) -> PathBuf {
    log.join("ship/status")
}

fn seconds(us: i64) -> i64 {
    us / 1_000_000
}

/// A line of the journal when failing begins, once an hour while it lasts, and when it ends.
#[derive(Debug, Default)]
pub(super) struct FailureReport {
    /// When the failing began, and when it was last reported.
    failing: Option<(Duration, Duration)>,
    error: String,
}

/// How often a failure that lasts is reported, and how long it lasts before it is.
const AGAIN: Duration = Duration::from_secs(3600);
const FIRST: Duration = Duration::from_secs(30);

impl FailureReport {
    /// Something failed; a line, if one is due. One that stops shipping is reported at once.
    pub(super) fn failed(&mut self, error: &str, at_once: bool, now: Duration) -> Option<String> {
        let first = self.failing.is_none();
        let (began, reported) = *self.failing.get_or_insert((now, Duration::MAX));
        let changed = at_once && self.error != error;
        if first || changed {
            error.clone_into(&mut self.error);
        }
        let due = match reported {
            Duration::MAX => at_once || now >= began + FIRST,
            reported => changed || now >= reported + AGAIN,
        };
        if !due {
            return None;
        }
        self.failing = Some((began, now));
        Some(format!("shipping the log does not succeed: {error}"))
    }

    /// Something succeeded; a line, if the failing was reported.
    pub(super) fn succeeded(&mut self, now: Duration) -> Option<String> {
        let (began, reported) = self.failing.take()?;
        (reported != Duration::MAX).then(|| {
            let seconds = now.saturating_sub(began).as_secs();
            format!("shipping the log succeeds again, after {seconds} s")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn the_status_of_a_log_is_read_by_another_process() {
        let log = tempfile::tempdir().unwrap();
        std::fs::create_dir(log.path().join("ship")).unwrap();
        let mut status = ShipStatus {
            at_us: 5_000_000,
            server: "fleet.example:7443".to_owned(),
            host: "web-17".to_owned(),
            certificate_days: 12.25,
            last_error: Some("no route".to_owned()),
            ..ShipStatus::default()
        };
        status
            .queue
            .lost_bytes
            .insert(crate::batch::GapReason::Dropped, 7);
        assert!(ShipStatus::read(log.path()).is_err());
        status.write(log.path()).unwrap();
        assert_eq!(ShipStatus::read(log.path()).unwrap(), status);
        assert_eq!(
            status.lines(9_000_000),
            [
                "ships as web-17 to fleet.example:7443; as of 4 s ago",
                "waiting: 0 bytes of 0 segments, the oldest for 0 s; 0 bytes kept",
                "lost: 7 bytes, dropped",
                "certificate: 12.2 days left",
                "failing: no route",
            ]
        );
    }

    #[test]
    fn a_failure_that_lasts_is_reported_once_an_hour() {
        let mut report = FailureReport::default();
        let mut lines = Vec::new();
        for second in 0..8000 {
            if report.failed("refused", false, at(second)).is_some() {
                lines.push(second);
            }
        }
        assert_eq!(lines, [30, 3630, 7230]);
        let line = report.succeeded(at(8000)).unwrap();
        assert!(line.ends_with("after 8000 s"), "{line}");
        assert_eq!(report.succeeded(at(8001)), None);
    }

    #[test]
    fn a_short_failure_is_no_line_and_a_refusal_is_one_at_once() {
        let mut report = FailureReport::default();
        assert_eq!(report.failed("refused", false, at(0)), None);
        assert_eq!(report.succeeded(at(5)), None);
        assert!(report.failed("revoked", true, at(6)).is_some());
        assert_eq!(report.failed("revoked", true, at(7)), None);
        assert!(report.failed("expired", true, at(8)).is_some());
    }
}
