// SPDX-License-Identifier: Apache-2.0
//! The files that are written beside what is printed.

use super::args::Trace;
use super::error::TraceError;
use super::progress::Bar;
use crate::message;
use crate::results::TRACE;
use slowpath_files::ResultsFolder;
use slowpath_text::plural;
use slowpath_trace::engine;
use slowpath_trace::picture::{Drawn, Recording, Remark, html, svg, xpl};
use slowpath_trace::read::Source;
use slowpath_trace::report::{
    CaptureReport, ConnectionSelector, analysis, capture, headline, remarks,
};
use slowpath_trace::tcp::Side;
use slowpath_trace::write::{self, Comments, Written};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::path::Path;

/// Groups of failed connections named on a page.
const FAILURES: usize = 8;

/// Whether the capture is read more than once.
pub fn read_twice(args: &Trace) -> bool {
    let numbered = args.named().any(|which| which.number().is_some());
    draws(args)
        || args.pair.is_some()
        || args.annotate.is_some()
        || numbered
        || args.extract.is_some()
}

fn draws(args: &Trace) -> bool {
    args.html.is_some() || args.svg.is_some() || args.xpl.is_some()
}

/// Writes what the arguments ask for.
pub fn all(
    args: &Trace,
    source: &mut Source,
    options: &engine::Options,
    report: &CaptureReport,
) -> Result<(), TraceError> {
    if draws(args) {
        draw(args, source, options, report)?;
    }
    if let Some(path) = &args.annotate {
        let comments = remarks::comments(report);
        let written = copy(source, path, |_| true, &comments)?;
        if written.uncommentable > 0 {
            // Beside what is printed, which may be JSON.
            message::say(format_args!(
                "{} in {} could not be given a comment: \
                 a simple packet block, or options that are damaged",
                plural(written.uncommentable, "packet"),
                path.display()
            ));
        }
    }
    if let Some([which, path]) = args.extract.as_deref() {
        let first = extracted(which, report)?;
        let frames = analysis::frames(
            source.inputs()?,
            options,
            first,
            Bar::new("extracting").observer(),
        )?;
        let wanted = |frame| frames.binary_search(&frame).is_ok();
        copy(source, Path::new(path), wanted, &Comments::new())?;
    }
    Ok(())
}

fn draw(
    args: &Trace,
    source: &mut Source,
    options: &engine::Options,
    report: &CaptureReport,
) -> Result<(), TraceError> {
    let chosen = report.connections.iter().take(args.top);
    let firsts: BTreeSet<u64> = chosen.clone().map(|n| n.finished.first_frame).collect();
    let recorded: BTreeMap<u64, Recording> = analysis::record(
        source.inputs()?,
        options,
        &firsts,
        Bar::new("drawing").observer(),
    )?
    .into_iter()
    .collect();
    let texts: Vec<(String, Vec<Remark>)> = (chosen.clone())
        .map(|n| {
            let recording = recorded.get(&n.finished.first_frame);
            (remarks::title(n), remarks::remarks(n, recording))
        })
        .collect();
    let drawn: Vec<Drawn<'_>> = chosen
        .zip(&texts)
        .filter_map(|(n, (title, remarks))| {
            Some(Drawn {
                number: n.number,
                title,
                recording: recorded.get(&n.finished.first_frame)?,
                remarks,
            })
        })
        .collect();
    if let Some(path) = &args.html {
        let mut summary = vec![capture::line(report)];
        summary.push(headline::headline(report).text);
        summary.extend(headline::failures(report, FAILURES));
        summary.extend(headline::remarks(report));
        create(path, |out| {
            html::write(report.name.raw(), &summary.join(" · "), &drawn, out)
        })?;
    }
    if let (Some(path), Some(first)) = (&args.svg, drawn.first()) {
        create(path, |out| svg::write(first, out))?;
    }
    if let Some(path) = &args.xpl {
        let folder = ResultsFolder::open(path, TRACE)?;
        plots(folder.draft(), &drawn)?;
        folder.commit()?;
    }
    Ok(())
}

/// The first frame of the connection to be extracted.
fn extracted(which: &str, report: &CaptureReport) -> Result<u64, TraceError> {
    let which: ConnectionSelector = which.parse().map_err(TraceError::Which)?;
    let chosen = report.connections.iter().find(|n| {
        let r = n.report();
        which.selects(n.number, r.client, r.server)
    });
    let found = chosen.map(|n| n.finished.first_frame);
    found.ok_or_else(|| TraceError::NoConnection {
        which: which.to_string(),
        what: report.name.clone(),
        count: plural(report.connections.len() as u64, "connection"),
    })
}

fn copy(
    source: &mut Source,
    path: &Path,
    wanted: impl FnMut(u64) -> bool,
    comments: &Comments,
) -> Result<Written, TraceError> {
    let inputs = source.inputs()?;
    slowpath_files::write_with(path, |out| write::copy(inputs, wanted, comments, out)).map_err(
        |error| TraceError::Copy {
            path: path.to_owned(),
            error,
        },
    )
}

/// One file a graph.
fn plots(folder: &Path, drawn: &[Drawn<'_>]) -> Result<(), TraceError> {
    for drawn in drawn {
        let path = folder.join(xpl::time_line_name(drawn.number));
        create(&path, |out| xpl::time_line(drawn.recording, out))?;
        for side in [Side::Client, Side::Server] {
            for graph in xpl::Graph::ALL {
                let path = folder.join(xpl::file_name(drawn.number, side, graph));
                create(&path, |out| xpl::write(drawn.recording, side, graph, out))?;
            }
        }
    }
    Ok(())
}

/// Writes a file.
fn create(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), TraceError> {
    slowpath_files::write_with(path, |out| write(out)).map_err(|error| TraceError::Write {
        path: path.to_owned(),
        error,
    })
}
