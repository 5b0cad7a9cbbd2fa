// SPDX-License-Identifier: Apache-2.0
//! When a receiver acknowledges, and what it says.

use crate::script::{MSS, plain};
use slowpath_netsim::tcp::{Ack, DelayedAck, Receiver, Segment, TcpConfig};
use slowpath_switch::{Span, Time};

struct Peer {
    config: TcpConfig,
    receiver: Receiver,
    now: Time,
}

impl Peer {
    fn new(delayed_ack: DelayedAck) -> Self {
        let config = TcpConfig {
            delayed_ack,
            sack: true,
            ..plain()
        };
        Peer {
            receiver: Receiver::new(&config),
            config,
            now: Time::ZERO,
        }
    }

    fn data(&mut self, number: u64) -> Option<Ack> {
        let segment = Segment {
            seq: number * MSS,
            len: MSS as u32,
            retransmission: false,
            cwr: false,
            push: false,
            syn: false,
            echo: Time::ZERO,
        };
        self.receiver
            .on_data(&self.config, self.now, &segment, false)
            .ack
    }

    fn wait(&mut self, ms: u64) {
        self.now += Span::from_millis(ms);
    }

    /// How long until the delayed ACK, in ms.
    fn delay(&self) -> Option<u64> {
        Some((self.receiver.deadline()? - self.now).as_nanos() / 1_000_000)
    }
}

fn blocks(ack: Option<Ack>) -> Vec<(u64, u64)> {
    let ack = ack.expect("at once");
    ack.sack
        .as_slice()
        .iter()
        .map(|(start, end)| (u64::from(*start) / MSS, u64::from(*end) / MSS))
        .collect()
}

/// RFC 5681 section 4.2: every second full-sized segment, or when the time is over.
#[test]
fn every_second_segment_or_the_timer() {
    let mut p = Peer::new(DelayedAck::Fixed(Span::from_millis(200)));
    assert_eq!(p.data(0), None);
    assert_eq!(p.delay(), Some(200));
    p.wait(50);
    assert_eq!(p.data(1).map(|ack| ack.ack), Some(2 * MSS));
    assert_eq!(p.delay(), None);
    assert_eq!(p.data(2), None);
    p.wait(200);
    let now = p.now;
    assert_eq!(
        p.receiver.on_deadline(&p.config, now).map(|ack| ack.ack),
        Some(3 * MSS)
    );
}

/// RFC 5681 section 4.2: out of order at once, and what fills the gap at once.
#[test]
fn gaps_are_reported_at_once() {
    let mut p = Peer::new(DelayedAck::Fixed(Span::from_millis(200)));
    assert_eq!(p.data(0), None);
    assert_eq!(p.data(2).map(|ack| ack.ack), Some(MSS));
    assert_eq!(p.data(3).map(|ack| ack.ack), Some(MSS));
    assert_eq!(p.data(1).map(|ack| ack.ack), Some(4 * MSS));
}

/// RFC 2018 section 4: the first block holds the segment that came last, the others are
/// those reported last.
#[test]
fn sack_blocks_come_latest_first() {
    let mut p = Peer::new(DelayedAck::Off);
    assert_eq!(blocks(p.data(1)), [(1, 2)]);
    assert_eq!(blocks(p.data(3)), [(3, 4), (1, 2)]);
    assert_eq!(blocks(p.data(5)), [(5, 6), (3, 4), (1, 2)]);
    assert_eq!(blocks(p.data(7)), [(7, 8), (5, 6), (3, 4)]);
    assert_eq!(blocks(p.data(2)), [(1, 4), (7, 8), (5, 6)]);
    assert_eq!(blocks(p.data(0)), [(7, 8), (5, 6)]);
}

/// RFC 2883 section 4: a duplicate is the first block, and only of that ACK.
#[test]
fn a_duplicate_is_reported_once() {
    let mut p = Peer::new(DelayedAck::Off);
    p.data(0);
    p.data(2);
    let ack = p.data(0);
    assert!(ack.expect("at once").sack.duplicate);
    assert_eq!(blocks(ack), [(0, 1), (2, 3)]);
    let ack = p.data(3);
    assert!(!ack.expect("at once").sack.duplicate);
    assert_eq!(blocks(ack), [(2, 4)]);
}

/// Linux: the first 16 at once (TCP_MAX_QUICKACKS), then every second one with 40 ms.
#[test]
fn linux_begins_with_quick_acks() {
    let mut p = Peer::new(DelayedAck::Linux);
    for number in 0..16 {
        assert!(p.data(number).is_some(), "segment {number}");
        p.wait(1);
    }
    assert_eq!(p.data(16), None);
    assert_eq!(p.delay(), Some(40));
    assert_eq!(p.data(17).map(|ack| ack.ack), Some(18 * MSS));
}

/// Linux: the wait follows gaps between 20 and 200 ms: half of what it was, and the gap.
#[test]
fn linux_waits_longer_for_a_slow_sender() {
    let mut p = Peer::new(DelayedAck::Linux);
    for number in 0..16 {
        p.data(number);
    }
    // ato is 40 ms. A gap of 30: 40/2 + 30 = 50; of 45: 25 + 45 = 70.
    p.wait(30);
    assert_eq!(p.data(16), None);
    assert_eq!(p.delay(), Some(50));
    p.wait(45);
    assert!(p.data(17).is_some());
    p.wait(69);
    // 35 + 69 = 104.
    assert_eq!(p.data(18), None);
    assert_eq!(p.delay(), Some(104));
}
