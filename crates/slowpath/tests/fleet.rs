// SPDX-License-Identifier: Apache-2.0
//! The part of `make check-fleet` that every test run has: kills, outages, upgrades, disks, resends,
//! cuts, and twelve hosts whose connections have both ends observed.

use slowpath_trials::fleet::{FleetPlan, host, run};
use std::path::Path;

#[test]
fn every_row_is_at_the_server_once_or_in_a_gap_whatever_happens() {
    const TEST: &str = "every_row_is_at_the_server_once_or_in_a_gap_whatever_happens";
    // Another seed than today's.
    let seed = std::env::var("SEED").map_or(1, |seed| seed.parse().unwrap());
    let program = Path::new(env!("CARGO_BIN_EXE_slowpath"));
    let this = std::env::current_exe().unwrap().into_os_string();
    let host = [this.to_str().unwrap(), HOST, "--exact", "--nocapture"].map(str::to_owned);
    let tally = run((program, &host), FleetPlan::TEST, seed).unwrap();
    println!("{}", tally.output());
    for what in &tally.skipped {
        println!("SKIPPED {TEST}: {what}");
    }
    assert_eq!(tally.findings, [] as [String; 0]);
    assert!(tally.kills >= FleetPlan::TEST.kills && tally.rows > 10_000);
    assert_eq!((tally.lost_rows, tally.doubled_rows), (0, 0));
    println!("{} of {} connections joined", tally.joined_ends, tally.ends);
    assert_eq!(tally.joined_ends, tally.ends);
}

const HOST: &str = "this_program_is_also_a_host_of_the_trials";

#[test]
fn this_program_is_also_a_host_of_the_trials() {
    // Without a task, as in a run of all tests, it does nothing.
    host::run_if_asked().unwrap();
}
