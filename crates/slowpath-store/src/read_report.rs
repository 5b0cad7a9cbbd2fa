// SPDX-License-Identifier: Apache-2.0
//! What of a log could not be read, for every command that reads one.

use crate::spool::{Parsed, Record};
use slowpath_model::WallMicros;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// What could not be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadReport {
    /// Files read.
    pub files: u64,
    /// Files that could not be read, or not to their end, and why. A file with checksums is left
    /// out whole.
    pub unreadable: Vec<(PathBuf, String)>,
    /// Files, or all files of a segment as a pattern, of which something is missing, and what.
    pub incomplete: Vec<(PathBuf, String)>,
    /// Damaged stretches within spools.
    pub corrupt: u64,
    /// Records of a kind or with a content that this version cannot make sense of.
    pub not_understood: u64,
    /// Bytes at the ends of spools that are the beginning of a record: being written, or
    /// cut off when a writer was killed.
    pub torn_tail: u64,
}

impl ReadReport {
    /// Takes over what another reading of the same log found; of the counts, which are of the same
    /// spools, the larger.
    pub fn absorb(&mut self, other: ReadReport) {
        self.files += other.files;
        self.unreadable.extend(other.unreadable);
        self.incomplete.extend(other.incomplete);
        self.corrupt = self.corrupt.max(other.corrupt);
        self.not_understood = self.not_understood.max(other.not_understood);
        self.torn_tail = self.torn_tail.max(other.torn_tail);
    }

    /// All of it in words, a line for each file and kind of damage: what follows "could not read:".
    pub fn lines(&self) -> Vec<String> {
        let all = self.unreadable.iter().chain(&self.incomplete);
        let lines: BTreeSet<String> = all
            .map(|(path, what)| format!("{}: {what}", path.display()))
            .collect();
        lines.into_iter().collect()
    }

    /// Counts what a spool lacks.
    pub(crate) fn count(&mut self, parsed: &Parsed) {
        self.files += 1;
        self.corrupt += parsed.corrupt as u64;
        self.not_understood += (parsed.unknown + parsed.invalid) as u64;
        self.torn_tail += parsed.torn_tail as u64;
    }
}

/// What is missing from a spool, in words; nothing is empty.
pub(crate) fn missing_from(parsed: &Parsed) -> Vec<String> {
    let counted = [
        (parsed.corrupt, "damaged stretch", "damaged stretches"),
        (
            parsed.unknown,
            "record of a newer version",
            "records of a newer version",
        ),
        (
            parsed.invalid,
            "record that makes no sense",
            "records that make no sense",
        ),
    ];
    let mut missing: Vec<String> = (counted.into_iter())
        .filter(|(count, ..)| *count > 0)
        .map(|(count, one, more)| format!("{count} {}", if count == 1 { one } else { more }))
        .collect();
    if parsed.torn_tail > 0 {
        let bytes = parsed.torn_tail;
        missing.push(format!("a record whose first {bytes} bytes are at its end"));
    }
    missing
}

/// What is missing after a run that did not close its log.
pub(crate) fn unclosed(last: Option<WallMicros>) -> String {
    let time = last.and_then(|last| jiff::Timestamp::from_microsecond(last.0).ok());
    let after = time.map_or_else(String::new, |time| format!(" after {time:.0}"));
    format!(
        "its last seconds: slowpath ended{after} without closing the log (killed, power cut or full disk)"
    )
}

/// When what a record states ended.
pub(crate) fn end_of(record: &Record) -> WallMicros {
    match record {
        Record::Problem(interval) => interval.end,
        Record::Summary(summary) => summary.last_observed,
        Record::Coverage(coverage) => coverage.end,
        Record::Listener(interval) => interval.end,
        Record::Interaction(interval) => interval.end,
        Record::Traffic(interval) => interval.end,
        Record::Hop(hop) => hop.end,
    }
}
