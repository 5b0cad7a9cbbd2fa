// SPDX-License-Identifier: Apache-2.0
//! The keys of an agent's configuration: file, options, example.

use slowpath_agent::service::{Age, LogPlace, Ports, Size, configuration};
use slowpath_cli::agent::Settings;
use slowpath_cli::options::TierArg;
use std::path::PathBuf;
use std::time::Duration;

fn parse(text: &str) -> Result<Settings, (usize, String)> {
    configuration::parse(text)
}

const EVERY_KEY: &str = "\
log = \"/var/lib/slowpath\"
host = \"web-17\"
namespaces = \"own\"
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
trace-paths = 20
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
    let command = slowpath_cli::args::Cli::command();
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
        ("namespaces = \"some\"", 1, "neither own nor all"),
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
    let example = include_str!("../../../packaging/agent.toml");
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
    default.trace_paths = Some(10);
    default.record.ports = Some(Ports(vec![80, 443]));
    default.retention_age = Some(Age(Duration::from_secs(30 * 24 * 3600)));
    assert_eq!(shown, Some(default));
}
