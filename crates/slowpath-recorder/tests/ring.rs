// SPDX-License-Identifier: Apache-2.0
//! The ring's promises: never over its bytes, oldest first, nothing that was asked for goes silently, and what is saved is what was reported.

use proptest::prelude::*;
use slowpath_recorder::ring::{Joins, Missing, Options, Ring, Saved, Update};
use slowpath_recorder::stock::NotEvents;
use slowpath_recording::{self as recording, End, Handler, Moment, Origin, Outcome, Run, Settings};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

const SECOND: u64 = 1_000_000_000;

/// What a recorder would have said.
#[derive(Default)]
struct Script {
    updates: Vec<Update>,
    lives: BTreeSet<u64>,
    /// Joined, but not reported.
    rest: BTreeMap<u64, [End; 2]>,
    forgotten: Vec<u64>,
}

struct Joiner(Rc<RefCell<Script>>);

impl Joins for Joiner {
    fn take(&mut self, _: &[u8]) -> Result<u64, NotEvents> {
        Ok(0)
    }
    fn settle(&mut self, _: Moment, _: u64, updates: &mut Vec<Update>) {
        updates.append(&mut self.0.borrow_mut().updates);
    }
    fn rest(&self, number: u64) -> Option<[End; 2]> {
        let script = self.0.borrow();
        let rest = script.rest.get(&number).cloned();
        script
            .lives
            .contains(&number)
            .then(|| rest.unwrap_or_default())
    }
    fn bytes(&self, number: u64) -> usize {
        if self.0.borrow().lives.contains(&number) {
            500
        } else {
            0
        }
    }
    fn forget(&mut self, number: u64) -> Vec<u64> {
        let mut script = self.0.borrow_mut();
        script.forgotten.push(number);
        match script.lives.remove(&number) {
            true => vec![number],
            false => Vec::new(),
        }
    }
}

fn addresses(number: u64) -> [SocketAddr; 2] {
    let port = 1_000 + number as u16;
    [([10, 0, 0, 1], port).into(), ([10, 0, 0, 2], 80).into()]
}

/// Runs that hardly compress.
fn runs(random: &mut fastrand::Rng, clock: &mut u64, count: usize) -> Vec<Run> {
    let run = |_| {
        *clock += random.u64(1..1 << 20);
        let bytes = random.u32(0..1 << 30);
        let outcome = Outcome::Clock {
            reading: 1,
            after: random.u32(..),
        };
        Run {
            at: Moment(*clock),
            jiffies: (*clock / 4_000_000) as u32,
            handler: Handler::Receive {
                bytes,
                flags: 0,
                result: random.i32(0..1 << 20),
            },
            outcomes: vec![outcome; random.usize(0..2)],
            check: Some(random.u32(1..)),
        }
    };
    (0..count).map(run).collect()
}

struct Scene {
    ring: Ring,
    script: Rc<RefCell<Script>>,
    random: fastrand::Rng,
    clock: u64,
    reported: BTreeMap<u64, [Vec<Run>; 2]>,
    ended: BTreeSet<u64>,
    asked: BTreeSet<u64>,
    saved: BTreeMap<u64, Saved>,
    gone: BTreeSet<u64>,
}

impl Scene {
    fn new(options: Options) -> Scene {
        let script: Rc<RefCell<Script>> = Rc::default();
        let joiner = Joiner(Rc::clone(&script));
        Scene {
            ring: Ring::new(Box::new(joiner), Origin::default(), options),
            script,
            random: fastrand::Rng::with_seed(7),
            clock: 0,
            reported: BTreeMap::new(),
            ended: BTreeSet::new(),
            asked: BTreeSet::new(),
            saved: BTreeMap::new(),
            gone: BTreeSet::new(),
        }
    }

    fn open(&mut self) -> u64 {
        let number = self.reported.len() as u64 + 1;
        self.reported.insert(number, Default::default());
        let mut script = self.script.borrow_mut();
        script.lives.insert(number);
        script.updates.push(Update::Opened {
            number,
            addresses: addresses(number),
            settings: Settings::default(),
            hz: 250,
            at: Moment(self.clock),
        });
        number
    }

    fn runs(&mut self, number: u64, end: usize, count: usize) {
        if !self.script.borrow().lives.contains(&number) {
            return;
        }
        let runs = runs(&mut self.random, &mut self.clock, count);
        let known = self.reported.get_mut(&number).expect("opened");
        known[end].extend(runs.clone());
        let mut script = self.script.borrow_mut();
        script.updates.push(Update::Runs { number, end, runs });
    }

    fn close(&mut self, number: u64) {
        let mut script = self.script.borrow_mut();
        if !script.lives.remove(&number) {
            return;
        }
        self.ended.insert(number);
        script.updates.push(Update::Closed {
            number,
            ends: Default::default(),
        });
    }

    fn ask(&mut self, number: u64) -> Result<(), Missing> {
        let [a, b] = addresses(number);
        let result = self.ring.keep([b, a], Moment(self.clock), "Timeout");
        if result.is_ok() {
            self.asked.insert(number);
        }
        result
    }

    fn take(&mut self, saved: Vec<Saved>) {
        for it in saved {
            let reported = &self.reported[&it.number];
            let decoded = recording::decode(&it.file).expect("a recording");
            assert_eq!(decoded.connections.len(), 1);
            let connection = &decoded.connections[0];
            assert_eq!(connection.addresses, addresses(it.number));
            assert!(self.asked.contains(&it.number), "it was not asked for");
            assert_eq!(it.reasons, ["Timeout"]);
            assert_eq!(it.ended.is_some(), self.ended.contains(&it.number));
            for (end, reported) in connection.ends.iter().zip(reported) {
                // A file has each 64th check.
                let plain = |runs: &[Run]| -> Vec<Run> {
                    let mut runs = runs.to_vec();
                    runs.iter_mut().for_each(|run| run.check = None);
                    runs
                };
                assert_eq!(plain(&end.runs), plain(reported));
                assert_eq!(end.gap, None);
            }
            self.saved.insert(it.number, it);
        }
    }

    /// Works, and looks at what was promised.
    fn work(&mut self, options: Options) {
        self.clock += SECOND;
        let now = Moment(self.clock);
        let before = self.ring.counts();
        let saved = self.ring.work(now, 0);
        self.take(saved);
        assert!(self.ring.bytes() <= options.bytes, "{}", self.ring.bytes());
        let counts = self.ring.counts();
        let went = std::mem::take(&mut self.script.borrow_mut().forgotten);
        self.gone.extend(went.iter().copied());
        let held: BTreeSet<u64> = self
            .reported
            .keys()
            .copied()
            .filter(|it| !self.gone.contains(it))
            .collect();
        assert_eq!(held.len(), self.ring.connections());
        let unasked = |it: &&u64| !self.asked.contains(it);
        if counts.dropped_living > before.dropped_living {
            assert!(
                !held
                    .iter()
                    .filter(unasked)
                    .any(|it| self.ended.contains(it)),
                "what ended goes first"
            );
        }
        let lived = |it: &&u64| !self.ended.contains(it);
        let dropped = went.iter().filter(unasked).filter(lived).max();
        let stays = held.iter().filter(unasked).filter(lived).min();
        let large = counts.dropped_large > before.dropped_large;
        if let (Some(dropped), Some(stays), false) = (dropped, stays, large) {
            assert!(dropped < stays, "the oldest go first");
        }
        let ended = self.saved.values().filter(|it| it.ended.is_some()).count() as u64;
        let all = held.len() as u64
            + ended
            + counts.forgotten
            + counts.dropped_ended
            + counts.dropped_living
            + counts.dropped_large
            + counts.cut_short
            + counts.unreplayable;
        assert_eq!(counts.opened, all, "nothing goes silently: {counts:?}");
    }
}

#[derive(Clone, Debug)]
enum Step {
    Open,
    Runs(usize, usize, usize),
    Close(usize),
    Ask(usize),
    Work,
}

fn step() -> impl Strategy<Value = Step> {
    let any = any::<usize>();
    prop_oneof![
        3 => Just(Step::Open),
        6 => (any, 0usize..2, 1usize..200).prop_map(|(which, end, count)| Step::Runs(which, end, count)),
        2 => any.prop_map(Step::Close),
        1 => any.prop_map(Step::Ask),
        3 => Just(Step::Work),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn what_goes_is_the_oldest_and_counted(steps in prop::collection::vec(step(), 1..150), kilobytes in 48usize..400) {
        let options = Options {
            bytes: kilobytes << 10,
            age: Duration::from_secs(20),
            patience: Duration::from_secs(5),
        };
        let mut scene = Scene::new(options);
        for step in steps {
            let count = scene.reported.len();
            let pick = |which: usize| (which % count.max(1)) as u64 + 1;
            match step {
                Step::Open => { scene.open(); }
                Step::Runs(which, end, count_of) if count > 0 => scene.runs(pick(which), end, count_of),
                Step::Close(which) if count > 0 => scene.close(pick(which)),
                Step::Ask(which) if count > 0 => { let _ = scene.ask(pick(which)); }
                Step::Work => scene.work(options),
                _ => {}
            }
        }
        scene.work(options);
        let saved = scene.ring.finish();
        scene.take(saved);
        for asked in &scene.asked {
            prop_assert!(scene.saved.contains_key(asked), "{asked} was asked for");
        }
    }
}

const ROOMY: Options = Options {
    bytes: 1 << 20,
    age: Duration::from_secs(60),
    patience: Duration::from_secs(10),
};

#[test]
fn one_that_was_asked_for_is_saved_at_its_end_and_not_before() {
    let mut scene = Scene::new(ROOMY);
    let number = scene.open();
    scene.runs(number, 0, 100);
    scene.work(ROOMY);
    assert_eq!(scene.ask(number), Ok(()));
    scene.work(ROOMY);
    assert!(scene.saved.is_empty());
    scene.runs(number, 1, 100);
    scene.close(number);
    scene.work(ROOMY);
    let saved = &scene.saved[&number];
    assert_eq!(
        (saved.runs, saved.one_sided, saved.cut_short),
        ([100, 100], false, false)
    );
    assert_eq!(scene.ring.connections(), 0);
    // It need not be asked for again.
    assert_eq!(scene.ask(number), Ok(()));
    assert_eq!(scene.ring.counts().missing, 0);
}

#[test]
fn one_that_lives_on_is_saved_when_patience_ends_with_what_is_not_reported_yet() {
    let mut scene = Scene::new(ROOMY);
    let number = scene.open();
    scene.runs(number, 0, 10);
    scene.work(ROOMY);
    scene.ask(number).expect("held");
    let rest = runs(&mut scene.random, &mut scene.clock, 3);
    let ends = [
        End {
            runs: rest.clone(),
            digest: 5,
            ..End::default()
        },
        End::default(),
    ];
    scene.script.borrow_mut().rest.insert(number, ends);
    for _ in 0..9 {
        assert!(scene.ring.work(Moment(scene.clock), 0).is_empty());
        scene.clock += SECOND;
    }
    scene.clock += SECOND;
    let saved = scene.ring.work(Moment(scene.clock), 0);
    assert_eq!(saved.len(), 1);
    assert_eq!(
        (saved[0].runs, saved[0].one_sided, saved[0].ended),
        ([13, 0], false, None)
    );
    let decoded = recording::decode(&saved[0].file).expect("a recording");
    let [client, _] = &decoded.connections[0].ends;
    assert_eq!(client.runs.len(), 13);
    assert_eq!(client.runs[12].at, rest[2].at);
    assert_eq!(decoded.connections[0].replayable(), Ok(()));
    // It is not asked for again: nothing more, until the end.
    scene.clock += 100 * SECOND;
    assert!(scene.ring.work(Moment(scene.clock), 0).is_empty());
}

/// One that was asked for is not saved and not held any more; the reason.
fn unreplayable(scene: &mut Scene, number: u64) -> String {
    let unkept = scene.ring.unkept();
    assert_eq!(scene.ring.connections(), 0);
    assert_eq!(
        scene.ring.unwanted(),
        [number],
        "no further events are wanted"
    );
    let [unkept] = unkept.as_slice() else {
        panic!("{unkept:?}")
    };
    assert_eq!(unkept.addresses, addresses(number));
    assert_eq!(unkept.reasons, ["Timeout"]);
    let counts = scene.ring.counts();
    assert_eq!(
        (counts.unreplayable, counts.saved, counts.missing),
        (1, 0, 0)
    );
    // A later request hears the same.
    assert_eq!(scene.ask(number), Err(unkept.missing.clone()));
    unkept.missing.to_string()
}

#[test]
fn one_of_which_events_were_lost_is_not_saved() {
    let mut scene = Scene::new(ROOMY);
    let number = scene.open();
    scene.runs(number, 0, 10);
    scene.runs(number, 1, 4);
    scene.work(ROOMY);
    scene.ask(number).expect("held");
    let lost = End {
        runs: runs(&mut scene.random, &mut scene.clock, 3),
        gap: Some(3),
        lost: 2,
        ..End::default()
    };
    let ends = [End::default(), lost];
    scene.script.borrow_mut().rest.insert(number, ends);
    scene.clock += 10 * SECOND;
    assert!(scene.ring.work(Moment(scene.clock), 2).is_empty());
    // Four runs were reported, three more are known.
    assert_eq!(
        unreplayable(&mut scene, number),
        "its server is not replayable after event 7: events are missing there"
    );
}

#[test]
fn one_that_does_what_no_replay_can_do_is_not_held_any_longer() {
    let mut scene = Scene::new(ROOMY);
    let number = scene.open();
    scene.runs(number, 0, 5);
    scene.work(ROOMY);
    scene.ask(number).expect("held");
    let mut run = runs(&mut scene.random, &mut scene.clock, 1);
    // SO_TIMESTAMPING (include/uapi/asm-generic/socket.h).
    run[0].handler = Handler::Option {
        level: 1,
        name: 37,
        value: 1,
    };
    scene.script.borrow_mut().updates.push(Update::Runs {
        number,
        end: 0,
        runs: run,
    });
    assert!(scene.ring.work(Moment(scene.clock), 0).is_empty());
    assert_eq!(
        unreplayable(&mut scene, number),
        "its client is not replayable after event 5: SO_TIMESTAMPING"
    );
}

#[test]
fn one_whose_settings_no_replay_can_have_is_not_held() {
    let mut scene = Scene::new(ROOMY);
    let joiner = Joiner(Rc::clone(&scene.script));
    let ring = Ring::new(Box::new(joiner), Origin::default(), ROOMY);
    scene.ring = ring.checking(|_, _| Err("an mtu of 9".to_owned()));
    let number = scene.open();
    scene.runs(number, 0, 5);
    scene.work(ROOMY);
    assert_eq!(scene.ring.connections(), 0);
    let missing = scene.ask(number).expect_err("it is not held");
    assert_eq!(missing.to_string(), "it cannot be replayed: an mtu of 9");
    assert_eq!(scene.ring.counts().unreplayable, 1);
    assert!(
        scene.ring.unkept().is_empty(),
        "it was not asked for before"
    );
}

#[test]
fn who_is_not_there_has_a_reason() {
    let mut scene = Scene::new(Options {
        bytes: 64 << 10,
        ..ROOMY
    });
    assert_eq!(scene.ask(1), Err(Missing::Unknown));
    let number = scene.open();
    scene.runs(number, 0, 20_000);
    scene.work(ROOMY);
    assert_eq!(scene.ask(number), Err(Missing::Dropped));
    assert_eq!(scene.ring.unwanted(), [number]);
    assert_eq!(scene.ring.counts().missing, 2);
    // Time is over.
    let number = scene.open();
    scene.runs(number, 0, 1);
    scene.close(number);
    scene.work(ROOMY);
    scene.clock += 61 * SECOND;
    scene.work(ROOMY);
    assert_eq!(scene.ask(number), Err(Missing::Unknown));
    assert_eq!(scene.ring.counts().forgotten, 1);
}

#[test]
fn addresses_that_are_used_again_are_distinguished_by_time() {
    let mut scene = Scene::new(ROOMY);
    let first = scene.open();
    scene.runs(first, 0, 1);
    let between = scene.clock;
    scene.close(first);
    scene.work(ROOMY);
    scene.reported.insert(2, Default::default());
    let run = runs(&mut scene.random, &mut scene.clock, 1);
    scene.script.borrow_mut().updates.extend([
        Update::Opened {
            number: 2,
            addresses: addresses(first),
            settings: Settings::default(),
            hz: 250,
            at: Moment(scene.clock),
        },
        Update::Runs {
            number: 2,
            end: 0,
            runs: run,
        },
    ]);
    let nothing = scene.ring.work(Moment(scene.clock), 0);
    assert!(nothing.is_empty());
    scene
        .ring
        .keep(addresses(first), Moment(between), "early")
        .expect("held");
    let saved = scene.ring.work(Moment(scene.clock), 0);
    assert_eq!(
        saved.iter().map(|it| it.number).collect::<Vec<_>>(),
        [first]
    );
    scene
        .ring
        .keep(addresses(first), Moment(scene.clock), "late")
        .expect("held");
    let saved = scene.ring.finish();
    assert_eq!(saved.iter().map(|it| it.number).collect::<Vec<_>>(), [2]);
}

#[test]
fn none_is_taken_while_the_ring_refuses() {
    let mut scene = Scene::new(ROOMY);
    scene.ring.refuse(true);
    let number = scene.open();
    scene.runs(number, 0, 10);
    assert!(scene.ring.work(Moment(scene.clock), 0).is_empty());
    assert_eq!(scene.ring.unwanted(), [number]);
    assert_eq!(scene.ask(number), Err(Missing::Refused));
    scene.ring.refuse(false);
    let number = scene.open();
    scene.runs(number, 0, 10);
    assert!(scene.ring.work(Moment(scene.clock), 0).is_empty());
    assert_eq!(scene.ask(number), Ok(()));
    let counts = scene.ring.counts();
    assert_eq!((counts.refused, counts.opened, counts.runs), (1, 1, 10));
}
