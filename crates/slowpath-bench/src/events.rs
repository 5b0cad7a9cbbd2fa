// SPDX-License-Identifier: Apache-2.0
//! What an event costs: a probe beside the bare counting program, on the same traffic, in
//! turn.

use crate::bare::Bare;
use crate::median;
use crate::transactions::Transactions;
use slowpath_observe::ProgramCost;
use slowpath_observe::bpf::{BpfTier, Options};
use std::error::Error;
use std::time::Duration;

/// Nanoseconds an event, medians over the rounds.
#[derive(Clone, Copy, Debug, Default)]
pub struct EventCost {
    /// A socket call (mean of send and receive).
    pub call: f64,
    /// A received segment.
    pub segment: f64,
    /// A socket call under the bare counting program.
    pub call_bare: f64,
    /// A received segment under the bare counting program.
    pub segment_bare: f64,
}

/// Measures both on request/response over loopback, both ends on one processor, `rounds`
/// times in turn.
///
/// # Errors
/// If BPF or the traffic fails.
pub fn measure(rounds: usize) -> Result<EventCost, Box<dyn Error>> {
    let mut traffic = Transactions::start(1, true)?;
    let slice = Duration::from_millis(150);
    traffic.run(slice)?;
    let mut samples: [Vec<f64>; 4] = Default::default();
    for _ in 0..rounds {
        {
            let mut tier = BpfTier::open(&Options::default())?;
            tier.enable_statistics()?;
            traffic.run(slice)?;
            samples[0].push(per_event(&tier.programs(), "calls"));
            samples[1].push(per_event(&tier.programs(), "segment"));
        }
        {
            // The statistics stay on as long as some tier holds them; no probe is attached.
            let statistics = slowpath_observe::bpf::enable_statistics()?;
            let bare = Bare::attach()?;
            traffic.run(slice)?;
            let (calls, segments) = (bare.cost("bare_"), bare.cost("bare_segment"));
            let calls = (calls.0 - segments.0, calls.1 - segments.1);
            samples[2].push(calls.1 as f64 / calls.0.max(1) as f64);
            samples[3].push(segments.1 as f64 / segments.0.max(1) as f64);
            drop(statistics);
        }
    }
    let [call, segment, call_bare, segment_bare] = samples.map(median);
    Ok(EventCost {
        call,
        segment,
        call_bare,
        segment_bare,
    })
}

fn per_event(programs: &[ProgramCost], probe: &str) -> f64 {
    let (runs, nanos) = programs
        .iter()
        .filter(|p| p.probe == probe)
        .fold((0, 0), |(r, n), p| (r + p.runs, n + p.nanos));
    nanos as f64 / runs.max(1) as f64
}
