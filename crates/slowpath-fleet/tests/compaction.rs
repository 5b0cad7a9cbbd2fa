// SPDX-License-Identifier: Apache-2.0
//! Compaction in steps: what a footer of the last hour points to is where it was, and in the end a file is hardly longer than its
//! rows need.

mod agents;

use agents::{MIDNIGHT, Random, Segment};
use slowpath_fleet::{Intake, IntakeOptions, Receipt, Tables};
use slowpath_model::WallMicros;
use slowpath_store::tables::OpenFile;
use slowpath_table::Layout;
use std::collections::HashMap;
use std::fs;
use std::net::IpAddr;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;

const HOUR: i64 = 3_600_000_000;
const MINUTE: i64 = HOUR / 60;

fn publish(random: &mut Random, next: &mut u64, (intake, tables): (&Intake, &mut Tables)) {
    let now = MIDNIGHT + HOUR;
    let mut segment = Segment::new(&format!("b-{next}"));
    for _ in 0..1 + random.below(300) {
        segment.push_numbered(*next, now - random.below(HOUR as u64) as i64);
        *next += 1;
    }
    let (sender, receiver) = channel();
    let origin = ("web-1", IpAddr::from([10, 0, 0, 1]));
    intake.submit(
        origin,
        segment.rest(1, 0),
        WallMicros(now),
        move |receipt| {
            drop(sender.send(receipt));
        },
    );
    assert!(matches!(receiver.recv(), Ok(Receipt::Flushed(_))));
    let (sender, receiver) = channel();
    intake.end_file(move || {
        let _ = sender.send(());
    });
    receiver.recv().expect("the file ends");
    tables.publish().expect("is published");
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = |dir: &Path| -> Vec<PathBuf> {
        let entries = fs::read_dir(dir).expect("is there");
        entries.map(|it| it.expect("an entry").path()).collect()
    };
    let hours = entries(&dir.join("tables"))
        .into_iter()
        .flat_map(|date| entries(&date));
    let files = hours.flat_map(|hour| entries(&hour));
    files
        .filter(|path| path.extension().is_some_and(|it| it == "parquet"))
        .collect()
}

/// Row groups by their places, with their bytes.
type Groups = Vec<(Range<u64>, Vec<u8>)>;

/// What a footer points to, and until when a reader may look for it.
struct Footer {
    groups: Groups,
    until: i64,
}

/// The footers that files had.
#[derive(Default)]
struct Watch {
    current: HashMap<PathBuf, Groups>,
    replaced: Vec<(PathBuf, Footer)>,
}

impl Watch {
    fn look(&mut self, dir: &Path, now: i64) {
        for path in files(dir) {
            let open = OpenFile::open(&path).expect("is whole");
            open.check().expect("its checksum is right");
            let layout = Layout::of(open.bytes()).expect("has row groups");
            let bytes = |place: &Range<u64>| {
                let mut bytes = vec![0; (place.end - place.start) as usize];
                open.bytes()
                    .read_exact_at(&mut bytes, place.start)
                    .expect("is there");
                bytes
            };
            for (of, footer) in &self.replaced {
                if *of == path && footer.until > now {
                    for (place, was) in &footer.groups {
                        assert!(
                            bytes(place) == *was,
                            "{place:?} of {} moved",
                            path.display()
                        );
                    }
                }
            }
            let groups: Vec<_> = (layout.places().iter())
                .map(|place| (place.clone(), bytes(place)))
                .collect();
            if let Some(was) = self.current.insert(path.clone(), groups.clone())
                && was != groups
            {
                let until = now + HOUR;
                self.replaced.push((path, Footer { groups: was, until }));
            }
        }
    }
}

#[test]
fn what_a_footer_of_the_last_hour_points_to_is_where_it_was() {
    let dir = tempfile::tempdir().expect("a directory");
    let intake = Intake::open(dir.path(), IntakeOptions::default()).expect("opens");
    let mut tables = Tables::open(dir.path(), "s1", &intake, WallMicros(MIDNIGHT)).expect("opens");
    let (mut random, mut next, mut watch) = (Random(1), 0, Watch::default());
    // As if the hours were long over.
    let mut now = MIDNIGHT + 40 * HOUR;
    for round in 0..200 {
        // Rows come late all the time, and at last none.
        if round < 120 && random.below(2) == 0 {
            publish(&mut random, &mut next, (&intake, &mut tables));
        }
        watch.look(dir.path(), now);
        tables.compact(WallMicros(now)).expect("is compacted");
        watch.look(dir.path(), now);
        now += random.below(20) as i64 * MINUTE;
        if random.below(20) == 0 {
            tables = Tables::open(dir.path(), "s1", &intake, WallMicros(MIDNIGHT)).expect("opens");
        }
    }
    assert!(watch.replaced.len() > 50, "{} files", watch.replaced.len());
    for path in files(dir.path()) {
        let open = OpenFile::open(&path).expect("is whole");
        let layout = Layout::of(open.bytes()).expect("has row groups");
        let (end, live) = (layout.end(), layout.bytes());
        let length = open.bytes().metadata().expect("its length").len();
        assert!(
            end <= live + live / 8 + 4_096 + 4,
            "{end} for {live} of {}",
            path.display()
        );
        assert!(
            length < end + 32_768,
            "{length} for {end} of {}",
            path.display()
        );
    }
}
