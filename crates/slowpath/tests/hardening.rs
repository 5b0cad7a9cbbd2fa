// SPDX-License-Identifier: Apache-2.0
//! The part of `make check-hardening` that every test run has: kills, flips, inputs, limits.

use slowpath_trials::{Plan, run};
use std::path::Path;

/// Another seed than today's.
const SEED: &str = "SEED";

#[test]
fn kills_flips_inputs_and_limits_lose_nothing_without_a_word() {
    const TEST: &str = "kills_flips_inputs_and_limits_lose_nothing_without_a_word";
    let seed = std::env::var(SEED).map_or(1, |seed| seed.parse().unwrap());
    let program = Path::new(env!("CARGO_BIN_EXE_slowpath"));
    let tally = run(program, Plan::TEST, seed).unwrap();
    println!("{}", tally.output());
    for what in &tally.skipped {
        println!("SKIPPED {TEST}: {what}");
    }
    assert_eq!(tally.findings, [] as [String; 0]);
    assert!(tally.kills >= Plan::TEST.kills && tally.flips >= Plan::TEST.flips);
    assert!(tally.inputs >= Plan::TEST.inputs);
}
