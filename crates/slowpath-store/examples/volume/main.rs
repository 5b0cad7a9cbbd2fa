// SPDX-License-Identifier: Apache-2.0
//! How much the log of one host takes on disk: random problems of random connections
//! through the real writer, in simulated time.
//!
//! `cargo run --release -p slowpath-store --example volume -- [--hours 4] [--seed N]
//! [--connections 1000] [--percent 1] [--turnover 10] [--checkpoint 1] [--keep DIR]`:
//! connections at once, polls of one with a problem, connections that turn over in an hour
//! (both in percent), hours between two checkpoints of a connection. The last line is one
//! JSON object.

mod workload;

use slowpath_model::WallMicros;
use slowpath_store::{HostIdentity, LogWriter, Options};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use workload::{Connection, Random, coverage};

struct Arguments {
    hours: u64,
    seed: u64,
    connections: u64,
    percent: f64,
    turnover: f64,
    checkpoint: u64,
    keep: Option<PathBuf>,
}

fn arguments() -> Result<Arguments, Box<dyn Error>> {
    let mut parsed = Arguments {
        hours: 4,
        seed: SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos() as u64,
        connections: 1_000,
        percent: 1.0,
        turnover: 10.0,
        checkpoint: 1,
        keep: None,
    };
    let mut given = std::env::args().skip(1);
    while let Some(name) = given.next() {
        let value = given
            .next()
            .ok_or_else(|| format!("{name} needs a value"))?;
        match name.as_str() {
            "--hours" => parsed.hours = value.parse()?,
            "--seed" => parsed.seed = value.parse()?,
            "--connections" => parsed.connections = value.parse()?,
            "--percent" => parsed.percent = value.parse()?,
            "--turnover" => parsed.turnover = value.parse()?,
            "--checkpoint" => parsed.checkpoint = value.parse::<u64>()?.max(1),
            "--keep" => parsed.keep = Some(value.into()),
            _ => return Err(format!("unknown argument {name}").into()),
        }
    }
    Ok(parsed)
}

const HOUR: i64 = 3_600_000_000;
const COVERAGE_EVERY: i64 = 10_000_000;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = arguments()?;
    println!("seed {}", arguments.seed);
    let scratch = tempfile::tempdir()?;
    let dir = arguments.keep.as_deref().unwrap_or(scratch.path());
    let mut random = Random(arguments.seed);
    let host = HostIdentity {
        host: "volume".to_owned(),
        boot_id: 0x5f3c_9a01_77e2_4bd1_8c55_3e01_9f2b_6d70,
    };
    let options = Options {
        segment_bytes: u64::MAX,
        ..Options::default()
    };
    let mut log = LogWriter::open(dir, host.clone(), options)?;

    // A midnight, so that simulated hours are whole ones.
    let began = WallMicros(1_795_219_200_000_000);
    let end = began.0 + arguments.hours as i64 * HOUR;
    let mut cookie = 1_000;
    let mut open = |random: &mut Random, now: WallMicros| {
        cookie += 1 + random.exponential(3.0) as u64;
        let mono = (now.0 - began.0) as u64 + 86_400_000_000;
        Connection::new(random, host.boot_id, cookie, now, mono)
    };
    let mut connections: Vec<Connection> = (0..arguments.connections)
        .map(|_| open(&mut random, began))
        .collect();
    log.tick(began);
    for connection in &mut connections {
        log.summary(connection.checkpoint(&mut random, began, false));
    }
    let mut now = began;
    let mut covered = began;
    let mut intervals = 0u64;
    let mut polls = 0u64;
    let working = Instant::now();
    loop {
        let length = random.exponential(500_000.0) as u64 + 1_000;
        let next = WallMicros(now.0 + length as i64);
        let hour_ends = next.0.div_euclid(HOUR) != now.0.div_euclid(HOUR);
        if hour_ends || next.0 >= end {
            // In turns, so that every hour has as many checkpoints.
            let turn = now.0.div_euclid(HOUR) as u64 % arguments.checkpoint;
            for connection in connections
                .iter_mut()
                .filter(|c| c.summary.connection.cookie % arguments.checkpoint == turn)
            {
                log.summary(connection.checkpoint(&mut random, now, false));
            }
            assert!(log.sync(), "{:?}", log.status().last_error);
        }
        if next.0 >= end {
            break;
        }
        now = next;
        log.tick(now);
        if hour_ends {
            // A real hour is long enough for this.
            log.sync();
            while log.status().segments_waiting > 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        polls += 1;
        for connection in &mut connections {
            if random.chance(arguments.percent / 100.0) {
                let interval = connection.trouble(&mut random, now, length);
                // As the agent does.
                if connection.logged_in == log.segment() {
                    log.problem(&interval);
                } else {
                    connection.logged_in = log.segment();
                    let summary = connection.checkpoint(&mut random, now, false);
                    log.problem_of(summary, &interval);
                }
                intervals += 1;
            }
            if random.chance(arguments.turnover / 100.0 * length as f64 / HOUR as f64) {
                log.summary(connection.checkpoint(&mut random, now, true));
                *connection = open(&mut random, now);
                log.summary(connection.checkpoint(&mut random, now, false));
            }
        }
        if now.0 - covered.0 >= COVERAGE_EVERY {
            let stretch = (now.0 - covered.0) as u64;
            log.coverage(&coverage(&mut random, now, stretch, arguments.connections));
            covered = now;
        }
        if polls.is_multiple_of(256) {
            assert!(log.sync(), "{:?}", log.status().last_error);
        }
    }
    let spooled = log.status().spool_bytes;
    let handed = working.elapsed();
    let status = log.close();
    assert_eq!(status.records_dropped, 0);
    assert_eq!(status.last_error, None);

    let mut tables = std::collections::BTreeMap::<String, (u64, u64)>::new();
    visit(dir, &mut |path, bytes| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if let Some((table, _)) = name.split_once('-') {
            let entry = tables.entry(table.to_owned()).or_default();
            entry.0 += 1;
            entry.1 += bytes;
        }
    })?;
    let total: u64 = tables.values().map(|t| t.1).sum();
    let days = arguments.hours as f64 / 24.0;
    println!(
        "{} polls, {intervals} problem intervals in {} hours; spool still open {spooled} bytes; \
         {:.1} s to hand over, {:.1} s in all",
        polls,
        arguments.hours,
        handed.as_secs_f64(),
        working.elapsed().as_secs_f64()
    );
    for (table, (files, bytes)) in &tables {
        println!(
            "{table}: {files} files, {bytes} bytes, {:.2} MB a day, {:.2} bytes an interval",
            *bytes as f64 / 1e6 / days,
            *bytes as f64 / intervals as f64
        );
    }
    println!(
        "{{\"mb_per_day\":{:.2},\"bytes_per_interval\":{:.2},\"rows\":{}}}",
        total as f64 / 1e6 / days,
        total as f64 / intervals as f64,
        status.rows_converted
    );
    Ok(())
}

fn visit(dir: &Path, each: &mut impl FnMut(&Path, u64)) -> std::io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        if metadata.is_dir() {
            visit(&entry.path(), each)?;
        } else if entry.path().extension().is_some_and(|e| e == "parquet") {
            each(&entry.path(), metadata.len());
        }
    }
    Ok(())
}
