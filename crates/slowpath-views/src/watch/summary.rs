// SPDX-License-Identifier: Apache-2.0
//! The closing summary of a live view.

use crate::conclusion::{Conclusion, EndTable, FailureEntry, Member};
use crate::criterion::Criterion;
use crate::interactions::{self, FoundInteraction, InteractionFinder, InteractionOutput};
use crate::json::{self, ConnectionEntry, ConnectionKeys, LimitReached, Losses, Owners, TallyKeys};
use crate::listeners::{ListenerEntry, ListenerTally};
use crate::selection::Selection;
use crate::source::{Capabilities, LiveConnection, LiveListener, MOST_CLOSED, PollReport, Source};
use crate::tally::{Tally, trouble};
#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;
use slowpath_model::{
    ConnectionId, IntervalVerdict, ListenerInterval, LossCounters, Micros, Problem, WallMicros,
};
use slowpath_text::{Columns, Paint, ends, percent, plural, process};
use std::collections::{BTreeSet, HashSet};

/// Connections with sums of their own; those beyond share one sum.
const MOST: usize = 20_000;
/// Connections named.
const NAMED: usize = 5;

/// Verdicts summed over a view's life.
#[derive(Debug, Default)]
pub struct WatchSummary {
    connections: EndTable,
    others: Tally,
    overflowed: u64,
    unshown: u64,
    polls: u64,
    missed: u64,
    cpu: Micros,
    elapsed: Micros,
    undecided: HashSet<ConnectionId>,
    listeners: ListenerTally,
    interactions: InteractionFinder,
}

impl WatchSummary {
    /// Adds the verdict on one interval.
    pub fn add(&mut self, live: LiveConnection<'_>, verdict: &IntervalVerdict) {
        if self.connections.len() >= MOST && !self.connections.contains(&live.snapshot.id) {
            self.overflowed += 1;
            self.others.add(verdict);
            return;
        }
        self.connections.judged(live, verdict);
    }

    /// Looks for problems that explain each other; gives those that are new and have a
    /// connection that the view shows.
    pub fn join(&mut self, source: &dyn Source, report: &PollReport) -> Vec<FoundInteraction> {
        let mut fresh = self.interactions.polled(source, report);
        for found in &fresh {
            self.connections.explain(found);
        }
        self.connections.relate(source, report);
        let shown = |id: &ConnectionId| self.connections.contains(id);
        fresh.retain(|t| t.interaction.connections.iter().any(shown));
        fresh
    }

    /// The interactions that a connection is part of now.
    pub fn interactions_of(&self, id: ConnectionId) -> impl Iterator<Item = &FoundInteraction> {
        self.interactions.of(id)
    }

    /// Adds the latest verdict on a listener, if the view shows it and it is new; gives it,
    /// and the number of processes that hold it.
    pub fn listener(
        &mut self,
        live: LiveListener<'_>,
        selection: &Selection,
        now: WallMicros,
    ) -> Option<(ListenerInterval, usize)> {
        let latest = live.interval(now)?;
        if !selection.selects_listener(&latest) {
            return None;
        }
        Some((self.listeners.take(live, now)?, live.holders.len()))
    }

    /// Notes a connection of which it is not known whether it is the command's.
    pub fn undecided(&mut self, live: LiveConnection<'_>) {
        if self.undecided.len() < MOST {
            self.undecided.insert(live.snapshot.id);
        }
    }

    /// Connections of which it is not known, until now, whether they are the command's.
    fn unattributed(&self) -> u64 {
        let decided = |id| self.connections.contains(id);
        self.undecided.iter().filter(|id| !decided(*id)).count() as u64
    }

    /// Notes a poll.
    pub fn poll(&mut self, report: &PollReport, elapsed: Micros) {
        self.polls += 1;
        self.missed = report.missed;
        self.unshown += report.unshown;
        self.cpu += report.cpu;
        self.elapsed = elapsed;
    }

    /// The sum of everything.
    pub fn total(&self) -> Tally {
        let mut total = self.others.clone();
        for sum in self.connections.members() {
            total.merge(&sum.tally);
        }
        total
    }

    /// Connections that had any problem.
    pub fn problem_connections(&self) -> usize {
        self.connections
            .members()
            .filter(|s| !s.tally.found().is_empty())
            .count()
    }

    /// Whether a problem was found that counts; connections without sums of their own are judged
    /// by their sum.
    pub fn problems_found(&self, criterion: &Criterion) -> bool {
        let met =
            |tally: &Tally| criterion.is_met_by(&tally.totals.problem_time, tally.totals.observed);
        met(&self.others)
            || self.connections.members().any(|m| met(&m.tally))
            || self.listeners.meet(criterion, self.elapsed)
    }

    /// The connections with most problem time, most first.
    fn worst(&self) -> Vec<&Member> {
        let trouble = |s: &Member| trouble(&s.tally.totals.problem_time);
        let with_any = |s: &&Member| trouble(s) > Micros::ZERO;
        let mut worst: Vec<_> = self.connections.members().filter(with_any).collect();
        worst.sort_by_key(|s| (std::cmp::Reverse(trouble(s)), s.id));
        worst.truncate(NAMED);
        worst
    }

    /// The one answer made of all verdicts.
    pub fn conclusion(&self) -> Conclusion {
        let (members, others) = self.connections.clone().finish(|_| true);
        let joined: Vec<FoundInteraction> = self.joined().into_iter().cloned().collect();
        others.conclude(&members, &joined, &self.listeners.refusing())
    }

    /// The interactions found, of connections that the view showed.
    fn joined(&self) -> Vec<&FoundInteraction> {
        self.interactions.all(|id| self.connections.contains(id))
    }

    /// The summary in lines; `reasons_said` if the reasons why something cannot be measured
    /// stand above it already.
    pub fn lines(
        &self,
        capabilities: &Capabilities,
        losses: &LossCounters,
        reasons_said: bool,
        paint: Paint,
    ) -> Vec<String> {
        let total = self.total();
        let mut lines = vec![paint.bold(&format!(
            "{} over {}, {}: {} had problems",
            plural(self.connections.len() as u64, "connection"),
            self.elapsed,
            plural(self.polls, "poll"),
            self.problem_connections(),
        ))];
        if !self.connections.is_empty() {
            let conclusion = self.conclusion();
            let problem = conclusion.alarming();
            lines.push(paint.problem(problem, &format!("limited by {}", conclusion.text)));
        }
        lines.extend(self.problem_lines(&total, paint));
        lines.extend(self.listeners.table(NAMED, paint));
        let joined = self.joined();
        if !joined.is_empty() {
            lines.push("problems that explain each other".to_owned());
            let lines_of = joined.iter().take(NAMED);
            lines.extend(lines_of.map(|t| format!("  {}", interactions::line(t, paint))));
        }
        if reasons_said {
            let names: BTreeSet<&str> = capabilities
                .unmeasured()
                .into_iter()
                .map(|(p, _)| p.name())
                .collect();
            if !names.is_empty() {
                let names: Vec<&str> = names.into_iter().collect();
                lines.push(format!("could not measure: {}", names.join(", ")));
            }
            lines.extend(loss_line(losses));
        } else {
            lines.extend(unmeasured_lines(capabilities, losses));
        }
        lines.extend(self.gap_lines());
        lines
    }

    /// The problems found and the worst connections; nothing if none was found.
    fn problem_lines(&self, total: &Tally, paint: Paint) -> Vec<String> {
        let mut problems = Columns::new(&["problem", ">share", ">time", ">events"]);
        for problem in total.found() {
            let i = problem as usize;
            let coarse = if total.coarse.contains(problem) {
                " or less"
            } else {
                ""
            };
            problems.row([
                problem.name().to_owned(),
                percent(total.share(problem)),
                format!("{}{coarse}", total.totals.problem_time[i]),
                total.totals.problem_events[i].to_string(),
            ]);
        }
        if problems.is_empty() {
            return Vec::new();
        }
        let mut lines = problems.lines(2, paint);
        lines.push("worst connections".to_owned());
        let mut worst = Columns::new(&["problem", ">share", "process", "connection"]);
        for sum in self.worst() {
            let found = sum.tally.found();
            let problem = found.first().copied().unwrap_or(Problem::SenderAppLimited);
            worst.row([
                problem.name().to_owned(),
                percent(sum.tally.share(problem)),
                process(&sum.owner),
                ends(&sum.tuple, sum.real_peer),
            ]);
        }
        lines.extend(worst.lines(2, paint));
        lines
    }

    /// What was not observed, not listed or not attributed.
    fn gap_lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if self.missed > 0 {
            lines.push(format!(
                "not observed: {} at the last poll",
                plural(self.missed, "socket")
            ));
        }
        if self.overflowed > 0 {
            lines.push(format!(
                "not listed separately: {} beyond {MOST} connections",
                plural(self.overflowed, "verdict")
            ));
        }
        lines.extend(unshown_line(self.unshown));
        lines.extend(self.connections.limit_line());
        if self.unattributed() > 0 {
            lines.push(format!(
                "not attributed: {} whose owner is unknown or ended before it could be looked at",
                plural(self.unattributed(), "connection")
            ));
        }
        lines
    }

    /// What serialises, given at `now`.
    pub fn output(
        &self,
        capabilities: &Capabilities,
        losses: &LossCounters,
        now: WallMicros,
    ) -> SummaryOutput {
        let worst = |sum: &Member| ConnectionEntry {
            connection: ConnectionKeys::of(&sum.id, sum.tuple, sum.real_peer, &sum.owner),
            tally: (&sum.tally).into(),
        };
        let interactions = self.joined();
        let (members, others) = self.connections.clone().finish(|_| true);
        SummaryOutput {
            kind: "summary",
            time: json::wall(now),
            tally: (&self.total()).into(),
            answer: self.conclusion(),
            failures: others.failures(&members),
            elapsed_us: self.elapsed.0,
            polls: self.polls,
            connections: self.connections.len(),
            problem_connections: self.problem_connections(),
            owners: self.connections.members().map(|s| &s.owner).collect(),
            worst: self.worst().into_iter().map(worst).collect(),
            listeners: self.listeners.output(),
            interactions: interactions.iter().map(|i| i.output(now)).collect(),
            limits_reached: [
                LimitReached::of("connections", MOST, self.overflowed),
                LimitReached::of("closed_connections", MOST_CLOSED, self.unshown),
                self.connections.limit_reached(),
                self.listeners.limit_reached(),
            ]
            .into_iter()
            .flatten()
            .collect(),
            missed: self.missed,
            unattributed: self.unattributed(),
            cpu_us: self.cpu.0,
            losses: losses.into(),
            capabilities: capabilities.into(),
            command: None,
        }
    }
}

/// How the watched command ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct CommandOutcome {
    /// Its status in words; `still running` while it runs.
    pub command_status: Option<String>,
    /// Its exit status; null if a signal ended it.
    pub command_exit_code: Option<i32>,
    /// Processes of the command that were met.
    pub command_processes: usize,
}

/// What a live view found from its beginning to its end: `{"type": "summary"}`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct SummaryOutput {
    /// `summary`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// When it was given, RFC 3339 in UTC.
    pub time: String,
    /// All verdicts, time-weighted.
    #[serde(flatten)]
    pub tally: TallyKeys,
    /// The answer made of all verdicts, of both ends where both are on this machine.
    pub answer: Conclusion,
    /// Connections that failed, by how, by peer and by process, most first.
    pub failures: Vec<FailureEntry>,
    /// Time between the first and the last poll in microseconds.
    pub elapsed_us: u64,
    /// Polls made.
    pub polls: u64,
    /// Connections with a verdict.
    pub connections: usize,
    /// Connections that had any problem.
    pub problem_connections: usize,
    /// Whose connections they are.
    pub owners: Owners,
    /// The connections with most problem time.
    pub worst: Vec<ConnectionEntry>,
    /// Listeners that turned connections away.
    pub listeners: Vec<ListenerEntry>,
    /// Problems that explain each other.
    pub interactions: Vec<InteractionOutput>,
    /// Bounds beyond which something was left out; empty: nothing was.
    pub limits_reached: Vec<LimitReached>,
    /// Connections alive that the last poll did not meet.
    pub missed: u64,
    /// Connections of which it is not known whether they are the command's.
    pub unattributed: u64,
    /// CPU time of all polls in microseconds.
    pub cpu_us: u64,
    /// What was lost.
    pub losses: Losses,
    /// What can be measured.
    pub capabilities: json::Capabilities,
    /// How the watched command ended, if there was one.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub command: Option<CommandOutcome>,
}

/// What cannot be measured here, and what was lost: lines that stand under every answer.
pub fn unmeasured_lines(capabilities: &Capabilities, losses: &LossCounters) -> Vec<String> {
    let mut lines = Vec::new();
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for (problem, reason) in capabilities.unmeasured() {
        match reasons.iter_mut().find(|(r, _)| *r == reason) {
            Some((_, names)) if names.contains(&problem.name()) => {}
            Some((_, names)) => names.push(problem.name()),
            None => reasons.push((reason, vec![problem.name()])),
        }
    }
    for (reason, names) in reasons {
        lines.push(format!(
            "could not measure: {} ({reason})",
            names.join(", ")
        ));
    }
    lines.extend(loss_line(losses));
    lines
}

/// That closed connections were not looked at, in a line.
pub(crate) fn unshown_line(unshown: u64) -> Option<String> {
    (unshown > 0).then(|| {
        format!(
            "not looked at: {} beyond {MOST_CLOSED} a poll",
            plural(unshown, "closed connection")
        )
    })
}

/// What was lost, in a line; none if nothing was.
pub fn loss_line(losses: &LossCounters) -> Option<String> {
    let lost: Vec<String> = [
        (losses.storage_failed, "sockets without storage"),
        (losses.snapshots_dropped, "snapshots"),
        (losses.closes_dropped, "final records"),
        (losses.calls_dropped, "call records"),
        (losses.records_dropped, "log records"),
    ]
    .into_iter()
    .filter(|(count, _)| *count > 0)
    .map(|(count, what)| format!("{count} {what}"))
    .collect();
    (!lost.is_empty()).then(|| format!("lost: {}", lost.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scripted::{INTERVAL, ScriptedSource, finding, live, verdict};
    use crate::source::Source;
    use slowpath_model::Share;

    #[test]
    fn it_states_what_was_found_and_what_was_not_observed() {
        let mut closing = WatchSummary::default();
        let share = Share::Measured(Micros(INTERVAL.0 / 2));
        let bad = verdict(
            1,
            INTERVAL,
            vec![finding(Problem::ReceiverWindowLimited, share)],
        );
        closing.add(live(1, "curl", "10.0.0.1:1", "10.0.0.2:80").live(), &bad);
        let fine = verdict(2, INTERVAL, vec![]);
        closing.add(
            live(2, "ssh", "[2001:db8::1]:1", "[2001:db8::2]:22").live(),
            &fine,
        );
        let source = ScriptedSource::new(vec![]);
        let losses = LossCounters {
            closes_dropped: 3,
            ..LossCounters::default()
        };
        let text = closing
            .lines(source.capabilities(), &losses, false, Paint::OFF)
            .join("\n");
        assert!(text.contains("2 connections") && text.contains("1 had problems"));
        assert!(text.contains("could not measure: DelayedAck (no BPF)"));
        assert!(text.contains("lost: 3 final records"));
        assert!(text.contains("curl[1]") && !text.contains("ssh[2]"));
        let json = json::value(&closing.output(source.capabilities(), &losses, WallMicros(0)));
        crate::schema::conforms("summary", &json);
        // Half of one of two intervals.
        assert_eq!(json["problems"]["ReceiverWindowLimited"]["share"], 0.25);
        assert_eq!(json["worst"][0]["dominating"], "ReceiverWindowLimited");
        assert_eq!(
            json["owners"]["applications"],
            serde_json::json!({"curl": 1, "ssh": 1})
        );
        assert_eq!(json["owners"]["unknown"], serde_json::json!({}));
        assert_eq!(json["capabilities"]["features"][0]["reason"], "no BPF");
    }
}
