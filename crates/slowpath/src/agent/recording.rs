// SPDX-License-Identifier: Apache-2.0
//! Which connections the agent records and keeps.

use crate::record::{beforehand, release};
use clap::Args;
use slowpath_agent::service::{Age, Journal, Ports, Size};
use slowpath_agent::{Agent, KeepFilter, Laboratory, RecordOptions, kernel, ring};
use slowpath_lab::virtual_time::SOURCE;
use slowpath_machine::system_names::SystemNames;
use slowpath_recording::RecorderKind;
use slowpath_views::filter::{Filter, Subject};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// Which recorded connections are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordSelection {
    /// Nothing is recorded.
    None,
    /// Those with a problem that someone other than the sending application has to act on.
    Problems,
    /// Those that are held when SIGUSR1 comes.
    Asked,
    /// Those that it selects.
    Filter(Box<Filter>),
}

impl FromStr for RecordSelection {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.trim() {
            "" => Err("write none, problems, asked or a filter, as in dport = :443".to_owned()),
            "none" => Ok(RecordSelection::None),
            "problems" => Ok(RecordSelection::Problems),
            "asked" => Ok(RecordSelection::Asked),
            filter => Filter::parse(filter, &SystemNames::default())
                .map(|filter| RecordSelection::Filter(Box::new(filter)))
                .map_err(|error| {
                    format!("neither none, problems nor asked, and as a filter: {error}")
                }),
        }
    }
}

impl fmt::Display for RecordSelection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecordSelection::None => f.write_str("none"),
            RecordSelection::Problems => f.write_str("problems"),
            RecordSelection::Asked => f.write_str("asked"),
            RecordSelection::Filter(filter) => filter.fmt(f),
        }
    }
}

fn wanted(selection: &RecordSelection) -> KeepFilter {
    match selection {
        RecordSelection::None | RecordSelection::Asked => KeepFilter::none(),
        RecordSelection::Problems => KeepFilter::problems(),
        RecordSelection::Filter(filter) => {
            let filter = filter.clone();
            KeepFilter::new(move |live| {
                filter.selects(&Subject {
                    local: live.snapshot.tuple.local,
                    remote: live.snapshot.tuple.remote,
                    state: live.snapshot.stats.state,
                    owner: &live.owner,
                    problems: live.problems(),
                })
            })
        }
    }
}

/// What a file or the command line says of recording.
#[derive(Clone, Debug, Default, PartialEq, Args)]
pub struct RecordSettings {
    /// Record connections into a ring in memory, by BPF, and keep some as files: `problems` keeps those with a
    /// problem; `asked` keeps all that the ring holds when SIGUSR1 comes; a filter as in watch keeps those
    /// that it selects [default: none]
    #[arg(long, value_name = "WHICH")]
    pub record: Option<RecordSelection>,
    /// Record only connections to or from these ports, as in 80,443 [default: all]
    #[arg(long, value_name = "PORTS")]
    pub record_ports: Option<Ports>,
    /// Where recordings are kept [default: recordings in the log's directory]
    #[arg(long, value_name = "DIR")]
    pub record_to: Option<PathBuf>,
    /// Memory that the ring may take [default: 64MiB]
    #[arg(long, value_name = "SIZE")]
    pub record_ring: Option<Size>,
    /// How long a connection stays in the ring after its end [default: 10m]
    #[arg(long, value_name = "DURATION")]
    pub record_age: Option<Age>,
    /// Delete the oldest recordings when all that are kept take more than this [default: 256MiB]
    #[arg(long, value_name = "SIZE")]
    pub record_size: Option<Size>,
}

impl RecordSettings {
    /// These, and where they say nothing, `others`.
    #[must_use]
    pub fn or(self, others: RecordSettings) -> Self {
        RecordSettings {
            record: self.record.or(others.record),
            record_ports: self.record_ports.or(others.record_ports),
            record_to: self.record_to.or(others.record_to),
            record_ring: self.record_ring.or(others.record_ring),
            record_age: self.record_age.or(others.record_age),
            record_size: self.record_size.or(others.record_size),
        }
    }

    /// What holds if the log is kept there.
    pub(super) fn effective(self, log: Option<&PathBuf>) -> Recording {
        Recording {
            keep: self.record.unwrap_or(RecordSelection::None),
            ports: self.record_ports,
            folder: self.record_to.or_else(|| Some(log?.join("recordings"))),
            ring: self.record_ring.unwrap_or(Size(64 << 20)),
            age: self.record_age.unwrap_or(Age(Duration::from_secs(600))),
            size: self.record_size.unwrap_or(Size(256 << 20)),
        }
    }
}

/// The settings of recording that hold.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct Recording {
    pub keep: RecordSelection,
    pub ports: Option<Ports>,
    pub folder: Option<PathBuf>,
    pub ring: Size,
    pub age: Age,
    pub size: Size,
}

impl Recording {
    /// Each key with its value, as in the file.
    pub(super) fn entries(&self) -> Vec<(&'static str, String)> {
        let mut entries = vec![("record", self.keep.to_string())];
        let ports = self.ports.as_ref();
        entries.extend(ports.map(|ports| ("record-ports", ports.to_string())));
        let folder = self.folder.as_ref();
        entries.extend(folder.map(|folder| ("record-to", folder.display().to_string())));
        entries.push(("record-ring", self.ring.to_string()));
        entries.push(("record-age", self.age.to_string()));
        entries.push(("record-size", self.size.to_string()));
        entries
    }
}

/// Starts recording if the settings ask for it, and reports what is recorded, or why nothing is.
pub(super) fn start(agent: &mut Agent, settings: &Recording, journal: Journal) {
    let (Some(folder), false) = (&settings.folder, settings.keep == RecordSelection::None) else {
        return;
    };
    let ports = settings.ports.clone().map_or(Vec::new(), |it| it.0);
    let started = agent.record(RecordOptions {
        ring: ring::Options {
            bytes: usize::try_from(settings.ring.0).unwrap_or(usize::MAX),
            age: settings.age.0,
            ..ring::Options::default()
        },
        folder: folder.clone(),
        folder_bytes: settings.size.0,
        wanted: wanted(&settings.keep),
        laboratory: Laboratory {
            version: SOURCE,
            takes: |addresses, settings| {
                let possible = slowpath_replay::possible_settings(addresses, settings);
                possible.map_err(|reason| reason.to_string())
            },
        },
        open: Box::new(move || kernel(&ports)),
    });
    match started {
        Ok(()) => {
            journal.say(&format!(
                "records connections into a ring of {}, and keeps {} in {}",
                settings.ring,
                match &settings.keep {
                    RecordSelection::Problems => "those with problems".to_owned(),
                    RecordSelection::Filter(filter) => format!("those that are `{filter}`"),
                    RecordSelection::Asked | RecordSelection::None =>
                        "what it holds at SIGUSR1".to_owned(),
                },
                folder.display()
            ));
            let recorder = agent.recorder().map(|state| state.recorder);
            if recorder == Some(RecorderKind::Tracepoints) {
                journal.say("this kernel does not let BPF attach to its functions (fentry): it records by tracepoints, and a replay may part from that");
            }
            for line in recorder
                .map(|it| beforehand(&it, &release(), SOURCE))
                .unwrap_or_default()
            {
                journal.say(&line);
            }
        }
        Err(error) => journal.warn(&format!("nothing is recorded: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_to_keep_is_a_word_or_a_filter() {
        for text in [
            "none",
            "problems",
            "asked",
            "dport = :443 and problem = Timeout",
        ] {
            let selection: RecordSelection = text.parse().unwrap();
            assert_eq!(
                selection.to_string().parse::<RecordSelection>().unwrap(),
                selection,
                "{text}"
            );
        }
        let error = "problem".parse::<RecordSelection>().unwrap_err();
        assert!(error.contains("neither none"), "{error}");
    }
}
