// SPDX-License-Identifier: Apache-2.0
//! What Linux takes and what is refused.

use super::*;

fn kinds(tcp: TcpConfig) -> Result<Kinds, Refusal> {
    Kinds::new(&[tcp], None, 250)
}

#[test]
fn the_presets_that_are_linux_are_taken() {
    let linux = kinds(TcpConfig::linux()).expect("Linux");
    assert_eq!(linux.kinds[0].algorithm, "cubic");
    // 1,460 bytes of payload and 40 of headers.
    assert_eq!(linux.sysctls.mtu, 1500);
    assert!(!linux.sysctls.timestamps && !linux.sysctls.hystart);
    assert_eq!(linux.sysctls.ecn, 0);
    let dctcp = kinds(TcpConfig::dctcp()).expect("DCTCP");
    assert_eq!(dctcp.kinds[0].algorithm, "dctcp");
}

#[test]
fn a_header_of_52_bytes_is_one_with_timestamps() {
    let tcp = TcpConfig {
        header: 52,
        mss: 1448,
        ..TcpConfig::linux()
    };
    let read = kinds(tcp).expect("timestamps");
    assert!(read.sysctls.timestamps);
    assert_eq!(read.sysctls.mtu, 1500);
    assert_eq!(read.kinds[0].framing, 0);
}

fn linux_but(change: impl FnOnce(&mut TcpConfig)) -> TcpConfig {
    let mut tcp = TcpConfig::linux();
    change(&mut tcp);
    tcp
}

#[test]
fn what_linux_does_otherwise_is_named() {
    for (key, tcp) in [
        (
            "tcp.algorithm",
            linux_but(|tcp| tcp.algorithm = Algorithm::Fixed),
        ),
        ("tcp.proportional-rate-reduction", TcpConfig::rfc_newreno()),
        (
            "tcp.limited-transmit",
            linux_but(|tcp| tcp.limited_transmit = false),
        ),
        ("tcp.frto", linux_but(|tcp| tcp.frto = false)),
        ("tcp.dsack-undo", linux_but(|tcp| tcp.dsack_undo = false)),
        (
            "tcp.kernel-tick",
            linux_but(|tcp| tcp.kernel_tick = Some(Span::from_millis(1))),
        ),
        (
            "tcp.slow-start-limit",
            linux_but(|tcp| tcp.slow_start_limit = Some(2)),
        ),
        (
            "tcp.rto-estimator",
            linux_but(|tcp| tcp.rto_estimator = RtoEstimator::Rfc6298),
        ),
        (
            "tcp.rto-max",
            linux_but(|tcp| tcp.rto_max = Span::from_secs(60)),
        ),
        // A tick at 250 Hz is 4 ms.
        (
            "tcp.rto-min",
            linux_but(|tcp| tcp.rto_min = Span::from_millis(3)),
        ),
        ("tcp.header", linux_but(|tcp| tcp.header = 20)),
        ("tcp.mss", linux_but(|tcp| tcp.mss = 87)),
        (
            "tcp.loss-detection",
            linux_but(|tcp| tcp.loss_detection = LossDetection::TimeoutOnly),
        ),
        (
            "tcp.delayed-ack",
            linux_but(|tcp| tcp.delayed_ack = DelayedAck::Fixed(Span::from_millis(200))),
        ),
        (
            "tcp.rto-initial",
            linux_but(|tcp| {
                tcp.handshake = true;
                tcp.rto_initial = Span::from_secs(3);
            }),
        ),
    ] {
        assert_eq!(kinds(tcp).expect_err(key).key, key);
    }
}

#[test]
fn kinds_that_one_host_cannot_have_are_refused() {
    let other = TcpConfig {
        tail_loss_probe: false,
        ..TcpConfig::linux()
    };
    let both = [TcpConfig::linux(), other];
    let refusal = Kinds::new(&both, None, 250).expect_err("two");
    assert_eq!(refusal.key, "tcp.tail-loss-probe");
    // What a socket decides may differ: DCTCP beside CUBIC.
    let both = [TcpConfig::linux(), TcpConfig::dctcp()];
    assert_eq!(Kinds::new(&both, None, 250).expect("two").kinds.len(), 2);
}

#[test]
fn an_algorithm_of_the_command_line_replaces_the_scenarios() {
    let read = Kinds::new(&[TcpConfig::linux()], Some("bbr"), 250).expect("BBR");
    assert_eq!(read.kinds[0].algorithm, "bbr");
    assert!(Kinds::new(&[TcpConfig::linux()], Some("swift"), 250).is_err());
}
