// SPDX-License-Identifier: Apache-2.0
//! The settings of an agent: the keys of its file, which are also its options.

use super::recording::{RecordSelection, default_folder};
use crate::options::{CommandLinesArg, TierArg};
use clap::{Args, ValueEnum};
use serde::Deserialize;
use slowpath_agent::service::configuration::Entries;
use slowpath_agent::service::{Age, HostName, LogPlace, PollInterval, Ports, Size, as_text};
use slowpath_agent::{Budget, OwnerLabels};
use slowpath_export::push::Endpoint;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// What a file or the command line says; what neither says has its default.
#[derive(Clone, Debug, Default, PartialEq, Args, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Settings {
    /// Where to keep the log, or none [default: as slowpath up]
    #[arg(long, value_name = "DIR")]
    #[serde(deserialize_with = "as_text")]
    pub log: Option<LogPlace>,
    /// This host's name in the log and in metrics that are pushed [default: as uname -n says]
    #[arg(long, value_name = "NAME")]
    #[serde(deserialize_with = "as_text")]
    pub host: Option<HostName>,
    /// Mean time between two polls [default: 500ms]
    #[arg(long, value_name = "DURATION")]
    #[serde(deserialize_with = "as_text")]
    pub interval: Option<PollInterval>,
    /// Where statistics come from; auto takes the best this machine allows [default: auto]
    #[arg(long, value_enum)]
    pub tier: Option<TierArg>,
    /// Use between LOW and HIGH percent of one core, as in 1,2: connections with problems are
    /// polled more often, the others less often [default: all alike, whatever it costs]
    #[arg(long, value_name = "LOW,HIGH")]
    #[serde(deserialize_with = "as_text")]
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
    #[serde(deserialize_with = "as_text")]
    pub retention_size: Option<Size>,
    /// Delete the hours of the log that are older than this [default: never]
    #[arg(long, value_name = "DURATION")]
    #[serde(deserialize_with = "as_text")]
    pub retention_age: Option<Age>,
    /// Serve metrics to Prometheus at this address, as 127.0.0.1:9464 [default: nowhere]
    #[arg(long, value_name = "ADDRESS")]
    #[serde(deserialize_with = "as_text")]
    pub metrics: Option<SocketAddr>,
    /// Applications that have a label of their own in metrics [default: 100]
    #[arg(long, value_name = "N")]
    pub metrics_applications: Option<u16>,
    /// Labels of applications in metrics beside the name: unit, container, pod, port, as in unit,port [default: none]
    #[arg(long, value_name = "LABELS")]
    #[serde(deserialize_with = "as_text")]
    pub metrics_labels: Option<OwnerLabels>,
    /// Push metrics to this OpenTelemetry collector, as http://127.0.0.1:4318 [default: none]
    #[arg(long, value_name = "URL")]
    #[serde(deserialize_with = "as_text")]
    pub otlp: Option<Endpoint>,
    /// Time between two pushes [default: 1m]
    #[arg(long, value_name = "DURATION")]
    #[serde(deserialize_with = "as_text")]
    pub otlp_interval: Option<Age>,
    /// Record connections into a ring in memory, by BPF, and keep some as files: `problems` keeps those with a
    /// problem; `asked` keeps all that the ring holds when SIGUSR1 comes; a filter as in watch keeps those
    /// that it selects [default: none]
    #[arg(long, value_name = "WHICH")]
    #[serde(deserialize_with = "as_text")]
    pub record: Option<RecordSelection>,
    /// Record only connections to or from these ports, as in 80,443 [default: all]
    #[arg(long, value_name = "PORTS")]
    #[serde(deserialize_with = "as_text")]
    pub record_ports: Option<Ports>,
    /// Where recordings are kept [default: recordings in the log's directory]
    #[arg(long, value_name = "DIR")]
    pub record_to: Option<PathBuf>,
    /// Memory that the ring may take [default: 64MiB]
    #[arg(long, value_name = "SIZE")]
    #[serde(deserialize_with = "as_text")]
    pub record_ring: Option<Size>,
    /// How long a connection stays in the ring after its end [default: 10m]
    #[arg(long, value_name = "DURATION")]
    #[serde(deserialize_with = "as_text")]
    pub record_age: Option<Age>,
    /// Delete the oldest recordings when all that are kept take more than this [default: 256MiB]
    #[arg(long, value_name = "SIZE")]
    #[serde(deserialize_with = "as_text")]
    pub record_size: Option<Size>,
}

impl Settings {
    /// These, and where they say nothing, `others`.
    #[must_use]
    pub fn or(self, others: Settings) -> Self {
        Settings {
            log: self.log.or(others.log),
            host: self.host.or(others.host),
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
            record: self.record.or(others.record),
            record_ports: self.record_ports.or(others.record_ports),
            record_to: self.record_to.or(others.record_to),
            record_ring: self.record_ring.or(others.record_ring),
            record_age: self.record_age.or(others.record_age),
            record_size: self.record_size.or(others.record_size),
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
            record_to: self.record_to.or_else(|| default_folder(log.as_ref())),
            log,
            host: self.host,
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
            record: self.record.unwrap_or(RecordSelection::None),
            record_ports: self.record_ports,
            record_ring: self.record_ring.unwrap_or(Size(64 << 20)),
            record_age: self.record_age.unwrap_or(Age(Duration::from_secs(600))),
            record_size: self.record_size.unwrap_or(Size(256 << 20)),
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
    pub record: RecordSelection,
    pub record_ports: Option<Ports>,
    pub record_to: Option<PathBuf>,
    pub record_ring: Size,
    pub record_age: Age,
    pub record_size: Size,
}

impl Effective {
    /// Each key with its value, as in the file; keys without a value are not there.
    pub fn entries(&self) -> Entries {
        let log = self.log.clone().map_or(LogPlace::None, LogPlace::Directory);
        let mut entries = vec![("log", log.to_string())];
        entries.extend(self.host.as_ref().map(|name| ("host", name.to_string())));
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
        entries.push(("record", self.record.to_string()));
        let ports = self.record_ports.as_ref();
        entries.extend(ports.map(|ports| ("record-ports", ports.to_string())));
        let folder = self.record_to.as_ref();
        entries.extend(folder.map(|folder| ("record-to", folder.display().to_string())));
        entries.push(("record-ring", self.record_ring.to_string()));
        entries.push(("record-age", self.record_age.to_string()));
        entries.push(("record-size", self.record_size.to_string()));
        Entries(entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use slowpath_agent::service::configuration;

    fn parse(text: &str) -> Result<Settings, (usize, String)> {
        configuration::parse(text)
    }

    const EVERY_KEY: &str = "\
log = \"/var/lib/slowpath\"
host = \"web-17\"
interval = \"250ms\"
tier = \"inet-diag\"
cpu-budget = \"1,2\"
owners = \"/etc/slowpath/owners.toml\"
log-command-lines = \"no-secrets\"
retention-size = \"2GiB\"
retention-age = \"30days\"
metrics = \"127.0.0.1:9464\"
metrics-applications = 50
metrics-labels = \"unit,port\"
otlp = \"http://127.0.0.1:4318/v1/metrics\"
otlp-interval = \"30s\"
record = \"dport = :5432\"
record-ports = \"80,5432\"
record-to = \"/var/tmp/recordings\"
record-ring = \"32MiB\"
record-age = \"5m\"
record-size = \"1GiB\"
";

    #[test]
    fn a_file_says_what_it_was_made_of() {
        let settings = parse(EVERY_KEY).unwrap();
        let effective = settings.effective(None).unwrap();
        assert_eq!(effective.entries().lines().join("\n") + "\n", EVERY_KEY);
        assert_eq!(effective.interval, Duration::from_millis(250));
        assert_eq!(effective.tier, TierArg::InetDiag);
    }

    #[test]
    fn every_key_is_an_option_and_every_option_a_key() {
        use clap::CommandFactory;
        let command = crate::args::Cli::command();
        let agent = command.find_subcommand("agent").unwrap();
        let mut options: Vec<&str> = agent
            .get_arguments()
            .filter_map(|a| a.get_long())
            .filter(|o| !["config", "check", "help"].contains(o))
            .collect();
        options.sort_unstable();
        let table: toml::Table = EVERY_KEY.parse().unwrap();
        let mut keys: Vec<&str> = table.keys().map(String::as_str).collect();
        keys.sort_unstable();
        assert_eq!(options, keys);
    }

    #[test]
    fn options_go_before_the_file() {
        let options = Settings {
            log: Some(LogPlace::None),
            ..Settings::default()
        };
        let file = parse(EVERY_KEY).unwrap();
        let effective = options.or(file).effective(None).unwrap();
        assert_eq!(effective.log, None);
        assert_eq!(effective.retention_size, Size(2 << 30));
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        for (text, line, words) in [
            ("log = \"/a\"\nlogs = \"/b\"\n", 2, "unknown field `logs`"),
            ("\n\ninterval = \"1ns\"", 3, "between 10ms and 1h"),
            ("interval = 5", 1, "string"),
            ("tier = \"magic\"", 1, "unknown variant `magic`"),
            ("host = \"a/b\"", 1, "a host's name"),
            ("cpu-budget = \"2,1\"", 1, "0 < LOW < HIGH"),
            ("# x\nretention-size = \"1\"", 2, "write a size as"),
            ("log = \"/a\"\nlog = \"/b\"", 2, "duplicate key"),
            ("log = ", 1, ""),
            ("metrics = \"9464\"", 1, "socket address"),
            ("\notlp = \"ftp://x\"", 2, "https://HOST:PORT"),
            ("metrics-applications = -1", 1, "-1"),
            ("metrics-labels = \"peer\"", 1, "none of unit"),
            ("record = \"some\"", 1, "neither none"),
            ("record-ports = \"http\"", 1, "80,443"),
        ] {
            let (at, reason) = parse(text).unwrap_err();
            assert_eq!(at, line, "{text:?}: {reason}");
            assert!(reason.contains(words), "{text:?}: {reason}");
        }
    }

    #[test]
    fn without_a_place_for_the_log_there_is_nothing_to_do() {
        assert_eq!(Settings::default().effective(None), None);
        let home = Some(PathBuf::from("/s"));
        let effective = Settings::default().effective(home.clone()).unwrap();
        assert_eq!(effective.log, home);
    }

    #[test]
    fn differences_are_named() {
        let before = parse(EVERY_KEY).unwrap().effective(None).unwrap();
        let mut after = before.clone();
        after.interval = Duration::from_secs(1);
        after.retention_age = None;
        assert_eq!(
            before.entries().differences(&after.entries()),
            ["interval", "retention-age"]
        );
    }

    #[test]
    fn the_example_shows_every_key_with_its_default() {
        let example = include_str!("../../../../packaging/agent.toml");
        parse(example).unwrap();
        let uncommented: String = example
            .lines()
            .map(|l| {
                l.strip_prefix('#')
                    .filter(|l| !l.starts_with(' '))
                    .unwrap_or(l)
            })
            .map(|l| format!("{l}\n"))
            .collect();
        let table: toml::Table = uncommented.parse().unwrap();
        let every: toml::Table = EVERY_KEY.parse().unwrap();
        assert!(table.keys().eq(every.keys()), "{table:?}");
        let shown = parse(&uncommented).unwrap().effective(None);
        let mut default = Settings::default()
            .effective(Some(PathBuf::from("/var/lib/slowpath")))
            .unwrap();
        // These have no default; the example shows a value.
        default.metrics = Some("127.0.0.1:9464".parse().unwrap());
        default.otlp = Some("http://127.0.0.1:4318".parse().unwrap());
        default.cpu_budget = Some("1,2".parse().unwrap());
        default.owners = Some(PathBuf::from("/etc/slowpath/owners.toml"));
        default.host = Some("web-17".parse().unwrap());
        default.record_ports = Some(Ports(vec![80, 443]));
        default.retention_age = Some(Age(Duration::from_secs(30 * 24 * 3600)));
        assert_eq!(shown, Some(default));
    }
}
