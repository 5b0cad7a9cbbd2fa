// SPDX-License-Identifier: Apache-2.0
//! A recording written while its connections live is the one that is written at once.

use crate::arbitrary::recording;
use crate::sample::bulk;
use proptest::prelude::*;
use slowpath_recording::{
    Connection, EncodeError, End, Handler, Recording, Selection, Writer, decode, decode_with,
};

/// Everything of an end, in its order.
fn push(writer: &mut Writer, connection: u32, place: usize, end: &End, until: usize, from: usize) {
    for (number, run) in end.runs.iter().enumerate().take(until).skip(from) {
        if end.gap == Some(number as u64) {
            writer.lost(connection, place, end.lost).expect("open");
        }
        writer.push(connection, place, run.clone()).expect("open");
    }
}

fn close(writer: &mut Writer, connection: u32, place: usize, end: &End) {
    if end.gap == Some(end.runs.len() as u64) {
        writer.lost(connection, place, end.lost).expect("open");
    }
    writer.close(connection, place, end.digest).expect("open");
}

/// All connections a step of some runs at a time; flushed now and then.
fn written(recording: &Recording, step: usize, flushes: usize) -> Vec<u8> {
    let (mut writer, mut file) = Writer::new(&recording.origin).expect("short");
    let connections = || (0u32..).zip(&recording.connections);
    for (number, connection) in connections() {
        writer.open(number, connection, &mut file).expect("short");
    }
    let one_sided = || {
        let first = recording.connections.len() as u32;
        (first..).zip(&recording.one_sided)
    };
    for (number, it) in one_sided() {
        writer.open_one_sided(number, it, &mut file).expect("short");
    }
    let ends = || {
        let both = connections();
        let both = both.flat_map(|(n, c)| c.ends.iter().enumerate().map(move |(p, e)| (n, p, e)));
        both.chain(one_sided().map(|(n, it)| (n, it.side, &it.end)))
    };
    let packets = |writer: &mut Writer, from: usize, until: usize| {
        for (number, it) in one_sided() {
            for (way, all) in [&it.sent, &it.came].into_iter().enumerate() {
                let some = &all[from.min(all.len())..until.min(all.len())];
                writer.packets(number, way, some).expect("open");
            }
        }
    };
    let longest = ends().map(|(_, _, end)| end.runs.len()).max().unwrap_or(0);
    for (turn, from) in (0..longest).step_by(step).enumerate() {
        for (number, place, end) in ends() {
            push(&mut writer, number, place, end, from + step, from);
            let samples = end.sent.iter().flat_map(|sent| &sent.samples);
            for sample in samples.skip(turn * 2).take(2) {
                writer.sample(number, place, *sample).expect("sampled");
            }
        }
        packets(&mut writer, turn * 3, turn * 3 + 3);
        if turn % flushes == 0 {
            writer.flush(&mut file).expect("compresses");
        }
    }
    let turns = longest.div_ceil(step);
    packets(&mut writer, turns * 3, usize::MAX);
    for (number, place, end) in ends() {
        let samples = end.sent.iter().flat_map(|sent| &sent.samples);
        for sample in samples.skip(turns * 2) {
            writer.sample(number, place, *sample).expect("sampled");
        }
        close(&mut writer, number, place, end);
    }
    writer.finish(&mut file).expect("compresses");
    file
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn it_is_what_is_written_at_once(
        recording in recording(150),
        step in 1usize..40,
        flushes in 1usize..4,
    ) {
        let kept = recording.kept();
        let decoded = decode_with(&written(&kept, step, flushes), Selection::default()).expect("our own");
        prop_assert!(decoded.damage.is_none(), "{:?}", decoded.damage);
        prop_assert!(decoded.recording == kept);
        // Ticks and checks are left out by the writer as well.
        let again = decode(&written(&recording.clone(), step, flushes)).expect("our own");
        for (one, other) in again.connections.iter().zip(&kept.connections) {
            for (one, other) in one.ends.iter().zip(&other.ends) {
                prop_assert!(one.runs == other.runs);
            }
        }
    }
}

/// The oldest frames of runs are dropped: who began before them has a gap that says how much, who began later is whole.
#[test]
fn a_ring_forgets_the_oldest_frames() {
    let recording = bulk(400);
    let connection: &Connection = &recording.connections[0];
    let (mut writer, header) = Writer::new(&recording.origin).expect("short");
    let (mut opened, mut old, mut new) = (Vec::new(), Vec::new(), Vec::new());
    writer.open(0, connection, &mut opened).expect("short");
    for (place, end) in connection.ends.iter().enumerate() {
        push(&mut writer, 0, place, end, 50, 0);
    }
    assert_eq!(writer.held(), 100);
    writer.flush(&mut old).expect("compresses");
    assert_eq!(writer.held(), 0);
    writer.open(1, connection, &mut opened).expect("short");
    for (place, end) in connection.ends.iter().enumerate() {
        push(&mut writer, 0, place, end, usize::MAX, 50);
        push(&mut writer, 1, place, end, usize::MAX, 0);
        close(&mut writer, 0, place, end);
        close(&mut writer, 1, place, end);
    }
    writer.finish(&mut new).expect("compresses");
    assert!(!old.is_empty());
    // What is left stays in its order.
    let decoded =
        decode_with(&[header, opened, new].concat(), Selection::default()).expect("our own");
    let [before, after] = &decoded.recording.connections[..] else {
        panic!("two connections");
    };
    for (end, was) in before
        .ends
        .iter()
        .zip(&recording.kept().connections[0].ends)
    {
        assert_eq!((end.gap, end.lost), (Some(0), 50));
        assert!(end.runs == was.runs[50..]);
    }
    assert!(*after == recording.kept().connections[0]);
}

#[test]
fn what_is_closed_takes_nothing() {
    let recording = bulk(30);
    let (mut writer, mut file) = Writer::new(&recording.origin).expect("short");
    let run = recording.connections[0].ends[0].runs[0].clone();
    let closed = |connection, end| Err(EncodeError::Closed { connection, end });
    assert_eq!(writer.push(4, 0, run.clone()), closed(4, 0));
    writer
        .open(4, &recording.connections[0], &mut file)
        .expect("short");
    assert_eq!(writer.push(4, 0, run.clone()), Ok(()));
    assert_eq!(writer.close(4, 0, 1), Ok(()));
    assert_eq!(writer.push(4, 0, run), closed(4, 0));
    assert_eq!(writer.lost(4, 2, 1), closed(4, 2));
    writer.finish(&mut file).expect("compresses");
    let read = decode(&file).expect("our own");
    assert_eq!(
        read.connections[0].ends[0].runs[0].handler,
        Handler::Connect
    );
}
