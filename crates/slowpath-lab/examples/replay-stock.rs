// SPDX-License-Identifier: Apache-2.0
//! Replays what BPF recorded on a stock kernel (`record-handlers` of slowpath-observe), and shows where it went another way.
//!
//! ```text
//! replay-stock EVENTS CONGESTION [CONNECTION]
//! ```

use slowpath_lab::virtual_time::{HZ, Kernel, ReplayOptions, SOURCE, replay};
use slowpath_replay::probe::FIELDS;
use slowpath_replay::recording::{Origin, Settings};
use slowpath_replay::stock;
use std::collections::BTreeMap;
use std::error::Error;

/// The kernel's defaults with 2 GB of memory.
fn settings(congestion: &str) -> Settings {
    let values = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        let pairs = pairs.iter();
        pairs
            .map(|(name, value)| (name.to_string(), value.to_string()))
            .collect()
    };
    let sysctls = values(&[
        ("tcp_timestamps", "1"),
        ("tcp_sack", "1"),
        ("tcp_ecn", "2"),
        ("tcp_recovery", "1"),
        ("tcp_early_retrans", "3"),
        ("tcp_reordering", "3"),
        ("tcp_slow_start_after_idle", "1"),
        ("tcp_moderate_rcvbuf", "1"),
        ("tcp_rmem", "4096 131072 6291456"),
        ("tcp_cubic.hystart", "1"),
        ("ip_default_ttl", "64"),
    ]);
    let socket = values(&[
        ("congestion", congestion),
        ("rto_min_ns", "200000000"),
        ("rto_initial_ns", "1000000000"),
        ("initial_window", "10"),
        ("initial_ssthresh", "2147483647"),
        ("receive_window", "0"),
        ("mss", "0"),
        ("ack_at_once", "0"),
    ]);
    let mut accepted = socket.clone();
    accepted.insert("reader".to_owned(), "at-once".to_owned());
    Settings {
        sysctls: [sysctls.clone(), sysctls],
        socket: [socket, accepted],
        mtu: [1500, 1500],
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, congestion, rest @ ..] = arguments.as_slice() else {
        return Err("see the file's first lines".into());
    };
    let origin = Origin {
        kernel: SOURCE.to_owned(),
        hz: HZ,
        epoch: 0,
        recorder: "bpf".to_owned(),
    };
    let joined = stock::join(&std::fs::read(file)?, origin, &settings(congestion));
    let joined = joined.ok_or("these are no events")?;
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
    for (place, result) in again.results.iter().enumerate() {
        let connection = &joined.recording.connections[chosen[place]];
        let runs = connection.ends.each_ref().map(|end| end.runs.len());
        println!("{}: {runs:?} runs, {result:?}", chosen[place]);
        let Some(difference) = &result.difference else {
            continue;
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
        let wanted = joined.states[chosen[place]][end].get(run);
        if let (Some(found), Some(wanted)) = (found, wanted) {
            for (name, (found, wanted)) in FIELDS.iter().zip(found.fields.iter().zip(wanted)) {
                if found != wanted {
                    println!("  {name}: {wanted} recorded, {found} here");
                }
            }
        }
    }
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}
