// SPDX-License-Identifier: Apache-2.0
//! The answer, as text and as JSON.

use super::Fit;
use crate::advice::{self, HostFigures};
use crate::interactions::{self, FoundInteraction, InteractionOutput};
use crate::json::{
    self, ConnectionEntry, ConnectionKeys, Evidence, Losses, NamedAdvice, TallyKeys,
};
use crate::listeners::{ListenerEntry, ListenerTally};
use crate::points;
use crate::source::Source;
use crate::tally::Tally;
use crate::watch::unmeasured_lines;
#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;
use slowpath_diagnose::Advice;
use slowpath_model::{
    ConnectionId, FourTuple, Micros, Owner, Problem, Stage, TcpStats, WallMicros,
};
use slowpath_text::evidence;
use slowpath_text::{Columns, Paint, ends, percent, plural, process, whereabouts};
use std::net::SocketAddr;

/// Connections listed.
const LISTED: usize = 5;
/// Columns that the text of a point may take.
const WIDTH: usize = 84;

/// A connection that is meant.
#[derive(Clone, Debug)]
pub struct Member {
    /// Which one.
    pub id: ConnectionId,
    /// Its addresses.
    pub tuple: FourTuple,
    /// The peer behind address translation, where it is another one.
    pub real_peer: Option<SocketAddr>,
    /// Its owner, or why it is unknown.
    pub owner: Owner,
    /// Its statistics when last observed.
    pub stats: TcpStats,
    /// Its time.
    pub tally: Tally,
}

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
    /// Problems that explain each other, of the connections that are meant and others.
    pub(super) interactions: Vec<FoundInteraction>,
}

impl Answer {
    /// Whether anything but the application limits.
    pub fn problems_found(&self) -> bool {
        self.total.dominating() != Problem::SenderAppLimited || !self.listeners.is_empty()
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

    /// The addresses, if all connections go to one host.
    fn tuple(&self) -> Option<FourTuple> {
        let first = self.members.first()?.tuple;
        self.members
            .iter()
            .all(|m| m.tuple.remote.ip() == first.remote.ip())
            .then_some(first)
    }

    /// Advice after the connection that has most of the problem: the numbers of one
    /// connection fit each other, those of a sum do not.
    fn advice(&self, problem: Problem, source: &dyn Source) -> Option<Advice> {
        let worst = self
            .members
            .iter()
            .max_by_key(|m| m.tally.totals.problem_time[problem as usize])?;
        let verdict = worst.tally.verdict(worst.id);
        let context = HostFigures::read(source).with(Some(&worst.stats));
        let finding = worst.tally.finding(problem);
        Some(advice::on(&finding, &verdict, &context))
    }

    /// The answer in lines.
    pub fn lines(&self, source: &dyn Source, paint: Paint) -> Vec<String> {
        if self.members.is_empty() {
            return self.only_listening(source, paint);
        }
        let total = &self.total;
        let problem = total.dominating();
        let mut lines = vec![paint.bold(&format!("{}, over {}", self.subject(), self.looked))];
        if self.fit == Fit::OwnEnd {
            lines.push(format!(
                "(no connection to {}: these are its own, from this end)",
                self.target
            ));
        }
        lines.push(String::new());
        let mut verdict = format!(
            "Limited by {}: {problem}, {} of the time",
            evidence::stage(problem),
            percent(total.share(problem))
        );
        let application = total.share(Problem::SenderAppLimited);
        if problem != Problem::SenderAppLimited && application > total.share(problem) {
            verdict += &format!("; {} is the application's", percent(application));
        }
        lines.push(paint.problem(problem, &paint.bold(&verdict)));
        lines.extend(points::lines(self.points(problem, source), WIDTH));
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
        let notes = self.notes(source);
        if !notes.is_empty() {
            lines.push(String::new());
            lines.extend(notes);
        }
        lines
    }

    fn points(&self, problem: Problem, source: &dyn Source) -> Vec<(&'static str, String)> {
        let mut points: Vec<(&'static str, String)> = Vec::new();
        let total = &self.total;
        let observed = total.totals.observed;
        if problem == Problem::SenderAppLimited && self.idle.0 * 2 > observed.0 {
            points.push((
                "",
                format!(
                    "nothing was sent or acknowledged for {} of {observed}",
                    self.idle
                ),
            ));
        }
        let advice = self.advice(problem, source);
        if let Some(advice) = &advice {
            points.push(("act", advice::who(advice.who, self.owner(), self.tuple())));
        }
        let numbers = evidence::of(problem, &total.deltas, observed);
        points.push(("evidence", numbers.join(", ")));
        if total.coarse.contains(problem) {
            points.push((
                "",
                "(how long it lasts is not measured: whole intervals count, so the share is an \
                 upper bound)"
                    .to_owned(),
            ));
        }
        if let Some(advice) = advice {
            points.push(("advice", advice.what));
            points.push(("after", advice.source.to_owned()));
        }
        for also in total.found().into_iter().filter(|p| *p != problem) {
            let numbers = evidence::of(also, &total.deltas, observed);
            points.push((
                "also",
                format!(
                    "{also}, {} of the time: {}",
                    percent(total.share(also)),
                    numbers.join(", ")
                ),
            ));
        }
        points
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
        if self.listeners.is_empty() {
            lines.push("No connection was turned away.".to_owned());
        }
        lines.extend(self.listener_lines(paint));
        let notes = self.notes(source);
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
            worst.row([
                problem.name().to_owned(),
                percent(member.tally.share(problem)),
                process(&member.owner),
                ends(&member.tuple, member.real_peer),
            ]);
        }
        worst.lines(2, paint)
    }

    /// What could not be measured or was lost.
    fn notes(&self, source: &dyn Source) -> Vec<String> {
        let mut notes = unmeasured_lines(source.capabilities(), &source.losses());
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
        let connection = |m: &Member| ConnectionEntry {
            connection: ConnectionKeys::of(&m.id, m.tuple, m.real_peer, &m.owner),
            tally: (&m.tally).into(),
        };
        let advice = self.advice(problem, source).map(|advice| NamedAdvice {
            act: advice::who(advice.who, self.owner(), self.tuple()),
            advice: (&advice).into(),
        });
        WhyOutput {
            kind: "why",
            time: json::wall(now),
            target: self.target.clone(),
            tally: (&self.total).into(),
            looked_us: self.looked.0,
            idle_us: self.idle.0,
            stage: problem.stage(),
            evidence: (&self.total.deltas).into(),
            advice,
            connections: self.members.iter().map(connection).collect(),
            interactions: self.interactions.iter().map(|i| i.output(now)).collect(),
            listening: self.listening.len(),
            listeners: self.listeners.output(),
            capabilities: source.capabilities().into(),
            losses: (&source.losses()).into(),
        }
    }
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
    /// The numbers behind the verdict.
    #[cfg_attr(test, schemars(schema_with = "crate::schema::evidence"))]
    pub evidence: Evidence,
    /// What to do, after the connection that has most of the problem.
    pub advice: Option<NamedAdvice>,
    /// The connections that are meant, most problem time first.
    pub connections: Vec<ConnectionEntry>,
    /// Problems that explain each other.
    pub interactions: Vec<InteractionOutput>,
    /// Listening sockets that are meant.
    pub listening: usize,
    /// Those of them that turned connections away.
    pub listeners: Vec<ListenerEntry>,
    /// What can be measured.
    pub capabilities: json::Capabilities,
    /// What was lost.
    pub losses: Losses,
}
