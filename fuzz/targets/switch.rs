// SPDX-License-Identifier: Apache-2.0
//! Operations on a switch beside a second, plain one that says what must come of each.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/slowpath-switch/tests/model/mod.rs"]
mod model;

fuzz_target!(
    init: slowpath_fuzz::write_seeds(seeds),
    |data: &[u8]| {
        model::run(data);
    }
);

/// Random bytes describe random switches: most of what there is to reach.
fn seeds() -> Vec<Vec<u8>> {
    let mut random = slowpath_switch::Random::new(1);
    (0..24)
        .map(|_| (0..600).map(|_| random.next_u64() as u8).collect())
        .collect()
}
