// SPDX-License-Identifier: Apache-2.0
//! Stories: scenarios that are run, recorded, replayed and explained.

use slowpath_explain::{Explanation, confirm};
use slowpath_lab::virtual_time::{Kernel, Options, run};
use slowpath_netsim::scenario::{Scenario, Substrate};
use slowpath_replay::{WhatIf, explain};
use std::path::Path;

/// Today's defaults instead of Linux 4.4's as the paper has it.
pub const TODAY: &[(&str, &str)] = &[
    (
        "loss-detection = \"duplicate-acks\"",
        "loss-detection = \"rack\"",
    ),
    ("tail-loss-probe = false", "tail-loss-probe = true"),
];

pub type Failure = Box<dyn std::error::Error>;

/// What a scenario of `scenarios/replay` says, with some of its words replaced; each must be there.
pub fn scenario(name: &str, edits: &[(&str, &str)]) -> Result<Scenario, Failure> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/replay");
    let mut text = std::fs::read_to_string(folder.join(name))?;
    for (old, new) in edits {
        if !text.contains(old) {
            return Err(format!("{name} does not say '{old}'").into());
        }
        text = text.replace(old, new);
    }
    let files = |name: &str| std::fs::read_to_string(folder.join(name));
    Ok(Scenario::parse_for(&text, &files, Substrate::VirtualTime)?)
}

pub mod butterfly;

/// The slowest message of a story.
pub fn slowest(reported: &[Reported]) -> Option<&Explanation> {
    let messages = reported.iter().flat_map(|reported| &reported.messages);
    messages.max_by_key(|it| it.message.duration())
}

/// What became of one flow of the last workload, and why.
pub struct Reported {
    /// From the first write until the receiver had all.
    pub milliseconds: f64,
    pub timeouts: u32,
    pub retransmissions: u32,
    pub messages: Vec<Explanation>,
}

/// Runs it; flows of the last workload, explained if that is wanted, the causes tried or not.
pub fn report(
    kernel: &Kernel,
    scenario: &Scenario,
    tries: bool,
    why: bool,
) -> Result<Vec<Reported>, Failure> {
    let folder = tempfile::tempdir()?;
    let options = Options {
        capture: None,
        events: false,
        info_every: None,
        record: why,
        ..Options::default()
    };
    let run = run(kernel, scenario, &options, folder.path(), &mut |_| {})?;
    let last = run.results.flows.iter().map(|flow| flow.label).max();
    let flows = run.results.flows.iter().zip(&run.carried_by);
    let flows: Vec<_> = flows.filter(|(flow, _)| Some(flow.label) == last).collect();
    let mut chosen: Vec<usize> = flows.iter().map(|(_, it)| **it as usize).collect();
    chosen.dedup();
    let mut explained = Vec::new();
    if let Some(recording) = &run.recording {
        let folder = tempfile::tempdir()?;
        let (found, _) = explain(kernel, recording, &chosen, folder.path(), &mut |_| {})?;
        explained = found.into_iter().collect::<Result<Vec<_>, _>>()?;
        for (number, messages) in chosen.iter().copied().zip(&mut explained).filter(|_| tries) {
            let folder = tempfile::tempdir()?;
            let mut what_if = WhatIf::new(kernel, recording, number, folder.path())?;
            for message in messages {
                confirm(message.message.end, &mut message.waits, &mut what_if)?;
            }
        }
    }
    let mut reported: Vec<Reported> = Vec::new();
    for (flow, connection) in flows {
        let place = chosen.iter().position(|it| *it == *connection as usize);
        reported.push(Reported {
            milliseconds: flow.completion().map_or(f64::NAN, |it| it.0 as f64 / 1e9),
            timeouts: flow.timeouts,
            retransmissions: flow.retransmissions,
            messages: place
                .and_then(|place| explained.get(place).cloned())
                .unwrap_or_default(),
        });
    }
    Ok(reported)
}
