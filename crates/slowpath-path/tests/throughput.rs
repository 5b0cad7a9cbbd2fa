// SPDX-License-Identifier: Apache-2.0
//! Throughput over lines of the emulator: rates by arithmetic, and what limited by what was set up.

mod emulated;
mod pair;

use pair::{server, up};
use slowpath_path::requests::message::{Direction, StreamOptions};
use slowpath_path::serve::Serving;
use slowpath_path::throughput::verdict::{Limiter, Role};
use slowpath_path::throughput::{ThroughputOptions, ThroughputReport, measure_throughput};
use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// A line of 50 Mbit/s with a round trip of 20 ms. The router holds 250 packets: three bandwidth-delay products.
const LINE: &str = "rate = \"50 Mbit/s\", delay = \"5 ms\"";

/// The payload of a full segment with timestamps (1,500 less 20 of IPv4, 20 of TCP, 12 of options) by what it takes on the
/// line, where the emulator counts from the IP header on.
const PAYLOAD_SHARE: f64 = 1_448.0 / 1_500.0;

fn options(peer: SocketAddr) -> ThroughputOptions {
    ThroughputOptions {
        peer,
        local: None,
        credentials: None,
        direction: Direction::There,
        streams: 1,
        length: Duration::from_secs(4),
        warm_up: Duration::from_secs(1),
        sender: StreamOptions {
            // Not the machine's own: what a test finds must not depend on it.
            congestion: Some("cubic".to_owned()),
            ..StreamOptions::default()
        },
        receiver: StreamOptions::default(),
    }
}

/// Measures from a to b over a line.
fn measured(
    test: &str,
    link: &str,
    more: &str,
    change: impl FnOnce(&mut ThroughputOptions) + Send,
) -> Option<ThroughputReport> {
    let lab = up(test, link, more)?;
    let (a, b) = (&lab.hosts()[0], &lab.hosts()[1]);
    let listen = SocketAddr::new(b.ipv4().into(), 0);
    let serving = b
        .run(|| Serving::start(server(listen, "10.0.0.0/24")))
        .expect("enters")
        .expect("listens");
    let mut options = options(serving.requests()[0]);
    change(&mut options);
    let report = a
        .run(|| measure_throughput(&options, &AtomicBool::new(false)))
        .expect("enters")
        .expect("a measurement");
    println!("{}", slowpath_path::throughput::report::text(&report));
    Some(report)
}

fn within(found: f64, expected: f64, part: f64) -> bool {
    (found / expected - 1.0).abs() <= part
}

#[test]
fn goodput_is_the_lines_rate_less_headers_both_ways() {
    for direction in [Direction::There, Direction::Back] {
        let test = "goodput_is_the_lines_rate_less_headers_both_ways";
        let report = measured(test, LINE, "", |options| options.direction = direction);
        let Some(report) = report else { return };
        let goodput = report.goodput_bps.expect("measured");
        assert!(within(goodput, 50e6 * PAYLOAD_SHARE, 0.05), "{goodput}");
        assert_eq!(report.verdict.limiter, Limiter::Network, "{report:?}");
        // 20 ms of propagation and a full-sized packet's time on two lines are the least.
        let idle = report.idle_delay_ns.expect("probes").median;
        let loaded = report.loaded_delay_ns.expect("probes").median;
        assert!(idle >= 20_000_000 && loaded >= idle, "{idle} {loaded}");
        assert!(report.sent_bytes >= report.received_bytes, "{report:?}");
        // The warm-up is one row that does not count, then one a second.
        let warm: Vec<bool> = report.intervals.iter().map(|row| row.warm_up).collect();
        assert_eq!(warm, [true, false, false, false, false]);
    }
}

#[test]
fn losses_without_a_queue_are_the_networks() {
    // A packet in a hundred: Reno's window is 1.2/√0.01 = 12 segments, 12 · 1,448 · 8 bits each 20 ms: 7 Mbit/s of the
    // line's 50. No queue stands.
    let more = "[[line]]\non = \"r1 -> b\"\nloss = { share = \"1 %\", at-least = \"1000 B\" }\n";
    let test = "losses_without_a_queue_are_the_networks";
    let report = measured(test, LINE, more, |options| {
        options.sender.congestion = Some("reno".to_owned());
    });
    let Some(report) = report else { return };
    let verdict = &report.verdict;
    assert_eq!(
        (verdict.limiter, verdict.who),
        (Limiter::Network, Role::Network)
    );
    assert!(verdict.text.contains("losses"), "{}", verdict.text);
    let goodput = report.goodput_bps.expect("measured");
    assert!(goodput < 25e6, "{goodput}");
    let again = report.retransmitted_bytes.expect("counted") as f64;
    let share = again / report.sent_bytes.expect("counted") as f64;
    // 1 % of the packets, with a wide margin for a few thousand draws.
    assert!((0.004..0.02).contains(&share), "{share}");
}

#[test]
fn a_small_receive_buffer_is_the_receivers() {
    let test = "a_small_receive_buffer_is_the_receivers";
    let report = measured(test, LINE, "", |options| {
        options.receiver.receive_buffer = Some(32_768);
    });
    let Some(report) = report else { return };
    let verdict = &report.verdict;
    assert_eq!(
        (verdict.limiter, verdict.who),
        (Limiter::Receiver, Role::ReceivingHost),
        "{verdict:?}"
    );
    // A window a round trip of at least 20 ms. Linux doubles the buffer, of which the window is a part.
    let goodput = report.goodput_bps.expect("measured");
    assert!(goodput <= 2.0 * 32_768.0 * 8.0 / 0.020, "{goodput}");
}

#[test]
fn a_small_send_buffer_is_the_send_buffers() {
    let test = "a_small_send_buffer_is_the_send_buffers";
    let report = measured(test, LINE, "", |options| {
        options.sender.send_buffer = Some(16_384);
    });
    let Some(report) = report else { return };
    let verdict = &report.verdict;
    assert_eq!(
        (verdict.limiter, verdict.who),
        (Limiter::SendBuffer, Role::SendingApplication),
        "{verdict:?}"
    );
    // Each round trip what the doubled buffer holds, and the packet of up to 64 KiB with which Linux exceeds it
    // (`sk_stream_memory_free` looks before the packet is made): less than the line's rate.
    let goodput = report.goodput_bps.expect("measured");
    assert!(
        goodput <= (2.0 * 16_384.0 + 65_536.0) * 8.0 / 0.020,
        "{goodput}"
    );
}

#[test]
fn a_pace_is_the_applications() {
    let test = "a_pace_is_the_applications";
    let report = measured(test, LINE, "", |options| {
        options.streams = 2;
        options.sender.pace = Some(1_250_000);
    });
    let Some(report) = report else { return };
    let verdict = &report.verdict;
    assert_eq!(
        (verdict.limiter, verdict.who),
        (Limiter::Application, Role::SendingApplication),
        "{verdict:?}"
    );
    // Two streams of 10 Mbit/s each, headers included.
    let goodput = report.goodput_bps.expect("measured");
    assert!(within(goodput, 20e6 * PAYLOAD_SHARE, 0.10), "{goodput}");
    assert_eq!(report.streams, 2);
}
