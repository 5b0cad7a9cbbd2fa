// SPDX-License-Identifier: Apache-2.0
//! `slowpath replay`: runs recorded connections again, on real Linux TCP.
//!
//! Each connection is replayed by itself on a laboratory kernel, several kernels at a time. On request it writes the packets of both ends
//! with the recorded addresses and times, and the state of the sockets after every run of a handler.

mod debug;
mod fitted;
mod what_if;

use crate::failure::{Failure, Outcome};
use crate::message;
use crate::results;
use clap::{ArgGroup, Args};
use serde_json::json;
use slowpath_lab::virtual_time::{self, Kernel, RunError};
use slowpath_machine::progress::Progress;
use slowpath_model::Micros;
use slowpath_recording::fields::{self, Variable};
use slowpath_recording::{RecorderKind, Recording};
use slowpath_replay::{Altered, ReplayError, ReplayOptions, Stretch};
use slowpath_replay_report::fitted as fitted_report;
use slowpath_replay_report::frames::Frames;
use slowpath_replay_report::outputs::{self, Probed};
use slowpath_replay_report::replayed::{self, Batch};
use slowpath_replay_report::{SIDES, collection, end_name, probe_page};
use slowpath_text::Paint;
use std::collections::BTreeSet;
use std::io::{Write, stdout};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// `slowpath replay`.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("written").args(["out", "html"]).multiple(true)))]
#[command(after_help = "\
Examples:
  slowpath lab virtual scenarios/replay/exact.toml --record run.rec
  slowpath replay run.rec                           does every connection behave as recorded?
  slowpath replay client.rec server.rec             connections between two machines that each recorded one end
  slowpath replay run.rec --connection 7 --out seven
  slowpath replay run.rec --connection 7 --out seven --probe cwnd,ssthresh,reordering,flag
  slowpath replay run.rec --connection 7 --html seven.html --probe cwnd,ssthresh,srtt_us,rto    plots
  slowpath replay run.rec --connection 7 --out seven --functions server:2-5
  slowpath replay run.rec --connection 7 --gdb server:2
  slowpath replay run.rec --connection 7 --set tcp_recovery=1 --set tcp_early_retrans=3
  slowpath replay run.rec --connection 7 --set congestion=dctcp --continue
`make lab-kernel` builds the kernel first. A replay that differs says at which run of which handler, and claims nothing from there on.")]
pub struct Replay {
    /// The recording
    pub file: PathBuf,
    /// Recordings by other machines, for connections with one end on each; or folders of recordings
    #[arg(value_name = "FILE")]
    pub more: Vec<PathBuf>,
    /// Only the connection with this number, from 0 (repeat for more)
    #[arg(long, value_name = "N")]
    pub connection: Vec<usize>,
    /// Write client.pcapng, server.pcapng and probes.parquet into this directory, in place of an earlier run's
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Variables of the sockets after every run, to probes.parquet and the page: 'all', or names with commas between (cwnd,ssthresh,flag,...; a wrong one lists them)
    #[arg(
        long,
        value_name = "FIELDS",
        value_delimiter = ',',
        requires = "written",
        conflicts_with = "set"
    )]
    pub probe: Vec<String>,
    /// Write a page, replacing it, with plots of the probed variables over time: a chart a unit, with losses, retransmissions and timeouts
    #[arg(long, value_name = "FILE", requires = "probe")]
    pub html: Option<PathBuf>,
    /// Functions of TCP that some runs call, to functions.txt: server:92 or server:92-95
    #[arg(long, value_name = "END:RUNS", value_parser = stretch, requires = "out", conflicts_with = "set")]
    pub functions: Option<Stretch>,
    /// Start gdb on the kernel and stop before a run: client:183
    #[arg(long, value_name = "END:RUN", value_parser = stretch, conflicts_with_all = ["written", "json"])]
    pub gdb: Option<Stretch>,
    /// Replay with another setting, up to the first packet that differs (repeat for more); with --out the captures are of the replay without it
    #[arg(long, value_name = "NAME=VALUE", value_parser = what_if::setting, conflicts_with = "gdb")]
    pub set: Vec<Altered>,
    /// From that packet on, simulate the message in flight by itself on its path; marked as simulated, not replayed
    #[arg(long = "continue", requires = "set")]
    pub go_on: bool,
    /// Replay a light recording (by tracepoints only) exactly as inferred. Without this, where a replay differs from what was observed, other inferences are tried
    #[arg(long)]
    pub no_fit: bool,
    /// Bytes to write of each packet
    #[arg(long, value_name = "BYTES", default_value_t = 120, value_parser = clap::value_parser!(u32).range(40..=1600))]
    pub snap: u32,
    /// Kernels to run at a time; unless given, as many as there are processors
    #[arg(long, value_name = "N")]
    pub jobs: Option<usize>,
    /// Seed of the kernels' random numbers; the outcome does not depend on it
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(..=i64::MAX as u64))]
    pub seed: u64,
    /// Exit with status 3 if a replay differs
    #[arg(long)]
    pub exit_code: bool,
    /// Print JSON; docs/reference/cli.md lists the keys
    #[arg(long)]
    pub json: bool,
    /// No progress
    #[arg(long)]
    pub quiet: bool,
}

/// Bytes of IPv6's header and the longest of TCP (RFC 9293 section 3.1), of which plots are made.
const WHOLE_HEADERS: u32 = 100;

/// Of a recording without connections.
pub(crate) const NOTHING: &str = "nothing was recorded: there is no connection in it (only those are recorded that open while it runs)";

/// `server:92` or `server:92-95`, of the only connection.
fn stretch(text: &str) -> Result<Stretch, String> {
    let wanted = "is not END:RUN or END:FIRST-LAST, END being client or server";
    let read = || {
        let (end, runs) = text.split_once(':')?;
        let end = SIDES.iter().position(|name| *name == end)?;
        let (first, last) = runs.split_once('-').unwrap_or((runs, runs));
        let (first, last) = (first.parse().ok()?, last.parse::<u64>().ok()?);
        (first <= last).then_some(Stretch {
            place: 0,
            end: end as u8,
            runs: first..last.checked_add(1)?,
        })
    };
    read().ok_or_else(|| wanted.to_owned())
}

/// The first one and the others.
pub(crate) fn files(first: &Path, more: &[PathBuf]) -> Vec<PathBuf> {
    let first = std::iter::once(first.to_owned());
    first.chain(more.iter().cloned()).collect()
}

/// Reads and joins recordings; notes what is left out on standard error.
pub(crate) fn read(paths: &[PathBuf], wanted: &[usize]) -> Result<Recording, Failure> {
    let (recording, notes) = collection::read(paths, wanted)?;
    for note in notes {
        message::say(format_args!("{note}"));
    }
    Ok(recording)
}

/// Does what the arguments say.
///
/// # Errors
/// The recording cannot be read or replayed, or an output cannot be written.
pub fn run(args: &Replay) -> Result<Outcome, Failure> {
    let recording = read(&files(&args.file, &args.more), &args.connection)?;
    let chosen = choose(args, &recording)?;
    let probed = probed(args)?;
    let kernel = Kernel::find(virtual_time::SOURCE, recording.origin.hz)
        .map_err(|error| Failure::Lab(error.to_string()))?;
    compare_versions(args, &kernel, &recording);
    let begun = Instant::now();
    let working = outputs::Working::new()?;
    if (args.functions.is_some() || args.gdb.is_some()) && chosen.len() != 1 {
        let reason = "--functions and --gdb are about one connection: name it with --connection";
        return Err(Failure::Usage(reason.to_owned()));
    }
    for asked in [&args.functions, &args.gdb].into_iter().flatten() {
        there_is(asked, chosen[0], &recording)?;
    }
    if !args.set.is_empty() {
        let mut frames = Frames::default();
        if args.out.is_some() {
            let batches = replay(args, &kernel, &recording, &chosen, &[], &working.path)?;
            frames = write(args, &recording, &batches, &[])?;
        }
        return what_if::run(args, &kernel, &recording, &chosen, &frames);
    }
    if let Some(stop) = &args.gdb {
        return debug::run(args, &kernel, &recording, &chosen, stop, &working.path);
    }
    let fit = fitted::fit(args, &kernel, &recording, &chosen, &working.path)?;
    let recording = fit.as_ref().map_or(recording, |it| it.recording.clone());
    let batches = replay(args, &kernel, &recording, &chosen, &probed, &working.path)?;
    let frames = write(args, &recording, &batches, &probed)?;
    let differing = replayed::differing(&batches, &frames);
    let light = recording.origin.recorder == RecorderKind::Tracepoints;
    let alike = chosen.len() - differing.len();
    let out = &mut stdout().lock();
    if args.json {
        let diverged: Vec<_> = differing
            .iter()
            .map(|found| found.json(&recording))
            .collect();
        let value = json!({
            "connections": chosen.len(),
            "exact": (!light).then_some(alike),
            "as_seen": light.then_some(alike),
            "fitted": fit.as_ref().map(fitted_report::json),
            "seen_until": light.then(|| fitted_report::observed_json(&recording, &chosen)),
            "runs": replayed::sum(&batches, |result| result.runs),
            "packets": replayed::sum(&batches, |result| result.packets),
            "seconds": begun.elapsed().as_secs_f64(),
            "diverged": diverged,
        });
        writeln!(out, "{value}")?;
    } else {
        replayed::write(
            &batches,
            &differing,
            &recording,
            begun.elapsed(),
            Paint::for_stdout(),
            out,
        )?;
        if light {
            fitted_report::write(&recording, &chosen, fit.as_ref(), out)?;
        }
    }
    Ok(Outcome::of(args.exit_code, !differing.is_empty()))
}

/// Writes what was asked for; gives the frames of the captures.
fn write(
    args: &Replay,
    recording: &Recording,
    batches: &[Batch],
    probed: &[Probed],
) -> Result<Frames, Failure> {
    let mut frames = Frames::default();
    if let Some(folder) = results::open(args.out.as_ref(), results::REPLAY)? {
        frames = outputs::write(folder.draft(), recording, batches, probed)?;
        if args.functions.is_some() {
            outputs::functions(folder.draft(), recording, batches, &frames)?;
        }
        folder.commit()?;
    }
    if let Some(path) = &args.html {
        let title = args.file.display().to_string();
        let page = probe_page::page(recording, batches, probed, &frames, &title)?;
        slowpath_files::write(path, page)
            .map_err(|error| Failure::Write(format!("cannot write {}: {error}", path.display())))?;
    }
    Ok(frames)
}

/// Another version of Linux may do something else: say so, before a replay does.
fn compare_versions(args: &Replay, kernel: &Kernel, recording: &Recording) {
    let origin = &recording.origin;
    let light = origin.recorder == RecorderKind::Tracepoints;
    if !(light || origin.recorder == RecorderKind::Bpf) || args.quiet {
        return;
    }
    if light {
        message::line(format_args!(
            "recorded by tracepoints only: calls and deferred work are inferred, and a replay is compared with what the recorder observed of the sockets: it is not exact"
        ));
    }
    let recorded = virtual_time::version(&origin.kernel);
    if let Some(here) = kernel.version().filter(|here| here != recorded) {
        message::line(format_args!(
            "recorded on Linux {recorded}, replayed on {here}: a replay may differ where these do"
        ));
    }
}

/// Those that were asked for; without that all that can be replayed, and the others are reported.
fn choose(args: &Replay, recording: &Recording) -> Result<Vec<usize>, Failure> {
    let connections = &recording.connections;
    let all = connections.len();
    let failed = |reason: String| Failure::Recording {
        file: args.file.clone(),
        reason,
    };
    if all == 0 {
        return Err(failed(NOTHING.to_owned()));
    }
    if let Some(number) = args.connection.iter().find(|number| **number >= all) {
        return Err(Failure::Usage(format!(
            "there is no connection {number} in {}: it has {all}, from 0",
            args.file.display()
        )));
    }
    let refused = |number: usize| connections[number].replayable().err();
    for number in &args.connection {
        if let Some(reason) = refused(*number) {
            return Err(failed(format!("connection {number}: {reason}")));
        }
    }
    if !args.connection.is_empty() {
        return Ok(args.connection.clone());
    }
    let mut left_out = (0..all).filter_map(|number| Some((number, refused(number)?)));
    if let Some((number, reason)) = left_out.next() {
        let others = match left_out.count() {
            0 => String::new(),
            others => format!(" (and {others} others; slowpath recording info lists them)"),
        };
        let left_out = format!("connection {number}: {reason}{others}");
        let chosen: Vec<usize> = (0..all).filter(|n| refused(*n).is_none()).collect();
        if chosen.is_empty() {
            return Err(failed(left_out));
        }
        message::say(format_args!(
            "left out of {}: {left_out}",
            args.file.display()
        ));
        return Ok(chosen);
    }
    Ok((0..all).collect())
}

/// The columns that were asked for, under the names that they were asked for.
fn probed(args: &Replay) -> Result<Vec<Probed>, Failure> {
    if args.probe == ["all"] {
        let all = Variable::all().map(|variable| Probed {
            name: variable.name().to_owned(),
            variable,
        });
        return Ok(all.collect());
    }
    let names = args.probe.iter().map(|name| name.trim());
    let variables = fields::variables(names.clone());
    let variables = variables.map_err(|error| Failure::Usage(error.to_string()))?;
    let mut taken = BTreeSet::new();
    let columns = names.zip(variables).map(|(name, variable)| Probed {
        name: name.to_owned(),
        variable,
    });
    Ok(columns.filter(|it| taken.insert(it.name.clone())).collect())
}

fn replay(
    args: &Replay,
    kernel: &Kernel,
    recording: &Recording,
    chosen: &[usize],
    probed: &[Probed],
    folder: &Path,
) -> Result<Vec<Batch>, Failure> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let jobs = args.jobs.unwrap_or(processors).max(1);
    let batches = slowpath_replay::batches(recording, chosen, jobs);
    let next = AtomicUsize::new(0);
    let one = |number: usize| -> Result<Batch, Failure> {
        let own = folder.join(number.to_string());
        std::fs::create_dir(&own)
            .map_err(|error| Failure::Write(format!("cannot create {}: {error}", own.display())))?;
        let captured = args.out.is_some() || args.html.is_some();
        let snap = match args.html {
            Some(_) => args.snap.max(WHOLE_HEADERS),
            None => args.snap,
        };
        let options = ReplayOptions {
            seed: args.seed,
            capture: captured.then_some(snap),
            probe: !args.probe.is_empty(),
            more: probed
                .iter()
                .any(|it| matches!(it.variable, Variable::More(_))),
            functions: args.functions.clone(),
            ..ReplayOptions::default()
        };
        let places = batches[number].clone();
        let replayed =
            slowpath_replay::replay(kernel, recording, &places, &options, &own, &mut |_| {});
        let replayed = replayed.map_err(|error| match error {
            ReplayError::Run(RunError::Died { .. }) => Failure::Lab(format!(
                "the replay of {} failed: {error}",
                args.file.display()
            )),
            error => Failure::Recording {
                file: args.file.clone(),
                reason: error.to_string(),
            },
        })?;
        Ok(Batch { places, replayed })
    };
    let mut progress = (!args.quiet).then(|| Progress::new("replaying", Duration::ZERO));
    let begun = Instant::now();
    let mut done: Vec<Option<Result<Batch, Failure>>> = Vec::new();
    done.resize_with(batches.len(), || None);
    let (sender, finished_batches) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..jobs.min(batches.len()) {
            let (sender, next, one) = (sender.clone(), &next, &one);
            let count = batches.len();
            scope.spawn(move || {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count || sender.send((number, one(number))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        for (finished, (number, batch)) in finished_batches.iter().enumerate() {
            done[number] = Some(batch);
            if let Some(progress) = &mut progress {
                let elapsed = begun.elapsed();
                progress.expect(elapsed.mul_f64(batches.len() as f64 / (finished + 1) as f64));
                let note = format!("{} of {}", finished + 1, batches.len());
                progress.at(Micros(elapsed.as_micros() as u64), &note);
            }
        }
    });
    done.into_iter().flatten().collect()
}

/// Runs for a debugger are there.
fn there_is(asked: &Stretch, number: usize, recording: &Recording) -> Result<(), Failure> {
    let end = end_name(asked.end);
    let runs = recording.connections[number].ends[usize::from(asked.end & 1)]
        .runs
        .len();
    match asked.runs.end <= runs as u64 {
        true => Ok(()),
        false => Err(Failure::Usage(format!(
            "there is no run {} of the {end} of connection {number}: it has {runs}, from 0",
            asked.runs.end - 1
        ))),
    }
}
