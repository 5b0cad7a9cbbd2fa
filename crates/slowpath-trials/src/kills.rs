// SPDX-License-Identifier: Apache-2.0
//! kill -9 of real agents: in mid-run, while they convert what an earlier one left, and while they
//! close their log.

use crate::Tally;
use crate::agent::{Agent, Ended, arguments};
use crate::contents::Contents;
use crate::traffic::Traffic;
use serde_json::Value;
use slowpath_switch::Random;
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

/// Kills in one log, one after the other.
const LIVES: u64 = 10;
/// Connections with a problem in each interval.
const SLOW: usize = 40;
/// Connections a second that come and go.
const RATE: u32 = 50;
/// A spool that has records: its header is at most 1,044 bytes (`slowpath_store::spool`).
const WRITTEN: u64 = 2_048;

/// What the agent is doing when it is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    /// It starts, and converts what the one before it left.
    Start,
    /// It polls and writes.
    Run,
    /// It was asked to end, and converts what it wrote.
    Close,
}

/// One log over many lives of its agent.
struct Log<'a> {
    program: &'a Path,
    scratch: tempfile::TempDir,
    random: Random,
    /// What was read before the present kill.
    known: Contents,
    /// Segments of runs that were killed, which a report must name.
    killed: BTreeSet<String>,
}

pub(crate) fn run(
    program: &Path,
    kills: u64,
    seed: u64,
    tally: &mut Tally,
) -> Result<(), Box<dyn Error>> {
    let _traffic = Traffic::start(SLOW, RATE)?;
    for number in 0..kills.div_ceil(LIVES) {
        let mut log = Log {
            program,
            scratch: tempfile::tempdir()?,
            random: Random::stream(seed, number),
            known: Contents::default(),
            killed: BTreeSet::new(),
        };
        for _ in 0..LIVES.min(kills - number * LIVES) {
            log.kill(tally)?;
        }
        log.close(tally)?;
        println!("log {number}: {} rows", log.known.rows());
        if log.known.rows() == 0 {
            tally.find(format!("log {number}: no row was ever written"));
        }
    }
    Ok(())
}

impl Log<'_> {
    fn directory(&self) -> PathBuf {
        self.scratch.path().join("log")
    }

    fn below(&mut self, milliseconds: u64) -> Duration {
        Duration::from_millis(self.random.next_u64() % milliseconds)
    }

    fn start(&mut self) -> Result<Agent, Box<dyn Error>> {
        let directory = self.directory();
        let log = directory.to_str().ok_or("a path without a name")?;
        // Segments of 16 MiB; the tier that needs no time to start.
        let settings = ["--interval", "40ms", "--tier", "inet-diag"];
        let all = [&["--log", log], &settings[..]].concat();
        let agent = Agent::start(self.program, &all, self.scratch.path(), "")?;
        Ok(agent)
    }

    /// Starts an agent and waits until it has written records; `None` if it never does.
    fn start_writing(&mut self, tally: &mut Tally) -> Result<Option<Agent>, Box<dyn Error>> {
        let before = spools(&self.directory());
        let directory = self.directory();
        let mut agent = self.start()?;
        let is_new =
            |(path, length): (&PathBuf, &u64)| *length > WRITTEN && !before.contains_key(path);
        if agent.wait_until(|_| spools(&directory).iter().any(is_new))? {
            return Ok(Some(agent));
        }
        tally.find(format!("an agent writes nothing: {}", agent.said()));
        Ok(None)
    }

    fn kill(&mut self, tally: &mut Tally) -> Result<(), Box<dyn Error>> {
        let moment = match self.random.next_u64() % 10 {
            0..=5 => Moment::Run,
            6..=7 => Moment::Start,
            _ => Moment::Close,
        };
        let before = spools(&self.directory());
        let agent = match moment {
            Moment::Start => {
                let agent = self.start()?;
                sleep(self.below(800));
                agent
            }
            Moment::Run | Moment::Close => {
                let Some(agent) = self.start_writing(tally)? else {
                    return Ok(());
                };
                sleep(self.below(2_500));
                self.known = Contents::read(&self.directory())?;
                if moment == Moment::Close {
                    agent.signal(libc::SIGTERM);
                    sleep(self.below(400));
                } else {
                    sleep(self.below(50));
                }
                agent
            }
        };
        agent.kill()?;
        tally.kills += 1;
        let left = spools(&self.directory());
        let new = left.keys().filter(|path| !before.contains_key(*path));
        // Names of one run's segments differ in their numbers, which grow.
        if let Some(last) = new.max_by_key(|path| (path.as_os_str().len(), (*path).clone())) {
            let segment = last.file_stem().unwrap_or_default();
            self.killed.insert(segment.to_string_lossy().into_owned());
        }
        self.compare(&format!("a kill at {moment:?}"), tally)
    }

    /// The last agent of a log ends properly, and everything is in Parquet.
    fn close(&mut self, tally: &mut Tally) -> Result<(), Box<dyn Error>> {
        if let Some(agent) = self.start_writing(tally)? {
            let ended = agent.end(tally)?;
            if !ended.succeeded() {
                tally.find(format!("an agent after kills fails: {}", ended.err));
            }
        }
        self.compare("the end", tally)?;
        let left = spools(&self.directory());
        if !left.is_empty() {
            tally.find(format!("spools stay after the end: {left:?}"));
        }
        Ok(())
    }

    /// Compares what is read now with what was read before, and asks a report for the runs that
    /// were killed.
    fn compare(&mut self, after: &str, tally: &mut Tally) -> Result<(), Box<dyn Error>> {
        let now = Contents::read(&self.directory())?;
        let (lost, doubled) = (self.known.missing_from(&now), now.doubled());
        tally.lost_rows += lost;
        tally.doubled_rows += doubled;
        if lost + doubled > 0 {
            tally.find(format!("{after}: {lost} rows lost, {doubled} doubled"));
        }
        for line in &now.unreadable {
            tally.find(format!("{after}: {line}"));
        }
        let lines = unread(self.program, &self.directory(), self.scratch.path(), tally)?;
        let is_named = |segment: &String| {
            let mut named = lines.iter().filter(|line| line.contains(segment.as_str()));
            named.any(|line| line.contains("without closing the log"))
        };
        let unsaid: Vec<String> = (self.killed.iter())
            .filter(|segment| !is_named(segment))
            .cloned()
            .collect();
        tally.unsaid_gaps += unsaid.len() as u64;
        for segment in unsaid {
            tally.find(format!("{after}: no report names {segment}: {lines:?}"));
            self.killed.remove(&segment);
        }
        self.known = now;
        Ok(())
    }
}

/// The spools of a log and their lengths.
fn spools(log: &Path) -> BTreeMap<PathBuf, u64> {
    let entries = fs::read_dir(log.join("spool")).into_iter().flatten();
    let found = entries.flatten().filter_map(|entry| {
        let path = entry.path();
        let is_spool = path.extension().is_some_and(|it| it == "spool");
        is_spool.then(|| (path, entry.metadata().map_or(0, |it| it.len())))
    });
    found.collect()
}

/// What a report of the log could not read.
pub(crate) fn unread(
    program: &Path,
    log: &Path,
    scratch: &Path,
    tally: &mut Tally,
) -> Result<Vec<String>, Box<dyn Error>> {
    if !log.exists() {
        return Ok(Vec::new());
    }
    let log = log.to_str().ok_or("a path without a name")?;
    let all = arguments(&["report", "--json", "--since", "1d", "--log", log]);
    let ended = Ended::of(program, &all, scratch, tally)?;
    let report: Value = serde_json::from_str(&ended.out)
        .map_err(|error| format!("report: {error}: {}", ended.err))?;
    let lines = report["unread"].as_array().into_iter().flatten();
    Ok(lines
        .filter_map(|line| line.as_str().map(str::to_owned))
        .collect())
}
