// SPDX-License-Identifier: Apache-2.0
//! Real TCP with a known problem injected: what the packets at the sender say of it is what
//! the scenario's author expects. The expectation is in the scenario file.

use slowpath_model::Problem;
use slowpath_testbed::workload::{DriveOptions, ServeOptions};
use slowpath_testbed::{
    BUILTIN_SCENARIOS, Capture, Dropper, Family, Need, Scenario, Side as End, Testbed, attempts,
    missing_requirements,
};
use slowpath_trace::engine::Follow;
use slowpath_trace::tcp::{self, Side};
use slowpath_trace::verdict::{Judged, Limit, Options, Trial, VantagePoint};
use std::net::SocketAddr;
use std::path::Path;

/// The judged connection to that port.
fn judge(capture: &Path, port: u16) -> Judged {
    let mut capture = slowpath_trace::read::open(capture).expect("opens");
    let mut trial: Option<Trial> = None;
    while let Some(packet) = capture.next().expect("reads") {
        let Ok(segment) = packet.segment() else {
            continue;
        };
        if segment.source.port != port && segment.destination.port != port {
            continue;
        }
        trial
            .get_or_insert_with(|| {
                Trial::new(&segment, &tcp::Options::default(), &Options::default())
            })
            .segment(&segment);
    }
    trial.expect("the connection was captured").finish()
}

/// Runs a scenario's injected connection between two captures.
fn run(scenario: &Scenario) -> Option<[Judged; 2]> {
    let needs = [Need::Namespaces, Need::Capture];
    if let Some(reason) = missing_requirements(&needs) {
        println!("SKIPPED {}: {reason}", scenario.name);
        return None;
    }
    let folder = tempfile::tempdir().expect("makes a folder");
    let mut testbed = Testbed::new(&scenario.name).expect("makes namespaces");
    for (name, value) in &scenario.sysctls {
        testbed.sysctl(name, value).expect("sets");
    }
    let link = testbed.add_link(&scenario.link).expect("adds a link");
    let files = [folder.path().join("a.pcap"), folder.path().join("b.pcap")];
    let captures = [End::A, End::B]
        .map(|end| Capture::start(&testbed, end, link, &files[end as usize]).expect("captures"));
    let address = testbed.link(link).b_address(Family::Ipv4);
    let mut server = testbed
        .serve(&ServeOptions {
            bind: Some(address),
            ..scenario.serve.clone()
        })
        .expect("serves");
    let port = server.ready().port;
    let _dropper = scenario.drop.clone().map(|mut rule| {
        rule.port = Some(port);
        let interface = testbed.link(link).interface();
        Dropper::attach(testbed.namespace(End::B), interface, rule).expect("attaches")
    });
    let mut driver = testbed
        .drive(&DriveOptions {
            connect: SocketAddr::new(address, port),
            ..scenario.drive.clone()
        })
        .expect("connects");
    driver.go().expect("goes");
    driver.report().expect("reports");
    server.stop().expect("stops");
    server.report().expect("reports");
    for capture in captures {
        assert_eq!(capture.stop().expect("stops").lost, 0);
    }
    Some(files.map(|file| judge(&file, port)))
}

/// What it says, for a person who looks at a failure.
fn print(scenario: &str, judged: &Judged) {
    let verdict = &judged.verdicts.from_client;
    println!(
        "{scenario}: {} {:?} {:?}",
        verdict.dominating, judged.verdicts.vantage.place, verdict.losses
    );
    for limit in Limit::ALL {
        let time = verdict.line.shares().of(limit);
        if !time.is_zero() {
            println!("  {:24} {time:?}", limit.name());
        }
    }
    println!("  {:?}", verdict.observed);
    println!(
        "  categories {:?} of {}",
        verdict.messages.categories, verdict.messages.count
    );
}

fn check(name: &str) {
    let scenario = Scenario::builtin(name).expect("parses");
    let Some([sender, receiver]) = run(&scenario) else {
        return;
    };
    print(name, &sender);
    print(name, &receiver);
    for judged in [&sender, &receiver] {
        let verdict = &judged.verdicts.from_client;
        assert_eq!(verdict.line.shares().total(), judged.report.duration());
        assert_eq!(verdict.dominating, scenario.expect.dominating, "{name}");
    }
    if scenario.link.delay_ms > 0 {
        // A delay line between the two: each capture is at its end.
        assert_eq!(
            sender.verdicts.vantage.place,
            VantagePoint::At(Side::Client)
        );
        assert_eq!(
            receiver.verdicts.vantage.place,
            VantagePoint::At(Side::Server)
        );
    }
}

#[test]
fn every_scenario_is_there() {
    let names: Vec<&str> = BUILTIN_SCENARIOS.iter().map(|(n, _)| *n).collect();
    // Packets are not judged for what dominates two of them.
    assert_eq!(names.len(), 9 + 2, "{names:?}: add a test");
    assert_eq!(Problem::OF_SNAP, 6);
}

macro_rules! scenarios {
    ($($test:ident: $name:literal),* $(,)?) => {
        $(#[test]
        fn $test() {
            attempts(stringify!($test), || check($name));
        })*
    };
}

scenarios! {
    sender_app_limited: "sender-app-limited",
    send_buffer_limited: "send-buffer-limited",
    fast_retransmit: "fast-retransmit",
    timeout: "timeout",
    delayed_ack: "delayed-ack",
    delayed_ack_one_way: "delayed-ack-one-way",
    receiver_window_limited: "receiver-window-limited",
    zero_window: "zero-window",
    tail_loss_probe: "tail-loss-probe",
}
