// SPDX-License-Identifier: Apache-2.0
//! What the trials counted.

use serde_json::{Value, json};

/// What the trials counted; `docs/reference/trials.md` defines every number.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tally {
    /// What all was drawn from.
    pub seed: u64,
    /// Agents killed.
    pub kills: u64,
    /// Rows that a reader had before the kill and not after it.
    pub lost_rows: u64,
    /// Rows that stand for a time that another row of the same connection stands for.
    pub doubled_rows: u64,
    /// Kills and losses that no report names.
    pub unsaid_gaps: u64,
    /// Bits flipped in files.
    pub flips: u64,
    /// Flips that changed what is read without a word, or that ended a command without one.
    pub unsaid_flips: u64,
    /// Mutated inputs.
    pub inputs: u64,
    /// Panics, and deaths by a signal that the trial did not send.
    pub panics: u64,
    /// Inputs and commands that did not end.
    pub hangs: u64,
    /// The most that was resident of an agent, in MiB; `None` where that was not measured.
    pub rss_mib: Option<u64>,
    /// What did not hold, a line each.
    pub findings: Vec<String>,
    /// Trials that this machine cannot run, and why.
    pub skipped: Vec<String>,
}

impl Tally {
    pub(crate) fn new(seed: u64) -> Self {
        Tally {
            seed,
            ..Tally::default()
        }
    }

    /// Notes and prints what did not hold.
    pub(crate) fn find(&mut self, finding: String) {
        println!("FOUND {finding}");
        self.findings.push(finding);
    }

    /// Notes and prints what cannot be tried here.
    pub(crate) fn skip(&mut self, what: String) {
        println!("not tried: {what}");
        self.skipped.push(what);
    }

    /// Whether all held.
    pub fn holds(&self) -> bool {
        self.findings.is_empty()
    }

    /// The numbers, as the last line of `make check-hardening` has them.
    pub fn output(&self) -> Value {
        json!({
            "seed": self.seed,
            "kills": self.kills,
            "lost_rows": self.lost_rows,
            "doubled_rows": self.doubled_rows,
            "unsaid_gaps": self.unsaid_gaps,
            "flips": self.flips,
            "unsaid_flips": self.unsaid_flips,
            "inputs": self.inputs,
            "panics": self.panics,
            "hangs": self.hangs,
            "rss_mib": self.rss_mib,
            "findings": self.findings.len(),
            "not_tried": self.skipped,
        })
    }
}
