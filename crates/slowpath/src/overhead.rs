// SPDX-License-Identifier: Apache-2.0
//! `slowpath overhead`: what monitoring costs on this machine.
//!
//! Two parts: the agent's own CPU time, user and system, and the BPF programs that run in
//! the context of whoever sends, receives or opens. Programs that the agent itself runs (the
//! walk over the sockets) are shown but not added: their time is in the agent's.

use crate::events::Event;
use crate::failure::Failure;
use crate::json;
use crate::progress::Progress;
use crate::render::{Columns, Paint, count, plural};
use crate::session::{self, Flow, Viewer};
use crate::source::{PollReport, ProgramCost, Source};
use crate::watch::unseen;
use serde_json::{Value, json};
use slowpath_model::Micros;
use std::io::Write;
use std::sync::mpsc::Receiver;
use std::time::Duration;

/// What monitoring cost over some time.
#[derive(Clone, Debug, Default)]
pub struct Cost {
    /// How long it was measured.
    pub elapsed: Micros,
    /// Polls in that time.
    pub polls: u64,
    /// Most sockets seen by one poll.
    pub sockets: u64,
    /// Snapshots handed over.
    pub emitted: u64,
    /// CPU time of the agent, user and system.
    pub agent: Micros,
    /// Each program's runs and time.
    pub programs: Vec<ProgramCost>,
    /// Why programs are not listed, if so.
    pub uncounted: Option<String>,
}

impl Cost {
    /// Share of one core, 0..: of some time.
    fn of_core(&self, nanos: u64) -> f64 {
        if self.elapsed == Micros::ZERO {
            return 0.0;
        }
        nanos as f64 / (self.elapsed.0 as f64 * 1000.0)
    }

    /// Nanoseconds of the programs that run outside of the agent.
    fn outside(&self) -> u64 {
        self.programs
            .iter()
            .filter(|p| !p.within_polls())
            .map(|p| p.nanos)
            .sum()
    }

    /// Everything together, as a share of one core.
    pub fn total(&self) -> f64 {
        self.of_core(self.agent.0 * 1000 + self.outside())
    }
}

struct Measuring {
    before: Option<Vec<ProgramCost>>,
    cost: Cost,
    progress: Progress,
}

impl Viewer for Measuring {
    fn polled(
        &mut self,
        source: &dyn Source,
        report: &PollReport,
        elapsed: Micros,
    ) -> Result<Flow, Failure> {
        // The first poll meets every socket anew; what follows is the running cost.
        if self.before.is_none() {
            self.before = Some(source.programs());
        } else {
            self.cost.polls += 1;
            self.cost.agent += report.cpu;
            self.cost.emitted += report.emitted;
            self.cost.elapsed = elapsed;
        }
        self.cost.sockets = self.cost.sockets.max(report.sockets);
        self.progress.at(elapsed, &plural(report.sockets, "socket"));
        Ok(Flow::Continue)
    }
}

/// Measures for a while and writes what it cost.
///
/// # Errors
/// When a poll or the output fails.
pub fn run(
    source: &mut dyn Source,
    events: &Receiver<Event>,
    length: Duration,
    as_json: bool,
    paint: Paint,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let cost = measure(source, events, length)?;
    if as_json {
        writeln!(out, "{}", cost.json(source))?;
    } else {
        for line in cost.lines(source, paint) {
            writeln!(out, "{line}")?;
        }
    }
    out.flush()?;
    Ok(())
}

fn measure(
    source: &mut dyn Source,
    events: &Receiver<Event>,
    length: Duration,
) -> Result<Cost, Failure> {
    let refused = source.measure_programs().err();
    let mut measuring = Measuring {
        before: None,
        cost: Cost::default(),
        progress: Progress::new("measuring", length),
    };
    session::run(source, events, Some(length), &mut measuring)?;
    measuring.progress.clear();
    let before = measuring.before.unwrap_or_default();
    let mut cost = measuring.cost;
    cost.programs = source
        .programs()
        .into_iter()
        .map(|now| {
            let then = before
                .iter()
                .find(|b| (b.probe, &b.program) == (now.probe, &now.program));
            ProgramCost {
                runs: now.runs.saturating_sub(then.map_or(0, |b| b.runs)),
                nanos: now.nanos.saturating_sub(then.map_or(0, |b| b.nanos)),
                ..now
            }
        })
        .collect();
    cost.programs.sort_by_key(|p| std::cmp::Reverse(p.nanos));
    cost.uncounted = match refused {
        Some(error) => Some(format!(
            "the kernel does not count BPF run time ({error}); run as root"
        )),
        None if cost.programs.is_empty() => Some("this tier has no BPF programs".to_owned()),
        None => None,
    };
    Ok(cost)
}

fn core(share: f64) -> String {
    format!("{:.3}%", share * 100.0)
}

impl Cost {
    fn lines(&self, source: &dyn Source, paint: Paint) -> Vec<String> {
        let mut lines = vec![paint.bold(&format!(
            "Monitoring costs {} of one core here ({} tier, {} over {}, up to {})",
            core(self.total()),
            json::tier(source.capabilities().tier),
            plural(self.polls, "poll"),
            self.elapsed,
            plural(self.sockets, "socket"),
        ))];
        lines.push(String::new());
        let mut table = Columns::new(&["", ">runs", ">each", ">time", ">of one core"]);
        let each = self.agent.0 * 1000 / self.polls.max(1);
        table.row([
            "agent: polls".to_owned(),
            count(self.polls),
            nanos(each),
            self.agent.to_string(),
            core(self.of_core(self.agent.0 * 1000)),
        ]);
        for p in &self.programs {
            let within = p.within_polls();
            let share = core(self.of_core(p.nanos));
            table.row([
                format!("{}: {}", p.probe, p.program),
                count(p.runs),
                match p.runs {
                    0 => "-".to_owned(),
                    runs => nanos(p.nanos / runs),
                },
                nanos(p.nanos),
                if within { format!("({share})") } else { share },
            ]);
        }
        lines.extend(table.lines(2, paint));
        if self.programs.iter().any(|p| p.within_polls()) {
            lines.push("  In parentheses: runs within polls, counted there.".to_owned());
        }
        if let Some(b) = source.budget() {
            lines.push(format!(
                "budget {} %: {} in the past 5 s, {} by BPF programs in others' contexts{}; looks a second: {:.2} at a connection with problems, {:.2} at another",
                b.budget,
                core(b.used),
                b.events.map_or("an unknown share".to_owned(), core),
                if b.exceeded { " (exceeded: nothing is left to slow down)" } else { "" },
                b.problem_rate,
                b.quiet_rate,
            ));
        }
        if let Some(uncounted) = &self.uncounted {
            lines.push(format!("not counted: {uncounted}"));
        }
        lines.extend(unseen(source.capabilities(), &source.losses()));
        lines
    }

    fn json(&self, source: &dyn Source) -> Value {
        let programs: Vec<Value> = self
            .programs
            .iter()
            .map(|p| {
                json!({
                    "probe": p.probe,
                    "program": p.program,
                    "runs": p.runs,
                    "time_ns": p.nanos,
                    "ns_per_run": (p.runs > 0).then(|| p.nanos as f64 / p.runs as f64),
                    "percent_of_one_core": self.of_core(p.nanos) * 100.0,
                    "within_polls": p.within_polls(),
                })
            })
            .collect();
        json!({
            "type": "overhead",
            "elapsed_us": self.elapsed.0,
            "polls": self.polls,
            "sockets": self.sockets,
            "emitted": self.emitted,
            "agent_cpu_us": self.agent.0,
            "agent_percent_of_one_core": self.of_core(self.agent.0 * 1000) * 100.0,
            "programs": programs,
            "programs_not_counted": self.uncounted,
            "percent_of_one_core": self.total() * 100.0,
            "budget": json::budget(source.budget()),
            "capabilities": json::capabilities(source.capabilities()),
            "losses": json::losses(&source.losses()),
        })
    }
}

/// Nanoseconds in words: `38ns`, or as [`Micros`] from ten microseconds.
fn nanos(ns: u64) -> String {
    match ns {
        0..10_000 => format!("{ns}ns"),
        _ => Micros(ns / 1000).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{FakeSource, INTERVAL};
    use std::sync::mpsc::channel;

    fn program(probe: &'static str, runs: u64, nanos: u64) -> ProgramCost {
        ProgramCost {
            probe,
            program: format!("{probe}_program"),
            runs,
            nanos,
        }
    }

    #[test]
    fn programs_within_polls_are_not_counted_twice() {
        let mut source = FakeSource::new(vec![]);
        // After the first poll, and after the last: 1000 runs of 100 ns outside, 10 runs
        // of 50 us within.
        source.programs = vec![
            vec![],
            vec![program("calls", 500, 9_000), program("snapshot", 1, 1)],
            vec![program("calls", 500, 9_000), program("snapshot", 1, 1)],
            vec![
                program("calls", 1500, 109_000),
                program("snapshot", 11, 500_001),
            ],
        ];
        let (_sender, events) = channel();
        let length = Duration::from_micros(INTERVAL.0 * 2);
        let cost = measure(&mut source, &events, length).unwrap();
        // Two polls of 1 ms and 100 us of programs in 1 s.
        assert_eq!(cost.polls, 2);
        assert_eq!(cost.elapsed, Micros(1_000_000));
        assert!((cost.total() - 0.0021).abs() < 1e-9, "{}", cost.total());
        let json = cost.json(&source);
        assert_eq!(json["programs"][1]["ns_per_run"], 100.0);
        assert_eq!(json["programs"][0]["within_polls"], true);
        let text = cost.lines(&source, Paint::OFF).join("\n");
        assert!(text.contains("0.210% of one core"), "{text}");
    }
}
