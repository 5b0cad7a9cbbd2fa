// SPDX-License-Identifier: Apache-2.0
//! `check-fleet SLOWPATH [test|check|soak|twelve|counts]`: the trials of a fleet against that program. `SEED=N`
//! repeats a run. The last line is JSON; the status is 1 if something did not hold.

use slowpath_trials::fleet::{FleetPlan, host, run};
use slowpath_trials::seed;
use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match arguments[..] {
        ["host"] => host::run_if_asked(),
        [program, "test"] => check(program, FleetPlan::TEST),
        [program] | [program, "check"] => check(program, FleetPlan::CHECK),
        [program, "soak"] => check(program, FleetPlan::SOAK),
        [program, "twelve"] => check(program, FleetPlan::TWELVE),
        [program, "counts"] => check(program, FleetPlan::COUNTS),
        _ => Err("usage: check-fleet SLOWPATH [test|check|soak|twelve|counts]".into()),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("check-fleet: {error}");
            ExitCode::FAILURE
        }
    }
}

fn check(program: &str, plan: FleetPlan) -> Result<bool, Box<dyn Error>> {
    let driver = std::env::current_exe()?.into_os_string();
    let driver = driver
        .into_string()
        .map_err(|_| "a program without a name")?;
    let words = [driver, "host".to_owned()];
    let tally = run((Path::new(program), &words), plan, seed()?)?;
    println!("{}", tally.output());
    Ok(tally.holds())
}
