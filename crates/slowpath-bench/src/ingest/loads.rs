// SPDX-License-Identifier: Apache-2.0
//! The processes that hold the agents, and what they report.

use super::load::{ARGUMENT, Counts, Task};
use super::server::cpu_of;
use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// A process that is silent for longer has a fault.
const SILENCE: Duration = Duration::from_secs(600);

/// The processes. They end with this value.
pub(super) struct Loads {
    children: Vec<(Child, ChildStdin)>,
    reports: Receiver<(usize, String)>,
    /// The last report of each.
    latest: Vec<Counts>,
    /// Of all reports so far.
    pub total: Totals,
}

/// What all processes counted.
#[derive(Clone, Debug, Default)]
pub(super) struct Totals {
    pub live_rows: u64,
    pub waiting_rows: u64,
    pub failures: std::collections::BTreeMap<String, u64>,
    pub wrong: u64,
}

impl Loads {
    /// Starts a process for each task, and waits until all have made what they ship.
    ///
    /// # Errors
    /// One cannot be started, or ends.
    pub(super) fn start(tasks: &[Task]) -> Result<Self, Box<dyn Error>> {
        let (sender, reports) = channel();
        let mut children = Vec::new();
        for (number, task) in tasks.iter().enumerate() {
            let mut child = Command::new(std::env::current_exe()?)
                .args([ARGUMENT, &serde_json::to_string(task)?])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()?;
            let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
                return Err("a process without its pipes".into());
            };
            let sender: Sender<(usize, String)> = sender.clone();
            std::thread::spawn(move || {
                for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                    if sender.send((number, line)).is_err() {
                        return;
                    }
                }
            });
            children.push((child, stdin));
        }
        // So that the reports end when all processes have.
        drop(sender);
        let loads = Loads {
            latest: vec![Counts::default(); children.len()],
            children,
            reports,
            total: Totals::default(),
        };
        let mut made = 0;
        while made < tasks.len() {
            // Those that are quicker report already.
            made += usize::from(loads.reports.recv_timeout(SILENCE)?.1 == "made");
        }
        Ok(loads)
    }

    /// A word for all of them.
    ///
    /// # Errors
    /// One has ended.
    pub(super) fn order(&mut self, word: &str) -> Result<(), Box<dyn Error>> {
        for (_, stdin) in &mut self.children {
            writeln!(stdin, "{word}")?;
        }
        Ok(())
    }

    /// Takes reports until `done` says so or the time is over; gives the latencies of live batches
    /// meanwhile, microseconds, and whether `done` did.
    ///
    /// # Errors
    /// A process has ended.
    pub(super) fn until(
        &mut self,
        at_most: Duration,
        mut done: impl FnMut(&[Counts], &Totals) -> bool,
    ) -> Result<(Vec<u32>, bool), Box<dyn Error>> {
        let end = Instant::now() + at_most;
        let mut live = Vec::new();
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let (number, line) = match self.reports.recv_timeout(left) {
                Ok(report) => report,
                Err(RecvTimeoutError::Timeout) => return Ok((live, false)),
                Err(error) => return Err(format!("a process of agents ended: {error}").into()),
            };
            let counts: Counts = serde_json::from_str(&line)?;
            self.total.live_rows += counts.live_rows;
            self.total.waiting_rows += counts.waiting_rows;
            self.total.wrong += counts.wrong;
            for (kind, count) in &counts.failures {
                *self.total.failures.entry(kind.clone()).or_default() += count;
            }
            live.extend(&counts.live);
            self.latest[number] = counts;
            if done(&self.latest, &self.total) {
                return Ok((live, true));
            }
        }
    }

    /// Processor time of all of them so far, microseconds.
    pub(super) fn cpu(&self) -> u64 {
        let children = self.children.iter();
        children.filter_map(|(child, _)| cpu_of(child.id())).sum()
    }
}

impl Drop for Loads {
    fn drop(&mut self) {
        for (mut child, stdin) in self.children.drain(..) {
            // The end of its input is its sign to end.
            drop(stdin);
            let _ = child.wait();
        }
    }
}
