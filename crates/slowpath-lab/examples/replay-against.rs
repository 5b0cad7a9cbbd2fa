// SPDX-License-Identifier: Apache-2.0
//! Replays a recording and compares it with captures that were made of the runtime: an acceptance test of whatever was recorded.
//!
//! ```text
//! replay-against FOLDER
//! ```
//!
//! FOLDER has run.rec, client.pcap and server.pcap (tcpdump with nanoseconds, above any queue). Each connection is one of four: exact with the same headers in
//! each direction at either end; **claimed exact with other headers**, which must never be; diverged; refused by name. The last line counts them.

use slowpath_lab::virtual_time::{HZ, Kernel, ReplayOptions, SOURCE, batches, replay};
use slowpath_replay::headers::{self, Header, Pair};
use slowpath_replay::recording;
use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;

type Captured = BTreeMap<Pair, Vec<Header>>;

fn captured(path: &Path) -> Result<Captured, Box<dyn Error>> {
    let bytes = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(headers::read(&bytes)?)
}

fn way(headers: &[Header], forward: bool) -> Vec<Header> {
    let way = headers.iter().filter(|header| header.forward == forward);
    way.cloned().collect()
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args()
        .nth(1)
        .ok_or("see the file's first lines")?;
    let folder = Path::new(&folder);
    let recording = recording::decode(&std::fs::read(folder.join("run.rec"))?)?;
    recording.validate()?;
    let runtime = [
        captured(&folder.join("client.pcap"))?,
        captured(&folder.join("server.pcap"))?,
    ];
    let kernel = Kernel::find(SOURCE, HZ)?;
    let (mut exact, mut wrong, mut diverged, mut refused) = (0, 0, 0, 0);
    let (mut same, mut timestamps) = (0, 0);
    let mut chosen = Vec::new();
    for (number, connection) in recording.connections.iter().enumerate() {
        match connection.replayable() {
            Ok(()) => chosen.push(number),
            Err(reason) => {
                refused += 1;
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
        let captures = again.captures.as_ref().ok_or("no captures")?;
        let replayed = [captured(&captures[0])?, captured(&captures[1])?];
        for (place, number) in batch.iter().enumerate() {
            let connection = &recording.connections[*number];
            let mut others = Vec::new();
            for end in 0..2 {
                let there = runtime[end].get(&connection.addresses);
                let there = there.map(Vec::as_slice).unwrap_or_default();
                let port = slowpath_lab::virtual_time::FIRST_PORT + place as u16;
                let here = replayed[end]
                    .iter()
                    .find(|(pair, _)| pair[0].port() == port);
                let here = here
                    .map(|(_, headers)| headers.as_slice())
                    .unwrap_or_default();
                for forward in [true, false] {
                    let [there, here] = [there, here].map(|all| way(all, forward));
                    let comparison = headers::compare(&there, &here);
                    same += comparison.same;
                    timestamps += comparison.timestamps;
                    if !comparison.is_exact() || comparison.packets == 0 {
                        let at = comparison.same;
                        others.push(format!(
                            "   end {end}, forward {forward}, header {at} of {} and {}: replayed {:?}, recorded {:?}",
                            there.len(),
                            here.len(),
                            here.get(at),
                            there.get(at)
                        ));
                    }
                }
            }
            let runs = connection.ends.each_ref().map(|end| end.runs.len());
            match &again.results[place].difference {
                None if others.is_empty() => exact += 1,
                None => {
                    wrong += 1;
                    println!(
                        "{number}: CLAIMED EXACT, other headers; {runs:?} runs, {:?}",
                        connection.addresses
                    );
                    println!("{}", others.join("\n"));
                }
                Some(difference) => {
                    diverged += 1;
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
    let all = recording.connections.len();
    println!(
        "{all} connections: {exact} exact, {wrong} claimed exact with other headers, {diverged} diverged, {refused} refused; {same} headers, {timestamps} with other timestamps"
    );
    Ok(())
}
