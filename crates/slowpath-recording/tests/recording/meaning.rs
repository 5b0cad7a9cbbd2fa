// SPDX-License-Identifier: Apache-2.0
//! What values mean: impossible ones are named, changed ones are kept.

use crate::arbitrary::recording;
use crate::sample::{bulk, packet};
use proptest::prelude::*;
use slowpath_recording::fields::Field;
use slowpath_recording::{
    Connection, Handler, Impossible, Invalid, Outcome, Recording, Sent, Stretch, Unreplayable,
    alter, decode, encode,
};
use std::collections::BTreeSet;

#[test]
fn a_transfer_is_possible() {
    assert_eq!(bulk(3_000).validate(), Ok(()));
}

/// What is said of the transfer after a change.
fn changed(change: impl FnOnce(&mut Connection)) -> Option<Impossible> {
    let mut recording = bulk(100);
    change(&mut recording.connections[0]);
    match recording.validate() {
        Err(Invalid::Run { reason, .. }) => Some(reason),
        other => {
            assert_eq!(other, Ok(()));
            None
        }
    }
}

#[test]
fn what_cannot_be_is_named() {
    let handler =
        |handler: Handler| changed(|connection| connection.ends[1].runs[20].handler = handler);
    let call = |bytes, result| {
        handler(Handler::Receive {
            bytes,
            flags: 0,
            result,
        })
    };
    assert_eq!(call(100, 100), None);
    assert_eq!(call(100, -11), None);
    assert_eq!(call(100, 101), Some(Impossible::Result(101)));
    assert_eq!(call(100, -4_096), Some(Impossible::Result(-4_096)));
    assert_eq!(call(u32::MAX, 0), Some(Impossible::Bytes(u32::MAX)));
    assert_eq!(
        handler(Handler::Shutdown { how: 3 }),
        Some(Impossible::Shutdown(3))
    );
    assert_eq!(handler(Handler::Connect), Some(Impossible::Opening));
    assert_eq!(
        handler(packet(u32::MAX)),
        Some(Impossible::Packet(u64::from(u32::MAX)))
    );
    let none_merged = Handler::Packet {
        number: 7,
        marked: false,
        backlog: false,
        merged: 0,
        truesize: 1,
    };
    assert_eq!(handler(none_merged), Some(Impossible::Merged));
    let two = |backlog| Handler::Packet {
        number: 7,
        marked: false,
        backlog,
        merged: 2,
        truesize: 1,
    };
    assert_eq!(handler(two(true)), None);
    assert_eq!(handler(two(false)), Some(Impossible::MergedBefore(2)));
    let observed = changed(|connection| {
        connection.ends[0].runs[5].outcomes.push(Outcome::Observed {
            field: Field::BytesAcked,
            value: 7,
        });
    });
    assert_eq!(observed, Some(Impossible::Observed));
    let back = changed(|connection| connection.ends[0].runs[9].at.0 = 0);
    assert_eq!(back, Some(Impossible::Back));
}

/// Each segment has a byte or a FIN.
#[test]
fn what_is_joined_is_of_packets_that_came() {
    let with = |outcomes: &[Outcome]| {
        changed(|connection| {
            let run = &mut connection.ends[1].runs[20];
            run.handler = packet(7);
            run.outcomes = outcomes.to_vec();
        })
    };
    let of = |packet, length, further| Outcome::Joined {
        packet,
        stretch: Stretch::new(length, further).expect("fits"),
    };
    let joined = |length, further| with(&[of(0, length, further)]);
    assert_eq!([joined(1448, 0), joined(2896, 1), joined(2, 1)], [None; 3]);
    let nothing = Impossible::Joined {
        length: 0,
        further: 0,
    };
    assert_eq!(joined(0, 0), Some(nothing));
    let fewer = Impossible::Joined {
        length: 3,
        further: 3,
    };
    assert_eq!(joined(3, 3), Some(fewer));
    // Of the one that was merged in the backlog, and of one behind that.
    let merged = |further| Outcome::Merged { place: 0, further };
    let piece = Outcome::Piece {
        packet: 1,
        offset: 9,
    };
    let behind = |packet| of(packet, 10, 2);
    assert_eq!(with(&[merged(5), piece, behind(1)]), None);
    assert_eq!(with(&[merged(5), behind(2)]), Some(Impossible::Place(2)));
    assert_eq!(with(&[piece]), Some(Impossible::Place(1)));
    let beyond = with(&[merged(u32::MAX - 8), behind(1)]);
    assert_eq!(beyond, Some(Impossible::Packet(u64::from(u32::MAX) + 1)));
}

#[test]
fn an_origin_and_a_gap_are_looked_at() {
    let mut recording = bulk(50);
    recording.origin.hz = 0;
    assert_eq!(recording.validate(), Err(Invalid::Hz(0)));
    let mut recording = bulk(50);
    recording.connections[0].ends[1].lost = 3;
    let wrong = Invalid::Gap {
        connection: 0,
        end: 1,
    };
    assert_eq!(recording.validate(), Err(wrong));
    recording.connections[0].ends[1].gap = Some(4);
    assert_eq!(recording.validate(), Ok(()));
}

#[test]
fn what_is_missing_is_not_replayable() {
    let mut recording = bulk(50);
    let connection = &mut recording.connections[0];
    assert_eq!(connection.replayable(), Ok(()));
    connection.ends[1].sent = Some(Sent::default());
    let sampled = Unreplayable::Sampled { end: 1 };
    assert_eq!(connection.replayable(), Err(sampled.clone()));
    connection.ends[0].gap = Some(12);
    let gap = Unreplayable::Gap { end: 0, after: 12 };
    assert_eq!(connection.replayable(), Err(gap.clone()));
    let reported = gap.to_string();
    assert!(
        reported.contains("client is not replayable after event 12"),
        "{reported}"
    );
}

/// A file forgets no change of one run.
#[test]
fn every_change_of_a_run_is_in_the_file() {
    let original = bulk(300).kept();
    let mut whats = BTreeSet::new();
    for side in 0..2 {
        for (change, end) in alter::variants(&original.connections[0].ends[side]) {
            let mut other = original.clone();
            other.connections[0].ends[side] = end;
            assert!(other.kept() != original.kept(), "{change:?}");
            whats.insert(change.what);
            if change.run % 40 == 0 {
                let read = decode(&encode(&other).expect("short"));
                assert!(read == Ok(other.kept()), "{change:?}");
            }
        }
    }
    assert!(whats.len() >= 12, "{whats:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn anything_can_be_looked_at(recording in recording(40)) {
        let _ = recording.validate();
        for end in recording.connections.iter().flat_map(|c| &c.ends).take(1) {
            for (change, other) in alter::variants(end) {
                prop_assert!(other != *end || change.what == "twice", "{:?}", change);
            }
        }
    }
}

#[test]
fn nothing_is_possible() {
    let mut empty = Recording::default();
    empty.origin.hz = 250;
    assert_eq!(empty.validate(), Ok(()));
}
