// SPDX-License-Identifier: Apache-2.0
//! Options and other calls of programs (`programs.rs`), recorded and replayed.

use super::programs::{KINDS, LATE, REFUSED, SET};
use super::{keep, kernel, read, record};
use serde_json::Value;
use slowpath_lab::virtual_time::{Kernel, version};
use slowpath_recording::{self as recording, Handler, Outcome, Recording, Refused, Run};
use slowpath_replay::{Difference, ReplayOptions, replay};
use std::collections::BTreeSet;

fn differences(
    kernel: &Kernel,
    recording: &Recording,
    chosen: &[usize],
) -> Vec<Option<Difference>> {
    let folder = tempfile::tempdir().expect("a folder");
    let options = ReplayOptions::default();
    let again = replay(
        kernel,
        recording,
        chosen,
        &options,
        folder.path(),
        &mut |_| {},
    );
    let results = again.expect("a replay").results;
    results.into_iter().map(|it| it.difference).collect()
}

fn option(run: &Run) -> Option<(u16, u16)> {
    match run.handler {
        // Level 0 and name 0: a call that did nothing.
        Handler::Option { level, name, .. } if (level, name) != (0, 0) => Some((level, name)),
        _ => None,
    }
}

/// Connections that lack an option of these, or set it to another value, each kind of option thrice; and all options that these set.
fn without_and_with_other_options(
    recording: &Recording,
    exact: Vec<usize>,
) -> (Recording, BTreeSet<(u16, u16)>) {
    let mut set = BTreeSet::new();
    let mut altered = Recording {
        origin: recording.origin.clone(),
        ..Recording::default()
    };
    for place in exact {
        let connection = &recording.connections[place];
        for end in 0..2 {
            for (run, it) in connection.ends[end].runs.iter().enumerate() {
                let Some(which) = option(it) else { continue };
                // Each kind of option thrice.
                set.insert(which);
                let same = |it: &recording::Connection| {
                    let all = it.ends.iter().flat_map(|end| &end.runs);
                    all.filter(|it| option(it) == Some(which)).count()
                };
                if altered.connections.iter().map(same).sum::<usize>() > 3 {
                    continue;
                }
                let mut without = connection.clone();
                without.ends[end].runs.remove(run);
                let mut other = connection.clone();
                if let Handler::Option { value, .. } = &mut other.ends[end].runs[run].handler {
                    *value += 2;
                }
                altered.connections.extend([without, other]);
            }
        }
    }
    (altered, set)
}

/// At least 95 % of what is not refused is exact; what is refused is so by name; each option that was set is in the recording; one that is another or not there is noticed.
#[test]
fn what_programs_do_with_sockets_is_replayed() {
    let test = "what_programs_do_with_sockets_is_replayed";
    let Some(kernel) = kernel(test) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let times = 4;
    let (delay, loss, repeated) = ("8ms", "1%", times.to_string());
    let out = record(folder.path(), "programs.sh", &[delay, loss, &repeated]);
    let summary: Value = serde_json::from_slice(&read(&out.join("summary.json"))).expect("JSON");
    assert_eq!(summary["lost_events"], 0, "{summary}");
    assert_eq!(summary["unplaced_events"], 0, "{summary}");
    // One for each kind, two of "both", and those that come to a full queue.
    let connections = times * KINDS.len() + LATE;
    assert_eq!(summary["connections"], connections, "{summary}");
    let recording = recording::decode(&read(&out.join("run.rec"))).expect("a recording");
    recording.validate().expect("makes sense");
    let recorded = version(&recording.origin.kernel);
    let here = kernel.version().expect("says it");
    if here != recorded {
        println!("SKIPPED {test}: the guest is Linux {recorded}, the replaying kernel is {here}");
        return;
    }
    let all = recording.connections.iter().enumerate();
    let (chosen, refused): (Vec<_>, Vec<_>) = all.partition(|(_, it)| it.replayable().is_ok());
    let why: Vec<String> = refused
        .iter()
        .filter_map(|(_, it)| Some(it.replayable().err()?.to_string()))
        .collect();
    let named = |it: &String| REFUSED.iter().any(|(_, name)| it.contains(name));
    assert!(
        why.len() == times * REFUSED.len() && why.iter().all(named),
        "{why:?}"
    );
    let queue = |run: &Run| {
        let mut all = run.outcomes.iter();
        all.any(|it| matches!(it, Outcome::Refused(Refused::Listener { .. })))
    };
    let runs = recording.connections.iter();
    let runs = runs.flat_map(|it| it.ends.iter().flat_map(|end| &end.runs));
    assert!(runs.filter(|run| queue(run)).count() > 0, "{summary}");
    let chosen: Vec<usize> = chosen.into_iter().map(|(place, _)| place).collect();
    let found = differences(&kernel, &recording, &chosen);
    let others = chosen.iter().zip(&found).filter(|(_, it)| it.is_some());
    let others: Vec<String> = others.map(|it| format!("{it:?}")).collect();
    println!(
        "{test}: {} of {} exact; {}",
        chosen.len() - others.len(),
        chosen.len(),
        others.join("\n")
    );
    if !others.is_empty() {
        keep(test, [delay, loss, "cubic"], &out);
    }
    assert!(others.len() * 20 <= chosen.len(), "{others:?}");

    let exact = chosen.iter().zip(&found).filter(|(_, it)| it.is_none());
    let exact: Vec<usize> = exact.map(|(place, _)| *place).collect();
    let (altered, set) = without_and_with_other_options(&recording, exact);
    for which in SET {
        assert!(set.contains(&which), "{which:?} of {set:?}");
    }
    let places: Vec<usize> = (0..altered.connections.len()).collect();
    let noticed = differences(&kernel, &altered, &places);
    assert!(
        !noticed.is_empty() && noticed.iter().all(Option::is_some),
        "{noticed:?}"
    );
}
