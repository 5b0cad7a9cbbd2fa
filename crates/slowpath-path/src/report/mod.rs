// SPDX-License-Identifier: Apache-2.0
//! What a measurement comes to: each direction's numbers with their errors, the clocks, and what has to be said of
//! both.
//!
//! What enters: what sessions left, what is to be taken out of delays. What leaves: a [`PathReport`], as values, as
//! JSON and as text ([`text`]).

mod note;
mod oneway;
pub mod text;
mod twoway;

pub use note::Note;
pub use oneway::of_one_way;
pub(crate) use oneway::with_stamps;
pub use twoway::of_two_way;

use crate::record::Record;
use crate::results::{ClockFinding, Corrections, Doubt, OneWayError, Plan, Summary, Tally};
use crate::time::Timestamp;
use serde::Serialize;
use slowpath_diagnose::clocks::Point;
use std::time::Duration;

/// A direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// From this host to the peer.
    There,
    /// From the peer to this host.
    Back,
    /// Both, without the time in the peer.
    RoundTrip,
}

/// One direction's numbers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DirectionReport {
    /// Which.
    pub way: Way,
    /// From where.
    pub from: String,
    /// To where.
    pub to: String,
    /// The session's identifier, hexadecimal; empty of STAMP and TWAMP light.
    pub session: String,
    /// Counts and delays.
    #[serde(flatten)]
    pub summary: Summary,
    /// Whether losses are known to be of this direction; a reflector without a count of its own leaves it
    /// open.
    pub losses_known: bool,
    /// How far the delays can be believed. A round trip needs no second clock: `None`.
    pub error: Option<OneWayError>,
    /// Sending times are the kernel's, and not those that packets carried.
    pub kernel_send_times: bool,
    /// Of our own sender: packets more than 1 ms behind the schedule.
    pub sent_late: Option<u64>,
    /// Of our own sender: packets that the kernel refused.
    pub send_refused: Option<u64>,
    /// Of our own receiver: datagrams that were none of the session's.
    pub strangers: Option<u64>,
}

impl DirectionReport {
    /// Why its delays cannot be true.
    #[must_use]
    pub fn doubt(&self) -> Option<Doubt> {
        self.error.and_then(|error| error.doubt)
    }
}

/// A measurement.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PathReport {
    /// `owamp`, `twamp`, `twamp-light` or `stamp`.
    pub protocol: &'static str,
    /// How packets were protected.
    pub mode: String,
    /// When the schedule began, RFC 3339.
    pub start: String,
    /// Each direction.
    pub directions: Vec<DirectionReport>,
    /// What both directions say of the two clocks.
    pub clock: Option<ClockFinding>,
    /// What was taken out of delays.
    pub corrected: Corrections,
    /// What has to be said.
    pub notes: Vec<Note>,
    /// A signal ended it before its time.
    pub interrupted: bool,
}

/// How results are made.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    /// Percentiles besides the median.
    pub percents: Vec<f64>,
    /// What is taken out of delays.
    pub corrections: Corrections,
    /// From when on a packet is lost.
    pub timeout: Duration,
}

/// One direction's records, as the counting needs them.
pub(crate) struct Sample {
    pub(crate) records: Vec<Record>,
    /// Whether a record's time by this host's clock is that of arrival.
    pub(crate) arrives_here: bool,
    /// 1: the peer's clock less ours is in the delay; −1: ours less the peer's; 0: neither.
    pub(crate) sign: i64,
}

impl Sample {
    fn here(&self, record: &Record) -> Timestamp {
        if self.arrives_here {
            record.received
        } else {
            record.sent
        }
    }

    /// Arrivals as points: when, ns since `start`, and the delay.
    pub(crate) fn points(&self, start: Timestamp) -> Vec<Point> {
        let arrived = self
            .records
            .iter()
            .filter_map(|record| Some((record, record.delay()?)));
        arrived
            .map(|(record, delay)| (self.here(record).nanos_since(start), delay))
            .collect()
    }

    /// Counts it. Delays have taken out of them what is asked, the variation what does not belong into it.
    pub(crate) fn summary(
        &self,
        (packets, next_sequence): (u32, u32),
        skips: &[crate::record::SkipRange],
        dropped: u64,
        start: Timestamp,
        (reading, finding): (&Reading, Option<&ClockFinding>),
    ) -> Summary {
        let corrected: Vec<Record> = self
            .records
            .iter()
            .map(|record| {
                let at = self.here(record).nanos_since(start);
                let out = finding.map_or(0, |f| f.difference(at, reading.corrections));
                let received = match record.lost() {
                    true => record.received,
                    false => record.received.moved(-self.sign * out),
                };
                Record {
                    received,
                    ..*record
                }
            })
            .collect();
        let plan = Plan {
            timeout: i64::try_from(reading.timeout.as_nanos()).unwrap_or(i64::MAX),
            percents: reading.percents.clone(),
        };
        let mut tally = Tally::of(plan, packets, &corrected, skips);
        let mut summary = tally
            .close(next_sequence, dropped)
            .expect("one row is open");
        if let (Some(delays), Some(finding)) = (&mut summary.delay, finding) {
            let mut values: Vec<i64> = self
                .points(start)
                .iter()
                .map(|&(at, delay)| {
                    delay - self.sign * finding.difference(at, Corrections::VARIATION)
                })
                .collect();
            delays.jitter_ns = crate::results::jitter(&mut values).unwrap_or(delays.jitter_ns);
        }
        summary
    }

    /// What both ends' clocks say of themselves, added: the largest of all records. `None`: one is not
    /// synchronised.
    pub(crate) fn clocks(&self) -> Option<Duration> {
        let arrived = self.records.iter().filter(|record| !record.lost());
        arrived
            .map(|record| {
                let both = record.sent_error.synchronised() && record.received_error.synchronised();
                both.then(|| record.sent_error.error() + record.received_error.error())
            })
            .try_fold(Duration::ZERO, |most, error| Some(most.max(error?)))
    }
}

/// Gives two directions their errors, each beside the other.
pub(crate) fn judge_errors(
    there: &mut DirectionReport,
    back: &mut DirectionReport,
    clocks: [Option<Duration>; 2],
) {
    let (here, other) = (there.summary.delay.clone(), back.summary.delay.clone());
    there.error = here
        .as_ref()
        .map(|here| OneWayError::of(here, other.as_ref(), clocks[0]));
    back.error = other
        .as_ref()
        .map(|other| OneWayError::of(other, here.as_ref(), clocks[1]));
}
