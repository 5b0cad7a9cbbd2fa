// SPDX-License-Identifier: Apache-2.0
//! Each workload runs and gives its own account.

use slowpath_testbed::workload::{DriveMode, DriveOptions, Report, ServeMode, ServeOptions};
use slowpath_testbed::{Family, LinkOptions, Need, Process, Side, Testbed, missing_requirements};
use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt;

fn testbed(test: &str) -> Option<Testbed> {
    if let Some(reason) = missing_requirements(&[Need::Namespaces]) {
        println!("SKIPPED {test}: {reason}");
        return None;
    }
    let mut testbed = Testbed::new(test).expect("builds");
    testbed.add_link(&LinkOptions::default()).expect("links");
    Some(testbed)
}

fn pair(testbed: &Testbed, serve: ServeMode, drive: DriveOptions) -> (Process, Process) {
    let server = testbed
        .serve(&ServeOptions {
            mode: serve,
            ..ServeOptions::default()
        })
        .expect("serves");
    let address = testbed.link(0).b_address(Family::Ipv4);
    let driver = testbed
        .drive(&DriveOptions {
            connect: SocketAddr::new(address, server.ready().port),
            ..drive
        })
        .expect("connects");
    (server, driver)
}

fn reports((mut server, mut driver): (Process, Process)) -> (Report, Report) {
    driver.go().expect("listens");
    let driven = driver.report().expect("reports");
    assert!(driver.finish().expect("ends").success());
    server.stop().expect("listens");
    let served = server.report().expect("reports");
    assert!(server.finish().expect("ends").success());
    (driven, served)
}

#[test]
fn write_write_read_sends_two_writes_a_request() {
    let Some(testbed) = testbed("write_write_read") else {
        return;
    };
    let options = DriveOptions {
        mode: DriveMode::WriteWriteRead,
        requests: Some(10),
        nodelay: true,
        ..DriveOptions::default()
    };
    let (driven, served) = reports(pair(&testbed, ServeMode::RequestResponse, options));
    assert_eq!(driven.transactions, 10);
    assert_eq!(served.bytes_read, 10 * 200);
    let tcp = driven.tcp.expect("one connection");
    assert_eq!(tcp.data_segs_out, 20, "without Nagle a write is a segment");
}

#[test]
fn one_way_messages_arrive_whole() {
    let Some(testbed) = testbed("one_way") else {
        return;
    };
    let options = DriveOptions {
        mode: DriveMode::OneWay,
        requests: Some(50),
        pause_ms: Some(1),
        ..DriveOptions::default()
    };
    let (driven, _) = reports(pair(&testbed, ServeMode::Sink, options));
    assert_eq!(driven.bytes_written, 50 * 200);
}

#[test]
fn echo_returns_what_was_sent() {
    let Some(testbed) = testbed("echo") else {
        return;
    };
    let options = DriveOptions {
        requests: Some(5),
        request_bytes: Some(300),
        response_bytes: Some(300),
        ..DriveOptions::default()
    };
    let (driven, served) = reports(pair(&testbed, ServeMode::Echo, options));
    assert_eq!(driven.bytes_read, 1_500);
    assert_eq!(served.bytes_written, 1_500);
}

#[test]
fn five_thousand_connections_stand_at_once() {
    let Some(testbed) = testbed("many") else {
        return;
    };
    let options = DriveOptions {
        mode: DriveMode::Many,
        connections: Some(5_000),
        ..DriveOptions::default()
    };
    let pair = pair(&testbed, ServeMode::Hold, options);
    assert_eq!(pair.1.ready().connections.len(), 5_000);
    let counters = testbed.counters(Side::A).expect("reads");
    assert_eq!(counters.get("Tcp.CurrEstab"), Some(5_000));
    let (driven, served) = reports(pair);
    assert_eq!(driven.transactions, 5_000);
    assert_eq!(served.connections, 5_000);
}

#[test]
fn short_lived_connections_come_and_go() {
    let Some(testbed) = testbed("short_lived") else {
        return;
    };
    let options = DriveOptions {
        mode: DriveMode::ShortLived,
        requests: Some(10),
        ..DriveOptions::default()
    };
    let (driven, served) = reports(pair(&testbed, ServeMode::RequestResponse, options));
    assert_eq!(driven.connections, 10);
    assert_eq!(served.connections, 10);
    let counters = testbed.counters(Side::A).expect("reads");
    assert_eq!(counters.get("Tcp.ActiveOpens"), Some(10));
}

#[test]
fn a_port_is_reused_at_once() {
    let Some(testbed) = testbed("port_reuse") else {
        return;
    };
    let options = DriveOptions {
        mode: DriveMode::PortReuse,
        requests: Some(10),
        source_port: Some(45_678),
        ..DriveOptions::default()
    };
    let (driven, served) = reports(pair(&testbed, ServeMode::RequestResponse, options));
    assert_eq!(driven.connections, 10);
    assert_eq!(served.connections, 10);
}

#[test]
fn a_process_dies_without_a_report() {
    let Some(testbed) = testbed("die") else {
        return;
    };
    let options = DriveOptions {
        mode: DriveMode::Die,
        requests: Some(3),
        ..DriveOptions::default()
    };
    let (_server, mut driver) = pair(&testbed, ServeMode::RequestResponse, options);
    driver.go().expect("listens");
    assert!(driver.report().is_err());
    let status = driver.finish().expect("is waited for");
    assert_eq!(status.signal(), Some(9));
}

#[test]
fn a_workload_is_stopped_early() {
    let Some(testbed) = testbed("stop") else {
        return;
    };
    let (_server, mut driver) = pair(
        &testbed,
        ServeMode::RequestResponse,
        DriveOptions::default(),
    );
    driver.go().expect("listens");
    driver.stop().expect("listens");
    let report = driver.report().expect("reports");
    assert_eq!(report.bytes_written, report.transactions * 200);
}

#[test]
fn both_ends_may_be_on_one_side() {
    let Some(testbed) = testbed("loopback") else {
        return;
    };
    let serve = ServeOptions {
        mode: ServeMode::RequestResponse,
        ..ServeOptions::default()
    };
    let server = testbed.serve_on(Side::A, &serve).expect("serves");
    let to = SocketAddr::from(([127, 0, 0, 1], server.ready().port));
    let drive = DriveOptions {
        requests: Some(5),
        ..DriveOptions::to(to)
    };
    let driver = testbed.drive_on(Side::A, &drive).expect("connects");
    let (driven, served) = reports((server, driver));
    assert_eq!((driven.transactions, served.transactions), (5, 5));
}
