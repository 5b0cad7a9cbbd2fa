// SPDX-License-Identifier: Apache-2.0
//! Trains by arithmetic: on a path of links with rates, a train of n octets takes 8 n / (the least rate so far) at a hop.

use super::*;
use proptest::prelude::*;

const OCTETS: f64 = 84_000.0;
const MBIT: f64 = 1e6;

/// The gaps of a train on links with these rates, bits a second; sent at 600 Mbit/s.
fn train(rates: &[f64]) -> TrainGaps {
    let mut least = 600.0 * MBIT;
    let gap = |rate: f64| Gap {
        nanos: OCTETS * 8e9 / rate,
        octets: OCTETS,
    };
    let mut gaps = TrainGaps::from([(0, gap(least))]);
    for (hop, rate) in (1..).zip(rates) {
        least = least.min(*rate);
        gaps.insert(hop, gap(least));
    }
    gaps
}

/// Ten hops of 100 Mbit/s with one of another rate.
fn narrow(link: usize, rate: f64) -> Vec<f64> {
    let mut rates = vec![100.0 * MBIT; 10];
    rates[link - 1] = rate;
    rates
}

#[test]
fn the_narrow_link_is_found_at_every_position_with_its_rate() {
    for link in 1..=10u8 {
        let trains = vec![train(&narrow(usize::from(link), 40.0 * MBIT)); 10];
        let found = find(&trains).expect("a neck");
        assert_eq!(found.links.single(), Some(link));
        assert!((found.rate_bps / (40.0 * MBIT) - 1.0).abs() < 1e-9);
        assert!((found.confidence - 1.0).abs() < 1e-9);
    }
}

#[test]
fn of_two_narrow_links_the_one_that_spreads_the_train_last_is_the_neck() {
    let mut rates = narrow(3, 50.0 * MBIT);
    rates[7] = 20.0 * MBIT;
    assert_eq!(
        find(&vec![train(&rates); 4])
            .expect("a neck")
            .links
            .single(),
        Some(8)
    );
    // A wider link behind a narrow one spreads nothing.
    rates[7] = 60.0 * MBIT;
    assert_eq!(
        find(&vec![train(&rates); 4])
            .expect("a neck")
            .links
            .single(),
        Some(3)
    );
}

#[test]
fn less_than_a_tenth_is_no_step() {
    // 100 to 91 Mbit/s is 9 %, to 89 it is 11 %.
    assert_eq!(
        find(&vec![train(&narrow(5, 91.0 * MBIT)); 4])
            .expect("the first link")
            .links
            .single(),
        Some(1)
    );
    assert_eq!(
        find(&vec![train(&narrow(5, 89.0 * MBIT)); 4])
            .expect("a neck")
            .links
            .single(),
        Some(5)
    );
    // Sent at the rate of all links there is no neck.
    let flat: TrainGaps = train(&[600.0 * MBIT; 6]);
    assert_eq!(find(&vec![flat; 4]), None);
}

#[test]
fn silent_hops_make_the_link_an_interval() {
    let mut gaps = train(&narrow(5, 40.0 * MBIT));
    gaps.remove(&4);
    gaps.remove(&5);
    let found = find(&vec![gaps; 10]).expect("a neck");
    assert_eq!((found.links.least, found.links.most), (4, 6));
}

#[test]
fn one_late_answer_of_a_router_moves_nothing() {
    let mut trains = vec![train(&narrow(6, 40.0 * MBIT)); 10];
    for (number, hop) in [(0, 3), (1, 9), (2, 10), (3, 2)] {
        let gap = trains[number].get_mut(&hop).expect("it is there");
        gap.nanos += 40e6;
    }
    let found = find(&trains).expect("a neck");
    assert_eq!(found.links.single(), Some(6));
    // The late answers of hops 9 and 10 are steps of their own; those of hops 2 and 3 are pooled with what follows.
    assert!(found.confidence >= 0.7, "{}", found.confidence);
}

#[test]
fn a_router_that_answers_at_random_times_takes_no_part() {
    let mut trains = vec![train(&narrow(6, 40.0 * MBIT)); 10];
    // The gap behind the neck is 16.8 ms; hop 6 adds from -14 to 13 ms. Its median is 2 ms too low: nearly a level of its own.
    for (number, gaps) in (0..).zip(&mut trains) {
        let gap = gaps.get_mut(&6).expect("it is there");
        gap.nanos += (f64::from(number) * 3.0 - 14.0) * 1e6;
    }
    // Half of the deviations from the median are 7.5 ms and more: 1.858 · 7.5 / √10 = 4.4 ms, above a tenth of 16.3 ms.
    let found = find(&trains).expect("a neck");
    assert_eq!((found.links.least, found.links.most), (6, 7));
}

#[test]
fn a_train_that_scatters_from_a_hop_on_is_spread_there() {
    // Six trains leave link 6 at 50 Mbit/s, four at 100: others' traffic comes in bursts.
    let spread = vec![train(&narrow(6, 50.0 * MBIT)); 6];
    let unspread = vec![train(&narrow(6, 100.0 * MBIT)); 4];
    let found = find(&[spread, unspread].concat()).expect("a neck");
    assert_eq!((found.links.single(), found.last_hop), (Some(6), 10));
    assert!((found.confidence - 0.6).abs() < 1e-9);
    // Levels of 13.44 and 6.72 ms, each train with 25 % of noise of its own: more than a tenth, at all hops behind.
    let mut trains = vec![train(&narrow(6, 50.0 * MBIT)); 10];
    for (number, gaps) in (0..).zip(&mut trains) {
        for (_, gap) in gaps.range_mut(6..) {
            gap.nanos *= 1.0 + 0.05 * (f64::from(number) - 4.5);
        }
    }
    let found = find(&trains).expect("a neck");
    assert_eq!((found.links.single(), found.last_hop), (Some(6), 10));
}

#[test]
fn trains_that_disagree_are_no_finding() {
    let trains: Vec<TrainGaps> = (1..=10)
        .map(|link| train(&narrow(link, 40.0 * MBIT)))
        .collect();
    assert_eq!(find(&trains), None);
    assert_eq!(find(&[]), None);
    assert_eq!(rate_at_the_end(&[]), None);
}

#[test]
fn a_train_shared_with_other_traffic_leaves_at_its_share() {
    // First in, first out: 100 Mbit/s arrive with 70 of others at a link of 100, and leave at 100 · 100 / 170.
    let share = 100.0 * MBIT * 100.0 / 170.0;
    let found = find(&vec![train(&narrow(7, share)); 5]).expect("a neck");
    assert_eq!(found.links.single(), Some(7));
    assert!((found.rate_bps - 58.82 * MBIT).abs() < 0.01 * MBIT);
}

proptest! {
    #[test]
    fn the_neck_is_found_through_noise_and_missing_answers(
        length in 8usize..=14,
        position in 0.0f64..1.0,
        rate in 20.0f64..60.0,
        noise in prop::collection::vec(-0.04f64..0.04, 14 * 10),
        missing in prop::collection::vec(0u8..10, 14 * 10),
    ) {
        let link = 1 + (position * length as f64) as usize;
        let mut rates = vec![100.0 * MBIT; length];
        rates[link - 1] = rate * MBIT;
        let trains: Vec<TrainGaps> = (0..10).map(|number| {
            let mut gaps = train(&rates);
            for hop in 1..=length as u8 {
                let at = number * 14 + usize::from(hop) - 1;
                if missing[at] == 0 {
                    gaps.remove(&hop);
                } else if let Some(gap) = gaps.get_mut(&hop) {
                    gap.nanos *= 1.0 + noise[at];
                }
            }
            gaps
        }).collect();
        let found = find(&trains).expect("a neck");
        prop_assert!(found.links.least <= link as u8 && link as u8 <= found.links.most);
        prop_assert!((found.rate_bps / (rate * MBIT) - 1.0).abs() < 0.05);
        prop_assert!(found.rate_spread.0 <= found.rate_bps && found.rate_bps <= found.rate_spread.1);
    }

    #[test]
    fn any_gaps_give_a_link_of_the_path_or_none(gaps in prop::collection::vec(prop::collection::btree_map(0u8..20, (1.0f64..1e9, 1.0f64..1e6), 0..12), 0..12)) {
        let trains: Vec<TrainGaps> = gaps.into_iter().map(|gaps| {
            gaps.into_iter().map(|(hop, (nanos, octets))| (hop, Gap { nanos, octets })).collect()
        }).collect();
        if let Some(found) = find(&trains) {
            prop_assert!(1 <= found.links.least && found.links.least <= found.links.most && found.links.most < 20);
            prop_assert!(found.rate_bps > 0.0 && (LEAST_SHARE..=1.0).contains(&found.confidence));
        }
    }
}
