// SPDX-License-Identifier: Apache-2.0
//! What ingest and publication cost: batches of many hosts, as they travel, are read, taken in,
//! published and compacted. Build it with optimisation.
//!
//! `cargo run --release -p slowpath-fleet --example fleet-ingest -- [--hosts N] [--seconds N] [--dir DIR]`
//!
//! Every host sends 27 records every 5 s: problem intervals, now and then a connection's summary, and
//! a coverage record. CPU times are the process's, so that all threads count. The last line is one
//! JSON object.

#[allow(dead_code)]
#[path = "../../slowpath-store/examples/volume/workload.rs"]
mod workload;

use rustix::time::{ClockId, clock_gettime};
use slowpath_fleet::{Intake, IntakeOptions, Receipt, Tables};
use slowpath_model::WallMicros;
use slowpath_ship::batch::{Encoder, Header, Items, Prefix, Reader, SentClock};
use slowpath_store::spool::{self, RawRecord, Record, encode_header};
use slowpath_store::tables::encode_record;
use slowpath_store::{HostIdentity, SCHEMA_VERSION};
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use workload::{Connection, Random};

/// 2026-11-21T09:00:00Z.
const START: i64 = 1_795_251_600_000_000;
const BATCH_SECONDS: u64 = 5;
const RECORDS: usize = 27;
/// Connections of a host that have problems.
const TROUBLED: usize = 8;

struct Arguments {
    hosts: usize,
    seconds: u64,
    dir: Option<PathBuf>,
}

fn arguments() -> Arguments {
    let mut found = Arguments {
        hosts: 8_000,
        seconds: 60,
        dir: None,
    };
    let mut given = std::env::args().skip(1);
    while let Some(name) = given.next() {
        let value = given.next().expect("every option has a value");
        match name.as_str() {
            "--hosts" => found.hosts = value.parse().expect("a number"),
            "--seconds" => found.seconds = value.parse().expect("a number"),
            "--dir" => found.dir = Some(value.into()),
            _ => panic!("no option is called {name}"),
        }
    }
    found
}

/// CPU time of the process, seconds.
fn cpu() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

struct Host {
    name: String,
    boot_id: u128,
    segment: String,
    connections: Vec<Connection>,
    offset: u64,
    prefix: Prefix,
}

impl Host {
    fn new(random: &mut Random, number: usize) -> Self {
        let boot_id = (number as u128) << 96 | 7;
        let now = WallMicros(START);
        let connections = 0..TROUBLED as u64;
        let connections =
            connections.map(|cookie| Connection::new(random, boot_id, cookie, now, 1_000_000));
        Host {
            name: format!("host-{number:05}.example"),
            boot_id,
            segment: format!("{number:08x}-81723612345-0001"),
            connections: connections.collect(),
            offset: 0,
            prefix: Prefix::default(),
        }
    }

    /// Its next batch, as it travels.
    fn batch(&mut self, random: &mut Random, encoder: &mut Encoder, now: WallMicros) -> Vec<u8> {
        let mut items = Items::default();
        if self.offset == 0 {
            items.push_header(&encode_header(&spool::Header {
                schema_version: SCHEMA_VERSION,
                host: HostIdentity {
                    host: self.name.clone(),
                    boot_id: self.boot_id,
                },
                segment: self.segment.clone(),
                begun: now,
            }));
        }
        let mut push = |record: &Record| {
            let mut bytes = Vec::new();
            encode_record(record, self.boot_id, &mut bytes);
            items.push_record(RawRecord::at_start(&bytes).expect("a record was encoded"));
        };
        let coverage = workload::coverage(random, now, 5_000_000, 150);
        push(&Record::Coverage(Box::new(coverage)));
        for n in 1..RECORDS {
            let connection = &mut self.connections[n % TROUBLED];
            let end = WallMicros(now.0 - (RECORDS - n) as i64 * 180_000);
            if connection.logged_in == 0 || random.chance(0.005) {
                connection.logged_in = 1;
                let summary = connection.checkpoint(random, end, false).clone();
                push(&Record::Summary(Box::new(summary)));
            } else {
                let interval = connection.trouble(random, end, 500_000);
                push(&Record::Problem(Box::new(interval)));
            }
        }
        let header = Header {
            framing: spool::SPOOL_VERSION,
            schema: SCHEMA_VERSION,
            last: false,
            run: self.boot_id,
            number: self.offset,
            boot_id: self.boot_id,
            clock: SentClock {
                sent: now,
                state: 0,
                max_error_us: Some(500),
            },
            clock_offset: None,
            offset: self.offset,
            prefix: self.prefix,
            segment: self.segment.clone(),
            items_length: 0,
            items_crc: 0,
        };
        let mut pieces = items.pieces(self.offset, self.prefix);
        while pieces.next().is_some() {}
        (self.offset, self.prefix) = (pieces.offset(), pieces.prefix());
        encoder.encode(&header, &items).expect("is compressed")
    }
}

#[derive(Default)]
struct Cpu {
    read: f64,
    intake: f64,
    publish: f64,
    compact: f64,
}

fn main() {
    let arguments = arguments();
    let temporary = tempfile::tempdir().expect("a directory");
    let dir = arguments.dir.as_deref().unwrap_or(temporary.path());
    let intake = Intake::open(dir, IntakeOptions::default()).expect("the intake opens");
    let mut tables = Tables::open(dir, "s1", &intake, WallMicros(START)).expect("the tables open");
    let mut random = Random(1);
    let numbers = 0..arguments.hosts;
    let mut hosts: Vec<Host> = numbers.map(|n| Host::new(&mut random, n)).collect();
    let mut encoder = Encoder::new().expect("memory for zstd");
    let mut spent = Cpu::default();
    let (mut records, mut wire, mut rows) = (0, 0, 0);
    for round in 0..arguments.seconds / BATCH_SECONDS {
        let now = WallMicros(START + ((round + 1) * BATCH_SECONDS) as i64 * 1_000_000);
        let batches: Vec<Vec<u8>> = hosts
            .iter_mut()
            .map(|host| host.batch(&mut random, &mut encoder, now))
            .collect();
        wire += batches.iter().map(Vec::len).sum::<usize>();
        take_in(&intake, (&hosts, &batches), now, &mut spent);
        drop(batches);
        let begun = cpu();
        let published = tables.publish().expect("is published");
        spent.publish += cpu() - begun;
        records += published.records;
        rows += published.rows;
    }
    let (sender, receiver) = channel();
    intake.end_file(move || {
        let _ = sender.send(());
    });
    receiver.recv().expect("the file ends");
    let begun = cpu();
    let published = tables.publish().expect("is published");
    spent.publish += cpu() - begun;
    records += published.records;
    rows += published.rows;
    let bytes = size(&dir.join("tables"));
    let begun = cpu();
    let later = WallMicros(START + 30 * 3_600_000_000);
    let mut files = 0;
    loop {
        let done = tables.compact(later).expect("is compacted");
        files += done;
        if done == 0 {
            break;
        }
    }
    spent.compact = cpu() - begun;
    let live = spent.read + spent.intake + spent.publish;
    let per_second = records as f64 / live;
    println!(
        "{records} records, {rows} rows, {wire} bytes as they travelled; µs a record: read {:.2}, intake {:.2}, publish {:.2}, compact {:.2} ({files} files)",
        spent.read * 1e6 / records as f64,
        spent.intake * 1e6 / records as f64,
        spent.publish * 1e6 / records as f64,
        spent.compact * 1e6 / records as f64,
    );
    println!(
        "{{\"hosts\": {}, \"records\": {records}, \"records_per_second\": {per_second:.0}, \"rows_per_second\": {:.0}, \"core_percent_at_44000\": {:.1}, \"bytes_per_row\": {:.2}, \"bytes_per_record\": {:.2}, \"compacted_bytes_per_record\": {:.2}, \"wire_bytes_per_record\": {:.2}, \"flushes\": {}, \"rss_mib\": {}}}",
        arguments.hosts,
        rows as f64 / live,
        44_000.0 / per_second * 100.0,
        bytes as f64 / rows as f64,
        bytes as f64 / records as f64,
        size(&dir.join("tables")) as f64 / records as f64,
        wire as f64 / records as f64,
        intake.counters().flushes,
        resident_mib(),
    );
}

fn take_in(
    intake: &Intake,
    (hosts, batches): (&[Host], &[Vec<u8>]),
    now: WallMicros,
    spent: &mut Cpu,
) {
    let mut reader = Reader::new().expect("memory for zstd");
    let (sender, receiver) = channel();
    // As many as the queue takes.
    for part in hosts.iter().zip(batches).collect::<Vec<_>>().chunks(2_000) {
        let begun = cpu();
        let read = part
            .iter()
            .map(|(_, body)| reader.read(body).expect("is whole"));
        let read: Vec<_> = read.collect();
        let then = cpu();
        spent.read += then - begun;
        for ((host, _), batch) in part.iter().zip(read) {
            let sender = sender.clone();
            let address = IpAddr::V4(Ipv4Addr::from(0x0a00_0000 | (host.boot_id >> 96) as u32));
            intake.submit((&host.name, address), batch, now, move |receipt| {
                drop(sender.send(receipt));
            });
        }
        for _ in part {
            let receipt = receiver.recv().expect("an answer");
            assert!(matches!(receipt, Receipt::Flushed(_)), "{receipt:?}");
        }
        spent.intake += cpu() - then;
    }
}

fn size(dir: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(dir) else {
        return std::fs::metadata(dir).map_or(0, |metadata| metadata.len());
    };
    entries.flatten().map(|entry| size(&entry.path())).sum()
}

/// The most memory that was resident.
fn resident_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) / 1_024
}
