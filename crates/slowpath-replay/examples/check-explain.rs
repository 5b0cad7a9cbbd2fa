// SPDX-License-Identifier: Apache-2.0
//! Whether `slowpath explain` names the cause of messages in which one was planted, and how long it held them up.
//!
//!     check-explain [MESSAGES] [SEED]       the last line is JSON
//!     check-explain one NUMBER [SEED]       one of them, with its scenario

#[path = "../tests/planted/mod.rs"]
mod planted;

use planted::{Cause, Failure, Trial};
use slowpath_lab::virtual_time::{HZ, Kernel, SOURCE};
use std::collections::BTreeMap;

const MESSAGES: u64 = 208;
/// Per cent that have to be right, and within their time.
const LEAST: u64 = 97;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let kernel = Kernel::find(SOURCE, HZ)?;
    let number = |place: usize, otherwise: u64| {
        let argument = arguments.get(place);
        argument.map_or(Ok(otherwise), |text| text.parse::<u64>())
    };
    if arguments.first().is_some_and(|it| it == "one") {
        let trial = Trial::of(&kernel, number(1, 0)?, number(2, 1)?)?;
        println!("{}\n{trial}", trial.text);
        return Ok(());
    }
    all(&kernel, number(0, MESSAGES)?, number(1, 1)?)
}

fn all(kernel: &Kernel, messages: u64, seed: u64) -> Result<(), Failure> {
    let mut causes: BTreeMap<Cause, [u64; 3]> = BTreeMap::new();
    for number in 0..messages {
        let trial = Trial::of(kernel, number, seed);
        let trial = trial.map_err(|error| format!("message {number}: {error}"))?;
        let (named, within) = (trial.is_named(), trial.is_within());
        let sums = causes.entry(trial.cause).or_default();
        for (sum, one) in sums.iter_mut().zip([true, named, within]) {
            *sum += u64::from(one);
        }
        if !named || !within {
            println!("{trial}");
        }
    }
    println!("| cause | messages | named | time within 10 % |\n|---|---|---|---|");
    for (cause, [count, named, within]) in &causes {
        println!("| {cause:?} | {count} | {named} | {within} |");
    }
    let sum = |place: usize| causes.values().map(|it| it[place]).sum::<u64>();
    let (right, within) = (sum(1), sum(2));
    println!(
        "{{\"messages\":{messages},\"right\":{right},\"wrong\":{},\"time_within\":{within},\"seed\":{seed}}}",
        messages - right
    );
    if right.min(within) * 100 < messages * LEAST {
        return Err(format!("fewer than {LEAST} % are right, or within 10 % of their time").into());
    }
    Ok(())
}
