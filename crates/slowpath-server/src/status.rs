// SPDX-License-Identifier: Apache-2.0
//! How the fleet is doing: as JSON, as text, as metrics.

use crate::clock::DAY_US;
use crate::hosts::HostRecord;
use crate::intake::{IntakeCounts, StoreStatus};
use serde::{Deserialize, Serialize};
use slowpath_model::{Micros, WallMicros};
use slowpath_text::{Columns, Paint, bytes, plain, plural, time, wall};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// A host of which nothing was flushed for so long is silent: ten times the longest interval
/// between two batches and its retries.
const SILENT_US: i64 = 300_000_000;

/// All that `slowpath server status` says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The server's id.
    pub server: String,
    /// The names that its certificate has.
    pub names: Vec<String>,
    /// When this was so, microseconds since 1970.
    pub now_us: i64,
    /// When its certificate expires, microseconds since 1970; it renews it itself.
    pub certificate_expires_us: i64,
    /// Whether a next CA waits until all hosts have it.
    pub next_ca: bool,
    /// `None`: no server runs; what follows is what the last one wrote.
    pub running: Option<Running>,
    /// The disk.
    pub disk: Option<Disk>,
    /// The hosts, by their names.
    pub hosts: BTreeMap<String, HostStatus>,
}

/// A server that runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Running {
    /// Since when, microseconds since 1970.
    pub since_us: i64,
    /// Connections of hosts.
    pub sessions: usize,
    /// Batches that were flushed.
    pub batches: u64,
    /// What the log has taken.
    pub intake: IntakeCounts,
    /// The object store, if tables go to one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<StoreStatus>,
    /// Who was refused, by reason.
    pub refused: BTreeMap<String, u64>,
}

/// The disk of the state directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disk {
    /// Free bytes, of what an ordinary user may use.
    pub free_bytes: u64,
    /// All bytes.
    pub total_bytes: u64,
}

/// A host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostStatus {
    /// How it is doing.
    pub state: HostState,
    /// Seconds since a batch of it was flushed; `None`: none ever was.
    pub lag_seconds: Option<u64>,
    /// What is known of it.
    #[serde(flatten)]
    pub record: HostRecord,
}

/// How a host is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HostState {
    /// It ships.
    Shipping,
    /// It shipped, and does not any more.
    Silent,
    /// It joined, and has shipped nothing.
    Joined,
    /// The same, and its certificate has expired: when it comes back it renews it.
    Expired,
}

impl HostStatus {
    /// From what is known.
    pub fn of(record: &HostRecord, now: WallMicros) -> Self {
        let since = now.0 - record.flushed_us;
        let state = if record.flushed_us > 0 && since <= SILENT_US {
            HostState::Shipping
        } else if record.certificate_expires_us > 0 && record.certificate_expires_us < now.0 {
            HostState::Expired
        } else if record.flushed_us > 0 {
            HostState::Silent
        } else {
            HostState::Joined
        };
        HostStatus {
            state,
            lag_seconds: (record.flushed_us > 0).then(|| since.max(0) as u64 / 1_000_000),
            record: record.clone(),
        }
    }

    fn cells(&self, name: &str, now: WallMicros) -> [String; 7] {
        let record = &self.record;
        let state = match self.state {
            HostState::Shipping => "shipping",
            HostState::Silent => "silent",
            HostState::Joined => "joined",
            HostState::Expired => "expired",
        };
        let lag = self.lag_seconds.map(|seconds| Micros(seconds * 1_000_000));
        let days = (record.certificate_expires_us - now.0) / DAY_US;
        [
            name.to_owned(),
            state.to_owned(),
            time(lag),
            match record.gap_bytes {
                0 => "none".to_owned(),
                gaps => bytes(gaps),
            },
            match record.clock {
                Some(clock) => format!(
                    "{:+.1} ± {:.1} ms",
                    clock.offset_us as f64 / 1000.0,
                    f64::from(clock.error_us) / 1000.0
                ),
                None => "unknown".to_owned(),
            },
            match record.certificate_expires_us {
                0 => "unknown".to_owned(),
                _ => format!("{days} days"),
            },
            self.remarks().join("; "),
        ]
    }

    fn remarks(&self) -> Vec<String> {
        let record = &self.record;
        let mut remarks = Vec::new();
        for clone in &record.clones {
            remarks.push(format!(
                "a clone at {} (boot id {}) is refused",
                clone.address,
                plain(&clone.boot_id)
            ));
        }
        if !record.conflicts.is_empty() {
            let segments = plural(record.conflicts.len() as u64, "segment");
            remarks.push(format!("{segments} with other bytes"));
        }
        if let Some(name) = &record.spool_host {
            remarks.push(format!("its log says {}", plain(name)));
        }
        remarks
    }
}

impl StoreStatus {
    fn line(&self, now: WallMicros, waiting: u64) -> String {
        let objects = plural(self.objects, "object");
        match (&self.error, self.last_us) {
            (Some((since, reason)), _) => format!(
                "object store: takes nothing since {}, {} of the intake wait: {}",
                wall(WallMicros(*since)),
                bytes(waiting),
                plain(reason)
            ),
            (None, Some(last)) => {
                let ago = Micros((now.0 - last).max(0).cast_unsigned());
                format!("object store: {objects}, the last {} ago", time(Some(ago)))
            }
            (None, None) => "object store: no object yet".to_owned(),
        }
    }
}

impl Status {
    /// As lines of text.
    pub fn text(&self, paint: Paint) -> Vec<String> {
        let now = WallMicros(self.now_us);
        let mut lines = vec![self.first_line()];
        if let Some(disk) = self.disk {
            lines.push(format!(
                "disk: {} free of {}",
                bytes(disk.free_bytes),
                bytes(disk.total_bytes)
            ));
        }
        if let Some(running) = &self.running {
            if let Some(store) = &running.store {
                lines.push(store.line(now, running.intake.unpublished_bytes));
            }
            let refused = running.refused.iter().filter(|(_, count)| **count > 0);
            let refused: Vec<String> = refused
                .map(|(reason, count)| format!("{count} {reason}"))
                .collect();
            if !refused.is_empty() {
                lines.push(format!("refused: {}", refused.join(", ")));
            }
        }
        if self.next_ca {
            lines.push("the next CA signs when every host has it".to_owned());
        }
        if self.hosts.is_empty() {
            lines.push("no host has joined; 'slowpath server invite HOST' invites one".to_owned());
            return lines;
        }
        let header = [
            "host",
            "state",
            "last batch",
            "gaps",
            "clock",
            "certificate",
            "",
        ];
        let mut columns = Columns::new(&header);
        for (name, host) in &self.hosts {
            columns.row(host.cells(name, now));
        }
        lines.push(String::new());
        lines.extend(columns.lines(0, paint));
        lines
    }

    fn first_line(&self) -> String {
        let hosts = plural(self.hosts.len() as u64, "host");
        match &self.running {
            Some(running) => format!(
                "server {}: {hosts}, {} connected, {} in {} since {}",
                self.server,
                running.sessions,
                plural(running.intake.rows, "row"),
                plural(running.batches, "batch"),
                wall(WallMicros(running.since_us)),
            ),
            None => format!("server {}: does not run; {hosts}", self.server),
        }
    }

    /// As text for Prometheus (its exposition format, version 0.0.4).
    pub fn metrics(&self) -> String {
        let mut text = Metrics::default();
        if let Some(running) = &self.running {
            text.counter(
                "batches_total",
                "Batches that were flushed.",
                running.batches,
            );
            let rows = running.intake.rows;
            text.counter("rows_total", "Rows that were flushed.", rows);
            let sessions = running.sessions as u64;
            text.gauge("connections", "Connections of hosts.", sessions);
            let waits = running.intake.unpublished_bytes;
            let help = "Bytes of intake files that are not yet in tables.";
            text.gauge("unpublished_bytes", help, waits);
            if let Some(store) = &running.store {
                let help = "Objects that the object store took.";
                text.counter("store_objects_total", help, store.objects);
                let help = "Whether the object store took what it was sent last.";
                text.gauge("store_up", help, u64::from(store.error.is_none()));
            }
            text.head("refused_total", "Who was refused, by reason.", "counter");
            for (reason, count) in &running.refused {
                text.value("refused_total", Some(("reason", reason)), *count);
            }
        }
        let states = self.hosts.values().map(|host| host.state);
        text.head("hosts", "Hosts, by how they are doing.", "gauge");
        for (state, label) in [
            (HostState::Shipping, "shipping"),
            (HostState::Silent, "silent"),
            (HostState::Joined, "joined"),
            (HostState::Expired, "expired"),
        ] {
            let count = states.clone().filter(|it| *it == state).count();
            text.value("hosts", Some(("state", label)), count as u64);
        }
        let gaps = self.hosts.values().map(|host| host.record.gap_bytes).sum();
        text.counter("gap_bytes_total", "Bytes that agents have lost.", gaps);
        let clones = self
            .hosts
            .values()
            .filter(|host| !host.record.clones.is_empty());
        let help = "Hosts under whose identity another machine ships.";
        text.gauge("cloned_hosts", help, clones.count() as u64);
        let shipping = self.hosts.values();
        let shipping = shipping.filter(|host| host.state == HostState::Shipping);
        let lag = shipping.filter_map(|host| host.lag_seconds).max();
        if let Some(lag) = lag {
            let help = "The longest time since a batch of a host that ships.";
            text.gauge("lag_seconds", help, lag);
        }
        if let Some(disk) = self.disk {
            text.gauge(
                "disk_free_bytes",
                "Free bytes of the disk.",
                disk.free_bytes,
            );
        }
        let expires = self.certificate_expires_us / 1_000_000;
        let help = "When the server's certificate expires, seconds since 1970.";
        text.gauge("certificate_expires_seconds", help, expires.max(0) as u64);
        text.0
    }
}

/// Metrics as they are written.
#[derive(Default)]
struct Metrics(String);

impl Metrics {
    fn head(&mut self, name: &str, help: &str, kind: &str) {
        let name = format!("slowpath_server_{name}");
        self.0 += &format!("# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    fn value(&mut self, name: &str, label: Option<(&str, &str)>, value: u64) {
        let label = label.map(|(key, value)| format!("{{{key}=\"{value}\"}}"));
        let label = label.unwrap_or_default();
        self.0 += &format!("slowpath_server_{name}{label} {value}\n");
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.head(name, help, "counter");
        self.value(name, None, value);
    }

    fn gauge(&mut self, name: &str, help: &str, value: u64) {
        self.head(name, help, "gauge");
        self.value(name, None, value);
    }
}

/// The disk that a directory lies on.
///
/// # Errors
/// What statvfs(3) says.
pub fn disk(directory: &Path) -> io::Result<Disk> {
    let stat = rustix::fs::statvfs(directory)?;
    Ok(Disk {
        free_bytes: stat.f_bavail.saturating_mul(stat.f_frsize),
        total_bytes: stat.f_blocks.saturating_mul(stat.f_frsize),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hosts::CloneRecord;
    use slowpath_ship::batch::ClockOffset;

    const NOW: WallMicros = WallMicros(1_795_000_000_000_000);

    fn record(seconds_ago: i64) -> HostRecord {
        HostRecord {
            flushed_us: NOW.0 - seconds_ago * 1_000_000,
            certificate_expires_us: NOW.0 + 20 * DAY_US,
            ..HostRecord::default()
        }
    }

    fn status(hosts: Vec<(&str, HostRecord)>) -> Status {
        let hosts = hosts
            .into_iter()
            .map(|(name, record)| (name.to_owned(), HostStatus::of(&record, NOW)));
        Status {
            server: "s1".to_owned(),
            names: vec!["server.example.org".to_owned()],
            now_us: NOW.0,
            certificate_expires_us: NOW.0 + 60 * DAY_US,
            next_ca: false,
            running: Some(Running {
                since_us: NOW.0 - 3_600_000_000,
                sessions: 2,
                batches: 7,
                intake: IntakeCounts {
                    rows: 1_000,
                    unpublished_bytes: 5,
                },
                store: None,
                refused: BTreeMap::from([("clone".to_owned(), 3), ("tls".to_owned(), 0)]),
            }),
            disk: Some(Disk {
                free_bytes: 1 << 30,
                total_bytes: 4 << 30,
            }),
            hosts: hosts.collect(),
        }
    }

    #[test]
    fn a_host_ships_until_it_is_silent_and_then_expires() {
        let state = |record: &HostRecord| HostStatus::of(record, NOW).state;
        assert_eq!(state(&record(300)), HostState::Shipping);
        assert_eq!(state(&record(301)), HostState::Silent);
        let expired = HostRecord {
            certificate_expires_us: NOW.0 - 1,
            ..record(301)
        };
        assert_eq!(state(&expired), HostState::Expired);
        let joined = HostRecord {
            flushed_us: 0,
            ..record(0)
        };
        assert_eq!(state(&joined), HostState::Joined);
        assert_eq!(HostStatus::of(&joined, NOW).lag_seconds, None);
    }

    #[test]
    fn text_names_lags_gaps_clocks_and_clones() {
        let mut cloned = record(4);
        cloned.gap_bytes = 2_000_000;
        cloned.clock = Some(ClockOffset {
            offset_us: -1_500,
            error_us: 200,
        });
        cloned.clones = vec![CloneRecord {
            run: "1".to_owned(),
            boot_id: "b2".to_owned(),
            address: "192.0.2.9".parse().unwrap(),
            last_us: NOW.0,
        }];
        cloned.spool_host = Some("\x1b[2Jother".to_owned());
        let text = status(vec![("web-1", cloned), ("web-2", record(900))])
            .text(Paint::OFF)
            .join("\n");
        for expected in [
            "web-1",
            "shipping",
            "4.00s",
            "-1.5 ± 0.2 ms",
            "20 days",
            "a clone at 192.0.2.9 (boot id b2) is refused",
            "web-2",
            "silent",
            "refused: 3 clone",
        ] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        assert!(!text.contains('\x1b'), "{text:?}");
    }

    #[test]
    fn an_object_store_that_takes_nothing_is_named() {
        let mut status = status(vec![("web-1", record(1))]);
        let mut with = |store| {
            status.running.as_mut().unwrap().store = Some(store);
            (status.text(Paint::OFF).join("\n"), status.metrics())
        };
        let working = StoreStatus {
            objects: 12,
            last_us: Some(NOW.0 - 35_000_000),
            error: None,
        };
        let (text, metrics) = with(working.clone());
        assert!(
            text.contains("object store: 12 objects, the last 35.0s ago"),
            "{text}"
        );
        assert!(metrics.contains("slowpath_server_store_up 1"), "{metrics}");
        let (text, metrics) = with(StoreStatus {
            error: Some((NOW.0 - 60_000_000, "put: connection refused".to_owned())),
            ..working
        });
        assert!(text.contains("takes nothing since"), "{text}");
        assert!(text.contains("put: connection refused"), "{text}");
        for line in [
            "slowpath_server_store_up 0",
            "slowpath_server_store_objects_total 12",
        ] {
            assert!(metrics.lines().any(|it| it == line), "{line}: {metrics}");
        }
    }

    #[test]
    fn json_is_read_back() {
        let status = status(vec![("web-1", record(1))]);
        let text = serde_json::to_string(&status).unwrap();
        assert_eq!(serde_json::from_str::<Status>(&text).unwrap(), status);
    }

    #[test]
    fn metrics_count_hosts_by_state() {
        let text = status(vec![("a", record(1)), ("b", record(2)), ("c", record(900))]).metrics();
        for line in [
            "slowpath_server_hosts{state=\"shipping\"} 2",
            "slowpath_server_hosts{state=\"silent\"} 1",
            "slowpath_server_refused_total{reason=\"clone\"} 3",
            "slowpath_server_lag_seconds 2",
            "slowpath_server_rows_total 1000",
        ] {
            assert!(text.lines().any(|it| it == line), "{line}: {text}");
        }
    }
}
