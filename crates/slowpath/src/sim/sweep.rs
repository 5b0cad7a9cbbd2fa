// SPDX-License-Identifier: Apache-2.0
//! Sweeps of `slowpath sim` and `slowpath lab virtual`: runs side by side, kept one by one as they are done, so that the same command goes on
//! where an interrupted one ended.

use super::{Loaded, Options, load};
use crate::failure::Failure;
use clap::Args;
use slowpath_files::claim;
use slowpath_machine::progress::Progress;
use slowpath_model::Micros;
use slowpath_netsim::results::Results;
use slowpath_netsim::scenario::Substrate;
use slowpath_netsim::sweep::{Sweep, Vary};
use slowpath_netsim_report::Report;
use slowpath_netsim_report::sweep::{
    DoneRuns, DoneRunsError, Header, RunResult, SWEEP_FILES, SweepReport, table,
};
use slowpath_netsim_report::table::Metadata;
use slowpath_text::{Paint, plural};
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread;
use std::time::{Duration, Instant};

/// Which runs.
#[derive(Clone, Debug, Default, Args)]
pub struct Sweeping {
    /// Run with N seeds, from the scenario's on; with --vary, every combination
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub seeds: Option<u64>,
    /// Run with each of these values: KEY=A,B,C or KEY=FIRST..LAST/COUNT; repeat for all combinations
    #[arg(long, value_name = "KEY=VALUES")]
    pub vary: Vec<String>,
    /// Runs of a sweep side by side [default: one for each processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub jobs: Option<u64>,
}

impl Sweeping {
    /// Whether there is more than one run, by the command line.
    pub(crate) fn is_any(&self) -> bool {
        self.seeds.is_some() || !self.vary.is_empty()
    }

    /// Whether a sweep is wanted.
    ///
    /// # Errors
    /// `--jobs` without one.
    pub(crate) fn is_wanted(&self) -> Result<bool, Failure> {
        let wanted = self.is_any();
        if !wanted && self.jobs.is_some() {
            return Err(Failure::Usage(
                "--jobs is for the runs of a sweep: give --seeds N or --vary KEY=VALUES".to_owned(),
            ));
        }
        Ok(wanted)
    }
}

/// What runs a scenario, and under which name.
pub(crate) struct Runner<'a> {
    pub substrate: Substrate,
    /// As its folder of results says it.
    pub maker: &'static str,
    /// The JSON document's `type`.
    pub kind: &'static str,
    /// Runs the scenario, with the run's number.
    pub run: &'a (dyn Fn(&Loaded, u64) -> Result<Results, Failure> + Sync),
}

/// Runs a sweep and writes what is asked for.
///
/// # Errors
/// A scenario is impossible, a run fails, or something cannot be written.
pub(crate) fn run(
    options: &Options,
    sweeping: &Sweeping,
    runner: &Runner<'_>,
    paint: Paint,
    out: &mut impl Write,
) -> Result<(), Failure> {
    let base = load(&options.file, &options.set, runner.substrate)?;
    let vary = sweeping.vary.iter().map(|argument| Vary::parse(argument));
    let usage = |error: slowpath_netsim::sweep::SweepError| Failure::Usage(error.to_string());
    let vary: Vec<Vary> = vary.collect::<Result<_, _>>().map_err(usage)?;
    let seeds = sweeping.seeds.unwrap_or(1);
    let sweep = Sweep::new(vary, base.scenario.seed, seeds).map_err(usage)?;
    // An impossible combination is an error before the first run.
    for point in 0..sweep.points() {
        scenario(options, runner, &sweep, point * seeds)?;
    }
    let header = Header {
        sweep: Header::VERSION,
        producer: format!("slowpath {}", env!("CARGO_PKG_VERSION")),
        kind: runner.kind.to_owned(),
        scenario: base.text.clone(),
        vary: sweep.vary.iter().map(ToString::to_string).collect(),
        seeds: sweep.seeds.clone(),
    };
    let mut kept = match &options.tables {
        Some(directory) => {
            claim(directory, runner.maker, &SWEEP_FILES)?;
            DoneRuns::open(directory, &header).map_err(unkept)?
        }
        None => DoneRuns::default(),
    };
    let jobs = sweeping.jobs.map_or_else(processors, |jobs| jobs as usize);
    run_all(options, runner, &sweep, jobs, &mut kept)?;
    let results: Vec<RunResult> = kept.done.into_values().collect();
    if let Some(directory) = &options.tables {
        let metadata = Metadata {
            family: "sweep",
            name: &base.name,
            text: &base.text,
            seed: base.scenario.seed,
            warm_up_ps: base.scenario.warm_up.0,
            csv: options.csv,
        };
        table::write(directory, metadata, &sweep, &results)
            .map_err(|error| Failure::Write(error.to_string()))?;
    }
    let report = SweepReport::new(&base.name, &sweep, &results);
    if let Some(path) = &options.html {
        slowpath_files::write(path, report.page(&base.text))
            .map_err(|error| Failure::Write(format!("cannot write {}: {error}", path.display())))?;
    }
    if options.json {
        writeln!(out, "{}", report.json(&format!("{}-sweep", runner.kind)))?;
    } else if !options.quiet {
        report.write(paint, out)?;
    }
    Ok(out.flush()?)
}

fn unkept(error: DoneRunsError) -> Failure {
    match error {
        DoneRunsError::File(_) => Failure::Write(error.to_string()),
        DoneRunsError::Busy(_) | DoneRunsError::Other(_) => Failure::Usage(error.to_string()),
    }
}

fn processors() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// The scenario of a run.
fn scenario(
    options: &Options,
    runner: &Runner<'_>,
    sweep: &Sweep,
    number: u64,
) -> Result<Loaded, Failure> {
    let mut set = options.set.clone();
    set.extend(sweep.run(number).set);
    load(&options.file, &set, runner.substrate)
}

/// Runs what is not done yet.
fn run_all(
    options: &Options,
    runner: &Runner<'_>,
    sweep: &Sweep,
    jobs: usize,
    kept: &mut DoneRuns,
) -> Result<(), Failure> {
    let left: Vec<u64> = (0..sweep.runs())
        .filter(|number| !kept.done.contains_key(number))
        .collect();
    let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    let work = |results: SyncSender<Result<RunResult, Failure>>| {
        while !stop.load(Ordering::Relaxed)
            && let Some(number) = left.get(next.fetch_add(1, Ordering::Relaxed))
        {
            let result = scenario(options, runner, sweep, *number).and_then(|loaded| {
                let results = (runner.run)(&loaded, *number)?;
                let report = Report::new(&loaded.name, &loaded.scenario, &results);
                Ok(RunResult::new(*number, &report.summary))
            });
            if results.send(result).is_err() {
                break;
            }
        }
    };
    let jobs = jobs.min(left.len());
    thread::scope(|scope| {
        let (into, results) = mpsc::sync_channel(jobs);
        for _ in 0..jobs {
            let (work, into) = (&work, into.clone());
            scope.spawn(move || work(into));
        }
        drop(into);
        let taken = take(&results, left.len(), options.quiet, kept);
        stop.store(true, Ordering::Relaxed);
        // Whoever still waits to hand over a result goes on.
        drop(results);
        taken
    })
}

/// Keeps the results as they come.
fn take(
    results: &Receiver<Result<RunResult, Failure>>,
    count: usize,
    quiet: bool,
    kept: &mut DoneRuns,
) -> Result<(), Failure> {
    let begun = Instant::now();
    let mut progress = (!quiet).then(|| Progress::new("sweeping", Duration::ZERO));
    for (done, result) in results.iter().enumerate() {
        kept.add(result?).map_err(unkept)?;
        if let Some(progress) = &mut progress {
            let elapsed = begun.elapsed();
            let share = (done + 1) as f64 / count as f64;
            progress.expect(elapsed.div_f64(share));
            let note = format!("{} of {}", done + 1, plural(count as u64, "run"));
            progress.at(Micros(elapsed.as_micros() as u64), &note);
        }
    }
    Ok(())
}
