// SPDX-License-Identifier: Apache-2.0
//! `check-hardening SLOWPATH [test|check|soak]`: the trials against that program. `SEED=N` repeats
//! a run. The last line is JSON; the status is 1 if something did not hold.

use slowpath_trials::{Plan, farm, run, seed};
use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match arguments[..] {
        [farm::ARGUMENT, pairs, number, place] => child(pairs, number, place).map(|()| true),
        [program] => check(program, Plan::CHECK),
        [program, "test"] => check(program, Plan::TEST),
        [program, "check"] => check(program, Plan::CHECK),
        [program, "soak"] => check(program, Plan::SOAK),
        _ => Err("usage: check-hardening SLOWPATH [test|check|soak]".into()),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("check-hardening: {error}");
            ExitCode::FAILURE
        }
    }
}

fn child(pairs: &str, number: &str, place: &str) -> Result<(), Box<dyn Error>> {
    Ok(farm::child(pairs.parse()?, number.parse()?, place)?)
}

fn check(program: &str, plan: Plan) -> Result<bool, Box<dyn Error>> {
    let tally = run(Path::new(program), plan, seed()?)?;
    println!("{}", tally.output());
    Ok(tally.holds())
}
