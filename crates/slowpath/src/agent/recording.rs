// SPDX-License-Identifier: Apache-2.0
//! Which connections the agent records and keeps.

use super::settings::Effective;
use crate::system_names::SystemNames;
use slowpath_agent::service::Journal;
use slowpath_agent::{Agent, KeepFilter, RecordOptions, RecorderState, kernel, ring};
use slowpath_recording::RecorderKind;
use slowpath_views::filter::{Filter, Subject};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

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

/// Where recordings are kept, if nothing else is said.
pub(super) fn default_folder(log: Option<&PathBuf>) -> Option<PathBuf> {
    Some(log?.join("recordings"))
}

/// Starts recording if the settings ask for it, and reports what is recorded, or why nothing is.
pub(super) fn start(agent: &mut Agent, settings: &Effective, journal: Journal) {
    let (Some(folder), false) = (
        &settings.record_to,
        settings.record == RecordSelection::None,
    ) else {
        return;
    };
    let ports = settings.record_ports.clone().map_or(Vec::new(), |it| it.0);
    let started = agent.record(RecordOptions {
        ring: ring::Options {
            bytes: usize::try_from(settings.record_ring.0).unwrap_or(usize::MAX),
            age: settings.record_age.0,
            ..ring::Options::default()
        },
        folder: folder.clone(),
        folder_bytes: settings.record_size.0,
        wanted: wanted(&settings.record),
        open: Box::new(move || kernel(&ports)),
    });
    match started {
        Ok(()) => {
            journal.say(&format!(
                "records connections into a ring of {}, and keeps {} in {}",
                settings.record_ring,
                match &settings.record {
                    RecordSelection::Problems => "those with problems".to_owned(),
                    RecordSelection::Filter(filter) => format!("those that are `{filter}`"),
                    RecordSelection::Asked | RecordSelection::None =>
                        "what it holds at SIGUSR1".to_owned(),
                },
                folder.display()
            ));
            let light = |state: &RecorderState| state.recorder == RecorderKind::Tracepoints;
            if agent.recorder().as_ref().is_some_and(light) {
                journal.say("this kernel does not let BPF attach to its functions (fentry): it records by tracepoints, and a replay may part from that");
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
