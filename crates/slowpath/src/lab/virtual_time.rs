// SPDX-License-Identifier: Apache-2.0
//! `slowpath lab virtual`: Linux's own TCP in virtual time.
//!
//! The same scenario files, summary, tables and report as `slowpath sim`; with `--out` also
//! each host's capture, the `tcp_info` of senders and what switches did to packets.

use crate::failure::{Failure, Outcome};
use crate::render::{Paint, count};
use crate::results;
use crate::sim::{self, Loaded, Sweeping};
use clap::Args;
use slowpath_files::{OutputFile, ResultsFolder};
use slowpath_lab::virtual_time::{self, Kernel, Options, Run, RunError, csv};
use slowpath_machine::progress::Progress;
use slowpath_model::Micros;
use slowpath_netsim::scenario::Substrate;
use slowpath_recording::{self as recording, Recording};
use slowpath_switch::Span;
use std::io::{self, BufWriter, Write, stdout};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// `slowpath lab virtual`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  slowpath lab virtual scenarios/sim/leaf-spine.toml
  slowpath lab virtual scenarios/sim/leaf-spine.toml --out results
  slowpath lab virtual scenarios/sim/dumbbell.toml --congestion bbr --info-every 10ms --out bbr
  slowpath lab virtual scenarios/sim/leaf-spine.toml --seeds 20 --vary tcp.algorithm=dctcp,cubic --out sweep
`make lab-kernel` builds the kernel first. docs/reference/lab-virtual-time.md describes what it does, and the files.")]
pub struct Virtual {
    /// The scenario: a TOML file, or the name of one that comes with slowpath
    pub scenario: PathBuf,
    /// Seed of everything random, instead of the file's
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=i64::MAX as u64))]
    pub seed: Option<u64>,
    /// Change a value of the scenario, or add it: switch.buffer='50 packets'
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub sweeping: Sweeping,
    /// Write captures, tcp_info, events and the tables of slowpath sim into this directory, in place of an earlier run's
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Write those tables as CSV, too
    #[arg(long, requires = "out")]
    pub csv: bool,
    /// Record TCP's handlers at both ends of every connection, for slowpath replay, replacing this file
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Write a report with plots, one file that needs nothing else, replacing it
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Linux's congestion control for every flow, instead of the scenario's
    #[arg(long, value_name = "NAME")]
    pub congestion: Option<String>,
    /// Bytes of each packet that captures keep; 0: no captures
    #[arg(long, value_name = "BYTES", default_value_t = 120, value_parser = clap::value_parser!(u32).range(..=1600))]
    pub snap: u32,
    /// Time between two tcp_info
    #[arg(long, value_name = "TIME", default_value = "1ms", value_parser = humantime::parse_duration)]
    pub info_every: Duration,
    /// Timer ticks a second of the kernel: 100, 250, 300 or 1000
    #[arg(long, value_name = "N", default_value_t = virtual_time::HZ)]
    pub hz: u32,
    /// Version of the kernel
    #[arg(long, value_name = "VERSION", default_value = virtual_time::SOURCE)]
    pub linux: String,
    /// Print JSON; docs/reference/cli.md lists the keys
    #[arg(long)]
    pub json: bool,
    /// No progress, and no summary
    #[arg(long)]
    pub quiet: bool,
}

pub(super) fn run(args: &Virtual) -> Result<Outcome, Failure> {
    let mut set = args.set.clone();
    set.extend(args.seed.map(|seed| format!("seed={seed}")));
    let loaded = sim::load(&args.scenario, &set, Substrate::VirtualTime)?;
    let kernel = Kernel::find(&args.linux, args.hz).map_err(|e| Failure::Lab(e.to_string()))?;
    if args.sweeping.is_wanted()? {
        return sweep(args, set, &kernel);
    }
    let keeps = args.out.is_some();
    let nanoseconds = args.info_every.as_nanos().min(u128::from(u32::MAX)) as u64;
    let options = Options {
        capture: (keeps && args.snap > 0).then_some(args.snap),
        info_every: (keeps && nanoseconds > 0).then(|| Span::from_nanos(nanoseconds)),
        algorithm: args.congestion.clone(),
        record: args.record.is_some(),
        ..Options::default()
    };
    let passing = Folder::passing()?;
    let results = results::open(args.out.as_ref(), results::VIRTUAL)?;
    let folder = results
        .as_ref()
        .map_or(&*passing.path, ResultsFolder::draft);
    let run = virtual_run(args, &kernel, &loaded, &options, folder)?;
    if keeps {
        create(folder, "tcp-info.csv", |out| csv::write_series(&run, out))?;
        create(folder, "events.csv", |out| {
            csv::write_events(&run, &loaded.scenario.topology, out)
        })?;
    }
    if let (Some(file), Some(recording)) = (&args.record, &run.recording) {
        write_recording(file, recording)?;
    }
    if let Some(results) = results {
        sim::write_tables(results, args.csv, &loaded, &run.results)?;
    }
    let wanted = sim::Options {
        html: args.html.clone(),
        json: args.json,
        quiet: args.quiet,
        ..sim::Options::default()
    };
    let paint = Paint::for_stdout();
    let out = &mut stdout().lock();
    let kind = "lab-virtual";
    sim::write(&wanted, &loaded, &run.results, kind, paint, out)?;
    if !args.json && !args.quiet {
        writeln!(out, "{}", speed(&run))?;
    }
    Ok(Outcome::Done)
}

/// Runs of which only the results are kept.
fn sweep(args: &Virtual, set: Vec<String>, kernel: &Kernel) -> Result<Outcome, Failure> {
    if args.record.is_some() {
        return Err(Failure::Usage(
            "--record keeps one run: leave it out of a sweep, or --seeds and --vary".to_owned(),
        ));
    }
    let folder = Folder::passing()?;
    let options = Options {
        capture: None,
        events: false,
        info_every: None,
        algorithm: args.congestion.clone(),
        ..Options::default()
    };
    let run = |loaded: &Loaded, number: u64| {
        let folder = folder.path.join(number.to_string());
        slowpath_files::new_folder(&folder).map_err(|error| {
            Failure::Write(format!("cannot create {}: {error}", folder.display()))
        })?;
        let run = virtual_time::run(kernel, &loaded.scenario, &options, &folder, &mut |_| {});
        let _ = std::fs::remove_dir_all(&folder);
        Ok(run.map_err(|error| failed(args, error))?.results)
    };
    let runner = sim::Runner {
        substrate: Substrate::VirtualTime,
        maker: results::VIRTUAL_SWEEP,
        kind: "lab-virtual",
        run: &run,
    };
    let wanted = sim::Options {
        file: args.scenario.clone(),
        set,
        tables: args.out.clone(),
        csv: args.csv,
        pcap: None,
        html: args.html.clone(),
        json: args.json,
        quiet: args.quiet,
    };
    let (paint, out) = (Paint::for_stdout(), &mut stdout().lock());
    sim::run_sweep(&wanted, &args.sweeping, &runner, paint, out)?;
    Ok(Outcome::Done)
}

fn speed(run: &Run) -> String {
    let wall = run.wall.as_secs_f64().max(1e-9);
    format!(
        "{} packets in {:.2} s, {} a second; {:.3} s of virtual time, {:.2} times the wall's",
        count(run.packets),
        wall,
        count((run.packets as f64 / wall) as u64),
        run.virtual_time.0 as f64 / 1e12,
        run.virtual_time.0 as f64 / 1e12 / wall
    )
}

fn virtual_run(
    args: &Virtual,
    kernel: &Kernel,
    loaded: &Loaded,
    options: &Options,
    folder: &Path,
) -> Result<Run, Failure> {
    let begun = Instant::now();
    let mut progress = (!args.quiet).then(|| Progress::new("running", Duration::ZERO));
    let mut report = |at: &virtual_time::Progress| {
        let Some(progress) = &mut progress else {
            return;
        };
        let elapsed = begun.elapsed();
        let share = at.now.0 as f64 / at.until.0.max(1) as f64;
        if share > 0.0 {
            progress.expect(elapsed.div_f64(share.clamp(1e-6, 1.0)));
        }
        let note = format!("{:.3} s of virtual time", at.now.0 as f64 / 1e12);
        progress.at(Micros(elapsed.as_micros() as u64), &note);
    };
    let run = virtual_time::run(kernel, &loaded.scenario, options, folder, &mut report);
    run.map_err(|error| failed(args, error))
}

fn failed(args: &Virtual, error: RunError) -> Failure {
    match error {
        RunError::Refused(refusal) => Failure::Scenario {
            file: args.scenario.clone(),
            reason: format!("Linux in virtual time cannot do {refusal}"),
        },
        other => Failure::Lab(other.to_string()),
    }
}

/// Begins the names of folders that go with their process, whose number follows.
const PASSING: &str = "slowpath-lab-run-";

/// Where a run works whose files are not wanted: it goes with this value.
struct Folder {
    path: PathBuf,
}

impl Folder {
    /// A new one; those of runs that were killed go.
    fn passing() -> Result<Self, Failure> {
        let all = std::env::temp_dir();
        for entry in std::fs::read_dir(&all).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let owner = name
                .to_str()
                .and_then(|name| name.strip_prefix(PASSING)?.parse().ok());
            if owner.is_some_and(|owner: u32| !Path::new(&format!("/proc/{owner}")).exists()) {
                let _ = std::fs::remove_dir_all(entry.path());
            }
        }
        let path = all.join(format!("{PASSING}{}", std::process::id()));
        slowpath_files::new_folder(&path).map_err(|error| {
            Failure::Write(format!("cannot create {}: {error}", path.display()))
        })?;
        Ok(Folder { path })
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

fn create(
    folder: &Path,
    name: &str,
    fill: impl FnOnce(&mut BufWriter<OutputFile>) -> io::Result<()>,
) -> Result<(), Failure> {
    let path = folder.join(name);
    slowpath_files::write_with(&path, fill)
        .map_err(|error| Failure::Write(format!("cannot write {}: {error}", path.display())))
}

fn write_recording(file: &Path, recording: &Recording) -> Result<(), Failure> {
    let failed = |error: &dyn std::fmt::Display| {
        Failure::Write(format!("cannot write {}: {error}", file.display()))
    };
    let bytes = recording::encode(recording).map_err(|error| failed(&error))?;
    slowpath_files::write(file, bytes).map_err(|error| failed(&error))
}
