// SPDX-License-Identifier: Apache-2.0
//! Random operations beside a second, plain switch: conservation of packets and bytes,
//! limits, dynamic thresholds, marks, detours, events and times after every operation.

mod model;

use model::{Tally, run};
use proptest::prelude::*;
use slowpath_switch::Random;

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn every_operation_does_what_the_rules_say(
        data in proptest::collection::vec(any::<u8>(), 0..1500),
    ) {
        run(&data);
    }
}

#[test]
fn long_runs_see_everything_happen() {
    let mut random = Random::new(3);
    let mut all = Tally::default();
    for _ in 0..150 {
        let data: Vec<u8> = (0..6000).map(|_| random.next_u64() as u8).collect();
        let tally = run(&data);
        all.taken += tally.taken;
        all.left += tally.left;
        all.full += tally.full;
        all.expired += tally.expired;
        all.unrouted += tally.unrouted;
        all.marked += tally.marked;
        all.detoured += tally.detoured;
    }
    // Not a property of the switch: that the operations above reach every rule.
    let few = all.taken / 500;
    for count in [
        all.left,
        all.full,
        all.expired,
        all.unrouted,
        all.marked,
        all.detoured,
    ] {
        assert!(count > few, "{all:?}");
    }
}
