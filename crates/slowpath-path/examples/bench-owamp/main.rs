// SPDX-License-Identifier: Apache-2.0
//! `make bench-owamp`: 20 sessions at once, 10,000 packets a second in all, between two network namespaces.
//!
//! The last line is JSON: what was lost by us, how far from its schedule a packet leaves (the kernel's stamp against the
//! schedule) beside a bare loop that sleeps and sends, how far both times of each packet are from captures at
//! both hosts, and the CPU of both ends. `OWAMP_BIN=DIR` adds owping's send error, from its captured packets.

mod bare;
mod captures;
mod hosts;
mod peer;

use captures::{Capture, Packet};
use hosts::Hosts;
use slowpath_path::report::{Reading, of_one_way};
use slowpath_path::schedule::{Schedule, Slots};
use slowpath_path::serve::{Policy, ServeOptions, Serving};
use slowpath_path::session::{Measured, OneWayOutcome, TestOptions, measure};
use slowpath_path::time::{Span, Timestamp};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

/// Connections; each has a session there and one back.
const CONNECTIONS: usize = 10;
/// Packets a second of a session.
const RATE: u32 = 500;
/// How long the sessions last, s.
const SECONDS: u32 = 10;

fn main() {
    let hosts = match Hosts::new() {
        Ok(hosts) => hosts,
        Err(reason) => {
            eprintln!("bench-owamp: {reason}");
            std::process::exit(1);
        }
    };
    let slots: Slots = format!("{}f", 1.0 / f64::from(RATE))
        .parse()
        .expect("a schedule");
    let bare = bare::send_errors(&hosts, 2 * CONNECTIONS, RATE, SECONDS);
    let captures = hosts.sides().map(|side| Capture::start(&hosts, side));
    let cpu = cpu_seconds();
    let began = Instant::now();
    let outcomes = sessions(&hosts, &slots);
    let busy = (cpu_seconds() - cpu) / began.elapsed().as_secs_f64();
    let captures = captures.map(Capture::finish);
    let mut send_errors = Vec::new();
    let mut stamp_errors = Vec::new();
    let (mut lost, mut sent, mut missing) = (0, 0u64, 0u64);
    for outcome in &outcomes {
        let report = of_one_way(
            outcome,
            &Reading {
                timeout: Duration::from_secs(2),
                ..Reading::default()
            },
        );
        for direction in &report.directions {
            let summary = &direction.summary;
            sent += summary.sent;
            lost += summary.lost + summary.lost_here + summary.skipped;
        }
        for (measured, sender, receiver) in [
            (&outcome.there, &captures[0], &captures[1]),
            (&outcome.back, &captures[1], &captures[0]),
        ] {
            let measured = measured.as_ref().expect("both ways");
            send_errors.extend(errors_of_sending(measured));
            missing += errors_of_stamps(measured, [sender, receiver], &mut stamp_errors);
        }
    }
    let peer = peer::send_errors(&hosts, CONNECTIONS * 2, RATE, SECONDS);
    println!(
        "{sent} packets in {SECONDS} s; {missing} of their times have no stamp or stand in no capture"
    );
    let number = |value: Option<f64>| value.map_or("null".to_owned(), |v| format!("{v:.1}"));
    println!(
        "{{\"sessions\":{},\"packets_per_second\":{},\"lost_by_us\":{lost},\"send_error_p99_us\":{},\
         \"bare_send_error_p99_us\":{},\"stamp_error_p99_us\":{},\"cpu_percent\":{:.1},\"peer_send_error_p99_us\":{}}}",
        2 * CONNECTIONS,
        sent / u64::from(SECONDS),
        number(p99(send_errors)),
        number(p99(bare)),
        number(p99(stamp_errors)),
        busy * 100.0,
        number(peer.and_then(p99)),
    );
}

/// All sessions at once, both ends in this process.
fn sessions(hosts: &Hosts, slots: &Slots) -> Vec<OneWayOutcome> {
    let listen: SocketAddr = format!("{}:861", Hosts::B).parse().expect("an address");
    let serving = hosts.inside(1, || {
        Serving::start(ServeOptions {
            owamp: vec![listen],
            policy: Policy {
                allow: vec![format!("{}/24", Hosts::A).parse().expect("a range")],
                ..Policy::default()
            },
            ..ServeOptions::default()
        })
    });
    let _serving = serving.expect("the ports are free in a fresh namespace");
    let options = TestOptions {
        packets: RATE * SECONDS,
        slots: slots.clone(),
        timeout: Span::from_seconds(2.0).expect("a span"),
        ..TestOptions::to(listen)
    };
    let never = AtomicBool::new(false);
    hosts.inside(0, || {
        thread::scope(|scope| {
            let threads: Vec<_> = (0..CONNECTIONS)
                .map(|_| scope.spawn(|| measure(&options, &never)))
                .collect();
            let join = |thread: thread::ScopedJoinHandle<'_, Result<OneWayOutcome, _>>| {
                thread.join().expect("no panic").expect("a measurement")
            };
            threads.into_iter().map(join).collect()
        })
    })
}

/// How long after its time each packet left, µs.
fn errors_of_sending(measured: &Measured) -> Vec<f64> {
    let slots = Slots::new(measured.request.slots().to_vec()).expect("slots");
    let schedule: Vec<Span> = Schedule::new(slots, measured.request.session)
        .take(measured.packets as usize)
        .collect();
    let error = |stamp: &slowpath_path::control::SendStamp| {
        let due = measured
            .request
            .start
            .after(schedule[stamp.sequence as usize]);
        stamp.sent.nanos_since(due) as f64 / 1e3
    };
    measured.stamps.iter().map(error).collect()
}

/// How far both times of each packet are from the captures, µs; how many have none.
fn errors_of_stamps(
    measured: &Measured,
    captures: [&HashMap<Packet, i64>; 2],
    errors: &mut Vec<f64>,
) -> u64 {
    let sent: HashMap<u32, Timestamp> = measured
        .stamps
        .iter()
        .map(|s| (s.sequence, s.sent))
        .collect();
    let mut missing = 0;
    for record in measured.records.iter().filter(|record| !record.lost()) {
        let packet = Packet {
            ports: (
                measured.request.sender.port(),
                measured.request.receiver.port(),
            ),
            sequence: record.sequence,
        };
        let times = [sent.get(&record.sequence).copied(), Some(record.received)];
        for (time, capture) in times.into_iter().zip(captures) {
            match time.zip(capture.get(&packet)) {
                Some((time, captured)) => {
                    errors.push((time.unix_nanos() - captured).abs() as f64 / 1e3)
                }
                None => missing += 1,
            }
        }
    }
    missing
}

fn p99(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let rank = (values.len() * 99).div_ceil(100);
    values.get(rank.checked_sub(1)?).copied()
}

/// CPU of this process so far, s.
fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
