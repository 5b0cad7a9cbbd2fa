// SPDX-License-Identifier: Apache-2.0
//! `slowpath overhead`: what monitoring costs on this machine.

use crate::events::Event;
use crate::failure::Failure;
use crate::render::{Paint, plural};
use crate::session::{self, Flow, Viewer};
use slowpath_machine::progress::Progress;
use slowpath_model::Micros;
use slowpath_views::json;
use slowpath_views::overhead::{Cost, Measurement};
use slowpath_views::source::{PollReport, Source};
use std::io::Write;
use std::sync::mpsc::Receiver;
use std::time::Duration;

struct Measuring {
    measurement: Measurement,
    progress: Progress,
}

impl Viewer for Measuring {
    fn polled(
        &mut self,
        source: &dyn Source,
        report: &PollReport,
        elapsed: Micros,
    ) -> Result<Flow, Failure> {
        self.measurement.polled(source, report, elapsed);
        self.progress.at(elapsed, &plural(report.sockets, "socket"));
        Ok(Flow::Continue)
    }
}

/// Measures for a while and writes what it cost.
///
/// # Errors
/// When a poll or the output fails.
pub fn run(
    source: &mut dyn Source,
    events: &Receiver<Event>,
    length: Duration,
    as_json: bool,
    paint: Paint,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let cost = measure(source, events, length)?;
    if as_json {
        writeln!(out, "{}", json::value(&cost.output(source)))?;
    } else {
        for line in cost.lines(source, paint) {
            writeln!(out, "{line}")?;
        }
    }
    out.flush()?;
    Ok(())
}

fn measure(
    source: &mut dyn Source,
    events: &Receiver<Event>,
    length: Duration,
) -> Result<Cost, Failure> {
    let refused = source.measure_programs().err();
    let mut measuring = Measuring {
        measurement: Measurement::default(),
        progress: Progress::new("measuring", length),
    };
    session::run(source, events, Some(length), &mut measuring)?;
    measuring.progress.clear();
    Ok(measuring.measurement.finish(source, refused))
}

#[cfg(test)]
mod tests {
    use super::*;
    use slowpath_views::scripted::{INTERVAL, ScriptedSource};
    use slowpath_views::source::ProgramCost;
    use std::sync::mpsc::channel;

    fn program(probe: &'static str, runs: u64, nanos: u64) -> ProgramCost {
        ProgramCost {
            within_polls: probe == "snapshot",
            probe,
            program: format!("{probe}_program"),
            runs,
            nanos,
        }
    }

    #[test]
    fn programs_within_polls_are_not_counted_twice() {
        let mut source = ScriptedSource::new(vec![]);
        // After the first poll, and after the last: 1000 runs of 100 ns outside, 10 runs
        // of 50 us within.
        source.programs = vec![
            vec![],
            vec![program("calls", 500, 9_000), program("snapshot", 1, 1)],
            vec![program("calls", 500, 9_000), program("snapshot", 1, 1)],
            vec![
                program("calls", 1500, 109_000),
                program("snapshot", 11, 500_001),
            ],
        ];
        let (_sender, events) = channel();
        let length = Duration::from_micros(INTERVAL.0 * 2);
        let cost = measure(&mut source, &events, length).unwrap();
        // Two polls of 1 ms and 100 us of programs in 1 s.
        assert_eq!(cost.polls, 2);
        assert_eq!(cost.elapsed, Micros(1_000_000));
        assert!((cost.total() - 0.0021).abs() < 1e-9, "{}", cost.total());
        let cost_json = json::value(&cost.output(&source));
        assert_eq!(cost_json["programs"][1]["ns_per_run"], 100.0);
        assert_eq!(cost_json["programs"][0]["within_polls"], true);
        let text = cost.lines(&source, Paint::OFF).join("\n");
        assert!(text.contains("0.210% of one core"), "{text}");
    }
}
