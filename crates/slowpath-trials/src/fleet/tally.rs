// SPDX-License-Identifier: Apache-2.0
//! What the trials of a fleet counted.

use serde_json::{Value, json};

/// What the trials counted; `docs/reference/trials.md` defines every number.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FleetTally {
    /// What all was drawn from.
    pub seed: u64,
    /// Processes killed: hosts and servers.
    pub kills: u64,
    /// Rows that hosts' logs accepted.
    pub rows: u64,
    /// Those of them that stand in a gap instead of at the server.
    pub rows_in_gaps: u64,
    /// Those that are neither at the server nor in a gap.
    pub lost_rows: u64,
    /// Rows that the server has more often than once.
    pub doubled_rows: u64,
    /// Stretches of segments whose rows are lost without a gap that says so, and gaps whose rows
    /// are there.
    pub unsaid_gaps: u64,
    /// Connections between two hosts with an agent each, and those of them whose ends the server
    /// joined.
    pub ends: u64,
    /// See `ends`.
    pub joined_ends: u64,
    /// Counts of the server's tables by DuckDB.
    pub counts: u64,
    /// What did not hold, a line each.
    pub findings: Vec<String>,
    /// Trials that this machine cannot run, and why.
    pub skipped: Vec<String>,
}

impl FleetTally {
    pub(super) fn new(seed: u64) -> Self {
        FleetTally {
            seed,
            ..FleetTally::default()
        }
    }

    /// Notes and prints what did not hold.
    pub(super) fn find(&mut self, finding: String) {
        println!("FOUND {finding}");
        self.findings.push(finding);
    }

    /// Notes and prints what cannot be tried here.
    pub(super) fn skip(&mut self, what: &str) {
        if !self.skipped.iter().any(|it| it == what) {
            println!("not tried: {what}");
            self.skipped.push(what.to_owned());
        }
    }

    /// Whether all held.
    pub fn holds(&self) -> bool {
        self.findings.is_empty()
    }

    /// The numbers, as the last line of `make check-fleet` has them.
    pub fn output(&self) -> Value {
        json!({
            "seed": self.seed,
            "kills": self.kills,
            "rows": self.rows,
            "rows_in_gaps": self.rows_in_gaps,
            "lost_rows": self.lost_rows,
            "doubled_rows": self.doubled_rows,
            "unsaid_gaps": self.unsaid_gaps,
            "ends": self.ends,
            "joined_ends": self.joined_ends,
            "counts": self.counts,
            "findings": self.findings.len(),
            "not_tried": self.skipped,
        })
    }
}
