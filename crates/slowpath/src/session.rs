// SPDX-License-Identifier: Apache-2.0
//! The loop of every live command: poll when due, wake on events, stop in time.

use crate::events::Event;
use crate::failure::Failure;
use slowpath_model::Micros;
use slowpath_views::source::{PollReport, Source};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

/// Polls that may fail one after the other: the next one may succeed.
const TOLERATED: u32 = 4;

/// Whether to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Go on.
    Continue,
    /// Stop now.
    Stop,
}

/// What a live command does with what happens.
pub trait Viewer {
    /// A poll was made that views should look at; `elapsed` is the time since the first one.
    ///
    /// # Errors
    /// When the output refuses.
    fn polled(
        &mut self,
        source: &dyn Source,
        report: &PollReport,
        elapsed: Micros,
    ) -> Result<Flow, Failure>;

    /// An event other than a signal, which stops the loop.
    ///
    /// # Errors
    /// When the output refuses.
    fn event(&mut self, _source: &dyn Source, _event: Event) -> Result<Flow, Failure> {
        Ok(Flow::Continue)
    }
}

/// Polls at once and then when due, until `length` has passed on the source's clock, a signal
/// arrives or the viewer stops. The time between the first and the last poll.
///
/// # Errors
/// When the first poll fails, or five in a row, or the viewer.
pub fn run(
    source: &mut dyn Source,
    events: &Receiver<Event>,
    length: Option<Duration>,
    viewer: &mut dyn Viewer,
) -> Result<Micros, Failure> {
    let length = length.map(Micros::from);
    let first = source.poll()?;
    let mut elapsed = Micros::ZERO;
    let mut failures = 0;
    if viewer.polled(source, &first, elapsed)? == Flow::Stop {
        return Ok(elapsed);
    }
    while length.is_none_or(|length| elapsed < length) {
        let mut wait = source.until_next_poll();
        if let Some(length) = length {
            wait = wait.min(Duration::from_micros(length.saturating_sub(elapsed).0));
        }
        match events.recv_timeout(wait) {
            Ok(Event::Stop) => return Ok(elapsed),
            Ok(event) => {
                if viewer.event(source, event)? == Flow::Stop {
                    return Ok(elapsed);
                }
            }
            Err(RecvTimeoutError::Timeout) => {
                let report = match source.poll() {
                    Ok(report) => report,
                    Err(_) if failures < TOLERATED => {
                        failures += 1;
                        continue;
                    }
                    Err(error) => return Err(error.into()),
                };
                failures = 0;
                elapsed = report.at.since(first.at);
                if report.refresh && viewer.polled(source, &report, elapsed)? == Flow::Stop {
                    return Ok(elapsed);
                }
            }
            Err(RecvTimeoutError::Disconnected) => return Ok(elapsed),
        }
    }
    Ok(elapsed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use slowpath_views::scripted::{INTERVAL, ScriptedSource};
    use std::sync::mpsc::channel;

    struct Counter(u32);

    impl Viewer for Counter {
        fn polled(&mut self, _: &dyn Source, _: &PollReport, _: Micros) -> Result<Flow, Failure> {
            self.0 += 1;
            Ok(Flow::Continue)
        }
    }

    #[test]
    fn it_stops_in_time_on_the_sources_clock() {
        let (_sender, events) = channel();
        let mut counter = Counter(0);
        let length = Duration::from_micros(INTERVAL.0 * 3);
        let elapsed = run(
            &mut ScriptedSource::new(vec![]),
            &events,
            Some(length),
            &mut counter,
        )
        .unwrap();
        assert_eq!((counter.0, elapsed), (4, Micros(INTERVAL.0 * 3)));
    }

    #[test]
    fn a_signal_stops_it() {
        let (sender, events) = channel();
        sender.send(Event::Stop).unwrap();
        let mut counter = Counter(0);
        run(
            &mut ScriptedSource::new(vec![]),
            &events,
            None,
            &mut counter,
        )
        .unwrap();
        assert_eq!(counter.0, 1);
    }
}
