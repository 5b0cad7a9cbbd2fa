// SPDX-License-Identifier: Apache-2.0
//! What is written comes back.

use crate::arbitrary::recording;
use crate::sample::bulk;
use proptest::prelude::*;
use slowpath_recording::sampling::{DEFAULT_THRESHOLD, Sampler};
use slowpath_recording::{
    CHECKED, Moment, Recording, Selection, Sent, decode, decode_with, encode,
};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_recording_comes_back(recording in recording(60)) {
        let file = encode(&recording).expect("nothing in it is too long");
        let decoded = decode_with(&file, Selection::default()).expect("our own file");
        prop_assert!(decoded.damage.is_none(), "{:?}", decoded.damage);
        prop_assert_eq!(&decoded.recording, &recording.kept());
        prop_assert_eq!(encode(&decoded.recording), Ok(file), "what is kept is kept");
    }
}

#[test]
fn nothing_is_kept_as_nothing() {
    let empty = Recording::default();
    assert_eq!(decode(&encode(&empty).expect("short")), Ok(empty));
}

/// Of all where times are exact, so that a divergence is found where it begins; where they are near the true ones, of each 64th.
#[test]
fn of_checks_the_lower_bits_are_kept() {
    for within in [0, 5_000] {
        let mut recording = bulk(3_000);
        for end in &mut recording.connections[0].ends {
            end.within = within;
        }
        let mut expected = recording.clone();
        for end in &mut expected.connections[0].ends {
            for (place, run) in end.runs.iter_mut().enumerate() {
                let kept = within == 0 || place % 64 == 63;
                run.check = run.check.filter(|_| kept).map(|check| check % 256);
            }
        }
        assert!(decode(&encode(&recording).expect("short")) == Ok(expected));
    }
}

/// What was read from such a file has no others to write.
#[test]
fn few_checks_stay_few() {
    let mut recording = bulk(3_000);
    for end in &mut recording.connections[0].ends {
        for (place, run) in end.runs.iter_mut().enumerate() {
            run.check = run.check.filter(|_| place % 64 == 63);
        }
    }
    let decoded = decode(&encode(&recording).expect("short")).expect("our own");
    assert!(decoded == recording.kept());
    let checks = decoded.connections[0].ends[0].runs.iter();
    assert!(checks.filter(|run| run.check.is_some()).count() < 3_000 / 32);
}

#[test]
fn long_ends_span_frames() {
    let recording = bulk(200_000);
    let file = encode(&recording).expect("fits");
    assert!(decode(&file) == Ok(recording.kept()));
}

/// The same with sampled times: what is left of them is what the comment of `kept` says.
#[test]
fn sampled_times_leave_ticks_and_samples() {
    let mut recording = bulk(3_000);
    let whole = recording.clone();
    for end in &mut recording.connections[0].ends {
        let mut sampler = Sampler::new(DEFAULT_THRESHOLD);
        let mut samples: Vec<_> = end
            .runs
            .iter()
            .filter_map(|run| sampler.push(run.at.0))
            .collect();
        samples.extend(sampler.finish());
        end.sent = Some(Sent {
            threshold: DEFAULT_THRESHOLD,
            samples,
        });
    }
    let decoded = decode(&encode(&recording).expect("short")).expect("our own");
    for (kept, whole) in decoded.connections[0]
        .ends
        .iter()
        .zip(&whole.connections[0].ends)
    {
        let first = &whole.runs[0];
        for (place, (kept, whole)) in kept.runs.iter().zip(&whole.runs).enumerate() {
            assert_eq!(
                (&kept.handler, &kept.outcomes, kept.jiffies),
                (&whole.handler, &whole.outcomes, whole.jiffies)
            );
            let ticks = whole.jiffies.wrapping_sub(first.jiffies);
            assert_eq!(kept.at, Moment(first.at.0 + 4_000_000 * u64::from(ticks)));
            let checked = place % CHECKED == CHECKED - 1;
            assert_eq!(
                kept.check,
                if checked {
                    whole.check.map(|all| all & 0xff)
                } else {
                    None
                }
            );
        }
    }
    let samples = |recording: &Recording| recording.connections[0].ends.clone().map(|e| e.sent);
    assert_eq!(samples(&decoded), samples(&recording));
}

#[test]
fn one_connection_of_several() {
    let mut recording = bulk(100);
    let mut second = recording.connections[0].clone();
    second.ends[0].runs.truncate(20);
    recording.connections.push(second);
    let wanted = Selection {
        connection: Some(1),
        ..Selection::default()
    };
    let decoded = decode_with(&encode(&recording).expect("short"), wanted).expect("our own");
    assert!(decoded.damage.is_none());
    let [left, taken] = &decoded.recording.connections[..] else {
        panic!("two connections")
    };
    assert_eq!(taken, &recording.kept().connections[1]);
    for end in &left.ends {
        assert!(end.runs.is_empty());
        assert_eq!(end.gap, Some(0), "never taken for a whole one");
    }
}
