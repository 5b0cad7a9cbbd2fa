// SPDX-License-Identifier: Apache-2.0
//! `slowpath why`: looks for a while, then gives one answer.

mod answer;
mod target;

pub use answer::{Answer, Member};
pub use target::{Fit, Target, TargetError};

use crate::failure::{Failure, Outcome};
use crate::filter::SystemNames;
use crate::interactions::Joined;
use crate::listeners::Heard;
use crate::progress::Progress;
use crate::render::{Paint, plural};
use crate::session::{self, Flow, Viewer};
use crate::source::{Live, LiveListener, PollReport, Source};
use crate::tally::{Tally, trouble};
use slowpath_model::{ConnectionId, ListenerId, Micros, MonoNanos, Owner, Problem};
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::Write;
use std::time::Duration;

/// How to answer.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How long to look.
    pub length: Duration,
    /// JSON.
    pub json: bool,
    /// Exit status 3 when problems were found.
    pub exit_code: bool,
}

/// Listening sockets listed at most.
const MOST_LISTENING: usize = 1_000;

struct Candidate {
    member: Member,
    fit: Fit,
    /// End of the last interval added.
    until: MonoNanos,
    /// First and last poll that saw it.
    seen: (MonoNanos, MonoNanos),
}

struct Looking<'a> {
    target: &'a Target,
    candidates: HashMap<ConnectionId, Candidate>,
    listening: BTreeMap<ListenerId, LiveListener>,
    heard: Heard,
    joined: Joined,
    begun: Option<MonoNanos>,
    last: PollReport,
    others_with_owner: u64,
    owners_unknown: u64,
    progress: Progress,
}

impl Looking<'_> {
    fn take(&mut self, live: Live<'_>, at: MonoNanos) {
        let Some(fit) = self.target.fits(live) else {
            return;
        };
        let begun = self.begun.unwrap_or(at);
        let candidate = self
            .candidates
            .entry(live.snapshot.id)
            .or_insert_with(|| Candidate {
                member: Member {
                    id: live.snapshot.id,
                    tuple: live.snapshot.tuple,
                    real_peer: None,
                    owner: Owner::default(),
                    stats: live.snapshot.stats,
                    tally: Tally::default(),
                },
                fit,
                until: begun,
                seen: (at, at),
            });
        candidate.seen.1 = at;
        candidate.member.stats = live.snapshot.stats;
        candidate.member.real_peer = live.real_peer;
        if live.owner.process().is_some() || candidate.member.owner.process().is_none() {
            candidate.member.owner.clone_from(live.owner);
        }
        if let Some(verdict) = live.latest {
            // An interval that ended before the looking began says nothing about now.
            if verdict.to > candidate.until {
                candidate.until = verdict.to;
                candidate.member.tally.add(verdict);
            }
        }
    }
}

impl Viewer for Looking<'_> {
    fn polled(
        &mut self,
        source: &dyn Source,
        report: &PollReport,
        elapsed: Micros,
    ) -> Result<Flow, Failure> {
        self.begun.get_or_insert(report.at);
        self.last = *report;
        let (mut with, mut unknown) = (0, 0);
        for live in source.recently_closed().chain(source.connections()) {
            match live.owner.process() {
                Some(_) => with += 1,
                None => unknown += 1,
            }
            self.take(live, report.at);
        }
        self.joined.polled(source, report);
        for listener in source.listeners() {
            if self.target.fits_listener(listener) {
                self.heard.take(listener);
                if self.listening.len() < MOST_LISTENING {
                    self.listening
                        .insert(listener.snapshot.id, listener.clone());
                }
            }
        }
        (self.others_with_owner, self.owners_unknown) = (with, unknown);
        let note = plural(self.candidates.len() as u64, "connection");
        self.progress.at(elapsed, &note);
        Ok(Flow::Continue)
    }
}

/// Looks at the target and writes the answer.
///
/// # Errors
/// [`Failure::NotFound`] when no connection fits; when a poll or the output fails.
pub fn run(
    source: &mut dyn Source,
    events: &std::sync::mpsc::Receiver<crate::events::Event>,
    target: &Target,
    options: Options,
    paint: Paint,
    out: &mut dyn Write,
) -> Result<Outcome, Failure> {
    let answer = look(source, events, target, options.length)?;
    if options.json {
        writeln!(out, "{}", answer.json(source))?;
    } else {
        for line in answer.lines(source, paint) {
            writeln!(out, "{line}")?;
        }
    }
    out.flush()?;
    let limited = answer.total.dominating() != Problem::SenderAppLimited;
    let found = limited || !answer.heard.is_empty();
    Ok(Outcome::of(options.exit_code, found))
}

/// The target in `text`.
///
/// # Errors
/// [`Failure::Usage`] for a text that is none, [`Failure::NotFound`] for a host or a process
/// that is not there.
pub fn target(text: &str) -> Result<Target, Failure> {
    let target = Target::parse(text, &SystemNames::default()).map_err(|error| match error {
        TargetError::Host(_) => Failure::NotFound(error.to_string()),
        _ => Failure::Usage(error.to_string()),
    })?;
    if let Target::Pid(pid) = target
        && !std::path::Path::new(&format!("/proc/{pid}")).exists()
    {
        return Err(Failure::NotFound(format!(
            "there is no process {pid}; for a port write :{pid}"
        )));
    }
    Ok(target)
}

fn look(
    source: &mut dyn Source,
    events: &std::sync::mpsc::Receiver<crate::events::Event>,
    target: &Target,
    length: Duration,
) -> Result<Answer, Failure> {
    let mut looking = Looking {
        target,
        candidates: HashMap::new(),
        listening: BTreeMap::new(),
        heard: Heard::default(),
        joined: Joined::default(),
        begun: None,
        last: PollReport::default(),
        others_with_owner: 0,
        owners_unknown: 0,
        progress: Progress::new("looking", length),
    };
    let looked = session::run(source, events, Some(length), &mut looking)?;
    looking.progress.clear();
    let best = looking.candidates.values().map(|c| c.fit).min();
    let fit = match best {
        Some(fit) => fit,
        None if !looking.listening.is_empty() => Fit::Port,
        None => return Err(Failure::NotFound(nothing(target, looked, &looking))),
    };
    let mut total = Tally::default();
    let mut idle = Micros::ZERO;
    let mut members = Vec::new();
    for candidate in looking.candidates.into_values() {
        if candidate.fit != fit {
            continue;
        }
        let mut member = candidate.member;
        let life = candidate.seen.1.since(candidate.seen.0);
        let rest = life.saturating_sub(member.tally.totals.observed);
        member.tally.idle(rest);
        idle += rest;
        members.push(member);
    }
    // The order decides which gauges a sum ends with: that of the worst connection.
    members.sort_by_key(|m| (trouble(&m.tally.totals.problem_time), Reverse(m.id)));
    for member in &members {
        total.merge(&member.tally);
    }
    members.reverse();
    let meant: HashSet<ConnectionId> = members.iter().map(|m| m.id).collect();
    let interactions = looking.joined.all(|id| meant.contains(id));
    let interactions = interactions.into_iter().cloned().collect();
    Ok(Answer {
        target: target.to_string(),
        looked,
        fit,
        total,
        idle,
        members,
        listening: looking.listening.into_values().collect(),
        heard: looking.heard,
        interactions,
    })
}

fn nothing(target: &Target, looked: Micros, looking: &Looking<'_>) -> String {
    let mut text = format!(
        "no TCP connection of {target} in {looked}; {} seen",
        plural(
            looking.others_with_owner + looking.owners_unknown,
            "connection"
        )
    );
    if looking.owners_unknown > 0 && matches!(target, Target::Pid(_) | Target::Name { .. }) {
        text.push_str(&format!(
            ", of which {} have no known owner: run as root, or name the peer (HOST:PORT)",
            looking.owners_unknown
        ));
    }
    text.push_str(". Look longer (--for 30s), or at everything (slowpath watch)");
    text
}

#[cfg(test)]
mod tests;
