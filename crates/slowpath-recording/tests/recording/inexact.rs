// SPDX-License-Identifier: Apache-2.0
//! Times that are near the true ones: within the bound, in their order, smaller; and they come back from a file.

use crate::sample::bulk;
use slowpath_recording::{End, InexactTimes, Recording, decode, encode};

fn near(recording: &Recording, within: u32) -> Recording {
    let mut other = recording.clone();
    let mut near = InexactTimes::learn(&recording.connections, within, 3.0);
    for end in other.connections.iter_mut().flat_map(|it| &mut it.ends) {
        *end = near.end(end);
    }
    other
}

fn ends(recording: &Recording) -> impl Iterator<Item = &End> {
    recording.connections.iter().flat_map(|it| &it.ends)
}

#[test]
fn no_time_is_further_than_the_bound() {
    let recording = bulk(5_000);
    for within in [1, 7, 312, 5_000, 1_000_000] {
        let other = near(&recording, within);
        assert_eq!(other.validate(), Ok(()));
        for (near, truth) in ends(&other).zip(ends(&recording)) {
            assert_eq!((near.within, near.runs.len()), (within, truth.runs.len()));
            for (near, truth) in near.runs.iter().zip(&truth.runs) {
                let off = near.at.0.abs_diff(truth.at.0);
                assert!(off <= within.into(), "{off} of {within}");
                // Nothing else is other.
                assert_eq!(
                    (&near.handler, near.jiffies),
                    (&truth.handler, truth.jiffies)
                );
            }
        }
        let file = encode(&other).expect("fits");
        assert!(decode(&file) == Ok(other.kept()));
    }
}

#[test]
fn exact_times_stay() {
    let recording = bulk(500);
    assert!(near(&recording, 0) == recording);
}

#[test]
fn near_times_take_less() {
    // As real ones are: no two gaps are alike to the nanosecond.
    let mut recording = bulk(20_000);
    for end in recording.connections.iter_mut().flat_map(|it| &mut it.ends) {
        let mut last = 0;
        for (place, run) in end.runs.iter_mut().enumerate() {
            let late = (place as u32).wrapping_mul(2_654_435_761) >> 20;
            last = last.max(run.at.0 + u64::from(late));
            run.at.0 = last;
        }
    }
    let bytes = |recording: &Recording| encode(recording).expect("fits").len();
    let (exact, small) = (bytes(&recording), bytes(&near(&recording, 5_000)));
    // The order of runs takes its part of either.
    assert!(3 * small < 2 * exact, "{small} of {exact}");
}
