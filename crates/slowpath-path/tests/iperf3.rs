// SPDX-License-Identifier: Apache-2.0
//! Results of the iperf3 that Debian has, over a line of the emulator.

mod emulated;
mod pair;

use pair::up;
use slowpath_lab::emulator::Lab;
use slowpath_path::throughput::report::ThroughputNote;
use slowpath_path::throughput::verdict::Limiter;
use slowpath_path::throughput::{ThroughputReport, read_iperf3};
use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const LINE: &str = "rate = \"50 Mbit/s\", delay = \"5 ms\"";

/// What iperf3 measured from a to b with these options.
fn measured(lab: &Lab, options: &[&str]) -> ThroughputReport {
    let (a, b) = (&lab.hosts()[0], &lab.hosts()[1]);
    let mut serve = Command::new("iperf3");
    // Only a server with -J gives its output as JSON.
    serve.args(["-s", "-1", "-J"]).stdout(Stdio::null());
    let mut server = b.spawn(&mut serve).expect("enters");
    // Port 5201, state LISTEN.
    let listens = || {
        let sockets = ["tcp", "tcp6"].map(|name| format!("/proc/thread-self/net/{name}"));
        let read = |file: &String| std::fs::read_to_string(file).ok();
        let text: String = sockets.iter().filter_map(read).collect();
        text.lines()
            .any(|line| line.contains(":1451 ") && line.contains(" 0A "))
    };
    let patience = Instant::now() + Duration::from_secs(20);
    while !b.run(listens).expect("enters") {
        assert!(Instant::now() < patience, "the server listens");
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut measure = Command::new("iperf3");
    measure
        .args(["-c", &b.ipv4().to_string(), "-t", "3", "-J"])
        .args(options)
        .stdout(Stdio::piped());
    let mut client = a.spawn(&mut measure).expect("enters");
    let mut text = String::new();
    let mut output = client.stdout.take().expect("piped");
    output.read_to_string(&mut text).expect("text");
    client.wait().expect("ends");
    // It ends after one test.
    server.wait().expect("ends");
    let report = read_iperf3(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    println!("{}", slowpath_path::throughput::report::text(&report));
    report
}

/// The network, or why there is none.
fn network(test: &str) -> Option<Lab> {
    if Command::new("iperf3").arg("--version").output().is_err() {
        println!("SKIPPED {test}: iperf3 is not installed (Debian package iperf3)");
        return None;
    }
    up(test, LINE, "")
}

/// By arithmetic: 1,448 of 1,500 octets of 50 Mbit/s.
fn is_the_lines(goodput: Option<f64>) -> bool {
    let line = 50e6 * 1_448.0 / 1_500.0;
    goodput.is_some_and(|goodput| (goodput / line - 1.0).abs() <= 0.08)
}

#[test]
fn a_full_path_is_found_in_results_of_both_directions() {
    let test = "a_full_path_is_found_in_results_of_both_directions";
    let Some(lab) = network(test) else { return };
    for options in [
        &["-O", "1", "-C", "cubic"][..],
        &["-O", "1", "-C", "cubic", "-R", "--get-server-output"],
    ] {
        let report = measured(&lab, options);
        assert!(is_the_lines(report.goodput_bps), "{report:?}");
        assert_eq!(report.verdict.limiter, Limiter::Network, "{report:?}");
        assert!(report.intervals[0].warm_up && !report.intervals[1].warm_up);
        assert!(report.intervals[1].cwnd_bytes.is_some() && report.intervals[1].rtt_ns.is_some());
        assert!(report.ends.iter().all(|end| end.cpu_percent.is_some()));
    }
}

#[test]
fn a_target_rate_is_the_applications_and_udp_is_not_judged() {
    let test = "a_target_rate_is_the_applications_and_udp_is_not_judged";
    let Some(lab) = network(test) else { return };
    let report = measured(&lab, &["-b", "5M"]);
    assert_eq!(report.verdict.limiter, Limiter::Application, "{report:?}");
    let report = measured(&lab, &["-u", "-b", "5M"]);
    assert_eq!(report.verdict.limiter, Limiter::Unknown, "{report:?}");
    assert_eq!(report.notes, [ThroughputNote::UdpLoss]);
}
