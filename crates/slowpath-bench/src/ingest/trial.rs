// SPDX-License-Identifier: Apache-2.0
//! The phases of the bench, and what is measured in each.

use super::hosts::ROWS;
use super::identities::issue;
use super::load::{Counts, Task};
use super::loads::{Loads, Totals};
use super::monotonic;
use super::server::{Installation, Server, free_port};
use std::error::Error;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Agents in all.
    pub agents: usize,
    /// Processes that hold them; one may have 20,000 files open.
    pub processes: usize,
    /// How long the steady part lasts; an intake file becomes tables once a minute.
    pub steady: Duration,
    /// How many of a thousand hosts have a backlog, and of how many hours.
    pub waiting_per_mille: usize,
    /// Hours of it.
    pub hours: u64,
    /// The longest that the backlog may take.
    pub backlog: Duration,
}

impl Plan {
    /// `make bench-ingest`.
    pub const WHOLE: Plan = Plan {
        agents: 8_000,
        processes: 4,
        steady: Duration::from_secs(120),
        waiting_per_mille: 25,
        hours: 2,
        backlog: Duration::from_secs(180),
    };
    /// With `--quick`.
    pub const QUICK: Plan = Plan {
        agents: 400,
        processes: 2,
        steady: Duration::from_secs(15),
        waiting_per_mille: 25,
        hours: 1,
        backlog: Duration::from_secs(60),
    };

    /// How long hosts have to have live rows: all phases, and room for slow starts.
    fn seconds(&self) -> u64 {
        self.steady.as_secs() + self.backlog.as_secs() + 3 * SETTLE.as_secs() + 90
    }
}

/// What was measured.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    /// Agents that shipped.
    pub agents: usize,
    /// Rows flushed a second in the steady part.
    pub rows_per_second: f64,
    /// From handing in a live batch to its answer, in the steady part, 99th percentile.
    pub p99_ms: f64,
    /// The server's processor time in the steady part, percent of one core.
    pub cpu_percent: f64,
    /// The most that was resident of the server, in any phase.
    pub rss_mib: f64,
    /// From the start of a server, after SIGTERM or kill -9, until every agent had an answer of it;
    /// the longer one.
    pub herd_seconds: f64,
    /// Rows of the backlog taken in a second, over the rows a second of all hosts when live.
    pub catch_up_ratio: f64,
    /// Bytes on the server's disk a row, once all is in tables.
    pub bytes_per_row: f64,
}

/// After all agents are back, until the next phase.
const SETTLE: Duration = Duration::from_secs(15);
/// The longest that agents may take to come back before the bench gives up.
const LONGEST_HERD: Duration = Duration::from_secs(120);
/// The longest that the last intake files may take to become tables.
const PUBLICATION: Duration = Duration::from_secs(300);
/// An intake file that has no more is as good as empty.
const UNPUBLISHED: u64 = 16 << 10;
/// The factor over its live rate at which a backlog has to be taken in.
const CATCH_UP: f64 = 4.0;

/// Measures the server of this `slowpath`.
///
/// # Errors
/// A process cannot be started or ends, agents do not come back, or the server gives an answer that
/// it must not give.
pub fn measure(program: &Path, plan: Plan, seed: u64) -> Result<Figures, Box<dyn Error>> {
    let scratch = tempfile::tempdir()?;
    let address = SocketAddr::from(([127, 0, 0, 1], free_port()?));
    let installation = Installation::make(program, &scratch.path().join("server"), address)?;
    let tasks = tasks(&installation, plan, seed, scratch.path())?;
    let began = monotonic();
    let loads = Loads::start(&tasks)?;
    println!(
        "{} agents in {} processes, {} s to make what they ship",
        plan.agents,
        plan.processes,
        (monotonic() - began) / 1_000_000
    );
    let mut trial = Trial {
        server: installation.start()?,
        installation,
        loads,
        plan,
        last_start: String::new(),
        figures: Figures {
            agents: plan.agents,
            ..Figures::default()
        },
    };
    trial.loads.order("live")?;
    let first = trial.all_back()?;
    println!("first connections: {first:.1} s until every agent had an answer");
    trial.settle()?;
    trial.steady()?;
    for (signal, name) in [(libc::SIGKILL, "kill -9"), (libc::SIGTERM, "SIGTERM")] {
        trial.restart(signal, name)?;
        trial.settle()?;
    }
    trial.backlog()?;
    trial.end()?;
    Ok(trial.figures)
}

fn tasks(
    installation: &Installation,
    plan: Plan,
    seed: u64,
    scratch: &Path,
) -> Result<Vec<Task>, Box<dyn Error>> {
    let began = monotonic();
    let parts = issue(&installation.directory, plan.agents, plan.processes)?;
    println!(
        "{} certificates issued in {:.1} s",
        plan.agents,
        (monotonic() - began) as f64 / 1e6
    );
    let mut tasks = Vec::new();
    for (number, part) in parts.iter().enumerate() {
        let identities = scratch.join(format!("identities-{number}.json"));
        fs::write(&identities, serde_json::to_vec(part)?)?;
        tasks.push(Task {
            identities,
            server: installation.address,
            number: number as u8,
            seed,
            seconds: plan.seconds(),
            waiting_hosts: (part.hosts.len() * plan.waiting_per_mille).div_ceil(1_000),
            hours: plan.hours,
        });
    }
    Ok(tasks)
}

/// A server and its agents.
struct Trial {
    server: Server,
    installation: Installation,
    loads: Loads,
    plan: Plan,
    /// The `start` of the server that all agents had an answer of.
    last_start: String,
    figures: Figures,
}

impl Trial {
    /// Waits until every agent had an answer of the server that runs; seconds since its start.
    fn all_back(&mut self) -> Result<f64, Box<dyn Error>> {
        let (agents, before) = (self.plan.agents, self.last_start.clone());
        let mut back = None;
        self.loads.until(LONGEST_HERD, |counts, _| {
            back = start_of_all(counts, agents).filter(|start| *start != before);
            back.is_some()
        })?;
        self.note_peak()?;
        let Some(start) = back else {
            let failures = &self.loads.total.failures;
            return Err(format!("agents are not back in {LONGEST_HERD:?}: {failures:?}").into());
        };
        self.last_start = start;
        Ok((monotonic() - self.server.started) as f64 / 1e6)
    }

    fn settle(&mut self) -> Result<(), Box<dyn Error>> {
        self.loads.until(SETTLE, |_, _| false).map(drop)
    }

    fn note_peak(&mut self) -> Result<(), Box<dyn Error>> {
        self.figures.rss_mib = self.figures.rss_mib.max(self.server.peak()?);
        Ok(())
    }

    fn steady(&mut self) -> Result<(), Box<dyn Error>> {
        let (began, rows) = (monotonic(), self.loads.total.live_rows);
        let (server, loads) = (self.server.cpu()?, self.loads.cpu());
        let (live, _) = self.loads.until(self.plan.steady, |_, _| false)?;
        let microseconds = (monotonic() - began) as f64;
        let percent = |cpu: u64| cpu as f64 / microseconds * 100.0;
        self.figures.rows_per_second =
            (self.loads.total.live_rows - rows) as f64 * 1e6 / microseconds;
        self.figures.cpu_percent = percent(self.server.cpu()? - server);
        self.figures.p99_ms = percentile(&live, 0.99) / 1e3;
        println!(
            "steady: {} batches in {:.0} s, {:.0} rows/s; from handed in to flushed {:.1} ms \
             (median), {:.1} ms (99 %), {:.1} ms (longest); server {:.1} % of a core, agents {:.1} %",
            live.len(),
            microseconds / 1e6,
            self.figures.rows_per_second,
            percentile(&live, 0.5) / 1e3,
            self.figures.p99_ms,
            percentile(&live, 1.0) / 1e3,
            self.figures.cpu_percent,
            percent(self.loads.cpu() - loads)
        );
        self.note_peak()
    }

    fn restart(&mut self, signal: libc::c_int, name: &str) -> Result<(), Box<dyn Error>> {
        self.note_peak()?;
        let began = monotonic();
        self.server.end(signal)?;
        self.server = self.installation.start()?;
        let ended = (self.server.started - began) as f64 / 1e6;
        let herd = self.all_back()?;
        println!(
            "{name}: ended in {ended:.2} s; {herd:.1} s from the start until every agent had an answer, \
             {:.1} s of the server's processor time",
            self.server.cpu()? as f64 / 1e6
        );
        self.figures.herd_seconds = self.figures.herd_seconds.max(herd);
        Ok(())
    }

    fn backlog(&mut self) -> Result<(), Box<dyn Error>> {
        let hosts = (self.plan.agents / self.plan.processes * self.plan.waiting_per_mille)
            .div_ceil(1_000)
            * self.plan.processes;
        let rows = hosts as u64 * self.plan.hours * (ROWS * 3_600.0) as u64;
        let (began, server) = (monotonic(), self.server.cpu()?);
        self.loads.order("waiting")?;
        let is_taken = |_: &[Counts], total: &Totals| total.waiting_rows >= rows;
        let (live, taken) = self.loads.until(self.plan.backlog, is_taken)?;
        let microseconds = (monotonic() - began) as f64;
        let rate = self.loads.total.waiting_rows as f64 * 1e6 / microseconds;
        self.figures.catch_up_ratio = rate / (self.plan.agents as f64 * ROWS);
        println!(
            "backlog: {} rows of {hosts} hosts{} in {:.1} s, {rate:.0} rows/s, {:.0} times those hosts' \
             live rate; live batches meanwhile {:.1} ms (99 %); server {:.1} % of a core",
            self.loads.total.waiting_rows,
            if taken { "" } else { ", not all," },
            microseconds / 1e6,
            rate / (hosts as f64 * ROWS),
            percentile(&live, 0.99) / 1e3,
            (self.server.cpu()? - server) as f64 / microseconds * 100.0
        );
        if self.figures.catch_up_ratio < CATCH_UP {
            println!("backlog: taken in at less than {CATCH_UP} times the live rate of all hosts");
        }
        self.note_peak()
    }

    /// Ends the agents and waits for the tables.
    fn end(&mut self) -> Result<(), Box<dyn Error>> {
        self.loads.order("end")?;
        // Their last reports.
        self.loads.until(Duration::from_secs(2), |_, _| false).ok();
        let began = monotonic();
        let limit = PUBLICATION.as_micros() as u64;
        while self.installation.bytes()?[1] > UNPUBLISHED && monotonic() - began < limit {
            std::thread::sleep(Duration::from_millis(200));
        }
        let total = self.loads.total.clone();
        let rows = total.live_rows + total.waiting_rows;
        let [tables, intake] = self.installation.bytes()?;
        self.figures.bytes_per_row = (tables + intake) as f64 / rows as f64;
        println!(
            "{rows} rows in all; {:.1} MB in tables, {:.1} MB of intake left after {:.0} s",
            tables as f64 / 1e6,
            intake as f64 / 1e6,
            (monotonic() - began) as f64 / 1e6
        );
        for (kind, count) in &total.failures {
            println!("{count} times: {kind}");
        }
        self.note_peak()?;
        if total.wrong > 0 {
            return Err(format!("{} answers that a server must not give", total.wrong).into());
        }
        Ok(())
    }
}

/// The `start` that all agents had their last answer from.
fn start_of_all(counts: &[Counts], agents: usize) -> Option<String> {
    let (start, _) = counts
        .first()?
        .starts
        .iter()
        .find(|(_, count)| **count > 0)?;
    let of_each = counts.iter().map(|it| it.starts.get(start).copied());
    let sum: usize = of_each.map(Option::unwrap_or_default).sum();
    (sum == agents).then(|| start.clone())
}

/// A percentile; the highest value for 1, 0 of none.
fn percentile(values: &[u32], of: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let rank = (sorted.len() as f64 * of).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied().unwrap_or(0).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_the_value_that_so_many_do_not_pass() {
        let values: Vec<u32> = (1..=200).rev().collect();
        assert_eq!(percentile(&values, 0.99), 198.0);
        assert_eq!(percentile(&values, 0.5), 100.0);
        assert_eq!(percentile(&values, 1.0), 200.0);
        assert_eq!(percentile(&[], 0.99), 0.0);
    }

    #[test]
    fn agents_are_back_when_the_last_one_had_an_answer() {
        let of = |pairs: &[(&str, usize)]| Counts {
            starts: pairs.iter().map(|(s, n)| ((*s).to_owned(), *n)).collect(),
            ..Counts::default()
        };
        let some = [of(&[("a", 0), ("b", 3)]), of(&[("a", 1), ("b", 2)])];
        assert_eq!(start_of_all(&some, 6), None);
        let all = [of(&[("a", 0), ("b", 3)]), of(&[("a", 0), ("b", 3)])];
        assert_eq!(start_of_all(&all, 6), Some("b".to_owned()));
        assert_eq!(start_of_all(&[], 0), None);
    }
}
