// SPDX-License-Identifier: Apache-2.0
//! Where a capture was made, and what was lost before and after that place.

mod segments;

use segments::{FULL, Timeline};
use slowpath_trace::tcp::{Ending, Side};
use slowpath_trace::verdict::{Basis, Vantage, VantagePoint};
use std::time::Duration;

/// Within a host's own time: the halves say nothing.
const SHORT: i64 = 200;

/// Requests of 200 bytes on a path of 0.2 ms. The frames without payload of `padded` have 60
/// bytes, the others' 54.
fn local(padded: &[Side], ttl: u8) -> Vantage {
    let mut t = Timeline::handshake(SHORT, 50);
    for m in 0..5 {
        let (at, first) = (1_000 * i64::from(m + 1), 1 + 200 * m);
        t.data(at, first, 200);
        t.ack(at + SHORT, first + 200);
    }
    t.lines.retain(|l| l.sequence > 0);
    for line in &mut t.lines {
        line.ttl = ttl;
        if line.length == 0 && padded.contains(&line.side) {
            line.wire_length = Some(60);
        }
    }
    t.judge().verdicts.vantage
}

/// IEEE 802.3: the card pads a frame to 60 bytes, after its own host has captured it.
#[test]
fn frames_not_yet_padded_show_the_host() {
    let at_client = local(&[Side::Server], 64);
    assert_eq!(at_client.place, VantagePoint::At(Side::Client));
    assert_eq!(at_client.basis, Basis::Unpadded);
    let both = [Side::Client, Side::Server];
    // A mirror port pads both, a virtual switch none; a router's own capture shows what it passes on unpadded.
    for (padded, ttl) in [(&both[..], 64), (&[], 64), (&[Side::Server], 63)] {
        assert_eq!(
            local(padded, ttl).place,
            VantagePoint::Unknown,
            "{padded:?}"
        );
    }
}

/// One half is 20 ms, the other 30: between the ends the path is both.
#[test]
fn the_path_is_both_halves() {
    let mut t = Timeline::handshake(20_000, 30_000);
    t.data(100_000, 1, FULL);
    t.ack(120_000, 1 + FULL);
    let vantage = t.judge().verdicts.vantage;
    let ms = Duration::from_millis;
    assert_eq!(vantage.place, VantagePoint::Between);
    assert_eq!(vantage.path(), Some(ms(50)));
    assert_eq!(vantage.of_path(Side::Client, Some(ms(25))), Some(ms(55)));
    assert_eq!(vantage.of_path(Side::Server, Some(ms(25))), Some(ms(45)));
    assert_eq!(vantage.of_path(Side::Server, None), None);
}

#[test]
fn one_side_only_is_recognised() {
    let mut t = Timeline::handshake(20_000, 20);
    t.data(40_000, 1, 200);
    let both = t.judge();
    assert_eq!(both.verdicts.vantage.one_sided, None);
    let mut client = t.clone();
    client.lines.retain(|l| l.side == Side::Client);
    let client = client.judge();
    assert_eq!(client.verdicts.vantage.one_sided, Some(Side::Client));
    // It acknowledges the SYN-ACK: that was sent.
    assert_eq!(client.report.ending, Ending::Open);
    t.lines.truncate(1);
    let unanswered = t.judge();
    assert_eq!(unanswered.verdicts.vantage.one_sided, None);
    assert_eq!(unanswered.report.ending, Ending::Unanswered);
}

/// Between the ends. Of eight segments one never comes here at first, two come and are asked for
/// again: one lost before, two after.
#[test]
fn losses_before_and_after_are_counted_each() {
    let mut t = Timeline::handshake(20_000, 20_000);
    let numbers = (0..8).map(|n| 1 + n * FULL);
    for (n, first) in numbers.clone().enumerate().filter(|(n, _)| *n != 2) {
        t.data(100_000 + 100 * n as i64, first, FULL);
    }
    for n in 0..4 {
        let block = (1 + 4 * FULL, 1 + (5 + n) * FULL);
        t.ack(120_000 + 100 * i64::from(n), 1 + FULL).sack = vec![block];
    }
    for (n, first) in numbers.enumerate().filter(|(n, _)| (1..4).contains(n)) {
        t.data(142_000 + 100 * n as i64, first, FULL);
    }
    t.ack(165_000, 1 + 8 * FULL);
    let judged = t.judge();
    let losses = judged.verdicts.from_client.losses;
    assert_eq!((losses.lost, losses.before, losses.after), (3, 1, 2));
}
