// SPDX-License-Identifier: Apache-2.0
//! `slowpath trace`: what a capture shows about its connections.
//!
//! What enters: the arguments, captures. What leaves: a list ranked by what limits each
//! connection, every figure of each, JSON, CSV; graphs, and the capture again with findings as
//! comments. Analysis and reports are `slowpath-trace`'s; this module opens, writes and shows
//! progress.

mod args;
mod error;
mod log;
mod outputs;
mod progress;

pub use args::Trace;
pub use error::TraceError;

use crate::failure::{Failure, Outcome};
use crate::message;
use progress::Bar;
use slowpath_text::{Paint, plural};
use slowpath_trace::decode::DecodeOptions;
use slowpath_trace::engine;
use slowpath_trace::filter::Filter;
use slowpath_trace::read::Source;
use slowpath_trace::report::analysis::{self, Analysis};
use slowpath_trace::report::selection::{Keep, UNANSWERED};
use slowpath_trace::report::table::ListOptions;
use slowpath_trace::report::{
    CaptureReport, ConnectionSelector, Overview, RankedConnection, counters, csv, json, pairing,
    table,
};
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Analyses the captures and writes the requested outputs.
///
/// # Errors
/// A capture cannot be read, or an output cannot be written.
pub fn run(args: &Trace, paint: Paint, out: &mut dyn Write) -> Result<Outcome, Failure> {
    let filter: Option<Filter> = match &args.filter {
        Some(text) => Some(text.parse().map_err(TraceError::from)?),
        None => None,
    };
    if args.duration.is_some() && args.interface.is_none() {
        return Err(Failure::Usage(
            "--duration is for a capture with --interface".to_owned(),
        ));
    }
    let mut source = open(args, filter.as_ref())?;
    if let Some(stop) = &source.stop {
        stop_in_time(stop, args.duration)?;
        // The capture has begun: a caller may wait for this line.
        message::say(format_args!("capturing on {}; Ctrl-C ends it", source.name));
    }
    let options = engine::Options {
        decode: DecodeOptions {
            tunnels: args.tunnels,
            ..DecodeOptions::default()
        },
        filter,
        ..engine::Options::default()
    };
    let analysis = analyse(args, &mut source, &options)?;
    let report = choose(args, &source, analysis)?;
    say_unlisted(args, &report);
    let counted = match &args.log {
        Some(directory) => Some(log::read(directory, &report)?),
        None => None,
    };
    let paired = match &args.pair {
        Some(path) => pair(args, path, &mut source, &options, &report)?,
        None => Vec::new(),
    };
    if args.json {
        json::write(&report, counted.as_ref(), &paired, out)?;
    } else if args.csv {
        csv::write(&report, out)?;
    } else {
        let list = ListOptions {
            top: args.top,
            long: args.long,
            selected: args.connection.is_some(),
        };
        table::write(&report, &list, paint, out)?;
        if let Some(counted) = &counted {
            counters::write(counted, &report, paint, out)?;
        }
        pairing::write(&paired, &report, paint, out)?;
    }
    outputs::all(args, &mut source, &options, &report)?;
    out.flush()?;
    Ok(Outcome::of(args.exit_code, troubled(args, &report)))
}

/// Analyses the captures, and keeps the connections that are to be written or were named.
fn analyse(
    args: &Trace,
    source: &mut Source,
    options: &engine::Options,
) -> Result<Analysis, TraceError> {
    // The list needs only the worst connections; the other outputs need all.
    let all = args.json
        || args.csv
        || args.annotate.is_some()
        || args.extract.is_some()
        || args.connection.is_some()
        || args.selects_findings()
        || args.log.is_some();
    let keep = if all {
        Keep::all()
    } else {
        Keep::worst(args.top)
    };
    let keep = args.named().fold(keep, Keep::and);
    let progress = Bar::new("reading").observer();
    let mut analysis = analysis::analyse(source.inputs()?, options, &keep, progress)?;
    let numbers = args.named().filter_map(ConnectionSelector::number);
    let missing = analysis.missing(&numbers.collect::<Vec<u64>>());
    if !missing.is_empty() {
        let progress = Bar::new("reading again").observer();
        analysis.add(source.inputs()?, options, &missing, progress)?;
    }
    Ok(analysis)
}

/// Says how many connections the outputs leave out that do not say so themselves.
fn say_unlisted(args: &Trace, report: &CaptureReport) {
    if report.unlisted > 0 && (args.csv || args.annotate.is_some() || args.log.is_some()) {
        // Beside what is printed.
        message::say(format_args!(
            "{} beyond the worst {UNANSWERED} are counted, and neither listed, annotated nor compared",
            plural(report.unlisted, "unanswered connection")
        ));
    }
}

/// Whether anything was found that counts for the exit status.
fn troubled(args: &Trace, report: &CaptureReport) -> bool {
    if !args.selects_findings() {
        return report.troubled;
    }
    let mut findings = report.connections.iter().flat_map(|c| c.findings());
    findings.any(|finding| args.counts(finding))
}

/// What the arguments name.
fn open(args: &Trace, filter: Option<&Filter>) -> Result<Source, TraceError> {
    let twice = outputs::read_twice(args);
    Ok(match &args.interface {
        Some(interface) => Source::live(interface, filter, twice)?,
        None => Source::files(&args.files, twice)?,
    })
}

/// Pairs the listed connections with those of the capture at `path`.
fn pair(
    args: &Trace,
    path: &std::path::Path,
    source: &mut Source,
    options: &engine::Options,
    report: &CaptureReport,
) -> Result<Vec<pairing::PairedConnection>, TraceError> {
    if path.as_os_str() == "-" {
        return Err(TraceError::PairIsStandardInput);
    }
    let mut other = Source::files(&[path.to_owned()], false)?;
    let captures = [source.inputs()?, other.inputs()?];
    let chosen = &report.connections[..args.top.min(report.connections.len())];
    let progress = || Bar::new("pairing").observer();
    let any = args.connection.is_some();
    Ok(pairing::read(chosen, captures, options, any, progress)?)
}

/// Keeps the connection that the user selected, or all.
fn choose(args: &Trace, source: &Source, analysis: Analysis) -> Result<CaptureReport, TraceError> {
    let Analysis {
        summary,
        mut connections,
        mut troubled,
        artefacts,
        mut overview,
        mut unlisted,
        ..
    } = analysis;
    if let Some(which) = args.connection {
        connections.retain(|n| which.selects(n.number, n.report().client, n.report().server));
        troubled = connections.iter().any(RankedConnection::troubled);
        overview = Overview::of(&connections);
        unlisted = 0;
        if connections.is_empty() {
            return Err(TraceError::NoConnection {
                which: which.to_string(),
                what: source.name.as_str().into(),
                count: plural(summary.connections, "connection"),
            });
        }
    }
    Ok(CaptureReport {
        name: source.name.as_str().into(),
        live_drops: source.counters.as_ref().map(|c| c.dropped()),
        count: summary.connections,
        summary,
        artefacts,
        overview,
        connections,
        unlisted,
        troubled,
    })
}

/// Stops a capture on an interface after `duration` or at a signal.
fn stop_in_time(stop: &Arc<AtomicBool>, duration: Option<Duration>) -> io::Result<()> {
    let stop = Arc::clone(stop);
    let (sender, events) = crate::events::with_signals()?;
    std::thread::Builder::new()
        .name("stop".to_owned())
        .spawn(move || {
            // Held, so that without a duration only a signal ends the wait.
            let _sender = sender;
            let _ = match duration {
                Some(duration) => events.recv_timeout(duration).ok(),
                None => events.recv().ok(),
            };
            stop.store(true, Ordering::Relaxed);
        })?;
    Ok(())
}
