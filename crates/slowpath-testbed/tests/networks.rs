// SPDX-License-Identifier: Apache-2.0
//! Namespaces and links: as asked while they live, gone afterwards.

use slowpath_testbed::workload::{DriveOptions, ServeMode, ServeOptions};
use slowpath_testbed::{Family, LinkOptions, Need, Side, Testbed, missing_requirements};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

fn skipped(test: &str) -> bool {
    let reason = missing_requirements(&[Need::Namespaces]);
    if let Some(reason) = &reason {
        println!("SKIPPED {test}: {reason}");
    }
    reason.is_some()
}

fn path_of(testbed: &Testbed, side: Side) -> PathBuf {
    Path::new("/run/netns").join(testbed.namespace(side).name())
}

/// Request/response, 20 times without a pause, and the median latency.
fn median_us(testbed: &Testbed, link: usize, family: Family) -> u64 {
    let address = testbed.link(link).b_address(family);
    let server = testbed
        .serve(&ServeOptions {
            mode: ServeMode::RequestResponse,
            bind: (family != Family::Mapped).then_some(address),
            ..ServeOptions::default()
        })
        .expect("serves");
    let to = SocketAddr::new(address, server.ready().port);
    let mut driver = testbed
        .drive(&DriveOptions {
            requests: Some(20),
            pause_ms: Some(0),
            ..DriveOptions::to(to)
        })
        .expect("connects");
    let connections = driver.ready().connections.clone();
    assert_eq!(connections.len(), 1);
    assert_eq!(connections[0].1, to);
    assert_eq!(
        connections[0].0.ip(),
        testbed.link(link).a_address(family),
        "the socket's own view keeps mapped addresses mapped"
    );
    driver.go().expect("listens");
    let report = driver.report().expect("reports");
    assert_eq!(report.transactions, 20);
    assert_eq!(report.bytes_written, 20 * 200);
    assert_eq!(report.bytes_read, 20 * 1_000);
    assert!(driver.finish().expect("ends").success());
    report.latency.expect("there are transactions").p50_us
}

#[test]
fn namespaces_vanish_with_the_testbed() {
    if skipped("namespaces_vanish_with_the_testbed") {
        return;
    }
    let testbed = Testbed::new("vanishing").expect("builds");
    let paths = [Side::A, Side::B].map(|side| path_of(&testbed, side));
    assert!(paths.iter().all(|p| p.exists()));
    assert_ne!(
        testbed.namespace(Side::A).inode().expect("has one"),
        testbed.namespace(Side::B).inode().expect("has one")
    );
    drop(testbed);
    assert!(!paths.iter().any(|p| p.exists()));
}

#[test]
fn leftovers_of_dead_processes_are_removed() {
    if skipped("leftovers_of_dead_processes_are_removed") {
        return;
    }
    let mut child = std::process::Command::new("true").spawn().expect("runs");
    let pid = child.id();
    child.wait().expect("ends");
    let name = format!("sp-{pid}-0-a");
    let path = Path::new("/run/netns").join(&name);
    // Not dropped: its owner died.
    std::mem::forget(slowpath_testbed::Namespace::new(&name).expect("makes one"));
    assert!(path.exists());
    let _testbed = Testbed::new("cleaner").expect("builds");
    assert!(!path.exists());
}

#[test]
fn every_family_works_over_a_plain_link() {
    if skipped("every_family_works_over_a_plain_link") {
        return;
    }
    let mut testbed = Testbed::new("families").expect("builds");
    let link = testbed.add_link(&LinkOptions::default()).expect("links");
    for family in [Family::Ipv4, Family::Ipv6, Family::Mapped] {
        median_us(&testbed, link, family);
    }
}

#[test]
fn a_delayed_link_takes_its_time() {
    if skipped("a_delayed_link_takes_its_time") {
        return;
    }
    let mut testbed = Testbed::new("delay").expect("builds");
    let options = LinkOptions {
        delay_ms: 10,
        ..LinkOptions::default()
    };
    let link = testbed.add_link(&options).expect("links");
    for family in [Family::Ipv4, Family::Ipv6] {
        // Twice 10 ms is a lower bound that no load of the machine can break.
        assert!(median_us(&testbed, link, family) >= 20_000);
    }
}

#[test]
fn offloads_off_makes_every_packet_a_segment() {
    if skipped("offloads_off_makes_every_packet_a_segment") {
        return;
    }
    let mut testbed = Testbed::new("segments").expect("builds");
    let link = testbed.add_link(&LinkOptions::default()).expect("links");
    let address = testbed.link(link).b_address(Family::Ipv4);
    let server = testbed.serve(&ServeOptions::default()).expect("serves");
    let mut driver = testbed
        .drive(&DriveOptions {
            mode: slowpath_testbed::workload::DriveMode::Bulk,
            bytes: Some(1_448_000),
            ..DriveOptions::to(SocketAddr::new(address, server.ready().port))
        })
        .expect("connects");
    driver.go().expect("listens");
    driver.report().expect("reports");
    driver.finish().expect("ends");
    let interface = testbed.link(link).interface().to_owned();
    let path = "/proc/thread-self/net/dev";
    let device = testbed
        .namespace(Side::B)
        .run(|| std::fs::read_to_string(path))
        .expect("enters")
        .expect("reads");
    let line = device
        .lines()
        .find(|l| l.trim_start().starts_with(&interface))
        .expect("the interface is there");
    let mut fields = line.split_whitespace().skip(1).map(|f| f.parse::<u64>());
    let bytes = fields.next().expect("bytes").expect("a number");
    let packets = fields.next().expect("packets").expect("a number");
    // 14 Ethernet + 1,500: no larger packet on average means no aggregate at all, for
    // small ones are few.
    assert!(
        bytes / packets <= 1_514,
        "{bytes} bytes in {packets} packets"
    );
    assert!(packets >= 1_000);
}
