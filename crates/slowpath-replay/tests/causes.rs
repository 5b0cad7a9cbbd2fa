// SPDX-License-Identifier: Apache-2.0
//! Explanations name the cause that was planted in a message; `make check-explain` tries many more.

mod planted;

use planted::Trial;
use slowpath_lab::virtual_time::{HZ, Kernel, SOURCE};

/// Four of each cause.
const MESSAGES: u64 = 32;

#[test]
fn planted_causes_are_named() {
    let kernel = match Kernel::find(SOURCE, HZ) {
        Ok(kernel) => kernel,
        Err(missing) => {
            println!("SKIPPED planted_causes_are_named: {missing}");
            return;
        }
    };
    let trials = (0..MESSAGES).map(|number| Trial::of(&kernel, number, 9).expect("a run"));
    let trials: Vec<Trial> = trials.collect();
    for trial in &trials {
        assert!(trial.is_named(), "{}{trial}", trial.text);
        println!("{:?}: {trial}", trial.cause);
    }
    // Which window limits is open where both are as small.
    let within = trials.iter().filter(|trial| trial.is_within()).count();
    assert!(within >= 30, "{within} of {MESSAGES}");
}
