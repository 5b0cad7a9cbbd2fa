// SPDX-License-Identifier: Apache-2.0

use super::*;

fn stages(application: f64, send_buffer: f64, receiver: f64, network: f64) -> Facts {
    Facts {
        goodput: Some(48e6),
        stages: Some(Stages {
            application,
            send_buffer,
            receiver,
            network,
        }),
        rtt: Some(Micros(20_100)),
        min_rtt: Some(Micros(20_000)),
        ..Facts::default()
    }
}

fn cpu(busiest: f64, waited: f64) -> Option<Cpu> {
    Some(Cpu {
        percent: busiest,
        busiest_percent: busiest,
        waited_percent: Some(waited),
    })
}

fn decided(facts: &Facts) -> (Limiter, Role) {
    let verdict = judge(facts);
    assert!(!verdict.text.is_empty());
    (verdict.limiter, verdict.who)
}

#[test]
fn the_stage_that_took_most_of_the_time_limits() {
    for (facts, expected) in [
        (
            stages(0.6, 0.1, 0.1, 0.2),
            (Limiter::Application, Role::SendingApplication),
        ),
        (
            stages(0.1, 0.5, 0.2, 0.2),
            (Limiter::SendBuffer, Role::SendingHost),
        ),
        (
            stages(0.0, 0.0, 0.7, 0.3),
            (Limiter::Receiver, Role::ReceivingHost),
        ),
        (
            stages(0.0, 0.0, 0.05, 0.95),
            (Limiter::Network, Role::SendingHost),
        ),
        // Without a sign of the network.
        (
            stages(0.0, 0.0, 0.45, 0.55),
            (Limiter::Receiver, Role::ReceivingHost),
        ),
    ] {
        assert_eq!(decided(&facts), expected, "{facts:?}");
    }
}

#[test]
fn losses_marks_and_a_queue_are_the_networks() {
    let network = (Limiter::Network, Role::Network);
    let path = || stages(0.0, 0.0, 0.0, 1.0);
    let lost = Facts {
        retransmitted: Some(1_448),
        ..path()
    };
    let marked = Facts {
        marked: Some(1),
        ..path()
    };
    // 6 ms above 20 are more than 5 ms and a quarter of 20.
    let queue = Facts {
        rtt: Some(Micros(26_000)),
        ..path()
    };
    for facts in [lost, marked, queue] {
        assert_eq!(decided(&facts), network, "{facts:?}");
    }
    // 4.9 ms, or a fifth of the shortest, are none.
    for (rtt, least) in [(4_900, 10), (120_000, 100_000)] {
        let facts = Facts {
            rtt: Some(Micros(rtt)),
            min_rtt: Some(Micros(least)),
            ..path()
        };
        assert_eq!(decided(&facts), (Limiter::Network, Role::SendingHost));
    }
}

#[test]
fn a_thread_that_only_waits_for_a_processor_limits_nothing_by_itself() {
    let with = |facts: Facts, sender_cpu, receiver_cpu| Facts {
        sender_cpu,
        receiver_cpu,
        ..facts
    };
    let path = || stages(0.0, 0.0, 0.05, 0.95);
    let (sending, receiving) = (
        (Limiter::Cpu, Role::SendingHost),
        (Limiter::Cpu, Role::ReceivingHost),
    );
    // It ran 6 % of the time, waited 86 %, and the path was full all the same: a queue stands.
    let full = Facts {
        rtt: Some(Micros(40_000)),
        ..path()
    };
    assert_eq!(
        decided(&with(full, None, cpu(6.0, 86.0))).0,
        Limiter::Network
    );
    assert_eq!(decided(&with(path(), None, cpu(6.0, 86.0))), receiving);
    assert_eq!(
        decided(&with(path(), None, cpu(6.0, 20.0))).0,
        Limiter::Network
    );
    assert_eq!(decided(&with(path(), None, cpu(91.0, 0.0))), receiving);
    assert_eq!(
        decided(&with(path(), cpu(99.0, 0.0), cpu(91.0, 0.0))),
        sending
    );
    // A full window beside it: of 1 MB each 20 ms, 400 Mbit/s, the 48 are far; of 120 KB they are all.
    let window = |announced| Facts {
        announced: Some(announced),
        ..stages(0.0, 0.0, 0.8, 0.2)
    };
    let late = cpu(6.0, 86.0);
    assert_eq!(decided(&with(window(1_000_000), None, late)), receiving);
    assert_eq!(
        decided(&with(window(120_000), None, late)).0,
        Limiter::Receiver
    );
    assert_eq!(
        decided(&with(window(1_000_000), late, None)).0,
        Limiter::Receiver
    );
    // Nothing to send, and no buffer that was made small.
    let starved = stages(0.0, 0.7, 0.0, 0.3);
    let set = Facts {
        send_buffer_set: true,
        ..starved.clone()
    };
    assert_eq!(decided(&with(starved, late, None)), sending);
    assert_eq!(decided(&with(set, late, None)).0, Limiter::SendBuffer);
}

#[test]
fn a_pace_that_is_reached_is_the_applications() {
    let facts = |goodput, pace| Facts {
        goodput: Some(goodput),
        pace: Some(pace),
        ..stages(0.0, 0.0, 0.0, 1.0)
    };
    assert_eq!(decided(&facts(48e6, 50e6)).0, Limiter::Application);
    assert_eq!(decided(&facts(48e6, 100e6)).0, Limiter::Network);
}

#[test]
fn without_any_data_it_is_unknown() {
    assert_eq!(decided(&Facts::default()), (Limiter::Unknown, Role::None));
}
