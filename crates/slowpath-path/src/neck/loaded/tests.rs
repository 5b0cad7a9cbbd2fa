// SPDX-License-Identifier: Apache-2.0
//! Round trips by arithmetic: 1 ms a hop, and the time of the queue for those behind it.

use super::*;
use proptest::prelude::*;

const MS: f64 = 1e6;

/// Hops 1 to `length`, with a queue of `queue` ns before link `link`, in 8 bursts of two answers each.
fn path(length: u8, link: u8, queue: f64) -> BTreeMap<u8, RoundTrips> {
    let of_hop = |hop: u8| {
        let base = f64::from(hop) * MS;
        let added = if hop >= link { queue } else { 0.0 };
        // The queue grows while a burst lasts.
        let loaded = (0..16u32).map(|n| (n / 2, base + added * (0.8 + 0.4 * f64::from(n % 2))));
        let idle = (0..16u32).map(|n| (n / 2, base + f64::from(n % 3) * 0.02 * MS));
        let trips = RoundTrips {
            idle: idle.collect(),
            loaded: loaded.collect(),
        };
        (hop, trips)
    };
    (1..=length).map(of_hop).collect()
}

#[test]
fn the_hops_behind_the_queue_are_found_at_every_position() {
    for link in 1..=10 {
        let found = find(&path(10, link, 15.0 * MS)).expect("a queue");
        assert_eq!(found.links.single(), Some(link));
        assert!((found.confidence - 1.0).abs() < 1e-9);
        assert_eq!(found.bursts, 8);
        assert!((found.added_nanos - 15.0 * MS).abs() < 0.1 * MS);
        assert!(found.p_value < 0.001);
    }
}

#[test]
fn no_queue_and_one_of_half_a_millisecond_are_no_finding() {
    assert_eq!(find(&path(10, 4, 0.0)), None);
    assert_eq!(find(&path(10, 4, 0.5 * MS)), None);
    assert_eq!(find(&BTreeMap::new()), None);
}

#[test]
fn a_queue_that_others_fill_is_found_where_load_adds_nothing() {
    let mut hops = path(10, 6, 0.0);
    for (_, trips) in hops.range_mut(6..) {
        // Others' queue: 0 to 15 ms, as often with load as without.
        for samples in [&mut trips.idle, &mut trips.loaded] {
            for (number, sample) in (0..).zip(samples) {
                sample.1 += f64::from(number * 7 % 16) * MS;
            }
        }
    }
    let found = find(&hops).expect("a queue");
    assert_eq!((found.links.single(), found.of_others), (Some(6), true));
    // The tenth that is the shortest has 1 ms at most, and the median 7 or 8 ms.
    assert!(
        (5.0 * MS..9.0 * MS).contains(&found.added_nanos),
        "{}",
        found.added_nanos
    );
    // With load above it, it is the load's.
    let found = find(&path(10, 6, 15.0 * MS)).expect("a queue");
    assert!(!found.of_others);
}

#[test]
fn silent_hops_make_the_link_an_interval() {
    let mut hops = path(10, 5, 15.0 * MS);
    hops.remove(&5);
    // Two answers are too few.
    hops.get_mut(&4).expect("a hop").loaded.truncate(2);
    let found = find(&hops).expect("a queue");
    assert_eq!((found.links.least, found.links.most), (4, 6));
}

#[test]
fn one_slow_router_among_quick_ones_is_not_the_queue() {
    let mut hops = path(10, 7, 15.0 * MS);
    for trip in &mut hops.get_mut(&3).expect("a hop").loaded {
        trip.1 += 12.0 * MS;
    }
    assert_eq!(find(&hops).expect("a queue").links.single(), Some(7));
}

#[test]
fn bursts_that_disagree_are_no_finding() {
    // The queue is before another link in each burst.
    let of_hop = |hop: u8| {
        let base = f64::from(hop) * MS;
        let loaded = (0..10u32).map(|burst| {
            let behind = u32::from(hop) > burst;
            (burst, base + if behind { 15.0 * MS } else { 0.0 })
        });
        let trips = RoundTrips {
            idle: (0..10).map(|burst| (burst, base)).collect(),
            loaded: loaded.collect(),
        };
        (hop, trips)
    };
    assert_eq!(find(&(1..=10).map(of_hop).collect()), None);
}

proptest! {
    #[test]
    fn any_round_trips_give_a_link_of_the_path_or_none(hops in prop::collection::btree_map(1u8..20, (
        prop::collection::vec((0u32..8, 0.0f64..1e8), 0..10), prop::collection::vec((0u32..8, 0.0f64..1e8), 0..20)), 0..12)) {
        let hops: BTreeMap<u8, RoundTrips> = hops.into_iter()
            .map(|(hop, (idle, loaded))| (hop, RoundTrips { idle, loaded }))
            .collect();
        if let Some(found) = find(&hops) {
            prop_assert!(1 <= found.links.least && found.links.least <= found.links.most && found.links.most < 20);
            prop_assert!((LEAST_SHARE..=1.0).contains(&found.confidence) && found.p_value < SIGNIFICANT);
        }
    }

    #[test]
    fn the_queue_is_found_through_noise(length in 8u8..=14, position in 0.0f64..1.0, queue in 5.0f64..40.0,
        noise in prop::collection::vec(0.0f64..0.3, 14 * 16)) {
        let link = 1 + (position * f64::from(length)) as u8;
        let mut hops = path(length, link, queue * MS);
        for (hop, trips) in &mut hops {
            for (number, trip) in trips.loaded.iter_mut().enumerate() {
                trip.1 += noise[(usize::from(*hop) - 1) * 16 + number] * MS;
            }
        }
        prop_assert_eq!(find(&hops).expect("a queue").links.single(), Some(link));
    }
}
