// SPDX-License-Identifier: Apache-2.0

use super::*;
use crate::frame::{Frame, Frames};
use crate::layout;
use slowpath_ship::batch::{Gap, GapReason, Header, Items, Prefix, SentClock};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::mpsc::channel;

/// Disks without room, by the server's directory: so many bytes a file may have.
static ROOM: Mutex<BTreeMap<PathBuf, u64>> = Mutex::new(BTreeMap::new());

fn give_room(dir: &Path, bytes: u64) {
    let mut rooms = ROOM.lock().unwrap_or_else(PoisonError::into_inner);
    rooms.insert(dir.to_owned(), bytes);
}

/// Fails half done where there is no room.
pub(super) fn write(dir: &Path, file: &File, length: u64, frames: &[u8]) -> io::Result<()> {
    let rooms = ROOM.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(room) = rooms.get(dir) else {
        return Ok(());
    };
    if length + frames.len() as u64 <= *room {
        return Ok(());
    }
    let half = room.saturating_sub(length).min(frames.len() as u64) as usize;
    file.write_all_at(&frames[..half], length)?;
    Err(io::ErrorKind::StorageFull.into())
}

fn batch(run: u128, segment: &str, at: (u64, Prefix), gaps: &[u64]) -> Batch {
    let mut items = Items::default();
    for length in gaps {
        items.push_gap(Gap {
            length: *length,
            reason: GapReason::Dropped,
            records: None,
        });
    }
    Batch {
        header: Header {
            framing: 1,
            schema: 2,
            last: false,
            run,
            number: at.0,
            boot_id: 7,
            clock: SentClock {
                sent: WallMicros(0),
                state: 0,
                max_error_us: None,
            },
            clock_offset: None,
            offset: at.0,
            prefix: at.1,
            segment: segment.to_owned(),
            items_length: 0,
            items_crc: 0,
        },
        items,
    }
}

fn submit(intake: &Intake, host: &str, batch: Batch) -> std::sync::mpsc::Receiver<Receipt> {
    let (sender, receiver) = channel();
    let address = IpAddr::from([10, 0, 0, 1]);
    intake.submit((host, address), batch, WallMicros(1), move |receipt| {
        let _ = sender.send(receipt);
    });
    receiver
}

fn flushed(receiver: &std::sync::mpsc::Receiver<Receipt>) -> (u64, Prefix) {
    match receiver.recv() {
        Ok(Receipt::Flushed(position)) => (position.offset, position.crc),
        other => panic!("{other:?}"),
    }
}

fn all(path: &Path) -> Vec<(String, u64)> {
    let mut frames = Frames::new(File::open(path).expect("the file is there"));
    let mut found = Vec::new();
    while let Some((_, payload)) = frames.next_frame().expect("it can be read") {
        if let Some(Frame::Batch(taken)) = Frame::read(payload) {
            found.push((taken.host.clone(), taken.end()));
        }
    }
    found
}

#[test]
fn what_is_answered_as_flushed_is_there_after_a_kill_at_any_later_byte() {
    let dir = tempfile::tempdir().expect("a directory");
    let intake = Intake::open(dir.path(), IntakeOptions::default()).expect("opens");
    let mut at = (0, Prefix::default());
    let mut lengths = Vec::new();
    let path = layout::intake_path(dir.path(), 1);
    for n in 1..4 {
        at = flushed(&submit(&intake, "web-1", batch(1, "b-0", at, &[n, 2 * n])));
        lengths.push((fs::metadata(&path).expect("is there").len(), at));
    }
    let bytes = fs::read(&path).expect("can be read");
    drop(intake);
    for cut in 0..=bytes.len() {
        let copy = tempfile::tempdir().expect("a directory");
        layout::make_dir(&layout::intake_dir(copy.path())).expect("is made");
        fs::write(layout::intake_path(copy.path(), 1), &bytes[..cut]).expect("is written");
        let known = lengths
            .iter()
            .rev()
            .find(|(length, _)| *length <= cut as u64);
        let known = known.map_or((0, Prefix::default()), |(_, at)| *at);
        let intake = Intake::open(copy.path(), IntakeOptions::default()).expect("opens");
        let (sender, receiver) = channel();
        intake.positions(
            "web-1",
            vec!["b-0".to_owned(), "b-1".to_owned()],
            move |found| {
                let _ = sender.send(found);
            },
        );
        let found = receiver.recv().expect("an answer");
        assert_eq!((found[0].offset, found[0].crc), known, "cut at {cut}");
        assert_eq!(found[1], Position::default());
        // What comes next goes on there.
        let next = flushed(&submit(&intake, "web-1", batch(2, "b-0", known, &[100])));
        assert_eq!(next.0, known.0 + 100);
        drop(intake);
        let frames = all(&layout::intake_path(copy.path(), 2));
        assert_eq!(frames, [("web-1".to_owned(), known.0 + 100)]);
        let intake = Intake::open(copy.path(), IntakeOptions::default()).expect("opens");
        let again = submit(&intake, "web-1", batch(3, "b-0", known, &[100]));
        assert_eq!(flushed(&again), next, "it was taken before");
    }
}

#[test]
fn a_full_disk_is_answered_and_nothing_is_half_taken() {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path();
    let intake = Intake::open(dir, IntakeOptions::default()).expect("opens");
    let at = flushed(&submit(
        &intake,
        "a",
        batch(1, "s", (0, Prefix::default()), &[5]),
    ));
    let path = layout::intake_path(dir, 1);
    let length = fs::metadata(&path).expect("is there").len();
    for more in [0, 1, 9, 50] {
        give_room(dir, length + more);
        let answer = submit(&intake, "a", batch(1, "s", at, &[6, 7])).recv();
        assert_eq!(answer, Ok(Receipt::Full));
        assert_eq!(fs::metadata(&path).expect("is there").len(), length);
        let answer = submit(&intake, "b", batch(9, "t", (0, Prefix::default()), &[1])).recv();
        assert_eq!(answer, Ok(Receipt::Full));
    }
    assert!(intake.counters().error.is_some());
    give_room(dir, u64::MAX);
    let then = flushed(&submit(&intake, "a", batch(1, "s", at, &[6, 7])));
    assert_eq!(then.0, at.0 + 13);
    assert_eq!(intake.counters().error, None);
    drop(intake);
    let expected = [("a".to_owned(), 5), ("a".to_owned(), 18)];
    assert_eq!(all(&path), expected);
}

#[test]
fn too_much_that_is_not_published_is_refused_until_there_is_room() {
    let dir = tempfile::tempdir().expect("a directory");
    let options = IntakeOptions {
        unpublished: 1_000,
        ..IntakeOptions::default()
    };
    let intake = Intake::open(dir.path(), options).expect("opens");
    let mut at = (0, Prefix::default());
    let mut taken = 0;
    let refused = loop {
        match submit(&intake, "a", batch(1, "s", at, &[5])).recv() {
            Ok(Receipt::Flushed(position)) => at = (position.offset, position.crc),
            Ok(other) => break other,
            Err(e) => panic!("{e}"),
        }
        taken += 1;
    };
    assert_eq!(refused, Receipt::Busy);
    assert!(
        (4..12).contains(&taken),
        "frames have some 150 bytes: {taken}"
    );
    assert!(intake.unpublished() >= 1_000);
    intake.shared().published(intake.unpublished());
    assert_eq!(
        flushed(&submit(&intake, "a", batch(1, "s", at, &[5]))).0,
        at.0 + 5
    );
}

#[test]
fn a_clone_is_refused_and_both_are_named() {
    let dir = tempfile::tempdir().expect("a directory");
    let intake = Intake::open(dir.path(), IntakeOptions::default()).expect("opens");
    let start = (0, Prefix::default());
    let first = flushed(&submit(&intake, "a", batch(1, "s", start, &[5])));
    flushed(&submit(&intake, "a", batch(2, "t", start, &[5])));
    let second = flushed(&submit(&intake, "a", batch(1, "s", first, &[5])));
    flushed(&submit(&intake, "a", batch(1, "s", second, &[5])));
    match submit(&intake, "a", batch(2, "t", start, &[5, 6])).recv() {
        Ok(Receipt::Clone { other: Some(other) }) => assert_eq!(other.run, 1),
        other => panic!("{other:?}"),
    }
    let (sender, receiver) = channel();
    intake.hosts(move |hosts| drop(sender.send(hosts)));
    let hosts = receiver.recv().expect("an answer");
    let runs = |peer: Option<Peer>| peer.map(|peer| peer.run);
    assert_eq!(
        (runs(hosts[0].peer), runs(hosts[0].clone)),
        (Some(1), Some(2))
    );
    assert_eq!(hosts[0].refused.get("clone"), Some(&1));
}

#[test]
fn many_batches_share_a_flush_and_files_end_by_age() {
    let dir = tempfile::tempdir().expect("a directory");
    let intake = Intake::open(dir.path(), IntakeOptions::default()).expect("opens");
    let waiting: Vec<_> = (0..500)
        .map(|n| {
            let start = (0, Prefix::default());
            submit(&intake, &format!("h{n}"), batch(n, "s", start, &[5]))
        })
        .collect();
    for receiver in &waiting {
        flushed(receiver);
    }
    let counters = intake.counters();
    assert_eq!(counters.batches, 500);
    assert!(counters.flushes <= 500);
    let age = IntakeOptions::default().file_age;
    intake.tick(WallMicros(0) + age);
    let (sender, receiver) = channel();
    intake.positions("h0", Vec::new(), move |_| {
        let _ = sender.send(());
    });
    receiver.recv().expect("an answer");
    assert_eq!(
        layout::intakes(dir.path()).expect("can be listed"),
        [1],
        "not old enough"
    );
    intake.tick(WallMicros(1) + age);
    let (sender, receiver) = channel();
    intake.positions("h0", Vec::new(), move |_| {
        let _ = sender.send(());
    });
    receiver.recv().expect("an answer");
    assert_eq!(layout::intakes(dir.path()).expect("can be listed"), [1, 2]);
}
