// SPDX-License-Identifier: Apache-2.0
//! Drawn successions of operations: every accepted record is at the server in the end, or stands in
//! exactly one gap there.

use super::*;
use crate::answers::{SegmentsAnswer, ServerSegment, ServerState};
use crate::batch::{Batch, Content, Encoder, Gap, Reader, SentClock};
use proptest::prelude::*;
use slowpath_model::WallMicros;
use slowpath_store::HostIdentity;
use slowpath_store::spool::{Header as SpoolHeader, encode_header, encode_raw};
use std::fs;
use std::path::PathBuf;

const NOW: Duration = Duration::ZERO;
const BOOT: u128 = 0x1234;

/// The server as `docs/decisions/0044-fleet.md` describes its decisions, in memory.
#[derive(Clone, Debug, Default)]
struct Server {
    segments: BTreeMap<String, Flushed>,
    starts: u32,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Flushed {
    offset: u64,
    crc: Prefix,
    complete: bool,
    /// Where each record began, with its bytes; and the gaps.
    records: BTreeMap<u64, Vec<u8>>,
    gaps: BTreeMap<u64, Gap>,
}

impl Server {
    fn take(&mut self, batch: &Batch) -> Result<(u64, Prefix), (u64, Prefix)> {
        let flushed = self
            .segments
            .entry(batch.header.segment.clone())
            .or_default();
        let stands = (flushed.offset, flushed.crc);
        if batch.header.offset > flushed.offset {
            return Err(stands);
        }
        if batch.end() > flushed.offset || batch.end() == batch.header.offset {
            let Some((crc, rest)) = batch.from_offset(flushed.offset) else {
                return Err(stands);
            };
            if crc != flushed.crc {
                return Err(stands);
            }
            for piece in rest.pieces(flushed.offset, crc) {
                match piece.content {
                    Content::Gap(gap) => drop(flushed.gaps.insert(piece.offset, gap)),
                    Content::Record(record) => {
                        flushed
                            .records
                            .insert(piece.offset, record.bytes().to_vec());
                    }
                    Content::Header(_) => {}
                }
                (flushed.offset, flushed.crc) = (piece.end, piece.prefix);
            }
        }
        flushed.complete |= batch.header.last;
        Ok((flushed.offset, flushed.crc))
    }

    fn answer(&self, queue: &Queue) -> SegmentsAnswer {
        let asked = queue.inventory().segments;
        let segments = asked.into_iter().map(|segment| {
            let flushed = self.segments.get(&segment.id).cloned().unwrap_or_default();
            ServerSegment {
                id: segment.id,
                offset: flushed.offset,
                crc: flushed.crc,
            }
        });
        SegmentsAnswer {
            segments: segments.collect(),
            state: ServerState {
                start: self.starts.to_string(),
                ..ServerState::default()
            },
        }
    }
}

/// A log that is written by hand, its queue, a server.
struct World {
    dir: tempfile::TempDir,
    queue: Queue,
    server: Server,
    older_server: Server,
    /// What any server ever flushed.
    ever: BTreeMap<String, Flushed>,
    /// The records of each segment: where they begin, and their bytes.
    accepted: BTreeMap<String, BTreeMap<u64, Vec<u8>>>,
    live: u32,
    number: u64,
    damaged: bool,
    dropped: bool,
}

fn id(number: u32) -> String {
    format!("0000abcd-{:012x}-{number:04}", 77)
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("spool")).unwrap();
        let queue = Queue::open(dir.path(), u64::MAX).unwrap();
        let mut world = World {
            dir,
            queue,
            server: Server::default(),
            older_server: Server::default(),
            ever: BTreeMap::new(),
            accepted: BTreeMap::new(),
            live: 0,
            number: 0,
            damaged: false,
            dropped: false,
        };
        world.begin();
        world
    }

    fn spool(&self, number: u32) -> PathBuf {
        self.dir.path().join("spool").join(id(number) + ".spool")
    }

    fn begin(&mut self) {
        let header = SpoolHeader {
            schema_version: slowpath_store::SCHEMA_VERSION,
            host: HostIdentity {
                host: "web-17".to_owned(),
                boot_id: BOOT,
            },
            segment: id(self.live),
            begun: WallMicros(i64::from(self.live)),
        };
        fs::write(self.spool(self.live), encode_header(&header)).unwrap();
        self.accepted.insert(id(self.live), BTreeMap::new());
    }

    fn append(&mut self, records: u32) {
        let path = self.spool(self.live);
        let mut file = fs::read(&path).unwrap();
        for _ in 0..records {
            self.number += 1;
            let kind = 1 + (self.number % 5) as u8;
            let at = file.len();
            let mut record = Vec::new();
            let payload = [&self.number.to_le_bytes()[..], &[7; 200]].concat();
            encode_raw(kind, &payload, &mut record);
            file.extend(&record);
            let segment = self.accepted.get_mut(&id(self.live)).unwrap();
            segment.insert(at as u64, record);
        }
        fs::write(path, file).unwrap();
    }

    fn end_segment(&mut self) {
        let ship = self.dir.path().join("ship").join(id(self.live) + ".spool");
        fs::rename(self.spool(self.live), ship).unwrap();
        self.live += 1;
        self.begin();
    }

    fn reopen(&mut self) {
        self.queue = Queue::open(self.dir.path(), u64::MAX).unwrap();
    }

    /// One batch; whether there was one. An answer may get lost.
    fn ship(&mut self, class: Class, most: usize, answered: bool) -> io::Result<bool> {
        self.queue.refresh()?;
        let Some(offer) = self.queue.offer(class, most, NOW)? else {
            return Ok(false);
        };
        let clock = SentClock {
            sent: WallMicros(0),
            state: 0,
            max_error_us: None,
        };
        let header = offer.header(1, 1, clock);
        let body = Encoder::new()?.encode(&header, &offer.items)?;
        let batch = Reader::new()?
            .read(&body)
            .expect("what is sent can be read");
        assert_eq!(batch.end(), offer.end);
        // Of a segment that is gone it may not be known; gaps need none.
        assert!(offer.records == 0 || batch.header.boot_id == BOOT);
        let answer = self.server.take(&batch);
        self.note(&offer.segment);
        if !answered {
            return Ok(true);
        }
        match answer {
            Ok(stands) => self.queue.flushed(&offer, stands, NOW)?,
            Err(stands) => self.queue.rewind(&offer, stands, NOW)?,
        };
        assert_eq!(self.queue.status().conflicts, [] as [String; 0]);
        Ok(true)
    }

    fn note(&mut self, segment: &str) {
        let now = &self.server.segments[segment];
        let ever = self.ever.entry(segment.to_owned()).or_default();
        if now.offset >= ever.offset {
            *ever = now.clone();
        }
    }

    fn ship_all(&mut self) {
        for class in [Class::Waiting, Class::Live] {
            let mut batches = 0;
            while self.ship(class, 4000, true).unwrap() {
                batches += 1;
                assert!(batches < 10_000, "it never ends");
            }
        }
    }

    fn restore_server(&mut self) -> io::Result<()> {
        let starts = self.server.starts + 1;
        self.server = self.older_server.clone();
        self.server.starts = starts;
        let answer = self.server.answer(&self.queue);
        self.queue.reconcile(&answer, NOW)
    }

    /// Flips bits somewhere in a file of the spool or of `ship`.
    fn damage(&mut self, file: prop::sample::Index, place: prop::sample::Index, flip: u8) {
        let mut files: Vec<PathBuf> = ["spool", "ship"]
            .iter()
            .flat_map(|folder| fs::read_dir(self.dir.path().join(folder)).unwrap())
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.is_file() && !path.ends_with("state"))
            .collect();
        files.sort();
        let path = file.get(&files);
        let mut bytes = fs::read(path).unwrap();
        if !bytes.is_empty() {
            *place.get_mut(&mut bytes) ^= flip;
            fs::write(path, bytes).unwrap();
            self.damaged = true;
        }
    }

    /// Every accepted record is at the server, or in one gap there.
    fn check(&mut self) {
        for (segment, records) in &self.accepted {
            let is_live = *segment == id(self.live);
            let now = self
                .server
                .segments
                .get(segment)
                .cloned()
                .unwrap_or_default();
            // What was removed because the server had it cannot be sent again.
            let queued = self.queue.segments.get(segment);
            let removed = queued.is_none();
            if queued.is_some_and(|queued| queued.foreign) {
                // Damage that looks like a newer version's header: it waits for an upgrade.
                assert!(self.damaged);
                continue;
            }
            let flushed = match removed {
                true => self.ever.get(segment).cloned().unwrap_or_default(),
                false => now,
            };
            assert!(
                flushed.complete || is_live || records.is_empty(),
                "{segment}"
            );
            for (at, record) in records {
                let end = at + record.len() as u64;
                let gap = flushed.gaps.range(..=at).next_back();
                let in_gap = gap.is_some_and(|(begin, gap)| begin + gap.length >= end);
                match flushed.records.get(at) {
                    Some(flushed) => {
                        assert!(!in_gap, "{segment} {at}: twice");
                        assert_eq!(flushed, record);
                    }
                    None if is_live && self.damaged => {}
                    None => {
                        let (_, gap) = gap.unwrap_or_else(|| panic!("{segment} {at}: lost"));
                        // A gap that damage made may begin within a record's bytes.
                        assert!(in_gap || self.damaged, "{segment} {at}: lost");
                        let reason = match gap.reason {
                            GapReason::Damaged => self.damaged,
                            GapReason::Dropped => self.dropped,
                            GapReason::Refused => true,
                        };
                        assert!(reason, "{segment} {at}: {gap:?} without a reason");
                    }
                }
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Operation {
    Append(u32),
    EndSegment,
    Ship {
        live: bool,
        most: usize,
        answered: bool,
    },
    MakeRoom(u64),
    Damage(prop::sample::Index, prop::sample::Index, u8),
    /// The next operation is killed at this step.
    KillAt(u32),
    Reopen,
    LoseState,
    CopyServer,
    RestoreServer,
}

fn operation(with_damage: bool) -> impl Strategy<Value = Operation> {
    let damage = (
        any::<prop::sample::Index>(),
        any::<prop::sample::Index>(),
        1u8..,
    )
        .prop_map(|(file, place, flip)| Operation::Damage(file, place, flip));
    prop_oneof![
        6 => (0u32..30).prop_map(Operation::Append),
        3 => Just(Operation::EndSegment),
        8 => (any::<bool>(), 100usize..5000, prop::bool::weighted(0.8)).prop_map(
            |(live, most, answered)| Operation::Ship { live, most, answered }
        ),
        2 => (0u64..20_000).prop_map(Operation::MakeRoom),
        u32::from(with_damage) => damage,
        2 => (0u32..4).prop_map(Operation::KillAt),
        1 => Just(Operation::Reopen),
        1 => Just(Operation::LoseState),
        1 => Just(Operation::CopyServer),
        1 => Just(Operation::RestoreServer),
    ]
}

fn run(world: &mut World, operation: Operation) {
    let result = match operation {
        Operation::Append(records) => {
            world.append(records);
            Ok(())
        }
        Operation::EndSegment => {
            world.end_segment();
            world.queue.refresh()
        }
        Operation::Ship {
            live,
            most,
            answered,
        } => {
            let class = if live { Class::Live } else { Class::Waiting };
            world.ship(class, most, answered).map(|_| ())
        }
        Operation::MakeRoom(limit) => {
            world.dropped = true;
            world.queue.limit = limit;
            world.queue.refresh().and_then(|()| world.queue.make_room())
        }
        Operation::Damage(file, place, flip) => {
            world.damage(file, place, flip);
            Ok(())
        }
        Operation::KillAt(steps) => {
            world.queue.disk.steps = Some(steps);
            return;
        }
        Operation::Reopen => {
            world.reopen();
            Ok(())
        }
        Operation::LoseState => {
            let _ = fs::remove_file(world.dir.path().join("ship/state"));
            world.reopen();
            Ok(())
        }
        Operation::CopyServer => {
            world.older_server = world.server.clone();
            Ok(())
        }
        Operation::RestoreServer => world.restore_server(),
    };
    if result.is_err() {
        assert!(world.queue.disk.steps.is_some(), "{result:?}");
        world.reopen();
    }
    world.queue.disk.steps = None;
}

fn end(world: &mut World) {
    world.reopen();
    // It asks a server that started anew before it ships.
    let answer = world.server.answer(&world.queue);
    world.queue.reconcile(&answer, NOW).unwrap();
    world.ship_all();
    world.check();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn every_record_is_acknowledged_or_in_one_gap(
        operations in prop::collection::vec(operation(false), 0..60),
    ) {
        let mut world = World::new();
        for operation in operations {
            run(&mut world, operation);
        }
        end(&mut world);
    }

    #[test]
    fn damage_costs_what_it_hits_and_never_stops_the_queue(
        operations in prop::collection::vec(operation(true), 0..60),
    ) {
        let mut world = World::new();
        for operation in operations {
            run(&mut world, operation);
        }
        end(&mut world);
    }
}

#[test]
fn a_known_header_that_is_damaged_into_a_newer_version_costs_only_itself() {
    let mut world = World::new();
    world.append(3);
    world.end_segment();
    world.queue.refresh().unwrap();
    let spool = world.dir.path().join("ship").join(id(0) + ".spool");
    let mut bytes = fs::read(&spool).unwrap();
    bytes[9] ^= 2; // the framing's version
    fs::write(spool, bytes).unwrap();
    world.damaged = true;
    world.ship_all();
    let flushed = &world.server.segments[&id(0)];
    assert!(flushed.complete);
    assert_eq!(flushed.records, world.accepted[&id(0)]);
    let gaps: Vec<u64> = flushed.gaps.keys().copied().collect();
    assert_eq!(gaps, [0]);
}

#[test]
fn a_live_record_that_looks_torn_since_it_was_sent_is_no_conflict() {
    let mut world = World::new();
    world.append(1);
    world.ship(Class::Live, 4000, false).unwrap();
    let (at, _) = world.accepted[&id(0)].last_key_value().unwrap();
    let length = *at as usize + 3; // a byte of the record's length, behind its mark
    let mut bytes = fs::read(world.spool(0)).unwrap();
    bytes[length] ^= 1;
    fs::write(world.spool(0), bytes).unwrap();
    world.damaged = true;
    end(&mut world);
    world.append(2);
    world.end_segment();
    end(&mut world);
    assert_eq!(world.server.segments[&id(0)].records.len(), 3);
}

#[test]
fn without_losses_everything_arrives_and_nothing_is_a_gap() {
    let mut world = World::new();
    for _ in 0..5 {
        world.append(40);
        world.end_segment();
    }
    world.append(3);
    end(&mut world);
    let flushed: usize = world
        .server
        .segments
        .values()
        .map(|s| s.records.len())
        .sum();
    assert_eq!(flushed, 203);
    assert!(world.server.segments.values().all(|s| s.gaps.is_empty()));
    assert_eq!(world.queue.status().waiting_bytes, 0);
    assert_eq!(world.queue.status().lost_bytes, BTreeMap::new());
}

#[test]
fn over_the_limit_summaries_and_coverage_outlive_intervals() {
    let mut world = World::new();
    world.append(100);
    world.end_segment();
    world.queue.refresh().unwrap();
    world.queue.limit = 12_000;
    world.queue.make_room().unwrap();
    world.queue.refresh().unwrap();
    assert!(world.queue.status().ship_bytes <= 12_000);
    world.ship_all();
    let flushed = &world.server.segments[&id(0)];
    let accepted = &world.accepted[&id(0)];
    for (at, record) in accepted {
        // The kind stands behind mark, length and checksum.
        let stays = matches!(record[8], 2 | 3);
        assert_eq!(flushed.records.contains_key(at), stays);
    }
    let gone: u32 = flushed.gaps.values().map(|gap| gap.records.unwrap()).sum();
    assert_eq!(gone, 60);
    let bytes: u64 = flushed.gaps.values().map(|gap| gap.length).sum();
    let lost = BTreeMap::from([(GapReason::Dropped, bytes)]);
    assert_eq!(world.queue.status().lost_bytes, lost);
}

#[test]
fn a_segment_that_gave_way_as_a_whole_is_one_counted_gap() {
    let mut world = World::new();
    world.append(10);
    world.ship(Class::Live, 1000, true).unwrap();
    let had = world.server.segments[&id(0)].records.len() as u32;
    world.end_segment();
    world.queue.refresh().unwrap();
    world.queue.limit = 0;
    world.queue.make_room().unwrap();
    world.reopen();
    assert_eq!(world.queue.status().ship_bytes, 0);
    world.ship_all();
    let flushed = &world.server.segments[&id(0)];
    assert!(flushed.complete);
    // Thinned first: the gaps of its details and those of the rest are one.
    let records: Vec<_> = flushed.gaps.values().map(|gap| gap.records).collect();
    assert_eq!(records, [Some(10 - had)]);
}

#[test]
fn a_server_with_other_bytes_is_a_conflict_and_others_go_on() {
    let mut world = World::new();
    world.append(10);
    world.ship(Class::Live, 1000, true).unwrap();
    let foreign = world.server.segments.get_mut(&id(0)).unwrap();
    foreign.crc = Prefix(foreign.crc.0 ^ 1);
    world.end_segment();
    world.append(5);
    world.queue.refresh().unwrap();
    let offer = world
        .queue
        .offer(Class::Waiting, 4000, NOW)
        .unwrap()
        .unwrap();
    let flushed = &world.server.segments[&id(0)];
    let stands = (flushed.offset, flushed.crc);
    let settlement = world.queue.rewind(&offer, stands, NOW).unwrap();
    assert_eq!(settlement, Settlement::Conflict);
    assert_eq!(world.queue.status().conflicts, [id(0)]);
    assert_eq!(world.queue.offer(Class::Waiting, 4000, NOW).unwrap(), None);
    assert!(world.queue.offer(Class::Live, 4000, NOW).unwrap().is_some());
    let later = Duration::from_secs(3600);
    assert!(
        world
            .queue
            .offer(Class::Waiting, 4000, later)
            .unwrap()
            .is_some()
    );
}

#[test]
fn what_the_server_cannot_read_becomes_a_gap_and_is_kept() {
    let mut world = World::new();
    world.append(10);
    world.end_segment();
    world.queue.refresh().unwrap();
    let offer = world
        .queue
        .offer(Class::Waiting, 1000, NOW)
        .unwrap()
        .unwrap();
    world.queue.refuse(&offer, b"as it was sent", NOW).unwrap();
    let kept = world
        .dir
        .path()
        .join("ship/refused")
        .join(format!("{}-0.batch", id(0)));
    assert_eq!(fs::read(kept).unwrap(), b"as it was sent");
    world.reopen();
    world.ship_all();
    let flushed = &world.server.segments[&id(0)];
    let refused = Gap {
        length: offer.end,
        reason: GapReason::Refused,
        records: Some(offer.records - 1),
    };
    assert_eq!(flushed.gaps, BTreeMap::from([(0, refused)]));
    assert_eq!(flushed.records.len() as u32, 10 - refused.records.unwrap());
}

#[test]
fn a_spool_that_the_log_set_aside_is_a_gap_once() {
    let mut world = World::new();
    let aside = world
        .dir
        .path()
        .join("spool/0000abcd-00-0009.spool.unreadable");
    fs::write(aside, b"no spool at all").unwrap();
    world.queue.refresh().unwrap();
    for _ in 0..2 {
        while let Some(offer) = world.queue.offer(Class::Waiting, 4000, NOW).unwrap() {
            assert_eq!((offer.offset, offer.end, offer.last), (0, 15, true));
            world
                .queue
                .flushed(&offer, (offer.end, offer.end_prefix), NOW)
                .unwrap();
        }
        world.reopen();
    }
    assert_eq!(
        world.queue.status().lost_bytes,
        BTreeMap::from([(GapReason::Damaged, 15)])
    );
}

#[test]
fn a_newer_schema_waits_for_the_next_upgrade_of_the_server() {
    let mut world = World::new();
    world.append(1);
    world.queue.refresh().unwrap();
    let offer = world.queue.offer(Class::Live, 4000, NOW).unwrap().unwrap();
    world.queue.hold_newer(&offer, NOW);
    assert_eq!(world.queue.status().newer, 1);
    assert_eq!(world.queue.offer(Class::Live, 4000, NOW).unwrap(), None);
    let later = Duration::from_secs(3600);
    assert!(
        world
            .queue
            .offer(Class::Live, 4000, later)
            .unwrap()
            .is_some()
    );
}
