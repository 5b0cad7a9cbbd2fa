// SPDX-License-Identifier: Apache-2.0
//! The simulator judged by Linux's TCP: the scenarios of `scenarios/lab/judge`, each run by both
//! with as many seeds as it says. For each, the completion times' 50th and 99th percentiles, simulator over
//! Linux, and how far the congestion windows differ, once a round trip. The last line is JSON.
//! See `docs/journal/lab-judge.md`.

#[path = "../tests/judging/mod.rs"]
mod judging;

use judging::{SCENARIOS, judge};
use slowpath_lab::virtual_time::{HZ, Kernel, SOURCE};
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let kernel = Kernel::find(SOURCE, HZ)?;
    let mut lines = Vec::new();
    let mut outside = 0;
    println!(
        "{:16} {:>6} {:>7} {:>7} {:>7}",
        "scenario", "flows", "p50", "p99", "cwnd"
    );
    for judged in SCENARIOS {
        let name = judged.name;
        if !wanted.is_empty() && !wanted.iter().any(|wanted| wanted == name) {
            continue;
        }
        let verdict = judge(&kernel, &judged, u64::MAX)?;
        let within = verdict.is_within();
        outside += u32::from(!within);
        println!(
            "{name:16} {:>6} {:>7.3} {:>7.3} {:>6.1}%{}",
            verdict.flows,
            verdict.p50,
            verdict.p99,
            100.0 * verdict.window_error,
            if within { "" } else { "  outside" }
        );
        lines.push(format!(
            "{{\"scenario\":\"{name}\",\"flows\":{},\"p50\":{:.4},\"p99\":{:.4},\
             \"window_error\":{:.4},\"within\":{within}}}",
            verdict.flows, verdict.p50, verdict.p99, verdict.window_error
        ));
    }
    println!(
        "{{\"outside\":{outside},\"scenarios\":[{}]}}",
        lines.join(",")
    );
    Ok(())
}
