// SPDX-License-Identifier: Apache-2.0
//! Two captures made of one timeline: what was left out, delayed and exchanged between them
//! is written down, and is what pairing has to find.

mod segments;

use segments::{FULL, Timeline, endpoint};
use slowpath_trace::engine::Follow;
use slowpath_trace::pair::{Likeness, PairError, Paired, Recorder, Recording, pair};
use slowpath_trace::segment::{Endpoint, Segment, Timestamp};
use slowpath_trace::tcp::Side;
use std::time::Duration;

const RTT: i64 = 50_000;

/// 400 segments, two at a time, acknowledged at once.
fn transfer() -> Timeline {
    let mut t = Timeline::handshake(RTT, 20);
    for i in 0..200 {
        let (at, first) = (100_000 + i64::from(i) * 1_000, 1 + 2 * i * FULL);
        t.data(at, first, FULL);
        t.data(at + 10, first + FULL, FULL);
        t.ack(at + 10 + RTT, first + 2 * FULL);
    }
    t
}

fn record(t: &Timeline, mut change: impl FnMut(&mut Segment<'_>)) -> Recording {
    let mut recorder: Option<Recorder> = None;
    t.feed(|s| {
        let mut s = *s;
        change(&mut s);
        recorder
            .get_or_insert_with(|| Recorder::new(&s))
            .segment(&s);
    });
    recorder.expect("there are segments").finish()
}

/// As the client's end sees it.
fn near(t: &Timeline) -> Recording {
    record(t, |_| {})
}

/// 20 ms to the server, 30 ms back, and the server's clock ahead by 7 s.
fn far(t: &Timeline) -> Recording {
    record(&t.captured_at(20_000, 30_000), |s| {
        s.time = Timestamp(s.time.0 + 7_000_000_000)
    })
}

fn paired(one: &Recording, other: &Recording) -> Paired {
    pair(one, other).expect("they record the same connection")
}

#[test]
fn clocks_and_one_way_delays() {
    let (a, b) = (near(&transfer()), far(&transfer()));
    for (one, other, first_is_client) in [(&a, &b, true), (&b, &a, false)] {
        let p = paired(one, other);
        assert_eq!(p.likeness, Likeness::FourTuple);
        assert_eq!(p.first_is_client, first_is_client);
        // Both shortest delays are taken to be 25 ms: 5 ms off, and 25 ms is admitted.
        assert_eq!(p.clock.offset, 7_000_000_000 - 5_000_000);
        assert_eq!(p.clock.uncertainty, Duration::from_millis(25));
        for (side, sent) in [(Side::Client, 402), (Side::Server, 201)] {
            let path = p.sent_by(side);
            assert_eq!((path.sent, path.arrived), (sent, sent), "{side:?}");
            assert_eq!(
                (path.lost_count, path.unsent, path.outside),
                (0, 0, 0),
                "{side:?}"
            );
            assert_eq!((path.reordered, path.rejoined), (0, 0), "{side:?}");
            let delays = path.delays.expect("there are some");
            assert_eq!(delays.count, sent, "{side:?}");
            assert_eq!(delays.median, Duration::from_millis(25), "{side:?}");
        }
    }
}

#[test]
fn what_was_lost_is_named() {
    let t = transfer();
    // Three of the client's and one ACK: each is in its sender's capture only. Triples of
    // data, data, ACK follow the handshake's three.
    let (data, ack) = ([51, 303, 304], 50);
    let (mut here, mut there) = (t.clone(), t.clone());
    here.lines.remove(ack);
    for lost in data.iter().rev() {
        there.lines.remove(*lost);
    }
    let p = paired(&near(&here), &far(&there));
    let (up, down) = (&p.from_client, &p.from_server);
    let at = |time: Timestamp| (time.0 - 1_700_000_000_000_000_000) / 1_000;
    let found: Vec<i64> = up.lost.iter().map(|l| at(l.time)).collect();
    assert_eq!(found, data.map(|d| t.lines[d].at_us));
    assert_eq!((up.lost_count, up.lost_bytes), (3, 3 * u64::from(FULL)));
    assert_eq!(up.arrived + up.lost_count, up.sent);
    // On the server's clock: 30 ms before it came here, and 7 s ahead.
    let found: Vec<i64> = down.lost.iter().map(|l| at(l.time)).collect();
    assert_eq!(found, [t.lines[ack].at_us - 30_000 + 7_000_000]);
    assert_eq!((up.unsent, down.unsent), (0, 0));
}

/// The original was lost, its retransmission arrived: the retransmission is the one that did.
#[test]
fn of_two_copies_the_right_one_arrived() {
    for ids in [true, false] {
        let mut t = transfer();
        let (at, first) = (600_000, 1 + 400 * FULL);
        t.data(at, first, FULL);
        t.data(at + 300_000, first, FULL);
        t.ack(at + 300_000 + RTT, first + FULL);
        if !ids {
            for line in &mut t.lines {
                line.ip_id = None;
            }
        }
        let a = near(&t);
        let mut there = t.clone();
        there.lines.retain(|l| l.at_us != at);
        let p = paired(&a, &far(&there));
        assert_eq!(p.from_client.lost_count, 1, "{ids}");
        let lost = p.from_client.lost[0].time.0 - 1_700_000_000_000_000_000;
        assert_eq!(lost, at * 1_000, "{ids}");
        assert_eq!(
            p.from_client.delays.expect("some").most,
            Duration::from_millis(25)
        );
    }
}

#[test]
fn reordering_is_counted() {
    let t = transfer();
    let mut there = t.clone();
    // The data segment at 120 ms is overtaken by the five sent in the 2.5 ms after it.
    let late = there
        .lines
        .iter_mut()
        .find(|l| l.at_us == 120_000)
        .expect("there");
    late.at_us += 2_500;
    let p = paired(&near(&t), &far(&there));
    assert_eq!(p.from_client.reordered, 1);
    assert_eq!(p.from_client.most_overtaken, 5);
    assert_eq!(p.from_server.reordered, 0);
    assert_eq!(p.from_client.lost_count, 0);
}

#[test]
fn a_translated_address_is_recognised() {
    let translate = |s: &mut Segment<'_>| {
        let outside = Endpoint {
            address: [198, 51, 100, 9].into(),
            port: 61_000,
        };
        for end in [&mut s.source, &mut s.destination] {
            if *end == endpoint(Side::Client) {
                *end = outside;
            }
        }
    };
    let t = transfer();
    let a = near(&t);
    let b = record(&t.captured_at(20_000, 30_000), translate);
    let p = paired(&a, &b);
    assert_eq!(p.likeness, Likeness::SequenceNumbers);
    assert_eq!(p.from_client.arrived, 402);

    // A firewall that rewrites sequence numbers too: lengths and identifications remain.
    let b = record(&t.captured_at(20_000, 30_000), |s| {
        translate(s);
        let by = 123_456_789;
        if s.destination == endpoint(Side::Server) {
            s.sequence = s.sequence.wrapping_add(by);
        } else {
            s.acknowledgement = s.acknowledgement.wrapping_add(by);
        }
    });
    // Data of one side only is not enough to be sure of both.
    assert!(
        matches!(pair(&a, &b), Ok(p) if p.likeness == Likeness::Lengths && p.from_client.lost_count == 0)
    );
}

/// The sender's capture is above segmentation offload: twenty segments in one.
#[test]
fn super_segments_are_found_by_their_bytes() {
    let mut here = Timeline::handshake(RTT, 20);
    let mut there = here.captured_at(20_000, 30_000);
    for m in 0..10u32 {
        let (at, first) = (100_000 + i64::from(m) * 60_000, 1 + m * 20 * FULL);
        here.data(at, first, 20 * FULL);
        for i in 0..20 {
            // Of the fourth message two are lost.
            if !(m == 3 && (i == 7 || i == 8)) {
                there.data(at + 20_000 + i64::from(i), first + i * FULL, FULL);
            }
        }
        let acked = first + 20 * FULL;
        here.ack(at + 20 + RTT, acked).ip_id = Some(7_000);
        there.ack(at + 20 + RTT - 30_000, acked).ip_id = Some(7_000);
    }
    for line in here.lines.iter_mut().chain(&mut there.lines) {
        line.ip_id = None;
    }
    let p = paired(&near(&here), &record(&there, |_| {}));
    let path = &p.from_client;
    assert_eq!((path.arrived, path.rejoined), (11, 9));
    assert_eq!((path.lost_count, path.lost_bytes), (1, 2 * u64::from(FULL)));
    assert_eq!(path.lost[0].length, 20 * FULL);
    assert_eq!(path.unsent, 0);
}

#[test]
fn captures_of_different_length_lose_nothing() {
    let t = transfer();
    let mut there = t.captured_at(20_000, 30_000);
    let window = 150_000..250_000;
    there.lines.retain(|l| window.contains(&l.at_us));
    let p = paired(&near(&t), &record(&there, |_| {}));
    assert_eq!(
        p.from_client.lost_count,
        0,
        "{:?}",
        p.from_client.lost.first()
    );
    assert_eq!(
        p.from_server.lost_count,
        0,
        "{:?}",
        p.from_server.lost.first()
    );
    assert!(p.from_client.outside > 200);
}

#[test]
fn different_connections_are_refused() {
    let t = transfer();
    let a = near(&t);
    let other = record(&t.captured_at(20_000, 30_000), |s| {
        for end in [&mut s.source, &mut s.destination] {
            end.port ^= 0x100;
        }
        s.sequence = s.sequence.wrapping_mul(7);
        s.length = s.length.saturating_sub(1);
    });
    assert_eq!(pair(&a, &other), Err(PairError::Different));
    assert_eq!(pair(&a, &a), Err(PairError::SamePlace));
    let mut half = transfer();
    half.lines.retain(|l| l.side == Side::Client);
    assert_eq!(pair(&a, &far(&half)), Err(PairError::NothingInCommon));
}
