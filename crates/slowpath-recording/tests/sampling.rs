// SPDX-License-Identifier: Apache-2.0
//! Times inferred from samples: within the threshold, whatever was sent when, and with as few
//! samples as Algorithm 1 takes.

use proptest::prelude::*;
use slowpath_recording::sampling::{DEFAULT_THRESHOLD, MAX_PACKETS, MAX_SPAN, Sample, Sampler};

fn samples(times: &[u64], threshold: u32) -> Vec<Sample> {
    let mut sampler = Sampler::new(threshold);
    let mut samples: Vec<_> = times.iter().filter_map(|t| sampler.push(*t)).collect();
    samples.extend(sampler.finish());
    samples
}

/// The times of `count` packets.
fn inferred(samples: &[Sample], count: usize) -> Vec<u64> {
    let mut current = 0;
    (0..count as u64)
        .map(|index| {
            if samples.get(current + 1).is_some_and(|s| s.index <= index) {
                current += 1;
            }
            samples[current].infer(index)
        })
        .collect()
}

fn worst(times: &[u64], samples: &[Sample]) -> u64 {
    times
        .iter()
        .zip(inferred(samples, times.len()))
        .map(|(t, i)| t.abs_diff(i))
        .max()
        .unwrap_or(0)
}

/// Algorithm 1 as it stands in the paper, with ranges of rates, in floating point: the
/// indices of its samples.
fn as_printed(times: &[u64], threshold: f64) -> Vec<u64> {
    let mut found = vec![0];
    let (mut s, mut low, mut high) = (0, f64::NEG_INFINITY, f64::INFINITY);
    for p in 1..times.len() {
        let packets = (p - s) as f64;
        let after = times[p] as f64 - times[s] as f64;
        let slowest = packets / (after + threshold);
        let fastest = if after <= threshold {
            f64::INFINITY
        } else {
            packets / (after - threshold)
        };
        if slowest.max(low) <= fastest.min(high) {
            (low, high) = (slowest.max(low), fastest.min(high));
        } else {
            found.push(p as u64);
            (s, low, high) = (p, f64::NEG_INFINITY, f64::INFINITY);
        }
    }
    found
}

#[test]
fn packets_at_one_rate_are_one_sample() {
    // 1,500 bytes at 10 Gbit/s.
    let times: Vec<u64> = (0..10_000).map(|i| 7_000 + 1_200 * i).collect();
    let samples = samples(&times, DEFAULT_THRESHOLD);
    assert_eq!(samples.len(), 1);
    assert!(worst(&times, &samples) <= 5_000);
}

#[test]
fn a_change_of_rate_is_sampled_though_nothing_pauses() {
    // The paper's Figure 5: a second flow takes half of the link, with no gap in the first.
    let mut times: Vec<u64> = (0..400).map(|i| 1_200 * i).collect();
    times.extend((1..400).map(|i| 399 * 1_200 + 2_400 * i));
    let samples = samples(&times, DEFAULT_THRESHOLD);
    // At packet 399 the step is within 12.6 ns of 1,200. The k-th packet of the other rate is
    // 1,200 k late; 5,000 are forgiven, and the step may add 12.6 (399 + k): not beyond k = 8.
    assert_eq!(samples.len(), 2);
    assert!((400..=408).contains(&samples[1].index), "{samples:?}");
    assert!(worst(&times, &samples) <= 5_000);
}

#[test]
fn what_leaves_joined_needs_no_time_from_packet_to_packet() {
    let samples = samples(&[10; 50], 0);
    assert_eq!(samples.len(), 1);
    assert_eq!(samples[0].infer(49), 10);
}

#[test]
fn a_threshold_of_zero_is_exact() {
    // Thirds of nanoseconds, rounded down: one step serves all.
    let times: Vec<u64> = (0..100).map(|i| 1_000 * i / 3).collect();
    let thirds = samples(&times, 0);
    assert_eq!(worst(&times, &thirds), 0);
}

#[test]
fn a_clock_that_goes_back_is_sampled_anew() {
    let times = [1_000_000, 1_001_000, 900_000, 901_000];
    let samples = samples(&times, 5_000);
    assert_eq!(samples.len(), 2);
    assert_eq!((samples[1].index, samples[1].time), (2, 900_000));
    assert!(worst(&times, &samples) <= 5_000);
}

#[test]
fn long_silences_and_long_trains_are_cut() {
    assert_eq!(samples(&[0, MAX_SPAN], 5_000).len(), 2);
    let times = vec![0; MAX_PACKETS as usize + 2];
    assert_eq!(samples(&times, 5_000).len(), 2);
    assert!(samples(&[], 5_000).is_empty());
    assert_eq!(worst(&[u64::MAX, 0], &samples(&[u64::MAX, 0], 5_000)), 0);
}

#[test]
fn nothing_is_lost_by_finishing_early() {
    let mut sampler = Sampler::new(5_000);
    assert_eq!(sampler.push(5), None);
    let first = sampler.finish().map(|s| (s.index, s.time));
    assert_eq!(first, Some((0, 5)));
    assert_eq!(sampler.push(9), None);
    assert_eq!(sampler.finish().map(|s| (s.index, s.time)), Some((1, 9)));
}

#[test]
fn a_tighter_threshold_never_takes_fewer_on_a_window_limited_sender() {
    // Bursts of ten at 10 Gbit/s, one each 100 us, with what interrupts add.
    let mut random = fastrand::Rng::with_seed(1);
    let times: Vec<u64> = (0..10_000u64)
        .map(|i| (i / 10) * 100_000 + (i % 10) * 1_200 + random.u64(0..400))
        .collect();
    let counts: Vec<usize> = [0, 500, 2_000, 5_000, 10_000, 200_000]
        .iter()
        .map(|th| samples(&times, *th).len())
        .collect();
    assert!(counts.is_sorted_by(|a, b| a >= b), "{counts:?}");
    assert_eq!(counts.last(), Some(&1));
}

proptest! {
    #[test]
    fn no_time_is_further_off_than_the_threshold(
        gaps in prop::collection::vec(prop_oneof![Just(0u64), 0u64..3_000, 0u64..10_000_000], 1..300),
        threshold in prop_oneof![Just(0u32), 1u32..20_000],
        start in any::<u32>(),
    ) {
        let mut time = u64::from(start);
        let times: Vec<u64> = gaps.iter().map(|g| { time += g; time }).collect();
        let samples = samples(&times, threshold);
        prop_assert!(worst(&times, &samples) <= u64::from(threshold));
    }

    #[test]
    fn the_samples_are_those_of_the_paper(
        gaps in prop::collection::vec(prop_oneof![Just(0u64), 0u64..3_000, 0u64..200_000], 1..200),
    ) {
        // An odd threshold in halves: no range of one touches another's end, where floating
        // point could differ.
        let mut time = 0;
        let times: Vec<u64> = gaps.iter().map(|g| { time += 2 * g; time }).collect();
        let ours: Vec<u64> = samples(&times, 5_001).iter().map(|s| s.index).collect();
        prop_assert_eq!(ours, as_printed(&times, 5_001.0));
    }

    #[test]
    fn a_step_follows_from_the_number_of_packets(
        gap in 0u64..100_000, jitter in prop::collection::vec(0u64..4_000, 2..100),
    ) {
        // All within the threshold of one rate: one sample, and a whole number of
        // nanoseconds from it to the last packet.
        let times: Vec<u64> = (0..).zip(&jitter).map(|(i, j)| 4_000 + gap * i + j).collect();
        prop_assume!(times.is_sorted());
        let samples = samples(&times, 5_000);
        prop_assert_eq!(samples.len(), 1);
        prop_assert_eq!(samples[0].step.denominator.get(), times.len() as u64 - 1);
    }
}
