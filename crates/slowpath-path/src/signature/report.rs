// SPDX-License-Identifier: Apache-2.0
//! What an experiment comes to, as values, JSON and text.

use super::judge::{Estimate, Judgement, Reason, Signature, Test, TestName, judge};
use super::plan::Traffic;
use super::run::LossOutcome;
use super::statistics::{Count, median};
use super::tables::{Observed, PacketCell};
use crate::report::Way;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Counts of packets that were sent alike.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CellReport {
    /// How they were sent.
    #[serde(flatten)]
    pub cell: PacketCell,
    /// Packets.
    pub sent: u64,
    /// Of these, lost.
    pub lost: u64,
    /// The middle delay by both clocks as they are, ns; `None`: nothing came.
    pub delay_median_ns: Option<i64>,
    /// How much longer the 95th percentile is than the shortest, ns.
    pub delay_p95_above_min_ns: Option<i64>,
}

/// One direction.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DirectionSignature {
    /// Which.
    pub way: Way,
    /// The kind of loss.
    pub signature: Signature,
    /// Of the test that decided; `None`: none was needed.
    pub p_value: Option<f64>,
    /// The test that decided; of random loss the one that came closest to finding a structure.
    pub test: Option<TestName>,
    /// The lost part of the packets that were judged.
    pub loss_share: f64,
    /// What that is below with 95 % confidence, if losses are independent.
    pub loss_bound: f64,
    /// Numbers of what was found.
    pub estimate: Option<Estimate>,
    /// All tests.
    pub tests: Vec<Test>,
    /// All packets, by how they were sent.
    pub cells: Vec<CellReport>,
}

/// What has to be said of a direction.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LossNote {
    /// Which direction.
    pub way: Way,
    /// What.
    #[serde(flatten)]
    pub reason: Reason,
}

/// An experiment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LossReport {
    /// The peer as it was given.
    pub peer: String,
    /// Each direction.
    pub directions: Vec<DirectionSignature>,
    /// Octets that both ends sent, IP headers included.
    pub sent_bytes: u64,
    /// How long it took, s.
    pub seconds: f64,
    /// What else has to be said.
    pub notes: Vec<LossNote>,
    /// A signal ended it before its time.
    pub interrupted: bool,
}

fn cells(observed: &Observed) -> Vec<CellReport> {
    let mut by_cell: BTreeMap<PacketCell, (Count, Vec<i64>)> = BTreeMap::new();
    for segment in &observed.segments {
        let cell = by_cell.entry(segment.cell).or_default();
        cell.0 = cell.0.and(segment.count());
        cell.1
            .extend(segment.packets.iter().filter_map(|packet| packet.delay_ns));
    }
    let report = |(cell, (count, mut delays)): (PacketCell, (Count, Vec<i64>))| {
        delays.sort_unstable();
        let middle = median(&delays.iter().map(|&delay| delay as f64).collect::<Vec<_>>());
        let least = delays.first().copied();
        let high = delays
            .get((delays.len() * 19).div_ceil(20).saturating_sub(1))
            .copied();
        CellReport {
            cell,
            sent: count.sent,
            lost: count.lost,
            delay_median_ns: middle.map(|middle| middle as i64),
            delay_p95_above_min_ns: high.zip(least).map(|(high, least)| high - least),
        }
    };
    by_cell.into_iter().map(report).collect()
}

impl LossReport {
    /// Judges what came of an experiment with `peer`.
    #[must_use]
    pub fn of(peer: &str, outcome: &LossOutcome) -> Self {
        let mut notes = Vec::new();
        let directions = outcome.directions.iter().map(|(way, observed)| {
            let judgement: Judgement = judge(observed);
            let way = *way;
            notes.extend(
                judgement
                    .reasons
                    .iter()
                    .map(|&reason| LossNote { way, reason }),
            );
            DirectionSignature {
                way,
                signature: judgement.signature,
                p_value: judgement.decided_by.and_then(|test| test.p_value),
                test: judgement.decided_by.map(|test| test.test),
                loss_share: judgement.count.share(),
                loss_bound: judgement.count.bound(),
                estimate: judgement.estimate,
                tests: judgement.tests,
                cells: cells(observed),
            }
        });
        LossReport {
            peer: peer.to_owned(),
            directions: directions.collect(),
            sent_bytes: outcome.sent_bytes,
            seconds: outcome.seconds,
            notes,
            interrupted: outcome.interrupted,
        }
    }

    /// As text.
    #[must_use]
    pub fn text(&self) -> String {
        let mut out = String::new();
        for direction in &self.directions {
            write_direction(&mut out, direction);
            for note in self.notes.iter().filter(|note| note.way == direction.way) {
                // Writing to a string cannot fail.
                let _ = writeln!(out, "note: {}", note.reason.text());
            }
            out.push('\n');
        }
        let _ = writeln!(
            out,
            "{:.1} MB sent by both ends in {:.0} s",
            self.sent_bytes as f64 / 1e6,
            self.seconds
        );
        if self.interrupted {
            out.push_str("interrupted: the experiment ended before its time\n");
        }
        out
    }
}

fn bits(rate: f64) -> String {
    format!("{:.3} Mbit/s", rate / 1e6)
}

fn estimate(estimate: &Estimate) -> String {
    match *estimate {
        Estimate::Bits { per_bit } => format!("one bit in {:.2e} is lost", 1.0 / per_bit),
        Estimate::Buffer { bytes, packets } => {
            format!(
                "the queue holds about {packets:.0} full packets ({:.1} kB)",
                bytes / 1e3
            )
        }
        Estimate::Policer {
            rate_bps,
            burst_bytes,
        } => {
            format!(
                "at {}, bursts of {:.1} kB",
                bits(rate_bps),
                burst_bytes / 1e3
            )
        }
        Estimate::Packets { packets } => format!("every {packets:.1} packets"),
        Estimate::Seconds { seconds } => format!("every {seconds:.3} s"),
    }
}

fn p_value(p: f64) -> String {
    match p {
        p if p < 1e-12 => "p < 1e-12".to_owned(),
        p if p < 1e-3 => format!("p = {p:.1e}"),
        p => format!("p = {p:.3}"),
    }
}

fn write_direction(out: &mut String, direction: &DirectionSignature) {
    let way = match direction.way {
        Way::There => "there",
        Way::Back => "back",
        Way::RoundTrip => "there or back",
    };
    let _ = writeln!(out, "--- loss {way} ---");
    let _ = writeln!(
        out,
        "{}: {}{}",
        direction.signature.name(),
        direction.signature.text(),
        direction
            .estimate
            .as_ref()
            .map_or(String::new(), |e| format!("; {}", estimate(e)))
    );
    let _ = writeln!(
        out,
        "{:.4} % lost, with 95 % confidence less than {:.4} %",
        100.0 * direction.loss_share,
        100.0 * direction.loss_bound
    );
    let _ = writeln!(
        out,
        "  packets                 rate      sent    lost        %   median delay"
    );
    for cell in &direction.cells {
        let size = format!("{} B", cell.cell.bytes);
        let (what, rate) = match cell.cell.traffic {
            Traffic::Single => ("single", bits(cell.cell.rate_bps as f64)),
            Traffic::Train => ("trains", "-".to_owned()),
            Traffic::Paced => ("at a rate", bits(cell.cell.rate_bps as f64)),
        };
        let delay = cell
            .delay_median_ns
            .map_or("-".to_owned(), crate::report::text::span);
        let percent = 100.0 * cell.lost as f64 / cell.sent.max(1) as f64;
        let _ = writeln!(
            out,
            "  {size:>7} {what:<9} {rate:>14} {:>7} {:>7} {percent:>8.4}   {delay}",
            cell.sent, cell.lost
        );
    }
    for test in &direction.tests {
        let decided = if direction.test == Some(test.test) {
            "  <- decides"
        } else {
            ""
        };
        let p = test.p_value.map_or("too few losses".to_owned(), p_value);
        let clear = if test.significant {
            ", significant"
        } else {
            ""
        };
        let _ = writeln!(out, "  {:<52} {p}{clear}{decided}", test.test.text());
    }
}

impl Signature {
    /// In words.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Signature::NoLoss => "too little loss to speak of",
            Signature::BitErrors => {
                "loss grows with the size as bits that fail do: a cable, optic, connector or radio link"
            }
            Signature::ShallowBuffer => "a queue is too short for a train of packets",
            Signature::Policer => "what exceeds a rate is dropped without being queued",
            Signature::Congestion => {
                "packets are lost where others wait: a queue that other traffic fills"
            }
            Signature::Random => "losses are independent of size, rate, place, delay and time",
            Signature::Periodic => {
                "losses have a constant distance: something runs by a clock or a count"
            }
            Signature::Unclear => "the evidence does not single out a kind of loss",
        }
    }
}

impl TestName {
    /// In words.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            TestName::Delay => "packets beside a loss wait longer (Mann-Whitney)",
            TestName::Rate => "loss grows with the rate (Cochran-Armitage)",
            TestName::Position => "loss grows along a train (Cochran-Armitage)",
            TestName::PeriodInPackets => "losses have a period in packets (Rayleigh)",
            TestName::PeriodInTime => "losses have a period in time (Rayleigh)",
            TestName::Size => "full packets are lost more often (Fisher)",
            TestName::Neighbours => "losses follow each other (Poisson)",
            TestName::Dispersion => "the share changes over time (chi-squared)",
        }
    }
}

impl Reason {
    /// In words.
    #[must_use]
    pub fn text(&self) -> String {
        match *self {
            Reason::NothingCame => "nothing came: the path is closed to UDP".to_owned(),
            Reason::FullSizeNever { bytes } => format!(
                "no packet of {bytes} B came while small ones did: the path MTU is smaller and its ICMP is lost; try --size 1280"
            ),
            Reason::OwnLoss { packets } => format!(
                "{packets} packets were dropped by an end's own full buffer: its CPU was short, and the path's losses are not known"
            ),
            Reason::Skipped { packets } => {
                format!("{packets} packets were never sent: the sender had fallen behind; they count nowhere")
            }
            Reason::SlowSender { rate_bps, sent_bps } => format!(
                "the sender kept {} of {}: this rate is not judged",
                bits(sent_bps as f64),
                bits(rate_bps as f64)
            ),
            Reason::Overload { rate_bps, carried_bps } => format!(
                "the path carries {} of {} and its queue was full: this rate is not judged",
                bits(carried_bps as f64),
                bits(rate_bps as f64)
            ),
            Reason::TooFew { lost } => format!("{lost} losses are too few for a test; measure longer with --for"),
            Reason::RateUnclear => "losses grow with the rate, but fit no policer".to_owned(),
            Reason::PositionUnclear => "trains lose more, but neither from one place on nor alike".to_owned(),
            Reason::SizeUnclear => "losses grow with the size, but not as independent bits would have it".to_owned(),
            Reason::Bursts => {
                "losses come in bursts or for a time: a radio link, a route that changes, a line that fails for moments".to_owned()
            }
        }
    }
}
