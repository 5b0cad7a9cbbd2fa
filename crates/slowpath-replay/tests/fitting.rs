// SPDX-License-Identifier: Apache-2.0
//! Connections of a stock kernel (Debian's 6.12.117 in QEMU, netem with 10 ms each way) recorded by tracepoints only: `data/light.rec`. Fitting them never makes it worse, and does not explain away what was altered or
//! deleted.

use slowpath_lab::virtual_time::{HZ, Kernel, SOURCE};
use slowpath_recording::{self as recording, Connection, Handler, Outcome, Recording};
use slowpath_replay::{FitOptions, Fitted, ReplayOptions, ReplayResult, fit, replay};

const RECORDED: &[u8] = include_bytes!("data/light.rec");

fn kernel(test: &str) -> Option<Kernel> {
    match Kernel::find(SOURCE, HZ) {
        Ok(kernel) => Some(kernel),
        Err(missing) => {
            println!("SKIPPED {test}: {missing}");
            None
        }
    }
}

fn recorded() -> Recording {
    recording::decode(RECORDED).expect("a recording")
}

fn all(recording: &Recording) -> Vec<usize> {
    (0..recording.connections.len()).collect()
}

fn replayed(kernel: &Kernel, recording: &Recording) -> Vec<ReplayResult> {
    let folder = tempfile::tempdir().expect("a folder");
    let options = ReplayOptions {
        capture: None,
        ..ReplayOptions::default()
    };
    let all = all(recording);
    let again = replay(
        kernel,
        recording,
        &all,
        &options,
        folder.path(),
        &mut |_| {},
    );
    again.expect("a replay").results
}

fn fitted(kernel: &Kernel, recording: &Recording, most: usize) -> Fitted {
    let folder = tempfile::tempdir().expect("a folder");
    let options = FitOptions {
        jobs: 2,
        most,
        ..FitOptions::default()
    };
    let all = all(recording);
    let fitted = fit(
        kernel,
        recording,
        &all,
        &options,
        folder.path(),
        &mut |_| {},
    );
    fitted.expect("a fit")
}

/// Packets that came to either end before it parted; none of nothing parted.
fn reached(connection: &Connection, result: &ReplayResult) -> u64 {
    let Some(difference) = &result.difference else {
        return u64::MAX;
    };
    let at = connection.ends[usize::from(difference.end)].runs[difference.run as usize].at;
    let runs = connection.ends.iter().flat_map(|end| &end.runs);
    let packet = |handler: &Handler| matches!(handler, Handler::Packet { .. });
    let before = runs.filter(|run| run.at < at && packet(&run.handler));
    before.count() as u64
}

#[test]
fn what_is_fitted_goes_further_and_the_rest_is_as_it_was() {
    let test = "what_is_fitted_goes_further_and_the_rest_is_as_it_was";
    let Some(kernel) = kernel(test) else { return };
    let recording = recorded();
    let before = replayed(&kernel, &recording);
    let fit = fitted(&kernel, &recording, 20_000);
    let after = replayed(&kernel, &fit.recording);
    assert!(!fit.changes.is_empty(), "one of them parts without");
    for (place, connection) in recording.connections.iter().enumerate() {
        let other = &fit.recording.connections[place];
        let changed = fit.changes.iter().any(|(changed, _)| *changed == place);
        let [was, is] = [
            reached(connection, &before[place]),
            reached(other, &after[place]),
        ];
        println!(
            "{place}: {was} packets, then {is}: {:?}",
            after[place].difference
        );
        match changed {
            true => assert!(is > was, "{place}"),
            false => assert_eq!((connection, is), (other, was), "{place}"),
        }
    }
    // The exact recorder's stay as they are.
    let mut exact = recording.clone();
    exact.origin.recorder = "bpf".into();
    let untouched = fitted(&kernel, &exact, 20_000);
    assert_eq!((untouched.replays, untouched.changes.len()), (0, 0));
    assert_eq!(untouched.recording, exact);
}

/// The first connection of which nothing differs, with one thing other than it was observed.
fn altered(connection: &Connection) -> Vec<(String, Connection)> {
    let mut out = Vec::new();
    for end in 0..2 {
        for (place, run) in connection.ends[end].runs.iter().enumerate() {
            for (number, outcome) in run.outcomes.iter().enumerate() {
                if let Outcome::Observed { field, value } = *outcome {
                    let mut other = connection.clone();
                    other.ends[end].runs[place].outcomes[number] = Outcome::Observed {
                        field,
                        value: value ^ 1,
                    };
                    out.push((format!("end {end}, run {place}, {outcome:?}"), other));
                }
            }
            let looked = run.outcomes.iter();
            let looked = looked
                .filter(|it| matches!(it, Outcome::Observed { .. }))
                .count()
                > 0;
            let moved = match run.handler {
                // One from the backlog may have been merged with the next one there: how many these were is inferred.
                Handler::Packet { backlog, .. } => looked && !backlog,
                Handler::Send { result, .. } | Handler::Receive { result, .. } => result > 0,
                _ => false,
            };
            if moved {
                let mut other = connection.clone();
                other.ends[end].runs.remove(place);
                out.push((
                    format!("end {end}, without run {place}, {:?}", run.handler),
                    other,
                ));
            }
        }
    }
    out
}

#[test]
fn what_was_altered_is_not_fitted_away() {
    let test = "what_was_altered_is_not_fitted_away";
    let Some(kernel) = kernel(test) else { return };
    let mut recording = recorded();
    let results = replayed(&kernel, &recording);
    let whole = results.iter().position(|it| it.difference.is_none());
    let whole = recording.connections[whole.expect("one without a difference")].clone();
    let (what, others): (Vec<String>, Vec<Connection>) = altered(&whole).into_iter().unzip();
    assert!(what.len() > 30, "{what:?}");
    recording.connections = others;
    let fit = fitted(&kernel, &recording, 200 * what.len());
    let after = replayed(&kernel, &fit.recording);
    let explained = what.iter().zip(&after);
    let explained = explained.filter(|(_, it)| it.difference.is_none());
    let explained: Vec<&String> = explained.map(|(what, _)| what).collect();
    println!("{} altered, {} replays", what.len(), fit.replays);
    assert!(explained.is_empty(), "{explained:#?}");
}
