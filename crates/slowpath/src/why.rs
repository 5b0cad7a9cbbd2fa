// SPDX-License-Identifier: Apache-2.0
//! `slowpath why`: observes for a while, then gives one answer.

use crate::failure::{Failure, Outcome};
use crate::options::ExitOn;
use crate::render::{Paint, plural};
use crate::session::{self, Flow, Viewer};
use slowpath_machine::clock;
use slowpath_machine::process_state;
use slowpath_machine::progress::Progress;
use slowpath_machine::system_names::SystemNames;
use slowpath_model::Micros;
use slowpath_views::json;
use slowpath_views::source::{PollReport, Source};
pub use slowpath_views::why::{Answer, Collector, Target, TargetError};
use std::io::Write;
use std::time::Duration;

/// How to answer.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How long to look.
    pub length: Duration,
    /// JSON.
    pub json: bool,
    /// When the exit status is 3.
    pub exit: ExitOn,
}

struct Watching {
    collector: Collector,
    progress: Progress,
}

impl Viewer for Watching {
    fn polled(
        &mut self,
        source: &dyn Source,
        report: &PollReport,
        elapsed: Micros,
    ) -> Result<Flow, Failure> {
        self.collector.polled(source, report, clock::now());
        let note = plural(self.collector.connections() as u64, "connection");
        self.progress.at(elapsed, &note);
        Ok(Flow::Continue)
    }
}

/// Looks at the target and writes the answer.
///
/// # Errors
/// [`Failure::NotFound`] when no connection fits; when a poll or the output fails.
pub fn run(
    source: &mut dyn Source,
    events: &std::sync::mpsc::Receiver<crate::events::Event>,
    target: &Target,
    options: Options,
    paint: Paint,
    out: &mut dyn Write,
) -> Result<Outcome, Failure> {
    let answer = look(source, events, target, options.length)?;
    if options.json {
        writeln!(out, "{}", json::value(&answer.output(source, clock::now())))?;
    } else {
        for line in answer.lines(source, paint) {
            writeln!(out, "{line}")?;
        }
    }
    out.flush()?;
    Ok(options
        .exit
        .outcome(|criterion| answer.problems_found(criterion)))
}

/// The target in `text`.
///
/// # Errors
/// [`Failure::Usage`] for a text that is none, [`Failure::NotFound`] for a host or a process
/// that is not there.
pub fn target(text: &str) -> Result<Target, Failure> {
    let target = Target::parse(text, &SystemNames::default()).map_err(|error| match error {
        TargetError::Host(_) => Failure::NotFound(error.to_string()),
        _ => Failure::Usage(error.to_string()),
    })?;
    if let Target::Pid(pid) = target
        && !std::path::Path::new(&format!("/proc/{pid}")).exists()
    {
        return Err(Failure::NotFound(format!(
            "there is no process {pid}; for a port write :{pid}"
        )));
    }
    Ok(target)
}

fn look(
    source: &mut dyn Source,
    events: &std::sync::mpsc::Receiver<crate::events::Event>,
    target: &Target,
    length: Duration,
) -> Result<Answer, Failure> {
    let mut watching = Watching {
        collector: Collector::at(target).with_process(process_state::of(target)),
        progress: Progress::new("collector", length),
    };
    let looked = session::run(source, events, Some(length), &mut watching)?;
    watching.progress.clear();
    let answer = watching.collector.answer(looked);
    answer.map_err(|nothing| Failure::NotFound(nothing.to_string()))
}
