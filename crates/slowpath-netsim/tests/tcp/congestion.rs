// SPDX-License-Identifier: Apache-2.0
//! Growth laws against their formulas.

use crate::script::{Script, plain};
use slowpath_netsim::tcp::{Algorithm, Phase, TcpConfig};

/// Acknowledges everything that is out, segment by segment, once every round trip.
fn round_trip(s: &mut Script, ms: u64) {
    s.wait(ms);
    let (from, to) = (s.sender.una() / 1_000, s.sender.next() / 1_000);
    for acked in from + 1..=to {
        s.ack(acked);
    }
}

/// A connection that lost one segment of a window of 100 and recovered.
fn after_a_loss(algorithm: Algorithm) -> Script {
    let config = TcpConfig {
        algorithm,
        sack: true,
        initial_window: 100,
        initial_ssthresh: 100,
        ..plain()
    };
    let mut s = Script::new(config, 1 << 30);
    s.sent();
    s.wait(100);
    for arrived in 2..=100 {
        s.sack(0, &[(1, arrived)]);
    }
    s.wait(100);
    while s.sender.phase() == Phase::Recovery {
        let next = s.sender.next() / 1_000;
        s.ack(next);
        s.wait(100);
    }
    s
}

/// RFC 9438 sections 4.2 and 4.3 with C = 0.4 and beta = 717/1024: W_max = 100, the window
/// begins at 70, K = cbrt((100 - 70) / 0.4) = 4.217 s; the window is where the curve is one
/// round trip from now, or where Reno with alpha = 8/15 would be if that is more.
#[test]
fn cubic_follows_its_curve() {
    let mut s = after_a_loss(Algorithm::Cubic { hystart: false });
    assert_eq!(s.ssthresh(), 70);
    let rtt = 0.1;
    // The ACK that ended recovery began the epoch, with 70 segments, a round trip ago.
    assert!((70..=73).contains(&s.window()));
    let k = ((100.0 - 70.0) / 0.4_f64).cbrt();
    for n in 1..100u32 {
        round_trip(&mut s, 100);
        let t = f64::from(n + 1) * rtt;
        let cubic = 0.4 * (t + rtt - k).powi(3) + 100.0;
        let reno = 70.0 + 8.0 / 15.0 * f64::from(n + 1);
        let expected = cubic.max(reno);
        let window = f64::from(s.window());
        // A window that follows a steep curve does so one round trip late.
        let slope = 3.0 * 0.4 * (t + rtt - k).powi(2) * rtt;
        assert!(
            (window - expected).abs() <= 2.0 + slope,
            "after {t:.1} s: {window}, expected {expected:.1}"
        );
    }
}

/// RFC 9438 section 4.7: a loss below the last one remembers less: 70 -> (1 + 0.7) / 2 70.
#[test]
fn cubic_converges_fast() {
    let mut s = after_a_loss(Algorithm::Cubic { hystart: false });
    round_trip(&mut s, 100);
    let at = s.window();
    assert!(at < 100);
    s.wait(100);
    let una = s.sender.una() / 1_000;
    for arrived in una + 2..=una + 5 {
        s.sack(una, &[(una + 1, arrived)]);
    }
    assert_eq!(s.sender.phase(), Phase::Recovery);
    assert_eq!(s.ssthresh(), at * 717 / 1024);
    s.wait(100);
    let next = s.sender.next() / 1_000;
    s.ack(next);
    // The plateau is at 0.85 of the window; growth begins at 0.7.
    for _ in 0..12 {
        round_trip(&mut s, 100);
    }
    let (plateau, low) = (0.85 * f64::from(at), 0.7 * f64::from(at));
    let k = ((plateau - low) / 0.4).cbrt();
    let expected = plateau + 0.4 * (1.3 - k).powi(3);
    assert!(
        (f64::from(s.window()) - expected).abs() <= 2.5,
        "{} {expected}",
        s.window()
    );
}

/// RFC 5681: half at a loss, then one segment a round trip.
#[test]
fn newreno_adds_one_a_round_trip() {
    let mut s = after_a_loss(Algorithm::NewReno);
    let first = s.window();
    assert!((50..=51).contains(&first));
    for n in 1..20 {
        round_trip(&mut s, 100);
        assert!(s.window().abs_diff(first + n) <= 1);
    }
}

/// RFC 5681 section 4.1 and Linux: after an idle time longer than the timeout the window
/// begins again at the initial one, halved for each timeout before that.
#[test]
fn an_idle_connection_starts_slowly() {
    let config = TcpConfig {
        initial_ssthresh: u32::MAX,
        rto_min: slowpath_switch::Span::from_millis(200),
        ..plain()
    };
    let mut s = Script::new(config.clone(), 80);
    s.sent();
    for _ in 0..4 {
        round_trip(&mut s, 10);
    }
    assert!(s.sender.is_done());
    let before = s.window();
    assert!(before >= 40);
    s.wait(450);
    s.sender.write(&config, s.now, 100_000);
    assert_eq!(s.window(), (before >> 2).max(10));
}

/// A window that the application does not use does not grow.
#[test]
fn an_application_that_writes_little_keeps_the_window() {
    let config = TcpConfig {
        initial_ssthresh: u32::MAX,
        ..plain()
    };
    let mut s = Script::new(config.clone(), 2);
    s.sent();
    for n in 1..20u64 {
        round_trip(&mut s, 10);
        s.sender.write(&config, s.now, 2_000);
        assert_eq!(s.sent(), [2 * n, 2 * n + 1]);
    }
    assert_eq!(s.window(), 10);
}
