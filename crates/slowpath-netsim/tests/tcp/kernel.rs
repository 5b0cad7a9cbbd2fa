// SPDX-License-Identifier: Apache-2.0
//! What only Linux does, with 250 ticks a second. Times follow from its arithmetic: a wait is
//! rounded up to whole ticks of 4 ms, and comes one tick later.

use crate::script::{MSS, NONE, Script, range};
use slowpath_netsim::tcp::{
    Ack, Algorithm, DelayedAck, MAX_SACK_BLOCKS, Phase, ReceiveWindow, Receiver, Segment, Sender,
    TcpConfig,
};
use slowpath_switch::{Span, Time};

fn linux() -> TcpConfig {
    TcpConfig {
        algorithm: Algorithm::NewReno,
        mss: MSS as u16,
        initial_window: 10,
        initial_ssthresh: 10,
        kernel_tick: Some(Span::from_millis(4)),
        ..TcpConfig::linux()
    }
}

fn at(ms: u64) -> Time {
    Time::ZERO + Span::from_millis(ms)
}

/// The third packet of a handshake is an acknowledgment of its own, and data comes after it.
#[test]
fn a_handshake_ends_with_an_acknowledgment() {
    let config = TcpConfig {
        handshake: true,
        ..linux()
    };
    let mut sender = Sender::new(&config, 1 << 30);
    sender.write(&config, at(0), MSS);
    let syn = sender.poll_transmit(&config, at(0)).expect("a SYN");
    assert!(syn.syn && sender.poll_transmit(&config, at(0)).is_none());
    let answer = Ack {
        syn: true,
        window: 1 << 30,
        ..Ack::default()
    };
    sender.on_ack(&config, at(40), &answer);
    let third = sender.poll_transmit(&config, at(40)).expect("an answer");
    assert!(!third.syn && third.len == 0);
    let data = sender.poll_transmit(&config, at(40)).expect("data");
    assert_eq!((data.seq, u64::from(data.len)), (0, MSS));
}

/// A probe waits for two round trips of 40 ms and 2 ms, 21 ticks; the timeout then begins anew: 40
/// ms and the least variation of 200 ms, 60 ticks.
#[test]
fn one_timer_waits_for_a_probe_and_then_for_the_timeout() {
    let mut script = Script::new(linux(), 2);
    assert_eq!(script.sent(), range(0, 2));
    script.wait(40);
    assert_eq!(script.ack(2), NONE);
    assert_eq!(script.timer(), None);
    let now = script.now;
    script.sender.write(&script.config, now, 3 * MSS);
    assert_eq!(script.sent(), range(2, 5));
    assert_eq!(script.timer(), Some(22 * 4));
    script.expire();
    assert_eq!(script.sent(), [4]);
    assert_eq!(script.timer(), Some(61 * 4));
}

/// An acknowledgment of no more than was out when the probe left does not say whether the probe
/// or its original arrived (`tcp_process_tlp_ack`); one of more says that the original was lost.
#[test]
fn later_acks_say_whether_a_probe_repaired_a_loss() {
    let mut script = Script::new(linux(), 2);
    script.sent();
    script.wait(40).ack(2);
    let now = script.now;
    script.sender.write(&script.config, now, 3 * MSS);
    script.sent();
    script.expire();
    assert_eq!(script.sent(), [4]);
    script.wait(40).ack(5);
    let window = script.window();
    assert!(window >= 10);
    let now = script.now;
    script.sender.write(&script.config, now, MSS);
    assert_eq!(script.sent(), [5]);
    script.wait(40).ack(6);
    assert_eq!(script.ssthresh(), window / 2);
}

/// A timeout takes for lost what left longer ago than a round trip (RFC 8985 section 6.3), not
/// what has just left.
#[test]
fn a_timeout_spares_what_has_just_left() {
    let config = TcpConfig {
        tail_loss_probe: false,
        ..linux()
    };
    let mut script = Script::new(config, 2);
    script.sent();
    script.wait(100).ack(2);
    let now = script.now;
    script.sender.write(&script.config, now, MSS);
    assert_eq!(script.sent(), [2]);
    // 100 ms and 200 ms are 75 ticks; from 63 on the wheel's buckets hold 8: 104 of them.
    assert_eq!(script.timer(), Some(416 - 100));
    script.wait(280);
    let now = script.now;
    script.sender.write(&script.config, now, MSS);
    assert_eq!(script.sent(), [3]);
    script.expire();
    assert_eq!(script.sender.phase(), Phase::Loss);
    // The one that is in the network and one more.
    assert_eq!(script.sender.pipe(), 1);
    assert_eq!(script.window(), 2);
    assert_eq!(script.sent(), [2]);
    script.wait(100);
    assert_eq!(script.ack(4), NONE);
    assert_eq!(script.sender.counts().retransmissions, 1);
}

/// An acknowledgment that advances and says what came beyond a gap is no reordering: the third
/// segment beyond the gap ends the wait (`before(reord, prior_fack)`).
#[test]
fn an_advance_with_a_gap_is_no_reordering() {
    let mut script = Script::new(linux(), 10);
    script.sent();
    script.wait(40);
    assert_eq!(script.sack(1, &[(2, 3)]), NONE);
    assert_eq!(script.sack(1, &[(4, 5), (2, 3)]), NONE);
    assert_eq!(script.sack(1, &[(4, 6), (2, 3)])[0], 1);
    assert_eq!(script.sender.phase(), Phase::Recovery);
}

fn segment(number: u64) -> Segment {
    Segment {
        seq: number * MSS,
        len: MSS as u32,
        retransmission: false,
        cwr: false,
        push: false,
        syn: false,
        echo: Time::ZERO,
    }
}

/// Half a window of 10 segments is acknowledged segment by segment: five, an odd number, so
/// that the one that the first segment adds (`tcp_grow_window`: quick |= 1) is among them; then
/// every second. A gap has three acknowledgments of its own; further ones are held back for a
/// twentieth of the round trip of 20 ms, as soon as that is known.
#[test]
fn acknowledgments_of_a_gap_are_held_back() {
    let config = TcpConfig {
        receive_window: ReceiveWindow::Fixed(10 * MSS as u32),
        delayed_ack: DelayedAck::Linux,
        ..linux()
    };
    let mut receiver = Receiver::new(&config);
    let syn = Segment {
        syn: true,
        len: 0,
        ..segment(0)
    };
    let third = Segment {
        len: 0,
        ..segment(0)
    };
    let answer = receiver.on_data(&config, at(0), &syn, false).ack;
    assert!(answer.is_some_and(|ack| ack.syn));
    assert_eq!(receiver.on_data(&config, at(20), &third, false).ack, None);
    let mut acks = Vec::new();
    for number in 0..11 {
        let now = at(20 + 2 * number);
        let received = receiver.on_data(&config, now, &segment(number), false);
        acks.extend(received.ack.map(|ack| ack.ack / MSS));
    }
    assert_eq!(acks, [1, 2, 3, 4, 5, 7, 9, 11]);
    let mut gap = |now, number| receiver.on_data(&config, now, &segment(number), false).ack;
    assert!(gap(at(50), 12).is_some());
    assert!(gap(at(51), 13).is_some());
    assert!(gap(at(52), 14).is_some());
    assert_eq!(gap(at(53), 15), None);
    assert_eq!(receiver.deadline(), Some(at(54)));
    let ack = receiver.on_deadline(&config, at(54)).expect("it is due");
    assert_eq!(ack.ack, 11 * MSS);
    assert_eq!(ack.sack.as_slice(), [(12_000, 16_000)]);
    assert_eq!(receiver.deadline(), None);
}

/// 40 bytes of options hold four blocks of 8 after 2 and padding of 2, and three beside 12 bytes
/// of timestamps (RFC 2018 section 3). The latest comes first; the fifth is forgotten.
#[test]
fn four_blocks_are_reported_without_timestamps() {
    for (header, room) in [(40, MAX_SACK_BLOCKS), (52, 3)] {
        let config = TcpConfig { header, ..linux() };
        let mut receiver = Receiver::new(&config);
        receiver.on_data(&config, at(0), &segment(0), false);
        let mut last = None;
        for number in [2, 4, 6, 8, 10] {
            last = receiver
                .on_data(&config, at(1), &segment(number), false)
                .ack;
        }
        let blocks = last.expect("a gap").sack;
        let expected = [10_000u32, 8_000, 6_000, 4_000].map(|from| (from, from + 1_000));
        assert_eq!(blocks.as_slice(), &expected[..room]);
    }
}

/// The first four timeouts of a SYN are one second each (`tcp_syn_linear_timeouts`), the next ones double, and
/// each comes late by an eighth at most (`calc_index`). A connection that lost more than one SYN begins with one segment.
#[test]
fn timeouts_of_a_syn_double_from_the_fifth_on() {
    let config = TcpConfig {
        handshake: true,
        ..linux()
    };
    for lost in [0u64, 1, 2, 7] {
        let mut sender = Sender::new(&config, 1 << 30);
        sender.write(&config, at(0), 20 * MSS);
        let mut now = at(0);
        for expiry in 0..=lost {
            assert!(sender.poll_transmit(&config, now).expect("a SYN").syn);
            let wait: u64 = 1_000 << expiry.saturating_sub(4);
            let due = sender.deadline().expect("a timer");
            let waits = due.since(now).as_nanos() / 1_000_000;
            assert!(
                (wait..wait * 9 / 8).contains(&waits),
                "{lost} {expiry}: {waits}"
            );
            if expiry < lost {
                now = due;
                sender.on_deadline(&config, now);
            }
        }
        let answer = Ack {
            syn: true,
            window: 1 << 30,
            ..Ack::default()
        };
        sender.on_ack(&config, now + Span::from_millis(40), &answer);
        let window = if lost > 1 { 1 } else { 10 };
        assert_eq!(sender.congestion().window, window, "{lost}");
    }
}
