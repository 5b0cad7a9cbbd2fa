// SPDX-License-Identifier: Apache-2.0
//! Reports of what captures show: the ranked list, every figure, JSON, CSV, remarks for graphs.
//!
//! [`analysis`] ranks connections by the time they had problems. Everything else turns a
//! [`CaptureReport`] into text or JSON.

mod advice;
pub mod analysis;
mod artefacts;
pub mod capture;
pub mod counters;
pub mod csv;
pub mod figures;
pub mod headline;
pub mod json;
pub mod overview;
pub mod pairing;
mod phrases;
pub mod remarks;
pub mod selection;
mod selector;
pub mod table;
mod translated;

pub use artefacts::Artefacts;
pub use overview::Overview;
pub use selector::ConnectionSelector;

use crate::engine::{Finished, Summary};
use crate::tcp::{ConnectionReport, Side};
use crate::verdict::{DirectionVerdict, Judged, TraceFinding};
use slowpath_model::Foreign;

/// A connection with its number.
pub struct RankedConnection {
    /// From 1, in the order of the first packets; as tcptrace numbers them.
    pub number: u64,
    /// What is known of it.
    pub finished: Finished<Box<Judged>>,
}

impl RankedConnection {
    /// Its figures.
    pub fn report(&self) -> &ConnectionReport {
        &self.finished.report.report
    }

    /// What limited the data of one side.
    pub fn verdict(&self, side: Side) -> &DirectionVerdict {
        self.finished.report.verdicts.sent_by(side)
    }

    /// What was found, worst first.
    pub fn findings(&self) -> &[TraceFinding] {
        &self.finished.report.verdicts.findings
    }

    /// What was found about the data of one side, worst first.
    pub fn findings_of(&self, side: Side) -> impl Iterator<Item = &TraceFinding> {
        let of_side = move |f: &&TraceFinding| f.from == Some(side);
        let findings = self.findings().iter().filter(of_side);
        findings.filter(|f| !f.problem.is_of_connection())
    }

    /// Whether any problem was found.
    pub fn troubled(&self) -> bool {
        self.finished.report.verdicts.is_troubled()
    }

    /// The side whose data had more trouble; of two without any, the one that sent more.
    pub fn worst_side(&self) -> Side {
        let weight = |s| {
            (
                analysis::trouble(&self.finished.report, s),
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
pub struct CaptureReport {
    /// What a person calls the capture.
    pub name: Foreign,
    /// What there was beside the connections.
    pub summary: Summary,
    /// How many connections there are.
    pub count: u64,
    /// Packets that the kernel lost of a capture on an interface.
    pub live_drops: Option<u64>,
    /// What the capturing did to the packets of all connections.
    pub artefacts: Artefacts,
    /// Those kept, worst first.
    pub connections: Vec<RankedConnection>,
    /// What they amount to, kept or not.
    pub overview: Overview,
    /// Unanswered connections that are not among them though all connections are.
    pub unlisted: u64,
    /// Whether any connection that was chosen has a problem.
    pub troubled: bool,
}
