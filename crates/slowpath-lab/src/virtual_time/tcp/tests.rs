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

#[test]
fn what_linux_does_otherwise_is_named() {
    let base = TcpConfig::linux;
    for (key, tcp) in [
        (
            "tcp.algorithm",
            TcpConfig {
                algorithm: Algorithm::Fixed,
                ..base()
            },
        ),
        ("tcp.proportional-rate-reduction", TcpConfig::rfc_newreno()),
        (
            "tcp.limited-transmit",
            TcpConfig {
                limited_transmit: false,
                ..base()
            },
        ),
        (
            "tcp.frto",
            TcpConfig {
                frto: false,
                ..base()
            },
        ),
        (
            "tcp.dsack-undo",
            TcpConfig {
                dsack_undo: false,
                ..base()
            },
        ),
        (
            "tcp.kernel-tick",
            TcpConfig {
                kernel_tick: Some(Span::from_millis(1)),
                ..base()
            },
        ),
        (
            "tcp.slow-start-limit",
            TcpConfig {
                slow_start_limit: Some(2),
                ..base()
            },
        ),
        (
            "tcp.rto-estimator",
            TcpConfig {
                rto_estimator: RtoEstimator::Rfc6298,
                ..base()
            },
        ),
        (
            "tcp.rto-max",
            TcpConfig {
                rto_max: Span::from_secs(60),
                ..base()
            },
        ),
        // A tick at 250 Hz is 4 ms.
        (
            "tcp.rto-min",
            TcpConfig {
                rto_min: Span::from_millis(3),
                ..base()
            },
        ),
        (
            "tcp.header",
            TcpConfig {
                header: 20,
                ..base()
            },
        ),
        ("tcp.mss", TcpConfig { mss: 87, ..base() }),
        (
            "tcp.loss-detection",
            TcpConfig {
                loss_detection: LossDetection::TimeoutOnly,
                ..base()
            },
        ),
        (
            "tcp.delayed-ack",
            TcpConfig {
                delayed_ack: DelayedAck::Fixed(Span::from_millis(200)),
                ..base()
            },
        ),
        (
            "tcp.rto-initial",
            TcpConfig {
                handshake: true,
                rto_initial: Span::from_secs(3),
                ..base()
            },
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
