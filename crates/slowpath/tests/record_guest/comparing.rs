// SPDX-License-Identifier: Apache-2.0
//! A recording's replay beside the captures of the runtime.

use slowpath_lab::virtual_time::Kernel;
use slowpath_recording::Recording;
use slowpath_recording::headers::{self, Header, Pair};
use slowpath_replay::{ReplayOptions, headers_of, replay};
use std::collections::BTreeMap;
use std::path::Path;

pub fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

pub type Captured = BTreeMap<Pair, Vec<Header>>;

pub fn captured(path: &Path) -> Captured {
    headers::read(&read(path)).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// How a recording compares with its replay.
#[derive(Debug, Default)]
pub struct Comparison {
    pub connections: usize,
    /// The state after every run is the same.
    pub states: usize,
    /// And the headers at both ends as well.
    pub exact: usize,
    /// Headers that were compared, and those of them whose timestamps differ.
    pub headers: usize,
    pub timestamps: usize,
    /// Why the others are not.
    pub others: Vec<String>,
    /// Connections of which the receiver's capture has a packet that is longer than any in the sender's.
    pub joined: usize,
}

pub fn compare(recording: &Recording, kernel: &Kernel, runtime: &[Captured; 2]) -> Comparison {
    let folder = tempfile::tempdir().expect("a folder");
    let all = recording.connections.iter().enumerate();
    let (all, refused): (Vec<_>, Vec<_>) = all
        .map(|(number, connection)| (number, connection.replayable()))
        .partition(|(_, replayable)| replayable.is_ok());
    let refused = refused.into_iter();
    let all: Vec<usize> = all.into_iter().map(|(number, _)| number).collect();
    let options = ReplayOptions {
        seed: 99,
        epoch: 1_500_000_000_123_456_789,
        ..ReplayOptions::default()
    };
    let again = replay(
        kernel,
        recording,
        &all,
        &options,
        folder.path(),
        &mut |_| {},
    );
    let again = again.expect("a replay");
    let replayed = headers_of(&again).expect("captures");
    let mut found = Comparison {
        connections: recording.connections.len(),
        others: refused.map(|it| format!("{it:?}")).collect(),
        ..Comparison::default()
    };
    for (place, number) in all.iter().enumerate() {
        let connection = &recording.connections[*number];
        if let Some(difference) = &again.results[place].difference {
            found.others.push(format!("{place}: {difference:?}"));
            continue;
        }
        found.states += 1;
        let mut same = true;
        let there = runtime.each_ref().map(|end| {
            let found = end.get(&connection.addresses);
            found.map(Vec::as_slice).unwrap_or_default()
        });
        found.joined += usize::from(is_joined(there));
        let here = replayed[place].each_ref().map(Vec::as_slice);
        for way in headers::ways(there, here) {
            found.headers += way.comparison.same;
            found.timestamps += way.comparison.timestamps;
            let both = way.runtime.iter().zip(&way.replay);
            let mut stamps = both.take(way.comparison.same).enumerate();
            if let Some((at, (there, here))) =
                stamps.find(|(_, (there, here))| there.timestamps != here.timestamps)
            {
                println!(
                    "{place}: end {}, forward {}, header {at}: timestamps {:?} instead of {:?}, flags {}",
                    way.end, way.forward, here.timestamps, there.timestamps, there.flags
                );
            }
            if !way.is_exact() {
                same = false;
                found.others.push(format!("{place}: {way}"));
            }
        }
        found.exact += usize::from(same);
    }
    found
}

/// Something on the way made one packet of several, by the captures of both ends.
fn is_joined(there: [&[Header]; 2]) -> bool {
    let longest = |end: usize, forward| {
        let some = there[end].iter().filter(|it| it.forward == forward);
        some.map(|it| it.payload).max()
    };
    longest(1, true) > longest(0, true) || longest(0, false) > longest(1, false)
}
