// SPDX-License-Identifier: Apache-2.0
//! RFC 3168 and RFC 8257.

use crate::script::{MSS, Script, plain};
use slowpath_netsim::tcp::{
    Algorithm, DelayedAck, Ecn, Phase, Received, Receiver, Segment, TcpConfig,
};
use slowpath_switch::{Span, Time};

fn classic() -> TcpConfig {
    TcpConfig {
        ecn: Ecn::Classic,
        ..plain()
    }
}

fn dctcp() -> TcpConfig {
    TcpConfig {
        algorithm: Algorithm::Dctcp,
        ecn: Ecn::Dctcp,
        initial_ssthresh: 10,
        ..plain()
    }
}

fn segment(number: u64, cwr: bool) -> Segment {
    Segment {
        seq: number * MSS,
        len: MSS as u32,
        retransmission: false,
        cwr,
        push: false,
        syn: false,
        echo: Time::ZERO,
    }
}

/// RFC 3168 section 6.1.2: half, once a round trip, with CWR on the next new segment.
#[test]
fn a_mark_halves_once_a_round_trip() {
    let mut s = Script::new(classic(), 100);
    s.sent();
    s.wait(100);
    s.ack_echo(1);
    assert_eq!((s.window(), s.ssthresh()), (5, 5));
    for acked in 2..=5 {
        s.ack_echo(acked);
    }
    assert_eq!(s.ssthresh(), 5);
    let config = s.config.clone();
    s.sender.on_ack(
        &config,
        s.now,
        &slowpath_netsim::tcp::Ack {
            ack: 6 * MSS,
            window: 1 << 30,
            ece: true,
            ..Default::default()
        },
    );
    let next = s
        .sender
        .poll_transmit(&config, s.now)
        .expect("five are out of 5, one was acknowledged");
    assert!(next.cwr && next.seq == 10 * MSS);
    assert_eq!(s.sender.counts().mark_reductions, 1);
}

/// RFC 3168 section 6.1.3: ECN-Echo on every ACK until CWR arrives.
#[test]
fn the_echo_lasts_until_it_is_confirmed() {
    let config = TcpConfig {
        delayed_ack: DelayedAck::Off,
        ..classic()
    };
    let mut receiver = Receiver::new(&config);
    let mut echo = |number, cwr, marked| {
        let received = receiver.on_data(&config, Time::ZERO, &segment(number, cwr), marked);
        received.ack.expect("not delayed").ece
    };
    assert!(!echo(0, false, false));
    assert!(echo(1, false, true));
    assert!(echo(2, false, false));
    assert!(!echo(3, true, false));
    // A marked segment with CWR begins again.
    assert!(echo(4, true, true));
}

/// RFC 8257 section 3.2: a change of marks acknowledges what came before at once, with the
/// mark it had.
#[test]
fn the_dctcp_echo_follows_the_marks() {
    let config = dctcp();
    let mut receiver = Receiver::new(&config);
    let mut data = |number, marked| {
        let received: Received =
            receiver.on_data(&config, Time::ZERO, &segment(number, false), marked);
        let brief =
            |ack: Option<slowpath_netsim::tcp::Ack>| ack.map(|ack| (ack.ack / MSS, ack.ece));
        (brief(received.before), brief(received.ack))
    };
    assert_eq!(data(0, false), (None, None));
    assert_eq!(data(1, false), (None, Some((2, false))));
    assert_eq!(data(2, false), (None, None));
    // Segment 2 waits for its ACK when the first mark comes.
    assert_eq!(data(3, true), (Some((3, false)), Some((4, true))));
    assert_eq!(data(4, true), (None, None));
    assert_eq!(data(5, true), (None, Some((6, true))));
    // Nothing waits: only the change is reported.
    assert_eq!(data(6, false), (None, Some((7, false))));
}

/// RFC 8257 section 3.3 with g = 1/16: alpha begins at 1; the n-th window without a mark
/// leaves (15/16)^n of it.
#[test]
fn alpha_decays_without_marks() {
    let mut s = Script::new(dctcp(), 100_000);
    s.sent();
    let mut expected = 1024.0;
    for _ in 0..20 {
        s.wait(1);
        let next = s.sender.next() / MSS;
        s.ack(next);
        expected *= 15.0 / 16.0;
        let alpha = f64::from(s.sender.congestion().alpha().expect("DCTCP"));
        // Shifts round up what is left: less than one a step.
        assert!((alpha - expected).abs() <= 10.0, "{alpha} {expected}");
    }
}

/// Section 3.3: with M = 1/2 in every window alpha goes to 1/2, and a reduction is by a
/// quarter.
#[test]
fn alpha_finds_the_share_of_marks() {
    let mut s = Script::new(dctcp(), 1_000_000);
    s.sent();
    for _ in 0..200 {
        s.wait(1);
        let (una, next) = (s.sender.una() / MSS, s.sender.next() / MSS);
        let half = una + (next - una) / 2;
        if half > una {
            s.ack_echo(half);
        }
        s.ack(next);
    }
    let alpha = s.sender.congestion().alpha().expect("DCTCP");
    // The window is 2 to 4 segments here; halves of odd ones are a third and more.
    assert!((300..=600).contains(&alpha), "{alpha}");
}

/// Section 3.3: cwnd (1 - alpha / 2), once a window; alpha is 1 at first, so a half.
#[test]
fn the_first_mark_halves() {
    let mut s = Script::new(dctcp(), 1_000);
    s.sent();
    s.wait(1);
    s.ack_echo(1);
    assert_eq!(s.ssthresh(), 5);
    assert_eq!(s.sender.phase(), Phase::Reduced);
    for acked in 2..=9 {
        s.ack_echo(acked);
        assert_eq!(s.ssthresh(), 5);
    }
    assert_eq!(s.sender.counts().mark_reductions, 1);
}

/// Delayed ACKs work with DCTCP as otherwise.
#[test]
fn a_waiting_acknowledgment_has_its_timer() {
    let config = TcpConfig {
        delayed_ack: DelayedAck::Fixed(Span::from_millis(5)),
        ..dctcp()
    };
    let mut receiver = Receiver::new(&config);
    receiver.on_data(&config, Time::ZERO, &segment(0, true), true);
    receiver.on_data(&config, Time::ZERO, &segment(1, true), true);
    let at = receiver.deadline().expect("segment 1 waits");
    assert_eq!(at, Time::ZERO + Span::from_millis(5));
    let ack = receiver.on_deadline(&config, at).expect("due");
    assert_eq!((ack.ack, ack.ece), (2 * MSS, true));
    assert_eq!(receiver.deadline(), None);
}
