// SPDX-License-Identifier: Apache-2.0
//! Samples in whole microseconds keep the bound of those that are not.

use proptest::prelude::*;
use slowpath_recording::coarse::CoarseSampler;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn no_inferred_time_is_further_off_than_the_threshold(
        gaps in prop::collection::vec(
            prop_oneof![4 => 0u64..3_000, 2 => Just(1_230), 1 => 0u64..200_000, 1 => 0u64..1 << 42],
            1..120,
        ),
        threshold in prop_oneof![Just(5_000u32), 0u32..20_000],
    ) {
        let mut at = 12_345;
        let times: Vec<u64> = gaps.iter().map(|gap| { at += gap; at }).collect();
        let mut sampler = CoarseSampler::new(threshold);
        let mut samples: Vec<_> = times.iter().filter_map(|time| sampler.push(*time)).collect();
        samples.extend(sampler.finish());
        prop_assert_eq!(samples.first().map(|sample| sample.index), Some(0));
        for (index, time) in (0..).zip(&times) {
            let sample = samples.iter().rev().find(|sample| sample.index <= index).expect("the first");
            let off = sample.infer(index).abs_diff(*time);
            prop_assert!(off <= u64::from(threshold), "packet {} is {} ns off", index, off);
            prop_assert!(threshold < 2_000 || sample.time.is_multiple_of(1_000));
        }
    }
}
