// SPDX-License-Identifier: Apache-2.0
//! Each scenario injects what it says, by the kernel's own counters, and leaves the
//! control as it is.

use slowpath_model::Problem;
use slowpath_testbed::workload::Report;
use slowpath_testbed::{Family, Need, Scenario, attempts, missing_requirements};

fn scenario(name: &str) -> Option<Scenario> {
    if let Some(reason) = missing_requirements(&[Need::Namespaces]) {
        println!("SKIPPED {name}: {reason}");
        return None;
    }
    Some(Scenario::builtin(name).expect("parses"))
}

fn check(scenario: &Scenario) {
    let what = format!(
        "{} {:?} {:?}",
        scenario.name, scenario.family, scenario.drive.cc
    );
    attempts(&what, || check_once(&what, scenario));
}

fn check_once(what: &str, scenario: &Scenario) {
    let mut running = scenario.start().expect("starts");
    running.go().expect("goes");
    let outcome = running.wait().expect("ends");
    println!(
        "{what}: dropped {:?}, injected {:?}, control {:?}",
        outcome.dropped, outcome.injected, outcome.control
    );
    running.finish().expect("closes");

    let counter = |name: &str| outcome.counters.get(name).expect("the kernel has it");
    let expect = &scenario.expect;
    for (count, counter) in [
        (expect.fast_recoveries, counter("TcpExt.TCPSackRecovery")),
        (expect.timeouts, counter("TcpExt.TCPTimeouts")),
        (expect.retransmitted, counter("Tcp.RetransSegs")),
    ] {
        if let Some(count) = count {
            let expected = count.of(&outcome.dropped);
            assert_eq!(counter as u64, expected, "{what}: {count:?}");
        }
    }
    if scenario.drop.is_some() {
        assert!(outcome.dropped.len() >= 10, "{what}");
    }
    dominates(expect.dominating, &outcome.injected, what);
    let control = outcome.control.tcp.expect("one connection");
    assert!(outcome.control.transactions >= 20, "{what}");
    assert_eq!(control.total_retrans, 0, "{what}");
    assert_eq!((control.rwnd_limited_us, control.sndbuf_limited_us), (0, 0));
}

/// Whether the kernel's own account of the sending end shows the problem for most of the
/// time, and no other.
fn dominates(problem: Problem, report: &Report, what: &str) {
    let tcp = report.tcp.expect("one connection");
    let states = report.states.expect("one connection");
    let percent = |us: u64| us * 100 / report.elapsed_us;
    let sndbuf = percent(tcp.sndbuf_limited_us);
    let rwnd = percent(tcp.rwnd_limited_us);
    match problem {
        Problem::SendBufferLimited => assert!(sndbuf >= 70, "{what}: {sndbuf} %"),
        Problem::ReceiverWindowLimited => assert!(rwnd >= 70, "{what}: {rwnd} %"),
        _ => assert!(sndbuf <= 5 && rwnd <= 5, "{what}: {sndbuf} %, {rwnd} %"),
    }
    match problem {
        Problem::FastRetransmit => {
            let share = states.recovery_us * 100 / states.sampled_us;
            assert!(share >= 10, "{what}: {share} % in recovery");
        }
        Problem::Timeout => {
            // Each episode's first expiry was waited for at least the minimum RTO of
            // 200 ms; the kernel counts from there on.
            let first = u64::from(tcp.total_rto_recoveries) * 200_000;
            let waited = first + u64::from(tcp.total_rto_time_ms) * 1_000;
            assert!(percent(waited) >= 60, "{what}: {tcp:?}");
        }
        Problem::DelayedAck => {
            // A receiver delays by 40 ms at least (TCP_DELACK_MIN). At most every other
            // acknowledgement comes with a response instead.
            assert!(tcp.rtt_us >= 13_000, "{what}: {tcp:?}");
            if let Some(latency) = report.latency {
                assert!(latency.p50_us >= 39_000, "{what}: {latency:?}");
            }
            assert!(tcp.min_rtt_us < 10_000, "{what}: {tcp:?}");
        }
        Problem::SenderAppLimited if tcp.total_retrans == 0 => {
            assert!(percent(tcp.busy_us) <= 50, "{what}: {tcp:?}");
        }
        _ => {}
    }
}

macro_rules! scenarios {
    ($($test:ident: $name:literal, [$($cc:literal),*], [$($family:ident),*];)*) => {
        $(#[test]
        fn $test() {
            let Some(scenario) = scenario($name) else { return };
            $(check(&scenario.clone().with_congestion_control($cc));)*
            $(check(&scenario.clone().with_family(Family::$family));)*
        })*
    };
}

// Other algorithms and families: the scenario tests of slowpath-demo, by the same counts.
scenarios! {
    sender_app_limited: "sender-app-limited", ["cubic"], [];
    send_buffer_limited: "send-buffer-limited", ["cubic"], [];
    fast_retransmit: "fast-retransmit", ["cubic"], [Ipv6];
    timeout: "timeout", ["cubic", "bbr"], [];
    delayed_ack: "delayed-ack", ["cubic"], [Mapped];
    delayed_ack_one_way: "delayed-ack-one-way", ["cubic"], [];
    receiver_window_limited: "receiver-window-limited", ["cubic"], [];
    tail_loss_probe: "tail-loss-probe", ["cubic"], [];
}
