// SPDX-License-Identifier: Apache-2.0
//! The drop program drops exactly the chosen segments, and the kernel repairs them the
//! way the loss calls for. Every expectation follows from the rule.

use slowpath_testbed::workload::{DriveMode, DriveOptions, Report, ServeMode, ServeOptions};
use slowpath_testbed::{
    DropRule, Dropper, Family, LinkOptions, Need, Side, Testbed, attempts, missing_requirements,
};
use std::collections::BTreeMap;
use std::net::SocketAddr;

struct Run {
    testbed: Testbed,
    dropper: Dropper,
    report: Report,
}

impl Run {
    fn counter(&self, name: &str) -> i64 {
        let counters = self.testbed.counters(Side::A).expect("reads");
        counters.get(name).expect("the kernel has it")
    }
}

fn run(
    test: &str,
    family: Family,
    serve: ServeMode,
    drive: DriveOptions,
    rule: DropRule,
) -> Option<Run> {
    if let Some(reason) = missing_requirements(&[Need::Namespaces]) {
        println!("SKIPPED {test}: {reason}");
        return None;
    }
    let mut testbed = Testbed::new(test).expect("builds");
    let link = testbed.add_link(&LinkOptions::default()).expect("links");
    let link = testbed.link(link);
    let server = testbed
        .serve(&ServeOptions {
            mode: serve,
            ..ServeOptions::default()
        })
        .expect("serves");
    let rule = DropRule {
        port: Some(server.ready().port),
        ..rule
    };
    let dropper =
        Dropper::attach(testbed.namespace(Side::B), link.interface(), rule).expect("attaches");
    let to = SocketAddr::new(link.b_address(family), server.ready().port);
    let mut driver = testbed
        .drive(&DriveOptions {
            connect: to,
            ..drive
        })
        .expect("connects");
    driver.go().expect("listens");
    let report = driver.report().expect("reports");
    Some(Run {
        testbed,
        dropper,
        report,
    })
}

/// Slow enough that few segments are under way: each loss is repaired before the next.
fn paced(segments: u64, segment_bytes: u64) -> DriveOptions {
    DriveOptions {
        mode: DriveMode::Bulk,
        bytes: Some(segments * segment_bytes),
        write_bytes: Some(4 * segment_bytes as u32),
        rate: Some(2_000_000),
        ..DriveOptions::default()
    }
}

#[test]
fn listed_segments_are_dropped_as_often_as_asked() {
    attempts("listed_segments_are_dropped_as_often_as_asked", || {
        // 1,448 payload bytes: 1,500 less 20 IPv4, 20 TCP and 12 of timestamps.
        let ordinals = BTreeMap::from([(50, 1), (100, 1), (200, 1)]);
        let Some(run) = run(
            "listed",
            Family::Ipv4,
            ServeMode::Sink,
            paced(300, 1_448),
            DropRule {
                ordinals,
                ..DropRule::default()
            },
        ) else {
            return;
        };
        let dropped = run.dropper.dropped().expect("reads");
        let observed: Vec<_> = dropped
            .iter()
            .map(|d| (d.ordinal, d.transmission, d.offset, d.length))
            .collect();
        assert_eq!(
            observed,
            [
                (50, 1, 49 * 1_448, 1_448),
                (100, 1, 99 * 1_448, 1_448),
                (200, 1, 199 * 1_448, 1_448)
            ]
        );
        assert!(dropped.is_sorted_by_key(|d| d.at));
        let totals = run.dropper.totals().expect("reads");
        assert_eq!((totals.originals, totals.dropped), (300, 3));
        assert_eq!(totals.retransmissions, 3);
        assert_eq!(totals.unrecorded, 0);
        let tcp = run.report.tcp.expect("one connection");
        assert_eq!(tcp.total_retrans, 3);
        assert_eq!(tcp.total_rto, 0);
        assert_eq!(tcp.bytes_acked, 300 * 1_448 + 1, "SYN counts one");
    });
}

#[test]
fn a_loss_amid_a_flow_is_one_fast_recovery() {
    attempts("a_loss_amid_a_flow_is_one_fast_recovery", || {
        for (family, segment) in [
            (Family::Ipv4, 1_448),
            (Family::Ipv6, 1_428),
            (Family::Mapped, 1_448),
        ] {
            let Some(run) = run(
                "every",
                family,
                ServeMode::Sink,
                paced(400, segment),
                DropRule {
                    every: Some(40),
                    first: 21,
                    ..DropRule::default()
                },
            ) else {
                return;
            };
            // 21, 61, ... 381.
            let ordinals: Vec<_> = run.dropper.dropped().expect("reads");
            let ordinals: Vec<_> = ordinals.iter().map(|d| d.ordinal).collect();
            assert_eq!(ordinals, (0..10).map(|i| 21 + 40 * i).collect::<Vec<_>>());
            assert_eq!(run.counter("TcpExt.TCPSackRecovery"), 10, "{family:?}");
            assert_eq!(run.counter("TcpExt.TCPTimeouts"), 0);
            assert_eq!(run.counter("Tcp.RetransSegs"), 10);
        }
    });
}

fn messages(requests: u64) -> DriveOptions {
    DriveOptions {
        requests: Some(requests),
        request_bytes: Some(5 * 1_448),
        response_bytes: Some(100),
        ..DriveOptions::default()
    }
}

#[test]
fn a_lost_tail_is_repaired_by_a_probe() {
    attempts("a_lost_tail_is_repaired_by_a_probe", || {
        let Some(run) = run(
            "tail",
            Family::Ipv4,
            ServeMode::RequestResponse,
            messages(20),
            DropRule {
                every: Some(5),
                message_bytes: Some(5 * 1_448),
                ..DropRule::default()
            },
        ) else {
            return;
        };
        // Messages 1, 6, 11, 16; the last of each one's five segments.
        let dropped = run.dropper.dropped().expect("reads");
        let ordinals: Vec<_> = dropped.iter().map(|d| d.ordinal).collect();
        assert_eq!(ordinals, [5, 30, 55, 80]);
        assert_eq!(run.counter("TcpExt.TCPLossProbes"), 4);
        assert_eq!(run.counter("TcpExt.TCPSackRecovery"), 0);
        assert_eq!(run.counter("TcpExt.TCPTimeouts"), 0);
        assert_eq!(run.report.tcp.expect("one connection").total_retrans, 4);
    });
}

#[test]
fn a_lost_probe_leaves_it_to_the_timer() {
    attempts("a_lost_probe_leaves_it_to_the_timer", || {
        let Some(run) = run(
            "timer",
            Family::Ipv4,
            ServeMode::RequestResponse,
            messages(6),
            DropRule {
                every: Some(2),
                message_bytes: Some(5 * 1_448),
                transmissions: 3,
                ..DropRule::default()
            },
        ) else {
            return;
        };
        // Messages 1, 3, 5. Of each tail the original, the probe and the first expiry's
        // retransmission are dropped; the second expiry's arrives.
        let dropped = run.dropper.dropped().expect("reads");
        let observed: Vec<_> = dropped
            .iter()
            .map(|d| (d.ordinal, d.transmission))
            .collect();
        let expected: Vec<_> = [5, 15, 25]
            .into_iter()
            .flat_map(|o| [(o, 1), (o, 2), (o, 3)])
            .collect();
        assert_eq!(observed, expected);
        let tcp = run.report.tcp.expect("one connection");
        assert_eq!(tcp.total_rto, 6);
        assert_eq!(tcp.total_rto_recoveries, 3);
        assert_eq!(tcp.total_retrans, 9);
        assert_eq!(run.counter("TcpExt.TCPSackRecovery"), 0);
    });
}

#[test]
fn a_blackout_backs_the_timer_off() {
    attempts("a_blackout_backs_the_timer_off", || {
        let Some(run) = blackout() else { return };
        let tcp = run.report.tcp.expect("one connection");
        assert!(tcp.total_rto >= 2, "{tcp:?}");
        assert_eq!(tcp.total_rto_recoveries, 1);
        let totals = run.dropper.totals().expect("reads");
        // All that was dropped was sent again, and nothing else.
        assert_eq!(u64::from(tcp.total_retrans), totals.dropped);
    });
}

/// One request whose every transmission is dropped until four are gone.
fn blackout() -> Option<Run> {
    if let Some(reason) = missing_requirements(&[Need::Namespaces]) {
        println!("SKIPPED a_blackout_backs_the_timer_off: {reason}");
        return None;
    }
    let mut testbed = Testbed::new("blackout").expect("builds");
    testbed.add_link(&LinkOptions::default()).expect("links");
    let server = testbed
        .serve(&ServeOptions {
            mode: ServeMode::RequestResponse,
            ..ServeOptions::default()
        })
        .expect("serves");
    let interface = testbed.link(0).interface();
    let dropper = Dropper::attach(testbed.namespace(Side::B), interface, DropRule::default())
        .expect("attaches");
    let to = SocketAddr::new(testbed.link(0).b_address(Family::Ipv4), server.ready().port);
    let mut driver = testbed
        .drive(&DriveOptions {
            requests: Some(1),
            ..DriveOptions::to(to)
        })
        .expect("connects");
    dropper.set_blackout(true).expect("sets");
    driver.go().expect("listens");
    while dropper.totals().expect("reads").dropped < 4 {
        std::thread::yield_now();
    }
    dropper.set_blackout(false).expect("sets");
    let report = driver.report().expect("reports");
    Some(Run {
        testbed,
        dropper,
        report,
    })
}
