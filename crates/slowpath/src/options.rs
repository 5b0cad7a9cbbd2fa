// SPDX-License-Identifier: Apache-2.0
//! Options that several commands share, and the values of them.

use crate::failure::Outcome;
use clap::{Args, ValueEnum};
use serde::Deserialize;
pub(crate) use slowpath_agent::service::{duration, interval};
use slowpath_agent::{Budget, CommandLines, Rules};
use slowpath_model::{Problem, ProblemSet, did_you_mean};
use slowpath_views::criterion::Criterion;
use std::path::Path;
use std::time::Duration;

/// How to observe connections.
#[derive(Clone, Debug, Args)]
pub struct Observing {
    /// Mean time between two polls
    #[arg(long, value_name = "DURATION", default_value = "500ms", value_parser = interval)]
    pub interval: Duration,
    /// Where statistics come from; auto takes the best this machine allows
    #[arg(long, value_enum, default_value_t = TierArg::Auto)]
    pub tier: TierArg,
    /// Use between LOW and HIGH percent of one core, as in 1,2: connections with problems are
    /// polled more often, the others less often [default: all alike, whatever it costs]
    #[arg(long, value_name = "LOW,HIGH")]
    pub cpu_budget: Option<Budget>,
    /// Rules that name applications by process, unit or container; docs/reference/owners.md
    #[arg(long, value_name = "FILE", value_parser = owner_rules)]
    pub owners: Option<Rules>,
    /// How much of each command line the log keeps; live views show all of it
    #[arg(long, value_enum, default_value_t = CommandLinesArg::Program)]
    pub log_command_lines: CommandLinesArg,
}

/// `--log-command-lines`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CommandLinesArg {
    /// The program's name only
    Program,
    /// Arguments too, except those that look like secrets
    NoSecrets,
    /// All of it
    Full,
}

impl From<CommandLinesArg> for CommandLines {
    fn from(argument: CommandLinesArg) -> Self {
        match argument {
            CommandLinesArg::Program => CommandLines::Program,
            CommandLinesArg::NoSecrets => CommandLines::NoSecrets,
            CommandLinesArg::Full => CommandLines::Full,
        }
    }
}

/// The most that is read of rules: some ten thousand of them.
const MOST_RULES: u64 = 4 << 20;

/// Reads rules that name applications.
pub(crate) fn owner_rules(file: &str) -> Result<Rules, String> {
    let text = slowpath_files::read_text(Path::new(file), MOST_RULES)
        .map_err(|e| format!("reading owner rules {file}: {e}"))?;
    Rules::parse(&text).map_err(|e| format!("reading owner rules {file}: {e}"))
}

/// `--tier`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum TierArg {
    Auto,
    Bpf,
    InetDiag,
}

/// How to answer.
#[derive(Clone, Copy, Debug, Args)]
pub struct Answering {
    /// Print JSON; docs/reference/cli.md lists the keys
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub exit: ExitOn,
}

/// When the exit status is 3.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct ExitOn {
    /// Exit with status 3 if a problem was found
    #[arg(long)]
    pub exit_code: bool,
    /// With --exit-code: only if it took this part of a connection's time or more, as in 5%
    #[arg(long, value_name = "PERCENT", requires = "exit_code", value_parser = share)]
    pub min_share: Option<f64>,
    /// With --exit-code: only if it is one of these, as in Timeout,FastRetransmit
    #[arg(long = "problem", value_name = "NAME[,NAME...]", requires = "exit_code", value_parser = problems)]
    pub problems: Option<ProblemSet>,
}

impl ExitOn {
    /// How a command ends that found what `found` says of the problems that count.
    pub fn outcome(self, found: impl FnOnce(&Criterion) -> bool) -> Outcome {
        let criterion = Criterion {
            problems: self.problems.unwrap_or(ProblemSet::EMPTY),
            min_share: self.min_share.unwrap_or(0.0),
        };
        Outcome::of(self.exit_code, self.exit_code && found(&criterion))
    }
}

/// A share in percent, from 0 to 100, as a part of 1.
pub(crate) fn share(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).trim_end();
    match number.parse::<f64>() {
        Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(percent / 100.0),
        _ => Err("write a share as a percentage from 0 to 100, as in 5%".to_owned()),
    }
}

/// Names of problems, with commas between them.
fn problems(text: &str) -> Result<ProblemSet, String> {
    let found = Problem::ALL
        .into_iter()
        .filter(|p| *p != Problem::SenderAppLimited);
    let names = |name: &str| match Problem::from_name(name.trim()) {
        Some(Problem::SenderAppLimited) => {
            Err("SenderAppLimited is the time that no problem took, and none itself".to_owned())
        }
        Some(problem) => Ok(problem),
        None => {
            let all: Vec<&str> = found.clone().map(Problem::name).collect();
            let known = did_you_mean(name, &all);
            Err(format!("there is no problem {name:?}{known}"))
        }
    };
    text.split(',').map(names).collect()
}

/// Where a time range begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    /// So long before now.
    Ago(Duration),
    /// At this moment.
    At(std::time::SystemTime),
}

pub(crate) fn since(text: &str) -> Result<Since, String> {
    if let Ok(ago) = humantime::parse_duration(text) {
        return Ok(Since::Ago(ago));
    }
    humantime::parse_rfc3339_weak(text)
        .map(Since::At)
        .map_err(|_| {
            "write a duration (10m, 2h, 1d) or a moment in UTC (2026-01-31T12:00:00Z)".to_owned()
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_durations_or_moments() {
        assert_eq!(since("10m"), Ok(Since::Ago(Duration::from_secs(600))));
        assert!(matches!(since("2026-01-31T12:00:00Z"), Ok(Since::At(_))));
        assert!(since("yesterday").is_err());
        assert!(duration("0s").is_err());
        assert!(interval("1ms").is_err());
    }

    #[test]
    fn shares_are_percentages_and_problems_have_names() {
        assert_eq!(share("5%"), Ok(0.05));
        assert_eq!(share("0"), Ok(0.0));
        assert_eq!(share("100 %"), Ok(1.0));
        for wrong in ["", "%", "-1", "100.1", "NaN", "a"] {
            assert!(share(wrong).is_err(), "{wrong}");
        }
        let both = ProblemSet::EMPTY
            .with(Problem::Timeout)
            .with(Problem::DelayedAck);
        assert_eq!(problems("timeout, DelayedAck"), Ok(both));
        for wrong in ["", "Timeout,", "Slow", "SenderAppLimited"] {
            assert!(problems(wrong).is_err(), "{wrong}");
        }
    }
}
