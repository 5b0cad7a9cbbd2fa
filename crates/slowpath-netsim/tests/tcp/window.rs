// SPDX-License-Identifier: Apache-2.0
//! Receive windows.

use crate::script::{MSS, NONE, Script, plain};
use slowpath_netsim::tcp::{Ack, ReceiveWindow, Receiver, Segment, Sender, TcpConfig};
use slowpath_switch::{Span, Time};

/// Not more than the receiver offers, whatever the congestion window says.
#[test]
fn a_small_window_limits_the_sender() {
    let config = TcpConfig {
        receive_window: ReceiveWindow::Fixed(3_500),
        ..plain()
    };
    let mut s = Script::new(config.clone(), 100);
    s.sender = Sender::new(&config, Receiver::offered(&config));
    s.sender.write(&config, Time::ZERO, 100 * MSS);
    // Whole segments only.
    assert_eq!(s.sent(), [0, 1, 2]);
    assert_eq!(s.sent(), NONE);
    s.sender.on_ack(
        &config,
        s.now,
        &Ack {
            ack: MSS,
            window: 3_500,
            ..Default::default()
        },
    );
    assert_eq!(s.sent(), [3]);
}

/// Dynamic right-sizing: a sender that fills the window each round trip, and doubles, is
/// never held back for long; one that does not leaves it as it is.
#[test]
fn right_sizing_follows_the_sender() {
    let config = TcpConfig {
        receive_window: ReceiveWindow::Autotuned {
            initial: 64_000,
            max: 4_000_000,
        },
        ..plain()
    };
    let mut receiver = Receiver::new(&config);
    let round_trip = Span::from_millis(10);
    let mut now = Time::ZERO + round_trip;
    let mut next = 0;
    let mut offered = 64_000u64;
    let mut burst = 10u64;
    for _ in 0..10 {
        for _ in 0..burst.min(offered / MSS) {
            let segment = Segment {
                seq: next * MSS,
                len: MSS as u32,
                retransmission: false,
                cwr: false,
                push: false,
                syn: false,
                echo: Time(now.0 - round_trip.0),
            };
            if let Some(ack) = receiver.on_data(&config, now, &segment, false).ack {
                offered = u64::from(ack.window);
            }
            next += 1;
        }
        burst *= 2;
        now += round_trip;
    }
    assert_eq!(offered, 4_000_000);

    let mut receiver = Receiver::new(&config);
    for number in 1..1_001u64 {
        let now = Time::ZERO + Span::from_millis(10 * number);
        let segment = Segment {
            seq: (number - 1) * MSS,
            len: MSS as u32,
            retransmission: false,
            cwr: false,
            push: false,
            syn: false,
            echo: Time(now.0 - 1_000_000_000),
        };
        let received = receiver.on_data(&config, now, &segment, false);
        if let Some(ack) = received.ack {
            assert_eq!(ack.window, 64_000);
        }
    }
}

/// Impossible settings are errors.
#[test]
fn impossible_settings_are_errors() {
    let wrong = [
        TcpConfig { mss: 0, ..plain() },
        TcpConfig {
            header: u16::MAX,
            ..plain()
        },
        TcpConfig {
            initial_window: 0,
            ..plain()
        },
        TcpConfig {
            receive_window: ReceiveWindow::Fixed(999),
            ..plain()
        },
        TcpConfig {
            receive_window: ReceiveWindow::Autotuned {
                initial: 9_000,
                max: 8_000,
            },
            ..plain()
        },
        TcpConfig {
            rto_min: Span::ZERO,
            ..plain()
        },
        TcpConfig {
            rto_max: Span::from_millis(1),
            ..plain()
        },
        TcpConfig {
            slow_start_limit: Some(0),
            ..plain()
        },
        TcpConfig {
            loss_detection: slowpath_netsim::tcp::LossDetection::DuplicateAcks(0),
            ..plain()
        },
        TcpConfig {
            loss_detection: slowpath_netsim::tcp::LossDetection::Rack,
            ..plain()
        },
        TcpConfig {
            ecn: slowpath_netsim::tcp::Ecn::Dctcp,
            ..plain()
        },
    ];
    for config in wrong {
        let error = config.check().expect_err("impossible");
        assert!(!error.to_string().is_empty());
    }
}
