// SPDX-License-Identifier: Apache-2.0
//! A watch as lines, or as JSON objects: for pipes and files.

use crate::command::Running;
use crate::events::Event;
use crate::failure::Failure;
use crate::render::{Paint, ends, percent, process};
use crate::session::{Flow, Viewer};
use slowpath_machine::clock;
use slowpath_model::{IntervalVerdict, Micros};
use slowpath_text::evidence;
use slowpath_views::interactions;
use slowpath_views::json::{self, VerdictOutput};
use slowpath_views::listeners::{self, ListenerOutput};
use slowpath_views::selection::Selection;
use slowpath_views::source::{LiveConnection, PollReport, Source};
use slowpath_views::tally;
use slowpath_views::watch::{NewVerdicts, WatchSummary, share_of};
use std::io::Write;

/// How lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A line for each connection whose verdict changed.
    Text(Paint),
    /// A JSON object for each verdict.
    Json,
}

/// The viewer.
pub struct Lines<'a> {
    out: &'a mut dyn Write,
    form: Form,
    selection: Selection,
    command: Option<&'a mut Running>,
    fresh: NewVerdicts,
    /// What the closing summary is made of.
    pub closing: WatchSummary,
}

impl<'a> Lines<'a> {
    /// A viewer that writes to `out`.
    pub fn new(
        out: &'a mut dyn Write,
        form: Form,
        selection: Selection,
        command: Option<&'a mut Running>,
    ) -> Self {
        Lines {
            out,
            form,
            selection,
            command,
            fresh: NewVerdicts::default(),
            closing: WatchSummary::default(),
        }
    }

    fn connection(
        &mut self,
        source: &dyn Source,
        live: LiveConnection<'_>,
        elapsed: Micros,
    ) -> std::io::Result<()> {
        let Some(verdict) = live.latest else {
            return Ok(());
        };
        let Some(changed) = self.fresh.show(live, verdict) else {
            return Ok(());
        };
        self.closing.add(live, verdict);
        match self.form {
            Form::Json => {
                let name = source.namespace_name(live.snapshot.id.netns);
                let output = VerdictOutput::of(clock::now(), live, name, verdict);
                writeln!(self.out, "{}", json::value(&output))
            }
            Form::Text(paint) if changed => {
                writeln!(self.out, "{}", line(live, verdict, elapsed, paint))
            }
            Form::Text(_) => Ok(()),
        }
    }

    fn listeners(&mut self, source: &dyn Source, elapsed: Micros) -> std::io::Result<()> {
        for live in source.listeners() {
            let Some((interval, holders)) =
                self.closing.listener(live, &self.selection, clock::now())
            else {
                continue;
            };
            match self.form {
                Form::Json => writeln!(
                    self.out,
                    "{}",
                    json::value(&ListenerOutput::of(&interval, holders))
                )?,
                Form::Text(paint) => writeln!(
                    self.out,
                    "{:>7.1}s  {}",
                    elapsed.as_secs_f64(),
                    listeners::line(&interval, paint)
                )?,
            }
        }
        Ok(())
    }
}

/// `  12.5s  Timeout 100%  curl[12]  10.0.0.1:4000 -> 10.0.0.2:80  2 timeouts, RTT 12.3ms`
fn line(
    live: LiveConnection<'_>,
    verdict: &IntervalVerdict,
    elapsed: Micros,
    paint: Paint,
) -> String {
    let problem = verdict.dominating;
    let interval = verdict.interval();
    let share = share_of(verdict, problem);
    let label = format!("{:<21} {:>4}", problem.name(), percent(share));
    let finding = tally::finding_of(verdict, problem);
    let mut evidence = evidence::of(&finding, &verdict.deltas, interval);
    evidence.truncate(3);
    format!(
        "{:>7.1}s  {}  {}  {}  {}",
        elapsed.as_secs_f64(),
        paint.problem(problem, &label),
        process(live.owner),
        ends(&live.snapshot.tuple, live.real_peer),
        evidence.join(", "),
    )
}

impl Viewer for Lines<'_> {
    fn polled(
        &mut self,
        source: &dyn Source,
        report: &PollReport,
        elapsed: Micros,
    ) -> Result<Flow, Failure> {
        self.closing.poll(report, elapsed);
        let connections = source.recently_closed().chain(source.connections());
        for live in connections {
            if self.selection.selects(live) {
                self.connection(source, live, elapsed)?;
            } else if self.selection.undecided(live) {
                self.closing.undecided(live);
            }
        }
        self.listeners(source, elapsed)?;
        for found in self.closing.join(source, report) {
            match self.form {
                Form::Json => writeln!(self.out, "{}", json::value(&found.output(clock::now())))?,
                Form::Text(paint) => writeln!(
                    self.out,
                    "{:>7.1}s  {}",
                    elapsed.as_secs_f64(),
                    interactions::line(&found, paint)
                )?,
            }
        }
        self.fresh.sweep(source);
        self.out.flush()?;
        // One more poll after the command has ended collects its last connections.
        let ended = self.command.as_ref().is_some_and(|c| c.ended().is_some());
        Ok(if ended { Flow::Stop } else { Flow::Continue })
    }

    fn event(&mut self, source: &dyn Source, event: Event) -> Result<Flow, Failure> {
        let _ = source;
        if let (Event::CommandEnded(status), Some(command)) = (event, self.command.as_mut()) {
            command.note_end(status);
        }
        Ok(Flow::Continue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session;
    use slowpath_machine::system_names::SystemNames;
    use slowpath_model::{Problem, Share};
    use slowpath_views::filter::Filter;
    use slowpath_views::scripted::{INTERVAL, ScriptedSource, finding, live, verdict};
    use slowpath_views::source::OwnedConnection;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    fn timeout(cookie: u64) -> OwnedConnection {
        let mut connection = live(cookie, "curl", "10.0.0.1:4000", "10.0.0.2:80");
        let mut verdict = verdict(
            cookie,
            INTERVAL,
            vec![finding(Problem::Timeout, Share::Coarse)],
        );
        verdict.deltas.timeouts = Some(2);
        connection.latest = Some(verdict);
        connection
    }

    fn fine(cookie: u64) -> OwnedConnection {
        let mut connection = live(cookie, "curl", "10.0.0.1:4000", "10.0.0.2:80");
        connection.latest = Some(verdict(cookie, INTERVAL, vec![]));
        connection
    }

    fn watch(steps: Vec<Vec<OwnedConnection>>, form: Form, filter: &str) -> (String, WatchSummary) {
        let polls = steps.len() as u64;
        let mut out = Vec::new();
        let (_sender, events) = channel();
        let selection = Selection {
            filter: Filter::parse(filter, &SystemNames::default()).unwrap(),
            family: None,
        };
        let mut viewer = Lines::new(&mut out, form, selection, None);
        session::run(
            &mut ScriptedSource::new(steps),
            &events,
            Some(Duration::from_micros(INTERVAL.0 * (polls - 1))),
            &mut viewer,
        )
        .unwrap();
        let closing = viewer.closing;
        (String::from_utf8(out).unwrap(), closing)
    }

    #[test]
    fn a_line_for_each_change() {
        let steps = vec![
            vec![fine(1), timeout(2)],
            vec![fine(1), timeout(2)],
            vec![timeout(1), fine(2)],
        ];
        let (text, closing) = watch(steps, Form::Text(Paint::OFF), "");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert!(lines[0].contains("Timeout") && lines[0].contains("curl[2]"));
        assert!(lines[0].contains("2 retransmission timeouts") && lines[0].contains("100%"));
        assert!(lines[1].contains("Timeout") && lines[1].contains("curl[1]"));
        assert!(lines[2].contains("SenderAppLimited") && lines[2].contains("curl[2]"));
        assert_eq!(closing.problem_connections(), 2);
    }

    #[test]
    fn the_last_verdict_of_a_closed_connection_is_not_lost_nor_doubled() {
        let (text, closing) = watch(
            vec![vec![timeout(2)], vec![], vec![]],
            Form::Json,
            "dport = :80",
        );
        assert_eq!(text.lines().count(), 1, "{text}");
        assert_eq!(closing.total().totals.observed, INTERVAL);
    }

    #[test]
    fn json_has_an_object_a_verdict() {
        let (text, _) = watch(vec![vec![fine(1), timeout(2)]; 2], Form::Json, "");
        let objects: Vec<serde_json::Value> = text
            .lines()
            .map(|l| serde_json::from_str(l).unwrap())
            .collect();
        assert_eq!(objects.len(), 4);
        assert_eq!(objects[1]["type"], "verdict");
        assert_eq!(objects[1]["dominating"], "Timeout");
        assert_eq!(objects[1]["process"]["pid"], 2);
        assert_eq!(objects[1]["remote"], "10.0.0.2:80");
        assert_eq!(objects[1]["findings"][0]["coarse"], true);
        assert_eq!(objects[1]["evidence"]["timeouts"], 2);
        assert_eq!(objects[1]["evidence"]["writes"], serde_json::Value::Null);
        assert_eq!(objects[0]["interval_us"], INTERVAL.0);
    }

    #[test]
    fn the_filter_chooses() {
        let (text, closing) = watch(vec![vec![fine(1), timeout(2)]; 2], Form::Json, "pid 1");
        assert_eq!(text.lines().count(), 2);
        assert_eq!(closing.problem_connections(), 0);
    }
}
