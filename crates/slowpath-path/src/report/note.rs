// SPDX-License-Identifier: Apache-2.0
//! What has to be said of a measurement besides its numbers.

use super::{DirectionReport, PathReport, Way};
use crate::results::{ClockFinding, Corrections};
use serde::Serialize;
use std::time::Duration;

/// Smaller skews are not worth a line, parts per million.
const SKEW: f64 = 1.0;

/// Larger skews show whatever the band's width: the search finds them closer than its bound says, parts per million.
const CLEAR_SKEW: f64 = 20.0;

/// One thing.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "note")]
pub enum Note {
    /// One-way delays cannot be true: they lie outside what the round trip allows.
    Impossible {
        /// The clocks differ by at least this, ns.
        clocks_differ_by_ns: u64,
    },
    /// An end's clock is not synchronised: its one-way delays have no bound but the round trip.
    NotSynchronised,
    /// The clocks differ by more than the timeout: an end that follows RFC 4656 discards every packet.
    ClocksTooFar {
        /// By how much the peer's is ahead, ns.
        offset_ns: i64,
    },
    /// Nothing came of what was sent, from a peer that may have discarded it all because of its clock.
    NothingCame {
        /// In which direction.
        way: Way,
    },
    /// The clocks run at different speeds.
    Skew {
        /// How much faster the peer's is, parts per million.
        ppm: f64,
        /// It was taken out of the delays.
        removed: bool,
    },
    /// A clock was set in mid-session.
    Step {
        /// When, ns since the first packet.
        at_ns: i64,
        /// By how much the peer's went ahead of ours, ns.
        size_ns: i64,
        /// It was taken out of the delays.
        removed: bool,
    },
    /// A receive buffer was full: these packets were lost in an end, not on the path.
    BufferFull {
        /// In which direction.
        way: Way,
        /// How many.
        packets: u64,
    },
    /// The sender fell behind: these packets were never sent.
    Skipped {
        /// In which direction.
        way: Way,
        /// How many.
        packets: u64,
    },
    /// The sender was late with these packets: their spacing is not the schedule's.
    SentLate {
        /// How many.
        packets: u64,
    },
    /// The reflector has no count of its own: in which direction packets were lost is open.
    LossDirectionUnknown,
}

/// All that has to be said of a report. `timeout`: from when on the ends discard packets.
pub(crate) fn notes(report: &PathReport, timeout: Duration) -> Vec<Note> {
    let mut notes = Vec::new();
    let one_way = || report.directions.iter().filter(|d| d.way != Way::RoundTrip);
    let least = one_way().filter_map(|d| Some(d.summary.delay.as_ref()?.min_ns));
    let doubted = one_way().any(|d| d.doubt().is_some());
    if doubted {
        let differ = least.min().map_or(0, |least| least.min(0).unsigned_abs());
        notes.push(Note::Impossible {
            clocks_differ_by_ns: differ,
        });
    }
    let unknown = |d: &DirectionReport| d.error.is_some_and(|error| error.clocks_ns.is_none());
    if one_way().any(unknown) {
        notes.push(Note::NotSynchronised);
    }
    let timeout = i64::try_from(timeout.as_nanos()).unwrap_or(i64::MAX);
    let offset = offset(report);
    if let Some(offset_ns) = offset.filter(|offset| offset.abs() > timeout) {
        notes.push(Note::ClocksTooFar { offset_ns });
    }
    for direction in &report.directions {
        let summary = &direction.summary;
        if direction.way == Way::RoundTrip && report.directions.len() > 1 {
            continue;
        }
        let way = direction.way;
        if summary.delay.is_none() && summary.sent > 0 {
            notes.push(Note::NothingCame { way });
        }
        if summary.lost_here > 0 {
            notes.push(Note::BufferFull {
                way,
                packets: summary.lost_here,
            });
        }
        if summary.skipped > 0 {
            notes.push(Note::Skipped {
                way,
                packets: summary.skipped,
            });
        }
        if let Some(packets) = direction.sent_late.filter(|&late| late > 0) {
            notes.push(Note::SentLate { packets });
        }
    }
    if report
        .directions
        .iter()
        .any(|direction| !direction.losses_known)
    {
        notes.push(Note::LossDirectionUnknown);
    }
    if let Some(clock) = &report.clock {
        clock_notes(clock, report.corrected, &mut notes);
    }
    notes
}

/// The clocks' difference: by both directions, or, where one only came, by what it shows at the least.
fn offset(report: &PathReport) -> Option<i64> {
    if let Some(clock) = &report.clock {
        return Some(clock.offset_ns);
    }
    let mut came = report
        .directions
        .iter()
        .filter_map(|d| Some((d.way, d.summary.delay.as_ref()?.min_ns)));
    came.find_map(|(way, least)| match way {
        Way::There => Some(least),
        Way::Back => Some(-least),
        Way::RoundTrip => None,
    })
}

fn clock_notes(clock: &ClockFinding, corrected: Corrections, notes: &mut Vec<Note>) {
    if clock.skew_ppm.abs() > clock.skew_error_ppm.clamp(SKEW, CLEAR_SKEW) {
        notes.push(Note::Skew {
            ppm: clock.skew_ppm,
            removed: corrected.skew,
        });
    }
    notes.extend(clock.steps.iter().map(|step| Note::Step {
        at_ns: step.at_ns,
        size_ns: step.size_ns,
        removed: corrected.steps,
    }));
}

impl Note {
    /// In words.
    #[must_use]
    pub fn text(&self) -> String {
        use super::text::{signed, span};
        let way_name = |way: &Way| match way {
            Way::There => "there",
            Way::Back => "back",
            Way::RoundTrip => "on the round trip",
        };
        let removed_name = |removed: &bool| {
            if *removed {
                "taken out of the delays"
            } else {
                "still in the delays"
            }
        };
        match self {
            Note::Impossible { clocks_differ_by_ns } => format!(
                "one-way delays are impossible: the clocks differ by at least {}; loss, reordering, hops, jitter and round trip hold",
                span(*clocks_differ_by_ns as i64)
            ),
            Note::NotSynchronised => {
                "a clock is not synchronised (adjtimex): only the round trip bounds the one-way delays".to_owned()
            }
            Note::ClocksTooFar { offset_ns } => format!(
                "the clocks are further from each other than the timeout (the peer's is {} ahead): an end that keeps to RFC 4656 discards every packet; set a clock, or raise -L",
                signed(*offset_ns)
            ),
            Note::NothingCame { way } => format!(
                "nothing came {}: the path is closed to UDP, or the peer discarded all because its clock is further away than the timeout",
                way_name(way)
            ),
            Note::Skew { ppm, removed } => {
                format!("the peer's clock runs {ppm:+.1} ppm against ours ({})", removed_name(removed))
            }
            Note::Step { at_ns, size_ns, removed } => format!(
                "a clock was set {} after the first packet: the peer's went {} against ours ({})",
                span(*at_ns),
                signed(*size_ns),
                removed_name(removed)
            ),
            Note::BufferFull { way, packets } => format!(
                "{packets} packets {} were dropped by the receiver's full socket buffer: its CPU was short, not the path",
                way_name(way)
            ),
            Note::Skipped { way, packets } => {
                format!("{packets} packets {} were never sent: the sender had fallen behind its schedule", way_name(way))
            }
            Note::SentLate { packets } => {
                format!("{packets} packets left more than 1 ms behind the schedule: this host's CPU was short")
            }
            Note::LossDirectionUnknown => {
                "the reflector does not count its replies: in which direction packets were lost is not known".to_owned()
            }
        }
    }
}
