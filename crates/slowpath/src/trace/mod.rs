// SPDX-License-Identifier: Apache-2.0
//! `slowpath trace`: what a capture says about its connections.
//!
//! What enters: the arguments, captures. What leaves: a list ranked by what limits each
//! connection, everything about each (`fields`), JSON, CSV; pictures, and the capture again
//! with our findings in it. The analysis is `slowpath-trace`'s; here it is asked for and shown.

mod args;
mod capture;
mod csv;
mod error;
mod fields;
mod input;
mod json;
mod log;
mod outputs;
mod pairing;
mod select;
mod table;
mod verdict_json;
mod words;
mod work;

pub use args::Trace;
pub use error::TraceError;
pub use select::Which;

use crate::failure::{Failure, Outcome};
use crate::render::{Paint, plural};
use input::Source;
use slowpath_trace::decode::DecodeOptions;
use slowpath_trace::engine::{self, Finished, Summary};
use slowpath_trace::filter::Filter;
use slowpath_trace::tcp::{ConnectionReport, Side};
use slowpath_trace::verdict::{DirectionVerdict, Judged};
use std::io::Write;

/// A connection with its number.
pub struct Numbered {
    /// From 1, in the order of the first packets; as tcptrace numbers them.
    pub number: u64,
    /// What is known of it.
    pub finished: Finished<Box<Judged>>,
}

impl Numbered {
    /// Its figures.
    pub fn report(&self) -> &ConnectionReport {
        &self.finished.report.report
    }

    /// What limited the data of one side.
    pub fn verdict(&self, side: Side) -> &DirectionVerdict {
        self.finished.report.verdicts.sent_by(side)
    }

    /// Whether any problem was found.
    pub fn troubled(&self) -> bool {
        let both = [Side::Client, Side::Server];
        both.iter().any(|s| !self.verdict(*s).findings.is_empty())
    }

    /// The side whose data had more trouble; of two without any, the one that sent more.
    pub fn worst_side(&self) -> Side {
        let weight = |s| {
            (
                work::trouble(&self.finished.report, s),
                self.report().sent_by(s).data.bytes,
            )
        };
        if weight(Side::Server) > weight(Side::Client) {
            Side::Server
        } else {
            Side::Client
        }
    }
}

/// What is shown.
pub struct Report {
    /// What a person calls the capture.
    pub name: String,
    /// What there was beside the connections.
    pub summary: Summary,
    /// How many connections there are.
    pub count: u64,
    /// Packets that the kernel lost of a capture on an interface.
    pub live_drops: Option<u64>,
    /// Those kept, worst first.
    pub connections: Vec<Numbered>,
    /// Whether any connection that was chosen has a problem.
    pub troubled: bool,
}

/// Analyses what the arguments say and writes what they ask for.
///
/// # Errors
/// A capture cannot be read, or an output cannot be written.
pub fn run(args: &Trace, paint: Paint, out: &mut dyn Write) -> Result<Outcome, Failure> {
    let filter: Option<Filter> = match &args.filter {
        Some(text) => Some(text.parse().map_err(TraceError::from)?),
        None => None,
    };
    outputs::check(args)?;
    if args.duration.is_some() && args.interface.is_none() {
        return Err(Failure::Usage(
            "--duration is for a capture with --interface".to_owned(),
        ));
    }
    let mut source = Source::open(args, filter.as_ref(), outputs::read_twice(args))?;
    if let Some(stop) = &source.stop {
        input::stop_in_time(stop, args.duration)?;
        // What is sent from now on is captured; whoever waits for that reads it here.
        eprintln!("slowpath: capturing on {}; Ctrl-C ends it", source.name);
    }
    let options = engine::Options {
        decode: DecodeOptions {
            tunnels: args.tunnels,
            ..DecodeOptions::default()
        },
        filter,
        ..engine::Options::default()
    };
    // The list needs no more than its worst; the rest needs all.
    let all = args.answering.json
        || args.csv
        || args.annotate.is_some()
        || args.extract.is_some()
        || args.connection.is_some()
        || args.log.is_some();
    let keep = if all { usize::MAX } else { args.top };
    let analysis = work::analyse(&mut source, &options, keep)?;
    let report = choose(args, &source, analysis)?;
    let beside = match &args.log {
        Some(directory) => Some(log::read(directory, &report)?),
        None => None,
    };
    let both = match &args.pair {
        Some(path) => {
            let mut other = Source::file(path)?;
            pairing::read(args, &mut source, &mut other, &options, &report)?
        }
        None => Vec::new(),
    };
    if args.answering.json {
        json::write(&report, beside.as_ref(), &both, out)?;
    } else if args.csv {
        csv::write(&report, out)?;
    } else {
        table::write(&report, args, paint, out)?;
        if let Some(beside) = &beside {
            log::write(beside, &report, paint, out)?;
        }
        pairing::write(&both, &report, paint, out)?;
    }
    outputs::all(args, &mut source, &options, &report)?;
    out.flush()?;
    Ok(Outcome::of(args.answering.exit_code, report.troubled))
}

/// Keeps the connections asked for, and ranks them.
fn choose(args: &Trace, source: &Source, analysis: work::Analysis) -> Result<Report, TraceError> {
    let work::Analysis {
        summary,
        mut connections,
        mut troubled,
    } = analysis;
    if let Some(which) = args.connection {
        connections.retain(|n| which.is(n.number, n.report().client, n.report().server));
        troubled = connections.iter().any(Numbered::troubled);
        if connections.is_empty() {
            return Err(TraceError::NoConnection {
                which: which.to_string(),
                what: source.name.clone(),
                count: plural(summary.connections, "connection"),
            });
        }
    }
    Ok(Report {
        name: source.name.clone(),
        live_drops: source.counters.as_ref().map(|c| c.dropped()),
        count: summary.connections,
        summary,
        connections,
        troubled,
    })
}
