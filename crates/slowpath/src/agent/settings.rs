// SPDX-License-Identifier: Apache-2.0
//! The settings of an agent: the keys of its file, which are also its options.

use super::recording::{RecordSettings, Recording};
use super::shipping::{self, ShipSettings};
use crate::options::{CommandLinesArg, TierArg};
use clap::{Args, ValueEnum};
use slowpath_agent::service::configuration::Entries;
use slowpath_agent::service::{Age, HostName, LogPlace, PollInterval, Size};
use slowpath_agent::{Budget, Namespaces, OwnerLabels};
use slowpath_export::push::Endpoint;
use slowpath_ship::shipper::ShipSelection;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// What a file or the command line says; what neither says has its default.
#[derive(Clone, Debug, Default, PartialEq, Args)]
pub struct Settings {
    /// Where to keep the log, or none [default: as slowpath up]
    #[arg(long, value_name = "DIR")]
    pub log: Option<LogPlace>,
    /// This host's name in the log and in metrics that are pushed [default: as uname -n says]
    #[arg(long, value_name = "NAME")]
    pub host: Option<HostName>,
    /// Network namespaces to observe: all of this machine, or only the agent's own [default: all]
    #[arg(long, value_name = "all|own")]
    pub namespaces: Option<Namespaces>,
    /// Mean time between two polls [default: 500ms]
    #[arg(long, value_name = "DURATION")]
    pub interval: Option<PollInterval>,
    /// Where statistics come from; auto takes the best this machine allows [default: auto]
    #[arg(long, value_enum)]
    pub tier: Option<TierArg>,
    /// Use between LOW and HIGH percent of one core, as in 1,2: connections with problems are
    /// polled more often, the others less often [default: all alike, whatever it costs]
    #[arg(long, value_name = "LOW,HIGH")]
    pub cpu_budget: Option<Budget>,
    /// Rules that name applications by process, unit or container; docs/reference/owners.md
    /// [default: none]
    #[arg(long, value_name = "FILE")]
    pub owners: Option<PathBuf>,
    /// How much of each command line the log keeps [default: program]
    #[arg(long, value_enum)]
    pub log_command_lines: Option<CommandLinesArg>,
    /// Delete the oldest hours of a log that is larger than this [default: 1GiB]
    #[arg(long, value_name = "SIZE")]
    pub retention_size: Option<Size>,
    /// Delete the hours of the log that are older than this [default: never]
    #[arg(long, value_name = "DURATION")]
    pub retention_age: Option<Age>,
    /// Serve metrics to Prometheus at this address, as 127.0.0.1:9464 [default: nowhere]
    #[arg(long, value_name = "ADDRESS")]
    pub metrics: Option<SocketAddr>,
    /// Applications that have a label of their own in metrics [default: 100]
    #[arg(long, value_name = "N")]
    pub metrics_applications: Option<u16>,
    /// Labels of applications in metrics beside the name: unit, container, pod, port, as in unit,port [default: none]
    #[arg(long, value_name = "LABELS")]
    pub metrics_labels: Option<OwnerLabels>,
    /// Push metrics to this OpenTelemetry collector, as http://127.0.0.1:4318 [default: none]
    #[arg(long, value_name = "URL")]
    pub otlp: Option<Endpoint>,
    /// Time between two pushes [default: 1m]
    #[arg(long, value_name = "DURATION")]
    pub otlp_interval: Option<Age>,
    /// Where the log is shipped.
    #[command(flatten)]
    pub ship: ShipSettings,
    /// Trace the paths of at most this many connections that lose segments, each minute [default: none]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=600))]
    pub trace_paths: Option<u16>,
    /// Which connections are recorded.
    #[command(flatten)]
    pub record: RecordSettings,
}

impl Settings {
    /// These, and where they say nothing, `others`.
    #[must_use]
    pub fn or(self, others: Settings) -> Self {
        Settings {
            log: self.log.or(others.log),
            host: self.host.or(others.host),
            namespaces: self.namespaces.or(others.namespaces),
            interval: self.interval.or(others.interval),
            tier: self.tier.or(others.tier),
            cpu_budget: self.cpu_budget.or(others.cpu_budget),
            owners: self.owners.or(others.owners),
            log_command_lines: self.log_command_lines.or(others.log_command_lines),
            retention_size: self.retention_size.or(others.retention_size),
            retention_age: self.retention_age.or(others.retention_age),
            metrics: self.metrics.or(others.metrics),
            metrics_applications: self.metrics_applications.or(others.metrics_applications),
            metrics_labels: self.metrics_labels.or(others.metrics_labels),
            otlp: self.otlp.or(others.otlp),
            otlp_interval: self.otlp_interval.or(others.otlp_interval),
            ship: self.ship.or(others.ship),
            trace_paths: self.trace_paths.or(others.trace_paths),
            record: self.record.or(others.record),
        }
    }

    /// What holds: these, or else the defaults. `default_log` is where the log is kept if
    /// nothing is said.
    ///
    /// # Errors
    /// `None` if no place for the log is named and there is no default one.
    pub fn effective(self, default_log: Option<PathBuf>) -> Option<Effective> {
        let log = match self.log {
            Some(LogPlace::None) => None,
            Some(LogPlace::Directory(directory)) => Some(directory),
            None => Some(default_log?),
        };
        Some(Effective {
            record: self.record.effective(log.as_ref()),
            ship: self.ship.effective(log.as_ref()),
            log,
            host: self.host,
            namespaces: self.namespaces.unwrap_or_default(),
            trace_paths: self.trace_paths,
            interval: self
                .interval
                .map_or(Duration::from_millis(500), |interval| interval.0),
            tier: self.tier.unwrap_or(TierArg::Auto),
            cpu_budget: self.cpu_budget,
            owners: self.owners,
            log_command_lines: self.log_command_lines.unwrap_or(CommandLinesArg::Program),
            retention_size: self.retention_size.unwrap_or(Size(1 << 30)),
            retention_age: self.retention_age,
            metrics: self.metrics,
            metrics_applications: self.metrics_applications.unwrap_or(100).into(),
            metrics_labels: self.metrics_labels.unwrap_or_default(),
            otlp: self.otlp,
            otlp_interval: self.otlp_interval.unwrap_or(Age(Duration::from_secs(60))),
        })
    }
}

/// What a choice is called on the command line.
fn name_of(choice: impl ValueEnum) -> String {
    let value = choice.to_possible_value();
    value.map(|v| v.get_name().to_owned()).unwrap_or_default()
}

/// The settings that hold.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct Effective {
    pub log: Option<PathBuf>,
    pub host: Option<HostName>,
    pub namespaces: Namespaces,
    pub interval: Duration,
    pub tier: TierArg,
    pub cpu_budget: Option<Budget>,
    pub owners: Option<PathBuf>,
    pub log_command_lines: CommandLinesArg,
    pub retention_size: Size,
    pub retention_age: Option<Age>,
    pub metrics: Option<SocketAddr>,
    pub metrics_applications: usize,
    pub metrics_labels: OwnerLabels,
    pub otlp: Option<Endpoint>,
    pub otlp_interval: Age,
    pub ship: ShipSelection,
    pub trace_paths: Option<u16>,
    pub record: Recording,
}

impl Effective {
    /// Each key with its value, as in the file; keys without a value are not there.
    pub fn entries(&self) -> Entries {
        let log = self.log.clone().map_or(LogPlace::None, LogPlace::Directory);
        let mut entries = vec![("log", log.to_string())];
        entries.extend(self.host.as_ref().map(|name| ("host", name.to_string())));
        entries.push(("namespaces", self.namespaces.to_string()));
        entries.push(("interval", PollInterval(self.interval).to_string()));
        entries.push(("tier", name_of(self.tier)));
        entries.extend(self.cpu_budget.map(|b| ("cpu-budget", b.to_string())));
        let rules = self.owners.as_ref();
        entries.extend(rules.map(|file| ("owners", file.display().to_string())));
        entries.push(("log-command-lines", name_of(self.log_command_lines)));
        entries.push(("retention-size", self.retention_size.to_string()));
        entries.extend(self.retention_age.map(|a| ("retention-age", a.to_string())));
        entries.extend(self.metrics.map(|a| ("metrics", a.to_string())));
        entries.push((
            "metrics-applications",
            self.metrics_applications.to_string(),
        ));
        entries.push(("metrics-labels", self.metrics_labels.to_string()));
        entries.extend(self.otlp.as_ref().map(|e| ("otlp", e.to_string())));
        entries.push(("otlp-interval", self.otlp_interval.to_string()));
        entries.extend(shipping::entries(&self.ship));
        entries.extend(self.trace_paths.map(|n| ("trace-paths", n.to_string())));
        entries.extend(self.record.entries());
        Entries(entries)
    }
}
