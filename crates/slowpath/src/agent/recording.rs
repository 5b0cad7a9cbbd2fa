// SPDX-License-Identifier: Apache-2.0
//! What the agent records and keeps: the settings' values, and how it is told.

use super::journal::Journal;
use super::settings::Effective;
use crate::render::{bytes, plural};
use crate::system_names::SystemNames;
use slowpath_agent::{
    Agent, KeepFilter, KeptRecording, LiveConnection, RecordOptions, RecorderState, kernel, ring,
};
use slowpath_model::{Precedence, Problem, ProblemSet, Stage};
use slowpath_recorder::handlers::MOST_PORTS;
use slowpath_views::filter::{Filter, Subject};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Which recorded connections are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordWhat {
    /// Nothing is recorded.
    None,
    /// Those with a problem that somebody other than the sending application has to act on.
    Problems,
    /// Those that are held when somebody asks (SIGUSR1).
    Asked,
    /// Those.
    Filter(Box<Filter>),
}

impl FromStr for RecordWhat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.trim() {
            "" => Err("write none, problems, asked or a filter, as in dport = :443".to_owned()),
            "none" => Ok(RecordWhat::None),
            "problems" => Ok(RecordWhat::Problems),
            "asked" => Ok(RecordWhat::Asked),
            filter => Filter::parse(filter, &SystemNames::default())
                .map(|filter| RecordWhat::Filter(Box::new(filter)))
                .map_err(|error| {
                    format!("neither none, problems nor asked, and as a filter: {error}")
                }),
        }
    }
}

impl fmt::Display for RecordWhat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecordWhat::None => f.write_str("none"),
            RecordWhat::Problems => f.write_str("problems"),
            RecordWhat::Asked => f.write_str("asked"),
            RecordWhat::Filter(filter) => filter.fmt(f),
        }
    }
}

/// Ports, as in `80,443`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ports(pub Vec<u16>);

impl FromStr for Ports {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let port = |text: &str| text.trim().parse::<u16>().ok().filter(|port| *port > 0);
        let ports: Option<Vec<u16>> = text.split(',').map(port).collect();
        match ports {
            None => Err("write ports as 80,443".to_owned()),
            Some(ports) if ports.len() > MOST_PORTS => {
                Err(format!("at most {MOST_PORTS} ports can be recorded"))
            }
            Some(ports) => Ok(Ports(ports)),
        }
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ports: Vec<String> = self.0.iter().map(u16::to_string).collect();
        f.write_str(&ports.join(","))
    }
}

/// Whether a problem makes a connection worth a replay: the sending application's own pace is none, nor is what nothing explains.
fn is_suspicious(problem: Problem) -> bool {
    problem.stage() != Stage::SenderApp && problem.precedence() != Precedence::Residue
}

fn problems(live: &LiveConnection) -> ProblemSet {
    let latest = live.latest.iter();
    latest
        .flat_map(|verdict| verdict.findings.iter().map(|finding| finding.problem))
        .collect()
}

fn wanted(what: &RecordWhat) -> KeepFilter {
    match what {
        RecordWhat::None | RecordWhat::Asked => KeepFilter::new(|_| false),
        RecordWhat::Problems => KeepFilter::new(|live| problems(live).iter().any(is_suspicious)),
        RecordWhat::Filter(filter) => {
            let filter = filter.clone();
            KeepFilter::new(move |live| {
                filter.selects(&Subject {
                    local: live.snapshot.tuple.local,
                    remote: live.snapshot.tuple.remote,
                    state: live.snapshot.stats.state,
                    owner: &live.owner,
                    problems: problems(live),
                })
            })
        }
    }
}

/// Where recordings are kept, if nothing else is said.
pub(super) fn default_folder(log: Option<&PathBuf>) -> Option<PathBuf> {
    Some(log?.join("recordings"))
}

/// What has been said of it.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// Connections that could not be kept, and the last of them.
    missing: u64,
    latest: Option<String>,
    ended: bool,
    troubles: [u64; 5],
    ipv6: bool,
}

/// Starts recording if that is wanted, and says so, or once that it cannot be done.
pub(super) fn start(agent: &mut Agent, settings: &Effective, journal: Journal) {
    let (Some(folder), false) = (&settings.record_to, settings.record == RecordWhat::None) else {
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
                    RecordWhat::Problems => "those with problems".to_owned(),
                    RecordWhat::Filter(filter) => format!("those that are `{filter}`"),
                    RecordWhat::Asked | RecordWhat::None => "what it holds at SIGUSR1".to_owned(),
                },
                folder.display()
            ));
            let light = |state: &RecorderState| state.recorder == slowpath_recording::TRACEPOINTS;
            if agent.recorder().as_ref().is_some_and(light) {
                journal.say("this kernel does not let BPF attach to its functions (fentry): it records by tracepoints, and a replay may part from that");
            }
        }
        Err(error) => journal.warn(&format!("nothing is recorded: {error}")),
    }
}

/// Says how it was.
pub(super) fn ended(state: Option<&RecorderState>, journal: Journal) {
    let Some(state) = state else { return };
    journal.say(&format!(
        "recorded {} in {} and {} of CPU time; kept {}",
        plural(state.counts.opened, "connection"),
        plural(state.counts.events, "event"),
        state.cpu,
        plural(state.counts.saved, "recording")
    ));
}

fn line(kept: &KeptRecording) -> Result<String, String> {
    let [a, b] = kept.addresses;
    let named = |end: usize| {
        let owner = kept.owners[end].as_ref();
        owner.map_or(String::new(), |owner| format!(" of {owner}"))
    };
    let who = format!("{a}{} to {b}{}", named(0), named(1));
    let reasons = kept.reasons.join(", ");
    match &kept.file {
        Ok(file) => {
            let lives = if kept.lives { ", which goes on" } else { "" };
            let file = file.display();
            Ok(format!("kept {who} ({reasons}){lives}: {file}"))
        }
        Err(reason) => Err(format!("{who} ({reasons}): {reason}")),
    }
}

impl Told {
    /// Says what was kept.
    pub(super) fn kept(&mut self, kept: &[KeptRecording], journal: Journal) {
        for it in kept {
            match line(it) {
                Ok(line) => journal.say(&line),
                Err(line) => {
                    self.missing += 1;
                    self.latest = Some(line);
                }
            }
        }
    }

    /// Says what went wrong since the last time; gives a few words about how it is.
    pub(super) fn status(&mut self, agent: &Agent, journal: Journal) -> Option<String> {
        let state = agent.recorder()?;
        if let (Some(reason), false) = (&state.ended, self.ended) {
            self.ended = true;
            journal.warn(&format!("nothing more is recorded: {reason}"));
        }
        if let Some(latest) = self.latest.take() {
            let more = std::mem::take(&mut self.missing) - 1;
            let others = match more {
                0 => String::new(),
                more => format!("; and {} more", plural(more, "connection")),
            };
            journal.warn(&format!("not kept: {latest}{others}"));
        }
        if state.ipv6_sockets > 0 && !self.ipv6 {
            self.ipv6 = true;
            journal.warn("connections over IPv6 are not recorded: tracepoints alone cannot tell their packets apart");
        }
        let counts = state.counts;
        let troubles = [
            counts.dropped_living + counts.dropped_large + counts.dropped_ended,
            counts.refused,
            state.lost_events,
            counts.cut_short,
            state.excess_sockets,
        ];
        if troubles != self.troubles {
            self.troubles = troubles;
            let [dropped, refused, lost, cut, unseen] = troubles;
            journal.warn(&format!(
                "the recorder since the start: {dropped} connections dropped from a full ring, {refused} not taken for want of CPU time, {lost} events lost, {cut} kept in part, {unseen} sockets too many at once"
            ));
        }
        let held = plural(state.ring_connections, "connection");
        Some(format!(", {held} in a ring of {}", bytes(state.ring_bytes)))
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
            let what: RecordWhat = text.parse().unwrap();
            assert_eq!(
                what.to_string().parse::<RecordWhat>().unwrap(),
                what,
                "{text}"
            );
        }
        let error = "problem".parse::<RecordWhat>().unwrap_err();
        assert!(error.contains("neither none"), "{error}");
    }

    #[test]
    fn ports_are_numbers() {
        assert_eq!("80, 443".parse(), Ok(Ports(vec![80, 443])));
        for wrong in ["", "0", "http", "80,", "65536"] {
            assert!(wrong.parse::<Ports>().is_err(), "{wrong}");
        }
        assert!(["1"; 17].join(",").parse::<Ports>().is_err());
    }

    /// The paper of SNAP has the sending application's own pace as the class of those that have no problem.
    #[test]
    fn the_applications_pace_and_what_nothing_explains_are_not_suspicious() {
        use Problem::*;
        let not: Vec<Problem> = Problem::ALL
            .into_iter()
            .filter(|it| !is_suspicious(*it))
            .collect();
        assert_eq!(
            not,
            [SenderAppLimited, CongestionWindowLimited, SmallWrites]
        );
    }
}
