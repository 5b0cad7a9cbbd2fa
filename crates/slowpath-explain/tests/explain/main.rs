// SPDX-License-Identifier: Apache-2.0
//! What explanations say of connections whose story is known, since it was written down here.

mod scene;

use scene::{SIZE, Scene, data, timer};
use slowpath_explain::{
    Category, Change, Departure, Link, NetworkPath, Trial, Waited, confirm, unimpeded,
};
use slowpath_recording::{Moment, Timer};
use std::convert::Infallible;
use std::time::Duration;

const RETRANSMISSION: (&str, u32) = ("pending_timer", 1);
const DELAYING: (&str, u32) = ("ack_pending", 3);

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// DETER figure 1: two timeouts, and the acknowledgment between them delayed. Packets 2 to 4 are the message's three.
fn correlated() -> Scene {
    let mut scene = Scene::open();
    scene.set(0, &[RETRANSMISSION]);
    scene.writes(1_000, 0, 3);
    scene.run(1, 1_050, data(2));
    scene.acknowledges(1, 1000);
    scene.run(0, 1_100, data(1));
    // Packets 3 and 4 are lost.
    scene.set(0, &[("backoff", 1)]);
    scene.run(0, 17_100, timer(Timer::Write));
    scene.sends_data(1, 1);
    scene.set(1, &[DELAYING]);
    scene.run(1, 17_150, data(5));
    scene.set(0, &[("backoff", 2)]);
    scene.run(0, 49_100, timer(Timer::Write));
    scene.sends_data(1, 1);
    scene.set(1, &[("ack_pending", 0)]);
    scene.run(1, 49_150, data(6));
    scene.acknowledges(2, 1000);
    scene.run(0, 49_200, data(2));
    scene.sends_data(2, 1);
    scene.run(1, 49_250, data(7));
    scene.acknowledges(3, 1000);
    scene.run(0, 49_300, data(3));
    scene
}

#[test]
fn a_delayed_ack_doubles_a_timeout() {
    let explained = correlated().explained();
    let [message] = &explained[..] else {
        panic!("one message: {explained:#?}")
    };
    assert_eq!(message.message.bytes, 0..u64::from(3 * SIZE));
    // From the call until the last byte was there.
    assert_eq!(
        message.message.duration(),
        Some(Duration::from_micros(48_250))
    );
    assert_eq!(message.category, Category::Timeout);
    let waited: Vec<(Waited, Duration)> = message
        .waits
        .iter()
        .map(|wait| (wait.waited, wait.duration()))
        .collect();
    assert_eq!(
        waited,
        [(Waited::Timeout, ms(16)), (Waited::Timeout, ms(32))]
    );
    assert_eq!(
        message.waits[0].links,
        [Link::TailDrops {
            packets: vec![3, 4]
        }]
    );
    assert_eq!(
        message.waits[1].links,
        [
            Link::DelayedAckAfterTimeout {
                packet: 5,
                run: 3,
                held: ms(32)
            },
            Link::TimeoutBackoff { doublings: 1 }
        ]
    );
    assert_eq!(message.sent_again, u64::from(3 * SIZE));
}

/// A trial that finds that a change helps, or not.
struct RecordedTrial(Vec<Change>, Option<Departure>);

impl Trial for RecordedTrial {
    type Error = Infallible;

    fn replay(&mut self, change: Change) -> Result<Option<Departure>, Infallible> {
        self.0.push(change);
        Ok(self.1)
    }
}

#[test]
fn a_cause_is_tried_where_it_was() {
    let mut explained = correlated().explained();
    let waits = &mut explained[0].waits;
    let departure = Departure {
        end: 1,
        packet: 2,
        at: Moment(17_150_000),
    };
    let mut asked = RecordedTrial(Vec::new(), Some(departure));
    confirm(0, waits, &mut asked).unwrap();
    // The receiver's run that got the retransmission; nothing is to be tried about tail drops.
    assert_eq!(asked.0, [Change::AckAtOnce { end: 1, run: 3 }]);
    assert_eq!(waits[0].confirmed, None);
    assert_eq!(waits[1].confirmed, Some(true));
    let mut asked = RecordedTrial(Vec::new(), None);
    confirm(0, waits, &mut asked).unwrap();
    assert_eq!(waits[1].confirmed, Some(false));
}

#[test]
fn lost_acknowledgments_are_distinguished_from_lost_data() {
    let mut scene = Scene::open();
    scene.set(0, &[RETRANSMISSION]);
    scene.writes(1_000, 0, 2);
    scene.run(1, 1_050, data(2));
    scene.acknowledges(1, 1000);
    scene.run(1, 1_051, data(3));
    scene.acknowledges(2, 1000);
    // Neither comes back. The message had arrived: another one follows it and is what waits.
    scene.writes(2_000, 2, 1);
    scene.run(0, 201_000, timer(Timer::Write));
    scene.sends_data(0, 1);
    scene.run(1, 201_050, data(5));
    scene.acknowledges(2, 1000);
    scene.run(0, 201_100, data(3));
    scene.sends_data(2, 1);
    scene.run(1, 201_150, data(6));
    scene.acknowledges(3, 1000);
    scene.run(0, 201_200, data(4));
    let explained = scene.explained();
    assert_eq!(explained.len(), 2);
    assert_eq!(
        explained[0].message.duration(),
        Some(Duration::from_micros(51))
    );
    assert!(explained[0].waits.is_empty());
    assert_eq!(
        explained[1].message.duration(),
        Some(Duration::from_micros(199_150))
    );
}

/// Seven packets, the fifth is lost; each later one that arrives is a duplicate acknowledgment.
fn hole(windows: [u16; 3]) -> Scene {
    let mut scene = Scene::open();
    scene.set(0, &[RETRANSMISSION]);
    scene.writes(1_000, 0, 8);
    for packet in 0..4u32 {
        scene.run(1, 1_050 + u64::from(packet), data(2 + packet));
        scene.acknowledges(1 + packet, 1000);
    }
    for (packet, window) in (0u32..).zip(windows).filter(|(_, window)| *window > 0) {
        scene.run(1, 1_056 + u64::from(packet), data(7 + packet));
        scene.acknowledges(4, window);
    }
    let answers = 4 + windows.iter().filter(|window| **window > 0).count() as u32;
    for answer in 0..answers {
        scene.run(0, 1_100 + u64::from(answer), data(1 + answer));
    }
    scene.run(0, 201_100, timer(Timer::Write));
    scene.sends_data(4, 1);
    scene.run(1, 201_150, data(10));
    scene.acknowledges(8, 1000);
    scene.run(0, 201_200, data(1 + answers));
    scene
}

#[test]
fn two_duplicates_are_too_few() {
    let mut scene = hole([1000, 1000, 0]);
    scene.sysctl("tcp_sack", "0");
    let explained = scene.explained();
    let found: Vec<&Link> = explained[0].chain().collect();
    let [
        Link::TooFewDuplicateAcks {
            lost: 6,
            duplicates: 2,
            needed: 3,
            ..
        },
    ] = found[..]
    else {
        panic!("{found:?}")
    };
}

#[test]
fn growing_windows_are_no_duplicates() {
    let explained = hole([1001, 1002, 1003]).explained();
    let found: Vec<&Link> = explained[0].chain().collect();
    let packets = vec![5, 6, 7];
    assert_eq!(found, [&Link::WindowUpdates { lost: 6, packets }]);
}

#[test]
fn with_rack_duplicates_are_not_counted() {
    let mut scene = hole([1000, 1000, 0]);
    scene.sysctl("tcp_recovery", "1");
    assert_eq!(scene.explained()[0].chain().count(), 0);
}

#[test]
fn a_message_with_no_other_traffic_takes_its_rounds_and_its_time_on_the_line() {
    let path = NetworkPath {
        round_trip: ms(10),
        rate: Some(1_000_000),
    };
    // Within the first window: the line's time and half a round trip.
    assert_eq!(unimpeded(2000, 4000, &path), ms(2 + 5));
    // 2000 bytes, 4000, 8000: two round trips before the last 4000, which take 4 ms.
    assert_eq!(unimpeded(10_000, 2000, &path), ms(20 + 4 + 5));
    // A window of 10,000 bytes keeps the line busy for a round trip: no more waiting.
    assert_eq!(unimpeded(50_000, 10_000, &path), ms(50 + 5));
    let unknown = NetworkPath { rate: None, ..path };
    assert_eq!(unimpeded(10_000, 2000, &unknown), ms(20 + 5));
}

/// A packet every 5 ms on a path of 8 ms: nothing waits but for the next one, and the path's rate is not the application's.
fn piece_by_piece() -> Scene {
    let mut scene = Scene::open();
    scene.set(0, &[("srtt_us_x8", 64_000)]);
    for number in 0..3 {
        let at = 1_000 + 5_000 * u64::from(number);
        if number == 2 {
            scene.run(0, at - 2_000, data(1));
        }
        scene.writes(at, number, 1);
    }
    for number in 0..3 {
        scene.run(1, 5_000 + 5_000 * u64::from(number), data(2 + number));
        scene.acknowledges(number + 1, 1000);
    }
    scene.run(0, 14_000, data(2));
    scene.run(0, 19_000, data(3));
    scene
}

#[test]
fn an_application_that_writes_piece_by_piece_is_the_cause() {
    let explained = piece_by_piece().explained();
    let [message] = &explained[..] else {
        panic!("one message: {explained:#?}")
    };
    assert_eq!(message.category, Category::Application, "{message:#?}");
    // It lasts until the last packet is there, 4 ms after it was sent.
    assert_eq!(message.message.duration(), Some(ms(14)));
    assert_eq!(message.unimpeded, Some(ms(4)));
    let waits: Vec<(Waited, Duration)> = message
        .waits
        .iter()
        .map(|wait| (wait.waited, wait.duration()))
        .collect();
    assert_eq!(waits, [(Waited::Application, ms(10))]);
}
