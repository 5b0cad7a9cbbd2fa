// SPDX-License-Identifier: Apache-2.0
//! The answer, as text and as JSON.

use super::Fit;
use super::turns::{self, TurnsEntry};
use crate::advice::HostFigures;
use crate::conclusion::{Conclusion, EndEvidence, FailureEntry, Limiter, Member, OtherEnds};
use crate::criterion::Criterion;
use crate::interactions::{self, FoundInteraction, InteractionOutput};
use crate::json::{
    self, ConnectionEntry, ConnectionKeys, Evidence, LimitReached, Losses, NamedAdvice, TallyKeys,
};
use crate::listeners::{ListenerEntry, ListenerTally};
use crate::points;
use crate::source::Source;
use crate::tally::{Tally, share};
use crate::watch::unmeasured_lines;
#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;
use slowpath_diagnose::Advice;
use slowpath_model::{Micros, Owner, Problem, Stage, WallMicros};
use slowpath_text::{Columns, Paint, ends, percent, plural, process, whereabouts};
use std::net::SocketAddr;

/// Connections listed.
const LISTED: usize = 5;
/// Columns that the text of a point may take.
const WIDTH: usize = 84;

/// A listening socket that is meant.
#[derive(Clone, Debug)]
pub struct WatchedListener {
    /// A process that holds it.
    pub owner: Owner,
    /// The address it listens on.
    pub local: SocketAddr,
    /// Connections that wait for `accept`.
    pub accept_queue: u32,
    /// The most that may wait.
    pub backlog: u32,
}

/// One answer.
#[derive(Debug)]
pub struct Answer {
    pub(super) target: String,
    pub(super) looked: Micros,
    pub(super) fit: Fit,
    /// Time-weighted over all connections.
    pub total: Tally,
    /// Time in which nothing changed.
    pub(super) idle: Micros,
    /// Most problem time first.
    pub(super) members: Vec<Member>,
    /// Listening sockets that are meant.
    pub(super) listening: Vec<WatchedListener>,
    /// Those of them that turned connections away.
    pub(super) listeners: ListenerTally,
    /// The other ends on this machine.
    pub(super) other_ends: OtherEnds,
    /// Problems that explain each other, of the connections that are meant and others.
    pub(super) interactions: Vec<FoundInteraction>,
    /// A process that is meant, where that was asked about.
    pub(super) process: Option<u32>,
    /// Bounds beyond which something was left out, as JSON and as text.
    pub(super) limits_reached: Vec<LimitReached>,
    pub(super) limit_lines: Vec<String>,
}

impl Answer {
    /// Whether someone should act, for a reason that counts: the answer has the share, and if
    /// problems were named, rests on one of them that has it.
    pub fn problems_found(&self, criterion: &Criterion) -> bool {
        let answer = self.conclusion();
        let reason = || {
            if criterion.problems.is_empty() {
                return answer.share.unwrap_or(1.0) >= criterion.min_share;
            }
            let mut because = answer.because.iter();
            because.any(|b| {
                let problem = Problem::from_name(b.problem);
                problem.is_some_and(|p| criterion.names(p)) && b.share >= criterion.min_share
            })
        };
        answer.alarm && reason() || self.listeners.meet(criterion, self.looked)
    }

    fn single(&self) -> Option<&Member> {
        match self.members.as_slice() {
            [one] => Some(one),
            _ => None,
        }
    }

    /// The owner, if all connections have the same.
    fn owner(&self) -> Option<&Owner> {
        let first = self.members.first()?;
        self.members
            .iter()
            .all(|m| m.owner == first.owner)
            .then_some(&first.owner)
            .filter(|o| o.process().is_some())
    }

    /// Advice after the connection that the answer rests on: the numbers of one connection fit each other, those of
    /// a sum do not.
    fn advice(&self, conclusion: &Conclusion, source: &dyn Source) -> Option<Advice> {
        let evidence = conclusion.evidence.as_ref()?;
        let found = evidence.problem() != Problem::SenderAppLimited;
        (found || conclusion.limiter == Limiter::Application).then(|| {
            let host = HostFigures::read(source);
            evidence.advice(host, &self.interactions)
        })
    }

    /// The answer in lines.
    pub fn lines(&self, source: &dyn Source, paint: Paint) -> Vec<String> {
        if self.members.is_empty() {
            return self.only_listening(source, paint);
        }
        let mut lines = vec![paint.bold(&format!("{}, over {}", self.subject(), self.looked))];
        if self.fit == Fit::OwnEnd {
            lines.push(format!(
                "(no connection to {}: these are its own, from this end)",
                self.target
            ));
        }
        lines.push(String::new());
        let conclusion = self.conclusion();
        let headline = paint.bold(&format!("Limited by {}", conclusion.text));
        lines.push(paint.problem(conclusion.alarming(), &headline));
        lines.extend(points::lines(self.points(&conclusion, source), WIDTH));
        if self.single().is_none() {
            lines.push(String::new());
            lines.push("worst connections".to_owned());
            lines.extend(self.worst(paint));
        }
        if !self.interactions.is_empty() {
            lines.push(String::new());
            let found: Vec<&FoundInteraction> = self.interactions.iter().collect();
            lines.extend(interactions::answers(&found, LISTED, WIDTH, paint));
        }
        lines.extend(self.listener_lines(paint));
        let mut notes = self.notes(source);
        let state = self.process_state(&conclusion, source);
        notes.extend(state.and_then(ProcessStateOutput::not_judged));
        if !notes.is_empty() {
            lines.push(String::new());
            lines.extend(notes);
        }
        lines
    }

    /// The answer made of all verdicts.
    pub fn conclusion(&self) -> Conclusion {
        let refusing = self.listeners.refusing();
        self.other_ends
            .conclude(&self.members, &self.interactions, &refusing)
    }

    pub(super) fn points(
        &self,
        conclusion: &Conclusion,
        source: &dyn Source,
    ) -> Vec<(&'static str, String)> {
        let mut points: Vec<(&'static str, String)> = Vec::new();
        let observed = self.total.totals.observed;
        if conclusion.others + conclusion.idle > 0 || self.idle.0 * 2 > observed.0 {
            points.push(("", self.beside(conclusion)));
        }
        points.push(("act", conclusion.act.words()));
        let state = self.process_state(conclusion, source);
        let kept_from_working = state.and_then(ProcessStateOutput::kept_from_working);
        points.extend(kept_from_working.map(|text| ("", text)));
        let evidence = conclusion.evidence.as_ref();
        points.extend(
            evidence
                .and_then(|e| self.numbers(e))
                .map(|n| ("evidence", n)),
        );
        if evidence.is_some_and(EndEvidence::is_coarse) {
            let text = "(how long it lasts is not measured: whole intervals count, so the share is an upper \
                        bound)";
            points.push(("", text.to_owned()));
        }
        if let Some(advice) = self.advice(conclusion, source) {
            points.push(("advice", advice.what));
            points.push(("after", advice.source.to_owned()));
        }
        if let Some(line) = turns::line(&self.members, &self.other_ends) {
            points.push(("turns", line));
        }
        let deciding = evidence.map(EndEvidence::problem);
        for also in self
            .total
            .found()
            .into_iter()
            .filter(|p| Some(*p) != deciding)
        {
            points.extend(self.also(also).map(|text| ("also", text)));
        }
        points
    }

    /// The numbers, and of several connections which one they are of.
    fn numbers(&self, evidence: &EndEvidence) -> Option<String> {
        let mut numbers = evidence.numbers().join(", ");
        if numbers.is_empty() {
            return None;
        }
        if self.single().is_none() {
            numbers.push_str(&format!(" (of {})", evidence.tuple()));
        }
        Some(numbers)
    }

    /// A further problem, of the connection that it cost most.
    fn also(&self, problem: Problem) -> Option<String> {
        let time = |m: &&Member| m.tally.totals.problem_time[problem as usize];
        let evidence = self
            .members
            .iter()
            .rev()
            .max_by_key(time)?
            .evidence(problem);
        let share = percent(evidence.share());
        let numbers = self.numbers(&evidence);
        let numbers = numbers.map_or_else(String::new, |n| format!(": {n}"));
        Some(format!("{problem}, {share} of the time{numbers}"))
    }

    /// The state of the process that has to act, else of the one that all connections belong to.
    fn process_state(
        &self,
        conclusion: &Conclusion,
        source: &dyn Source,
    ) -> Option<ProcessStateOutput> {
        let acts = conclusion.act.process.as_ref().and_then(|p| p.pid);
        let owner = self.owner().and_then(Owner::pid);
        let pid = acts.or(owner).or(self.process)?;
        let state = source.process_state(pid)?;
        Some(ProcessStateOutput {
            pid,
            stopped: state.stopped,
            throttled: state.throttled,
            udp_sockets: state.udp_sockets,
            unix_sockets: state.unix_sockets,
        })
    }

    /// What the answer is not about.
    fn beside(&self, conclusion: &Conclusion) -> String {
        let mut words = Vec::new();
        if conclusion.others > 0 {
            let others = plural(conclusion.others as u64, "other connection");
            words.push(format!("{others} not counted"));
        }
        if conclusion.idle > 0 {
            words.push(format!(
                "{} idle",
                plural(conclusion.idle as u64, "connection")
            ));
        }
        let observed = self.total.totals.observed;
        if self.idle.0 * 2 > observed.0 {
            let idle = self.idle;
            words.push(match self.single() {
                Some(_) => format!("nothing was sent or acknowledged for {idle} of {observed}"),
                None => format!(
                    "nothing was sent or acknowledged for {} of their time",
                    percent(share(idle, observed))
                ),
            });
        }
        words.join("; ")
    }

    /// The answer where there are listening sockets and no connection.
    fn only_listening(&self, source: &dyn Source, paint: Paint) -> Vec<String> {
        let head = format!("{}, no connection, over {}", self.target, self.looked);
        let mut lines = vec![paint.bold(&head), String::new()];
        for live in self.listening.iter().take(LISTED) {
            lines.push(format!(
                "{}  listens on {}: {} wait for accept, backlog {}",
                process(&live.owner),
                live.local,
                live.accept_queue,
                live.backlog,
            ));
        }
        if self.listening.is_empty() {
            lines.push("It has no TCP connection, and listens nowhere.".to_owned());
        } else if self.listeners.is_empty() {
            lines.push("No connection was turned away.".to_owned());
        }
        lines.extend(self.listener_lines(paint));
        let mut notes = self.notes(source);
        let state = self.process_state(&self.conclusion(), source);
        notes.extend(state.and_then(ProcessStateOutput::not_judged));
        if !notes.is_empty() {
            lines.push(String::new());
            lines.extend(notes);
        }
        lines
    }

    fn listener_lines(&self, paint: Paint) -> Vec<String> {
        if self.listeners.is_empty() {
            return Vec::new();
        }
        let mut lines = vec![String::new()];
        lines.extend(self.listeners.answers(LISTED, WIDTH, paint));
        lines
    }

    fn subject(&self) -> String {
        let count = plural(self.members.len() as u64, "connection");
        match (self.single(), self.owner()) {
            (Some(m), _) => {
                let mut text = format!("{}  {}", process(&m.owner), ends(&m.tuple, m.real_peer));
                let whereabouts = whereabouts(&m.owner);
                if !whereabouts.is_empty() {
                    text.push_str(&format!("  ({whereabouts})"));
                }
                text
            }
            (None, Some(owner)) => format!("{}, {count}", process(owner)),
            (None, None) => format!("{}, {count}", self.target),
        }
    }

    fn worst(&self, paint: Paint) -> Vec<String> {
        let mut worst = Columns::new(&["verdict", ">share", "process", "connection"]);
        for member in self.members.iter().take(LISTED) {
            let problem = member.tally.dominating();
            let share = match problem {
                Problem::SenderAppLimited => member.tally.share(problem),
                _ => member.evidence(problem).share(),
            };
            worst.row([
                problem.name().to_owned(),
                percent(share),
                process(&member.owner),
                ends(&member.tuple, member.real_peer),
            ]);
        }
        worst.lines(2, paint)
    }

    /// What could not be measured or was lost.
    fn notes(&self, source: &dyn Source) -> Vec<String> {
        let mut notes = unmeasured_lines(source.capabilities(), &source.losses());
        notes.extend(self.limit_lines.iter().cloned());
        notes.extend(turns::unmeasured(&self.members, source.capabilities()));
        let nowhere = source.capabilities().unmeasured();
        let partly: Vec<&str> = self
            .total
            .totals
            .unmeasured
            .iter()
            .filter(|p| nowhere.iter().all(|(q, _)| p != q))
            .map(Problem::name)
            .collect();
        if !partly.is_empty() {
            notes.push(format!(
                "could not measure in some intervals: {}",
                partly.join(", ")
            ));
        }
        notes
    }

    /// What serialises, given at `now`.
    pub fn output(&self, source: &dyn Source, now: WallMicros) -> WhyOutput {
        let problem = self.total.dominating();
        let conclusion = self.conclusion();
        let connection = |m: &Member| WhyConnection {
            entry: ConnectionEntry {
                connection: ConnectionKeys::of(&m.id, m.tuple, m.real_peer, &m.owner),
                tally: (&m.tally).into(),
            },
            turns: TurnsEntry::of(m),
        };
        let advice = self.advice(&conclusion, source).map(|advice| NamedAdvice {
            act: conclusion.act.words(),
            advice: (&advice).into(),
        });
        let evidence = conclusion.evidence.as_ref().map(EndEvidence::deltas);
        WhyOutput {
            kind: "why",
            time: json::wall(now),
            target: self.target.clone(),
            tally: (&self.total).into(),
            looked_us: self.looked.0,
            idle_us: self.idle.0,
            stage: problem.stage(),
            process_state: self.process_state(&conclusion, source),
            evidence: (&evidence.unwrap_or(self.total.deltas)).into(),
            answer: conclusion,
            failures: self.other_ends.failures(&self.members),
            advice,
            connections: self.members.iter().map(connection).collect(),
            interactions: self.interactions.iter().map(|i| i.output(now)).collect(),
            listening: self.listening.len(),
            listeners: self.listeners.output(),
            limits_reached: self.limits_reached.clone(),
            capabilities: source.capabilities().into(),
            losses: (&source.losses()).into(),
        }
    }
}

/// A connection that is meant, and what is known of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct WhyConnection {
    /// Which connection, and its verdicts.
    #[serde(flatten)]
    pub entry: ConnectionEntry,
    /// Requests and answers; null if they could not be measured.
    pub turns: Option<TurnsEntry>,
}

/// What limits a process, a peer or a port: `{"type": "why"}`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct WhyOutput {
    /// `why`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// When it was given, RFC 3339 in UTC.
    pub time: String,
    /// What was asked about.
    pub target: String,
    /// All verdicts, time-weighted over the connections.
    #[serde(flatten)]
    pub tally: TallyKeys,
    /// How long the target was observed, in microseconds.
    pub looked_us: u64,
    /// Time of the connections in which nothing was sent or acknowledged, in microseconds.
    pub idle_us: u64,
    /// The stage that limits.
    #[cfg_attr(test, schemars(schema_with = "crate::schema::stage"))]
    pub stage: Stage,
    /// The answer made of all verdicts, of both ends where both are on this machine.
    pub answer: Conclusion,
    /// Connections that failed, by how, by peer and by process, most first.
    pub failures: Vec<FailureEntry>,
    /// What keeps the process that has to act, or that all connections belong to, from working; null if
    /// there is none on this machine, or it cannot be read.
    pub process_state: Option<ProcessStateOutput>,
    /// The numbers behind the verdict.
    #[cfg_attr(test, schemars(schema_with = "crate::schema::evidence"))]
    pub evidence: Evidence,
    /// What to do, after the connection that has most of the problem.
    pub advice: Option<NamedAdvice>,
    /// The connections that are meant, most problem time first.
    pub connections: Vec<WhyConnection>,
    /// Problems that explain each other.
    pub interactions: Vec<InteractionOutput>,
    /// Listening sockets that are meant.
    pub listening: usize,
    /// Those of them that turned connections away.
    pub listeners: Vec<ListenerEntry>,
    /// Bounds beyond which something was left out; empty: nothing was.
    pub limits_reached: Vec<LimitReached>,
    /// What can be measured.
    pub capabilities: json::Capabilities,
    /// What was lost.
    pub losses: Losses,
}

/// What keeps a process of this machine from working, and what of it is not judged.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct ProcessStateOutput {
    /// Which process.
    pub pid: u32,
    /// It is stopped, by a signal or a debugger.
    pub stopped: bool,
    /// The part of the periods of its cgroup's CPU quota in which that ran out, 0 to 1; null without a
    /// quota.
    pub throttled: Option<f64>,
    /// Its UDP sockets, which slowpath does not judge.
    pub udp_sockets: usize,
    /// Its Unix sockets, which slowpath does not judge.
    pub unix_sockets: usize,
}

/// A quota that runs out in a tenth of its periods is worth a line.
const THROTTLED: f64 = 0.1;

impl ProcessStateOutput {
    fn kept_from_working(self) -> Option<String> {
        let pid = self.pid;
        if self.stopped {
            return Some(format!(
                "process {pid} is stopped (by a signal or a debugger)"
            ));
        }
        let part = self.throttled.filter(|part| *part >= THROTTLED)?;
        Some(format!(
            "process {pid} has too little CPU: its cgroup's quota ran out in {} of the periods",
            percent(part)
        ))
    }

    fn not_judged(self) -> Option<String> {
        let mut sockets = Vec::new();
        if self.udp_sockets > 0 {
            sockets.push(plural(self.udp_sockets as u64, "UDP socket"));
        }
        if self.unix_sockets > 0 {
            sockets.push(plural(self.unix_sockets as u64, "Unix socket"));
        }
        (!sockets.is_empty()).then(|| {
            format!(
                "not judged: {} of process {}",
                sockets.join(" and "),
                self.pid
            )
        })
    }
}
