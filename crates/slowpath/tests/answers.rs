// SPDX-License-Identifier: Apache-2.0
//! Twelve cases of `answers/cases.json`, those that need no server but Python: `slowpath why` gives the answer that their label calls
//! right. `make check-answers` runs all of them.

use std::process::Command;

use slowpath_testbed::attempts;

const CHECK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tools/check_answers.py");

/// Each answer of the case is right, or the test is skipped.
fn right(test: &str, case: &str) {
    attempts(test, || {
        let kept = tempfile::tempdir().expect("a temporary folder");
        let output = Command::new("python3")
            .args([CHECK, "--keep"])
            .arg(kept.path())
            .args([env!("CARGO_BIN_EXE_slowpath"), &format!("ours/{case}")])
            .output()
            .expect("python3 starts");
        let printed = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        if errors.contains("root is needed") {
            println!("SKIPPED {test}: needs root");
            return;
        }
        let last = printed.lines().last().unwrap_or_default();
        let counts: serde_json::Value =
            serde_json::from_str(last).unwrap_or_else(|_| panic!("no counts: {printed}{errors}"));
        if counts["skipped"] != 0 {
            let reason = printed.lines().find(|line| line.contains("SKIPPED"));
            println!("SKIPPED {test}: {}", reason.unwrap_or_default().trim());
            return;
        }
        assert!(counts["answers"].as_u64() > Some(0), "{printed}");
        let wrong = printed.lines().find(|line| line.contains("; expected "));
        assert_eq!(counts["right"], counts["answers"], "{wrong:?}\n{printed}");
    });
}

#[test]
fn a_reader_of_mptcp_that_does_not_read_has_to_act() {
    let test = "a_reader_of_mptcp_that_does_not_read_has_to_act";
    match std::fs::read_to_string("/proc/sys/net/mptcp/enabled") {
        Ok(enabled) if enabled.trim() == "1" => right(test, "slow-reader-mptcp"),
        _ => println!("SKIPPED {test}: no MPTCP in this kernel"),
    }
}

macro_rules! cases {
    ($($test:ident: $case:literal)*) => {
        $(#[test]
        fn $test() {
            right(stringify!($test), $case);
        })*
    };
}

cases! {
    messages_that_leave_at_once_are_no_alarm: "quiet-messages-40ms"
    a_half_closed_connection_is_no_alarm: "quiet-half-closed"
    an_outage_that_is_over_is_no_alarm: "quiet-late-after-outage"
    a_path_that_died_before_slowpath_began_is_the_network: "late-dead-path"
    messages_held_by_nagles_algorithm_are_the_writers: "small-writes-60ms"
    a_reader_that_does_not_read_has_to_act: "slow-reader-ipv6"
    requests_that_are_lost_are_the_networks: "loss-small-requests"
    a_host_that_limits_send_buffers_is_named: "send-memory-limit-50ms"
    one_small_exchange_after_another_is_bound_by_round_trips: "one-at-a-time-ipv6-100ms"
    a_server_that_resets_is_a_failure_of_it: "reset-by-server"
    an_address_that_no_host_has_is_a_failure: "no-host-at-address"
}
