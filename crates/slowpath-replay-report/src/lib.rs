// SPDX-License-Identifier: Apache-2.0
//! Reports of recordings, replays and explanations.
//!
//! What enters: recordings (files are read with bounds, [`mod@file`], and joined, [`collection`]),
//! results of [`slowpath_replay`] and [`slowpath_explain`]. What leaves: text and JSON;
//! captures, `probes.parquet` and `functions.txt` of a replay ([`outputs`]).
//!
//! What is promised: JSON keys are those of `docs/reference/cli.md`; text from recordings
//! cannot steer the terminal.
//!
//! What it never does: run a kernel, judge.

mod chart;
pub mod collection;
pub mod dump;
pub mod explanation;
pub mod explanation_page;
pub mod file;
pub mod fitted;
pub mod frames;
pub mod info;
pub mod list;
pub mod one_sided;
mod output;
pub mod outputs;
pub mod probe_page;
pub mod replayed;
#[cfg(test)]
mod schema;
pub mod shrunk;
pub mod what_if;

use slowpath_recording::{Connection, End};

/// Names of the two ends.
pub const SIDES: [&str; 2] = ["client", "server"];

fn ends(connection: &Connection) -> String {
    let [client, server] = connection.addresses;
    format!("{client} -> {server}")
}

/// The name of an end: 0 the client, 1 the server.
pub fn end_name(end: u8) -> &'static str {
    SIDES.get(usize::from(end)).copied().unwrap_or("?")
}

/// How many events of an end are known to be lost; `None`: it has a gap, and they were not counted.
fn lost(end: &End) -> Option<u64> {
    (end.gap.is_none() || end.lost > 0).then_some(end.lost)
}
