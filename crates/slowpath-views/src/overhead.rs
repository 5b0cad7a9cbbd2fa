// SPDX-License-Identifier: Apache-2.0
//! What monitoring costs on this machine.
//!
//! Two parts: the agent's own CPU time, user and system, and the BPF programs that run in
//! the context of whoever sends, receives or opens. Programs that the agent itself runs (the
//! walk over the sockets) are shown but not added: their time is in the agent's.

use crate::json::{self, Losses};
use crate::source::{BudgetState, PollReport, ProgramCost, Source};
use crate::watch::unmeasured_lines;
#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;
use slowpath_model::Micros;
use slowpath_text::{Columns, Paint, count, plural};

/// What monitoring cost over some time.
#[derive(Clone, Debug, Default)]
pub struct Cost {
    /// How long it was measured.
    pub elapsed: Micros,
    /// Polls in that time.
    pub polls: u64,
    /// Most sockets that one poll met.
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
            .filter(|p| !p.within_polls)
            .map(|p| p.nanos)
            .sum()
    }

    /// Agent and programs, as a share of one core.
    pub fn total(&self) -> f64 {
        self.of_core(self.agent.0 * 1000 + self.outside())
    }
}

/// A measurement under way.
#[derive(Clone, Debug, Default)]
pub struct Measurement {
    before: Option<Vec<ProgramCost>>,
    cost: Cost,
}

impl Measurement {
    /// Takes a poll in; `elapsed` is the time since the first one.
    pub fn polled(&mut self, source: &dyn Source, report: &PollReport, elapsed: Micros) {
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
    }

    /// The cost; `refused` is why the kernel does not count BPF run time, if it does not.
    pub fn finish(self, source: &dyn Source, refused: Option<std::io::Error>) -> Cost {
        let before = self.before.unwrap_or_default();
        let mut cost = self.cost;
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
        cost
    }
}

fn core(share: f64) -> String {
    format!("{:.3}%", share * 100.0)
}

impl Cost {
    /// The cost in lines.
    pub fn lines(&self, source: &dyn Source, paint: Paint) -> Vec<String> {
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
            let within = p.within_polls;
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
        if self.programs.iter().any(|p| p.within_polls) {
            lines.push("  In parentheses: runs within polls, counted there.".to_owned());
        }
        if let Some(b) = source.budget() {
            lines.push(format!(
                "budget {},{} %: {} in the past 5 s, {} by BPF programs in others' contexts{}; looks a second: {:.2} at a connection with problems, {:.2} at another",
                b.low * 100.0,
                b.high * 100.0,
                core(b.used),
                b.programs.map_or("an unknown share".to_owned(), core),
                if b.exceeded { " (exceeded: nothing is left to slow down)" } else { "" },
                b.problem_rate,
                b.quiet_rate,
            ));
        }
        if let Some(uncounted) = &self.uncounted {
            lines.push(format!("not counted: {uncounted}"));
        }
        lines.extend(unmeasured_lines(source.capabilities(), &source.losses()));
        lines
    }

    /// What serialises.
    pub fn output(&self, source: &dyn Source) -> OverheadOutput {
        let program = |p: &ProgramCost| ProgramEntry {
            probe: p.probe,
            program: p.program.clone(),
            runs: p.runs,
            time_ns: p.nanos,
            ns_per_run: (p.runs > 0).then(|| p.nanos as f64 / p.runs as f64),
            percent_of_one_core: self.of_core(p.nanos) * 100.0,
            within_polls: p.within_polls,
        };
        OverheadOutput {
            kind: "overhead",
            elapsed_us: self.elapsed.0,
            polls: self.polls,
            sockets: self.sockets,
            emitted: self.emitted,
            agent_cpu_us: self.agent.0,
            agent_percent_of_one_core: self.of_core(self.agent.0 * 1000) * 100.0,
            programs: self.programs.iter().map(program).collect(),
            programs_not_counted: self.uncounted.clone(),
            percent_of_one_core: self.total() * 100.0,
            budget: source.budget().map(BudgetEntry::from),
            capabilities: source.capabilities().into(),
            losses: (&source.losses()).into(),
        }
    }
}

/// What one BPF program cost.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct ProgramEntry {
    /// The probe it belongs to.
    pub probe: &'static str,
    /// Its name.
    pub program: String,
    /// How often it ran.
    pub runs: u64,
    /// For how long in all, in nanoseconds.
    pub time_ns: u64,
    /// For how long each time, in nanoseconds; null if it never ran.
    pub ns_per_run: Option<f64>,
    /// Its time as a percentage of one core.
    pub percent_of_one_core: f64,
    /// It runs within polls: its time is in the agent's.
    pub within_polls: bool,
}

/// How a CPU budget is met; percentages of one core.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct BudgetEntry {
    /// The budget's lower end.
    pub low_percent: f64,
    /// The budget's upper end.
    pub high_percent: f64,
    /// CPU of the agent's process in the past five seconds.
    pub used_percent: f64,
    /// CPU of BPF programs in other processes' contexts; null where it cannot be known.
    pub programs_percent: Option<f64>,
    /// Polls a second.
    pub polls_per_second: f64,
    /// Times a second that a busy connection without problems is judged.
    pub quiet_looks_per_second: f64,
    /// The same of one that had a problem in the past minute.
    pub problem_looks_per_second: f64,
    /// The same of one that had problems for a quarter of the minute.
    pub worst_looks_per_second: f64,
    /// Polls left out because they would have passed the upper end.
    pub polls_left_out: u64,
    /// The budget cannot be met.
    pub exceeded: bool,
}

impl From<BudgetState> for BudgetEntry {
    fn from(s: BudgetState) -> Self {
        BudgetEntry {
            low_percent: s.low * 100.0,
            high_percent: s.high * 100.0,
            used_percent: s.used * 100.0,
            programs_percent: s.programs.map(|share| share * 100.0),
            polls_per_second: s.polls,
            quiet_looks_per_second: s.quiet_rate,
            problem_looks_per_second: s.problem_rate,
            worst_looks_per_second: s.worst_rate,
            polls_left_out: s.left_out,
            exceeded: s.exceeded,
        }
    }
}

/// What monitoring costs on a machine: `{"type": "overhead"}`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct OverheadOutput {
    /// `overhead`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// How long it was measured, in microseconds.
    pub elapsed_us: u64,
    /// Polls in that time.
    pub polls: u64,
    /// Most sockets that one poll met.
    pub sockets: u64,
    /// Snapshots handed over.
    pub emitted: u64,
    /// CPU time of the agent in microseconds, user and system.
    pub agent_cpu_us: u64,
    /// The same as a percentage of one core.
    pub agent_percent_of_one_core: f64,
    /// Each BPF program's runs and time.
    pub programs: Vec<ProgramEntry>,
    /// Why programs are not listed, if so.
    pub programs_not_counted: Option<String>,
    /// Agent and programs as a percentage of one core.
    pub percent_of_one_core: f64,
    /// How the CPU budget is met, if there is one.
    pub budget: Option<BudgetEntry>,
    /// What can be measured.
    pub capabilities: json::Capabilities,
    /// What was lost.
    pub losses: Losses,
}

/// Nanoseconds in words: `38ns`, or as [`Micros`] from ten microseconds.
fn nanos(ns: u64) -> String {
    match ns {
        0..10_000 => format!("{ns}ns"),
        _ => Micros(ns / 1000).to_string(),
    }
}
