// SPDX-License-Identifier: Apache-2.0
//! Every problem of SNAP's Table 2 and some past it, injected on real TCP in fresh namespaces: the agent's
//! dominating verdict is the injected one, its counts of events are those computed from the
//! dropped packets, and a healthy connection on a link of its own stays SenderAppLimited.

use slowpath_agent::{Agent, Config, LiveConnection};
use slowpath_demo::{find, watch};
use slowpath_diagnose::Thresholds;
use slowpath_model::Problem;
use slowpath_testbed::{
    DroppedSegment, Expectation, Family, Need, Role, Running, Scenario, Side, attempts,
    missing_requirements,
};

fn check(scenario: &Scenario) {
    let what = format!(
        "{} {:?} {:?}",
        scenario.name, scenario.family, scenario.drive.cc
    );
    attempts(&what, || check_once(&what, scenario));
}

fn check_once(what: &str, scenario: &Scenario) {
    let thresholds = Thresholds::default();
    let mut agent = match Agent::start(Config {
        interval: std::time::Duration::from_millis(200),
        seed: Some(1),
        ..Config::default()
    }) {
        Ok(agent) => agent,
        Err(error) => {
            println!("SKIPPED {what}: {error}");
            return;
        }
    };
    let mut running = scenario.start().expect("starts");
    let outcome = watch(&mut agent, &mut running).expect("ends");

    let injected = running.connection(Role::Injected, Side::A);
    let injected = find(&agent, &running, injected).expect("it is live");
    let totals = &injected.totals;
    println!(
        "{what}: {} {:?}",
        injected.totals.dominating(&thresholds),
        totals
    );
    let expect = &scenario.expect;
    // BBR may go down to one segment in flight after a loss, and then really waits for a
    // delayed ACK (SNAP Figure 6); what a tail loss probe must not be is counted below.
    if !(scenario.name == "tail-loss-probe" && scenario.drive.cc.as_deref() == Some("bbr")) {
        assert_eq!(
            totals.dominating(&thresholds),
            expect.dominating,
            "{what}: {totals:?}"
        );
    }
    let receiver = running.connection(Role::Injected, Side::B);
    let receiver = find(&agent, &running, receiver).expect("it is live");
    for (problems, totals) in [
        (&expect.found, totals),
        (&expect.receiver, &receiver.totals),
    ] {
        for problem in problems {
            let time = totals.problem_time[*problem as usize];
            assert!(time.0 > 0, "{what}: no {problem}: {totals:?}");
        }
    }
    println!("{what}, at the receiver: {:?}", receiver.totals);
    check_counts(what, expect, injected, &outcome.dropped);
    assert_eq!(
        injected.owner.pid(),
        Some(running.connection(Role::Injected, Side::A).pid),
        "{what}"
    );
    check_control(what, &agent, &running, &thresholds);
    let losses = agent.losses();
    assert_eq!(
        (losses.storage_failed, losses.closes_dropped),
        (0, 0),
        "{what}"
    );
    running.finish().expect("closes");
}

/// Events and retransmissions against what the packets that were dropped cause.
fn check_counts(
    what: &str,
    expect: &Expectation,
    injected: &LiveConnection,
    dropped: &[DroppedSegment],
) {
    let totals = &injected.totals;
    let events = |problem: Problem| totals.problem_events[problem as usize];
    for (count, observed, name) in [
        (
            expect.fast_recoveries,
            events(Problem::FastRetransmit),
            "fast recoveries",
        ),
        (expect.timeouts, events(Problem::Timeout), "timeouts"),
        (
            expect.retransmitted,
            injected.snapshot.stats.retransmitted,
            "retransmitted",
        ),
    ] {
        if let Some(count) = count {
            assert_eq!(observed, count.of(dropped), "{what}: {name}, {count:?}");
        }
    }
}

/// The healthy connection on a link of its own, at both ends.
fn check_control(what: &str, agent: &Agent, running: &Running, thresholds: &Thresholds) {
    for side in [Side::A, Side::B] {
        let control = running.connection(Role::Control, side);
        let control = find(agent, running, control).expect("it is live");
        assert_eq!(
            control.totals.dominating(thresholds),
            Problem::SenderAppLimited,
            "{what}: control {side:?}: {:?}",
            control.totals
        );
        let events: u64 = control.totals.problem_events.iter().sum();
        assert_eq!(events, 0, "{what}: control {side:?}");
    }
}

macro_rules! scenarios {
    ($($test:ident: $name:literal, [$($cc:literal),*], [$($family:ident),*];)*) => {
        $(#[test]
        fn $test() {
            if let Some(reason) = missing_requirements(&[Need::Namespaces]) {
                println!("SKIPPED {}: {reason}", $name);
                return;
            }
            let scenario = Scenario::builtin($name).expect("parses");
            $(check(&scenario.clone().with_congestion_control($cc));)*
            $(check(&scenario.clone().with_family(Family::$family));)*
        })*
    };
}

scenarios! {
    sender_app_limited: "sender-app-limited", ["cubic"], [Ipv6];
    send_buffer_limited: "send-buffer-limited", ["cubic", "reno"], [Ipv6];
    fast_retransmit: "fast-retransmit", ["cubic", "reno", "bbr"], [Ipv6, Mapped];
    timeout: "timeout", ["cubic", "reno", "bbr"], [Ipv6];
    delayed_ack: "delayed-ack", ["cubic"], [Mapped];
    delayed_ack_one_way: "delayed-ack-one-way", ["cubic"], [];
    receiver_window_limited: "receiver-window-limited", ["cubic", "bbr"], [];
    congestion_window_limited: "congestion-window-limited", ["cubic", "bbr"], [];
    zero_window: "zero-window", ["cubic"], [Ipv6];
    small_writes: "small-writes", ["cubic"], [];
    tail_loss_probe: "tail-loss-probe", ["cubic", "reno", "bbr"], [];
}
