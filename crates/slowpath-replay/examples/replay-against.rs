// SPDX-License-Identifier: Apache-2.0
//! Replays a recording and compares it with captures that were made of the runtime: an acceptance test of whatever was recorded.
//!
//! ```text
//! replay-against FOLDER [sent]
//! ```
//!
//! FOLDER has run.rec, client.pcap and server.pcap (tcpdump with nanoseconds, above any queue). Each connection is one of four: exact with the same headers in
//! each direction at either end (`sent`: only at the end that sent them, where what was damaged later has not come to a capture yet); **claimed exact with other headers**, which must never be; diverged; refused by name. The last line counts them.

use slowpath_lab::virtual_time::{HZ, Kernel, SOURCE};
use slowpath_recording::headers::{self, Header, Pair};
use slowpath_recording::{self as recording, Connection};
use slowpath_replay::{ReplayOptions, ReplayResult, batches, headers_of, replay};
use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;

type Captured = BTreeMap<Pair, Vec<Header>>;

fn captured(path: &Path) -> Result<Captured, Box<dyn Error>> {
    let bytes = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(headers::read(&bytes)?)
}

/// How many connections are what; headers that were compared, and those of them with other timestamps.
#[derive(Default)]
struct Tally {
    exact: usize,
    wrong: usize,
    diverged: usize,
    refused: usize,
    same: usize,
    timestamps: usize,
}

impl Tally {
    /// Compares a replayed connection with the captures of the runtime.
    fn compare(
        &mut self,
        (number, connection): (usize, &Connection),
        runtime: &[Captured; 2],
        (result, replayed): (&ReplayResult, &[Vec<Header>; 2]),
        sent_only: bool,
    ) {
        let there = runtime.each_ref().map(|end| {
            let found = end.get(&connection.addresses);
            found.map(Vec::as_slice).unwrap_or_default()
        });
        let here = replayed.each_ref().map(Vec::as_slice);
        let mut others = Vec::new();
        let ways = headers::ways(there, here).into_iter();
        for way in ways.filter(|way| !sent_only || way.forward == (way.end == 0)) {
            self.same += way.comparison.same;
            self.timestamps += way.comparison.timestamps;
            if !way.is_exact() {
                others.push(format!("   {way}"));
            }
        }
        let runs = connection.ends.each_ref().map(|end| end.runs.len());
        match &result.difference {
            None if others.is_empty() => self.exact += 1,
            None => {
                self.wrong += 1;
                println!(
                    "{number}: CLAIMED EXACT, other headers; {runs:?} runs, {:?}",
                    connection.addresses
                );
                println!("{}", others.join("\n"));
            }
            Some(difference) => {
                self.diverged += 1;
                let run = connection.ends[usize::from(difference.end)]
                    .runs
                    .get(difference.run as usize);
                println!(
                    "{number}: diverged at {difference:?} of {runs:?} runs, headers {}: {run:?}",
                    if others.is_empty() {
                        "the same"
                    } else {
                        "differ"
                    }
                );
            }
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args()
        .nth(1)
        .ok_or("see the file's first lines")?;
    let folder = Path::new(&folder);
    let sent_only = std::env::args().nth(2).is_some_and(|it| it == "sent");
    let recording = recording::decode(&std::fs::read(folder.join("run.rec"))?)?;
    recording.validate()?;
    let runtime = [
        captured(&folder.join("client.pcap"))?,
        captured(&folder.join("server.pcap"))?,
    ];
    let kernel = Kernel::find(SOURCE, HZ)?;
    let mut tally = Tally::default();
    let mut chosen = Vec::new();
    for (number, connection) in recording.connections.iter().enumerate() {
        match connection.replayable() {
            Ok(()) => chosen.push(number),
            Err(reason) => {
                tally.refused += 1;
                println!("{number}: refused: {reason}");
            }
        }
    }
    for batch in batches(&recording, &chosen, 1) {
        let working = tempfile::tempdir()?;
        let options = ReplayOptions {
            seed: 99,
            epoch: 1_500_000_000_123_456_789,
            ..ReplayOptions::default()
        };
        let again = replay(
            &kernel,
            &recording,
            &batch,
            &options,
            working.path(),
            &mut |_| {},
        )?;
        let replayed = headers_of(&again)?;
        for (place, number) in batch.iter().enumerate() {
            tally.compare(
                (*number, &recording.connections[*number]),
                &runtime,
                (&again.results[place], &replayed[place]),
                sent_only,
            );
        }
    }
    let all = recording.connections.len();
    let Tally {
        exact,
        wrong,
        diverged,
        refused,
        same,
        timestamps,
    } = tally;
    println!(
        "{all} connections: {exact} exact, {wrong} claimed exact with other headers, {diverged} diverged, {refused} refused; {same} headers, {timestamps} with other timestamps"
    );
    Ok(())
}
