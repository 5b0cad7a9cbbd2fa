// SPDX-License-Identifier: Apache-2.0
//! Captures agree with the drop log and the kernel's counters.

use slowpath_testbed::{
    Capture, Need, Role, Scenario, Side, attempts, missing_requirements, oracle,
};

fn skipped(test: &str, needs: &[Need]) -> bool {
    let reason = missing_requirements(needs);
    if let Some(reason) = &reason {
        println!("SKIPPED {test}: {reason}");
    }
    reason.is_some()
}

const ALL: &[Need] = &[
    Need::Namespaces,
    Need::Capture,
    Need::Tcptrace,
    Need::Tshark,
];

#[test]
fn a_full_receive_window_is_found() {
    attempts("a_full_receive_window_is_found", || {
        if skipped("a_full_receive_window_is_found", ALL) {
            return;
        }
        let folder = tempfile::tempdir().expect("makes a folder");
        let file = folder.path().join("sender.pcap");
        let scenario = Scenario::builtin("receiver-window-limited").expect("parses");
        let mut running = scenario.start().expect("starts");
        let receiver = running.connection(Role::Injected, Side::B).local;
        let capture = Capture::start(running.testbed(), Side::A, 0, &file).expect("captures");
        running.go().expect("goes");
        running.wait().expect("ends");
        assert_eq!(capture.stop().expect("stops").lost, 0);
        let connections = oracle::tcptrace(&file).expect("runs");
        let sent = connections.iter().find_map(|c| c.sent_by(receiver));
        let tcptrace = sent.expect("was captured").zero_window_advertisements;
        let connections = oracle::tshark(&file).expect("runs");
        let sent = connections.iter().find_map(|c| c.sent_by(receiver));
        let tshark = sent.expect("was captured").zero_windows;
        assert!(tcptrace > 0);
        assert_eq!(tcptrace, tshark);
    });
}

#[test]
fn the_oracles_see_the_dropped_segments_again() {
    attempts("the_oracles_see_the_dropped_segments_again", || {
        if skipped("the_oracles_see_the_dropped_segments_again", ALL) {
            return;
        }
        let folder = tempfile::tempdir().expect("makes a folder");
        let file = folder.path().join("sender.pcap");
        let scenario = Scenario::builtin("fast-retransmit").expect("parses");
        let mut running = scenario.start().expect("starts");
        // The handshake went by before: the oracles take the first packet for the opening.
        let sender = running.connection(Role::Injected, Side::A).local;
        let capture = Capture::start(running.testbed(), Side::A, 0, &file).expect("captures");
        running.go().expect("goes");
        let outcome = running.wait().expect("ends");
        let summary = capture.stop().expect("stops");
        assert_eq!(summary.lost, 0);
        let dropped = outcome.dropped.len() as u64;

        let connections = oracle::tcptrace(&file).expect("runs");
        let sent = connections.iter().find_map(|c| c.sent_by(sender));
        let sent = sent.expect("the injected connection was captured");
        assert_eq!(sent.retransmitted_packets, dropped);
        let bytes: u64 = outcome.dropped.iter().map(|d| u64::from(d.length)).sum();
        assert_eq!(sent.retransmitted_bytes, bytes);
        assert_eq!(sent.unique_bytes, outcome.injected.bytes_written);

        let connections = oracle::tshark(&file).expect("runs");
        let sent = connections.iter().find_map(|c| c.sent_by(sender));
        let sent = sent.expect("the injected connection was captured");
        assert_eq!(sent.retransmissions + sent.out_of_order, dropped);
    });
}
