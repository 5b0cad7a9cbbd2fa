// SPDX-License-Identifier: Apache-2.0
//! DETER section 2.2: the story of section 2.1 run again with the same calls at the same times, and noise in what hosts need for a packet.

use super::{Failure, Reported, report, scenario};
use slowpath_lab::virtual_time::{Kernel, Options, run};
use slowpath_replay::{ReplayOptions, explain, replay};

/// The story.
const STORY: &str = "story-2.1.toml";
/// What its receiver needs to send a packet.
const RECEIVER: &str = "extra-delay = \"10000 ns\"";
const HOSTS: &str = "\"receiver\"]\nswitches";
const LINK: &str = "{ ends = [\"receiver\", \"tor\"] }";

/// Whether the short flow waited for two timeouts and a delayed acknowledgment between.
fn keeps(reported: &[Reported]) -> bool {
    reported
        .iter()
        .flat_map(|reported| &reported.messages)
        .any(|message| {
            message
                .chain()
                .any(|link| link.name() == "delayed_ack_after_timeout")
        })
}

/// Of `runs` re-runs with that standard deviation, in nanoseconds, how many keep the problem. The noise is in what the receiver needs to send a
/// packet; it is uniform, as wide as the deviation times the root of twelve, and has the mean that there is without it.
pub fn reruns(kernel: &Kernel, sigma: f64, runs: u64) -> Result<u64, Failure> {
    let width = (sigma * 1000.0 * 12f64.sqrt()).round();
    let delay = (10_000_000.0 - width / 2.0).round();
    let noisy = format!("extra-delay = \"{delay} ps\"\njitter = \"{width} ps\"");
    let mut kept = 0;
    for number in 0..runs {
        // A line's noise follows from its number: hosts that do nothing give the receiver's another one, and no other line.
        let idle: Vec<String> = (0..number).map(|n| format!("idle-{n}")).collect();
        let hosts: String = idle.iter().map(|host| format!(", \"{host}\"")).collect();
        let links = idle
            .iter()
            .map(|host| format!("{{ ends = [\"{host}\", \"tor\"] }}, "));
        let edits = [
            (RECEIVER, noisy.as_str()),
            (HOSTS, &format!("\"receiver\"{hosts}]\nswitches")),
            (LINK, &(links.collect::<String>() + LINK)),
        ];
        kept += u64::from(keeps(&report(
            kernel,
            &scenario(STORY, &edits)?,
            false,
            true,
        )?));
    }
    Ok(kept)
}

/// Of `runs` replays of the story's short connection, each with another seed and another clock, how many keep the problem.
pub fn replays(kernel: &Kernel, runs: u64) -> Result<u64, Failure> {
    let folder = tempfile::tempdir()?;
    let options = Options {
        capture: None,
        events: false,
        info_every: None,
        record: true,
        ..Options::default()
    };
    let run = run(
        kernel,
        &scenario(STORY, &[])?,
        &options,
        folder.path(),
        &mut |_| {},
    )?;
    let recording = run.recording.ok_or("nothing was recorded")?;
    let last = recording.connections.len() - 1;
    let mut kept = 0;
    for number in 0..runs {
        let folder = tempfile::tempdir()?;
        let options = ReplayOptions {
            seed: number + 2,
            epoch: 1_500_000_000_123_456_789 + number * 7_919_000_001,
            probe: true,
            ..ReplayOptions::default()
        };
        let replayed = replay(
            kernel,
            &recording,
            &[last],
            &options,
            folder.path(),
            &mut |_| {},
        )?;
        kept += u64::from(replayed.results.iter().all(|it| it.difference.is_none()));
    }
    // That it was there to be kept.
    let folder = tempfile::tempdir()?;
    let (explained, _) = explain(kernel, &recording, &[last], folder.path(), &mut |_| {})?;
    let messages = explained.into_iter().collect::<Result<Vec<_>, _>>()?;
    let mut names = messages.iter().flatten().flat_map(|it| it.chain());
    if !names.any(|link| link.name() == "delayed_ack_after_timeout") {
        return Ok(0);
    }
    Ok(kept)
}
