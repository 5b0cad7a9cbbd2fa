// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::{Column, Kind, Old, Reader, Rows, Value, extend, join};
use proptest::prelude::*;
use std::os::unix::fs::FileExt as _;

/// Minutes for which a reader may use a footer.
const LIFE: u64 = 60;

#[derive(Clone, Copy, Debug)]
enum Act {
    /// Rows are added.
    Add(u16),
    Join,
    Forward,
    Cut,
    /// Minutes pass.
    Wait(u8),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        4 => (1..600u16).prop_map(Act::Add),
        1 => Just(Act::Join),
        2 => Just(Act::Forward),
        1 => Just(Act::Cut),
        4 => (0..70u8).prop_map(Act::Wait),
    ];
    proptest::collection::vec(act, 1..40)
}

fn settings() -> Settings {
    Settings {
        producer: "test 1".to_owned(),
        zstd_level: 3,
        without_page_index: true,
        ..Settings::default()
    }
}

fn columns() -> Vec<Column> {
    vec![
        Column::new("number", Kind::Int64),
        Column::new("name", Kind::Text),
    ]
}

fn rows(numbers: Range<i64>) -> Rows {
    let mut rows = Rows::new(columns());
    for number in numbers {
        let name = format!(
            "{:x}",
            number.cast_unsigned().wrapping_mul(0x9e37_79b9_7f4a_7c15)
        );
        rows.push([Value::Int(number), Value::Text(&name)]);
    }
    rows
}

fn bytes_at(file: &File, place: &Range<u64>) -> Vec<u8> {
    let mut bytes = vec![0; (place.end - place.start) as usize];
    file.read_exact_at(&mut bytes, place.start)
        .expect("is there");
    bytes
}

/// What a footer points to, and until when a reader may look for it.
struct Footer {
    groups: Vec<(Range<u64>, Vec<u8>)>,
    until: u64,
}

/// A file as its owner keeps it.
struct Holder {
    file: File,
    keep: u64,
    moved_at: Option<u64>,
    written: i64,
    now: u64,
    footers: Vec<Footer>,
}

impl Holder {
    fn new() -> Self {
        let file = extend(None, new_file(), rows(0..50), &settings(), 64).expect("a file");
        Holder {
            file,
            keep: 0,
            moved_at: None,
            written: 50,
            now: 0,
            footers: Vec::new(),
        }
    }

    fn layout(&self) -> Layout {
        Layout::of(&self.file).expect("a file")
    }

    fn is_free(&self) -> bool {
        self.moved_at.is_none_or(|at| at + LIFE <= self.now)
    }

    fn act(&mut self, act: Act) {
        let settings = settings();
        let (layout, free) = (self.layout(), self.is_free());
        let keep = if free { 0 } else { self.keep };
        let old = Old {
            file: &self.file,
            keep,
        };
        let new = match act {
            Act::Wait(minutes) => {
                self.now += u64::from(minutes);
                return;
            }
            Act::Add(count) => {
                let numbers = self.written..self.written + i64::from(count);
                self.written = numbers.end;
                extend(Some(old), new_file(), rows(numbers), &settings, 64)
            }
            Act::Join if free => {
                let reader = Reader::new(self.file.try_clone().expect("a clone"));
                let reader = reader.expect("a file");
                join(old, &reader, new_file(), columns(), &settings)
            }
            Act::Forward if free && layout.can_move() => {
                forward(&self.file, keep, new_file(), &settings)
            }
            Act::Cut if free => cut(&self.file, new_file(), &settings),
            _ => return,
        };
        let groups = (layout.places.iter())
            .map(|place| (place.clone(), bytes_at(&self.file, place)))
            .collect();
        let until = self.now + LIFE;
        self.footers.push(Footer { groups, until });
        match act {
            Act::Join | Act::Forward => {
                self.moved_at = Some(self.now);
                self.keep = layout.end().max(keep);
            }
            // What was free is not looked for any more.
            _ => self.keep = keep,
        }
        self.file = new.expect("a new file");
        self.check();
    }

    fn check(&self) {
        for footer in self.footers.iter().filter(|it| it.until > self.now) {
            for (place, bytes) in &footer.groups {
                assert!(bytes_at(&self.file, place) == *bytes, "{place:?} was moved");
            }
        }
        let reader = Reader::new(self.file.try_clone().expect("a clone")).expect("a file");
        let mut rows = reader.rows(&["number", "name"]).expect("rows");
        let mut found = Vec::new();
        while rows.advance().expect("a row") {
            match rows.value(0).expect("a value") {
                Value::Int(number) => found.push(number),
                other => panic!("{other:?}"),
            }
        }
        found.sort_unstable();
        assert!(found.into_iter().eq(0..self.written), "each row once");
    }

    /// Acts as its owner does until nothing is left to do.
    fn settle(&mut self) {
        for act in [
            Act::Join,
            Act::Forward,
            Act::Forward,
            Act::Forward,
            Act::Cut,
        ] {
            self.act(Act::Wait(LIFE as u8));
            self.act(act);
        }
    }
}

fn new_file() -> File {
    tempfile::tempfile().expect("a temporary file")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn what_a_footer_points_to_stays_where_it_was(acts in acts()) {
        let mut kept = Holder::new();
        for act in acts {
            kept.act(act);
        }
        kept.settle();
        let all = rows(0..kept.written);
        let whole = extend(None, new_file(), all, &settings(), 64).expect("a file");
        let (length, least) = (kept.layout().end(), Layout::of(&whole).expect("a file").end());
        prop_assert!(length <= least + least / 8 + 4_096, "{length} of {least}");
    }
}

#[test]
fn row_groups_move_to_where_there_is_room() {
    let of = |places: &[(u64, u64)]| Layout {
        places: places.iter().map(|(from, to)| *from..*to).collect(),
    };
    assert!(of(&[(4, 10), (10, 20)]).moves().is_empty());
    assert_eq!(of(&[(104, 164)]).moves(), [(0, 4)]);
    // The second would lie on the first, which is pointed to.
    assert_eq!(of(&[(104, 164), (164, 224)]).moves(), [(0, 4)]);
    assert_eq!(of(&[(4, 64), (164, 224)]).moves(), [(1, 64)]);
    // Not onto its own place.
    assert!(of(&[(14, 40)]).moves().is_empty());
    assert_eq!(of(&[(200, 210), (4, 100)]).moves(), [(0, 100)]);
}
