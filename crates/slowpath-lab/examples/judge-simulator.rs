// SPDX-License-Identifier: Apache-2.0
//! The simulator judged by Linux's TCP: the scenarios of `scenarios/lab/judge`, each run by both
//! with as many seeds as it says. For each, the completion times' 50th and 99th percentiles, simulator over
//! Linux, those of slowdowns, and how far the congestion windows differ, once a round trip. The last line is JSON.
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
        "{:19} {:>6} {:>7} {:>7}   {:>23} {:>7}",
        "scenario", "flows", "p50", "p99", "slowdown p50, p95, p99", "cwnd"
    );
    for judged in SCENARIOS {
        let name = judged.name;
        if !wanted.is_empty() && !wanted.iter().any(|wanted| wanted == name) {
            continue;
        }
        let verdict = judge(&kernel, &judged, u64::MAX)?;
        let within = verdict.is_within();
        let [s50, s95, s99] = verdict.slowdown;
        outside += u32::from(!within);
        println!(
            "{name:19} {:>6} {:>7.3} {:>7.3}   {s50:>7.3} {s95:>7.3} {s99:>7.3} {:>6.1}%{}",
            verdict.flows,
            verdict.p50,
            verdict.p99,
            100.0 * verdict.window_error,
            if within { "" } else { "  outside" }
        );
        lines.push(format!(
            "{{\"scenario\":\"{name}\",\"flows\":{},\"p50\":{:.4},\"p99\":{:.4},\
             \"slowdown_p50\":{s50:.4},\"slowdown_p95\":{s95:.4},\"slowdown_p99\":{s99:.4},\
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
