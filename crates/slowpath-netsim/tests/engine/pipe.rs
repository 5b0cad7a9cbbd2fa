// SPDX-License-Identifier: Apache-2.0
//! Times of one flow through an empty network, in closed form.

use crate::scene::{Dumbbell, GBIT, newreno, run};
use slowpath_netsim::engine::{
    Application, FlowSpec, HostId, Query, Settings, SwitchId, Transport,
};
use slowpath_netsim::tcp::{DelayedAck, TcpConfig};
use slowpath_switch::{Span, Time};

/// Three links of 1 Gbit/s and 10 us: 12 us for 1,500 bytes, 0.32 us for an ACK of 40.
const SCENE: Dumbbell = Dumbbell {
    senders: 1,
    access: GBIT,
    bottleneck: GBIT,
    delay_us: 10,
    buffer: 100,
    mark: None,
};

fn completion(tcp: TcpConfig, bytes: u64) -> Span {
    let settings = Settings::new(tcp, Time::ZERO + Span::from_secs(1));
    let start = Time::ZERO + Span::from_millis(1);
    let results = run(
        &SCENE.network(),
        settings,
        [FlowSpec::tcp(0, HostId(0), HostId(1), bytes, start)],
    );
    results.flows[0].completion().expect("finished")
}

/// One segment: three times 12 us and three times 10 us.
#[test]
fn one_segment() {
    assert_eq!(completion(newreno(), 1_460), Span::from_micros(66));
    // 100 bytes: 140 on the wire, 1.12 us a link.
    assert_eq!(
        completion(newreno(), 100),
        Span::from_nanos(3 * 1_120 + 30_000)
    );
}

/// Ten segments follow each other by 12 us.
#[test]
fn an_initial_window() {
    assert_eq!(
        completion(newreno(), 14_600),
        Span::from_micros(66 + 9 * 12)
    );
}

/// The eleventh leaves when the first is acknowledged, if the window is small: the ACK
/// arrives 66 + 3 (10 + 0.32) = 96.96 us after the start, when segments 2 to 4 of a window
/// of four are long gone; slow start lets out two an ACK, back to back.
#[test]
fn a_second_round_trip() {
    let tcp = TcpConfig {
        initial_window: 4,
        ..newreno()
    };
    let round_trip = 66_000 + 30_960;
    // Segment 5 leaves at 96.96 us and 6 behind it, while segments 7 and 8 wait for the
    // line. All 8 have left at 96.96 + 4 * 12 us; the last needs 54 us from there.
    assert_eq!(
        completion(tcp.clone(), 8 * 1_460),
        Span::from_nanos(round_trip + 4 * 12_000 + 54_000)
    );
    // With a handshake a round trip of packets of 40 bytes comes first.
    let tcp = TcpConfig {
        handshake: true,
        ..tcp
    };
    let handshake = 6 * (320 + 10_000);
    assert_eq!(
        completion(tcp, 8 * 1_460),
        Span::from_nanos(handshake + round_trip + 4 * 12_000 + 54_000)
    );
}

/// An odd last segment waits for no acknowledgment, but a window of one does: each segment
/// costs a round trip and the receiver's 40 ms.
#[test]
fn delayed_acks_hold_a_window_of_one() {
    let tcp = TcpConfig {
        initial_window: 1,
        delayed_ack: DelayedAck::Fixed(Span::from_millis(40)),
        algorithm: slowpath_netsim::tcp::Algorithm::Fixed,
        ..newreno()
    };
    let each = Span::from_nanos(66_000 + 30_960) + Span::from_millis(40);
    assert_eq!(
        completion(tcp, 3 * 1_460),
        Span(2 * each.0) + Span::from_micros(66)
    );
}

/// At 3 Gbit/s a bit takes a third of a nanosecond: no drift over 10,000 packets.
#[test]
fn time_does_not_drift() {
    let scene = Dumbbell {
        access: 3 * GBIT,
        bottleneck: 3 * GBIT,
        ..SCENE
    };
    let mut flow = FlowSpec::tcp(0, HostId(0), HostId(1), 10_000 * 1_472, Time::ZERO);
    flow.transport = Transport::Datagrams(1_500);
    let settings = Settings::new(newreno(), Time::ZERO + Span::from_secs(1));
    let results = run(&scene.network(), settings, [flow]);
    let finish = results.flows[0].finish.expect("finished");
    // 10,002 times 4 us, which is 12,000 / 3 ns exactly, and 30 us.
    assert_eq!(finish, Time::ZERO + Span::from_micros(10_002 * 4 + 30));
    let scene = Dumbbell {
        access: 7 * GBIT,
        bottleneck: 7 * GBIT,
        ..SCENE
    };
    let settings = Settings::new(newreno(), Time::ZERO + Span::from_secs(1));
    let results = run(&scene.network(), settings, [flow]);
    let finish = results.flows[0].finish.expect("finished").0;
    // 10,002 times 12,000/7 ns, within a picosecond a link.
    let exact = 10_002u64 * 12_000_000 / 7 + 30_000_000;
    assert!(finish.abs_diff(exact) <= 3, "{finish} {exact}");
}

/// Flows on one connection follow each other; the window stays what it was.
#[test]
fn a_connection_is_used_again() {
    let settings = Settings {
        paths: true,
        ..Settings::new(newreno(), Time::ZERO + Span::from_secs(1))
    };
    let flow = |id, start| FlowSpec {
        connection: Some(7),
        query: Some(Query {
            id: 3,
            flows: 2,
            asked: Time::ZERO,
        }),
        ..FlowSpec::tcp(
            id,
            HostId(0),
            HostId(1),
            20 * 1_460,
            Time::ZERO + Span::from_millis(start),
        )
    };
    let results = run(&SCENE.network(), settings, [flow(0, 0), flow(1, 1)]);
    assert_eq!(results.most_connections, 1);
    // The window of 10 has grown beyond 20: no pause.
    assert_eq!(
        results.flows[1].completion(),
        Some(Span::from_micros(66 + 19 * 12))
    );
    // A round trip of 97 us is shorter than 10 segments of 12: the first did not wait either.
    assert_eq!(results.flows[0].completion(), results.flows[1].completion());
    let query = &results.queries[0];
    assert_eq!((query.flows, query.finish), (2, results.flows[1].finish));
    let path: Vec<SwitchId> = results.flows[0].path.iter().map(|hop| hop.0).collect();
    assert_eq!(path, [SwitchId(0), SwitchId(1)]);
}

/// An application that writes 1,460 bytes a millisecond is done when it has written all.
#[test]
fn a_slow_application_sets_the_pace() {
    let flow = FlowSpec {
        application: Application::Periodic {
            chunk: 1_460,
            every: Span::from_millis(1),
        },
        ..FlowSpec::tcp(0, HostId(0), HostId(1), 50 * 1_460, Time::ZERO)
    };
    let settings = Settings::new(newreno(), Time::ZERO + Span::from_secs(1));
    let results = run(&SCENE.network(), settings, [flow]);
    assert_eq!(
        results.flows[0].completion(),
        Some(Span::from_millis(49) + Span::from_micros(66))
    );
}
