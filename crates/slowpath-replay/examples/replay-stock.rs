// SPDX-License-Identifier: Apache-2.0
//! Replays what BPF recorded on a stock kernel (`record-handlers` of slowpath-observe), and shows where it went another way.
//!
//! ```text
//! replay-stock EVENTS [CONNECTION]
//! ```

use slowpath_lab::virtual_time::{HZ, Kernel, SOURCE};
use slowpath_recorder::stock::{Host, Joined, Joiner};
use slowpath_recording::Origin;
use slowpath_replay::{ReplayOptions, Replayed, replay};
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, rest @ ..] = arguments.as_slice() else {
        return Err("see the file's first lines".into());
    };
    let origin = Origin {
        kernel: SOURCE.to_owned(),
        hz: HZ,
        epoch: 0,
        recorder: "bpf".into(),
    };
    let mut joiner = Joiner::default();
    joiner.take(&std::fs::read(file)?)?;
    let joined = joiner.finish(Host {
        origin,
        hystart: true,
        lost: 0,
    });
    let count = joined.recording.connections.len();
    println!(
        "{count} connections, {} halves, {} events without a place",
        joined.halves, joined.unplaced
    );
    let chosen: Vec<usize> = match rest {
        [number] => vec![number.parse()?],
        _ => (0..count).collect(),
    };
    let (chosen, left_out): (Vec<usize>, Vec<usize>) = (chosen.into_iter())
        .partition(|number| joined.recording.connections[*number].replayable().is_ok());
    println!("not replayable, events are missing: {left_out:?}");
    let kernel = Kernel::find(SOURCE, HZ)?;
    let folder = std::env::temp_dir().join(format!("replay-stock.{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let options = ReplayOptions {
        probe: chosen.len() == 1,
        ..ReplayOptions::default()
    };
    let again = replay(
        &kernel,
        &joined.recording,
        &chosen,
        &options,
        &folder,
        &mut |_| {},
    )?;
    let exact = again
        .results
        .iter()
        .filter(|it| it.difference.is_none())
        .count();
    println!("{exact} of {} exact", again.results.len());
    for (place, number) in chosen.iter().enumerate() {
        show(&joined, &again, place, *number);
    }
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}

/// Shows what came of a connection: where it went another way, what ran there, and which fields differ.
fn show(joined: &Joined, again: &Replayed, place: usize, connection_number: usize) {
    let result = &again.results[place];
    let connection = &joined.recording.connections[connection_number];
    let runs = connection.ends.each_ref().map(|end| end.runs.len());
    println!("{connection_number}: {runs:?} runs, {result:?}");
    let Some(difference) = &result.difference else {
        return;
    };
    let (end, run) = (usize::from(difference.end), difference.run as usize);
    let runs = &connection.ends[end].runs;
    for (number, run) in runs.iter().enumerate().skip(run.saturating_sub(3)).take(6) {
        println!("  {number} {run:?}");
    }
    let found = again.probes.iter().find(|probe| {
        (
            probe.connection as usize,
            usize::from(probe.end),
            probe.run as usize,
        ) == (place, end, run)
    });
    let wanted = joined.states[connection_number][end].get(run);
    if let (Some(found), Some(wanted)) = (found, wanted) {
        for (field, wanted) in wanted.iter() {
            let (name, found) = (field.name(), found.fields[field]);
            if found != wanted {
                println!("  {name}: {wanted} recorded, {found} here");
            }
        }
    }
}
