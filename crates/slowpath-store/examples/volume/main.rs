// SPDX-License-Identifier: Apache-2.0
//! How much the log of one host takes on disk: random problems of random connections
//! through the real writer, in simulated time.
//!
//! `cargo run --release -p slowpath-store --example volume -- [--hours 4] [--seed N]
//! [--connections 1000] [--percent 1] [--turnover 10] [--checkpoint 1] [--keep DIR]`:
//! connections at once, polls of one with a problem, connections that turn over in an hour
//! (both in percent), hours between two checkpoints of a connection. The last line is one
//! JSON object.

mod traffic;
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

/// A midnight, so that simulated hours are whole ones.
const BEGAN: WallMicros = WallMicros(1_795_219_200_000_000);

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = arguments()?;
    println!("seed {}", arguments.seed);
    let scratch = tempfile::tempdir()?;
    let dir = arguments.keep.as_deref().unwrap_or(scratch.path());
    let host = HostIdentity {
        host: "volume".to_owned(),
        boot_id: BOOT,
    };
    let options = Options {
        segment_bytes: u64::MAX,
        ..Options::default()
    };
    let mut simulation = Simulation {
        random: Random(arguments.seed),
        log: LogWriter::open(dir, host, options)?,
        arguments: &arguments,
        cookie: 1_000,
        connections: Vec::new(),
        intervals: 0,
        polls: 0,
    };
    let working = Instant::now();
    simulation.run();
    let Simulation {
        log,
        intervals,
        polls,
        ..
    } = simulation;
    let spooled = log.status().spool_bytes;
    let handed = working.elapsed();
    let status = log.close();
    assert_eq!(status.records_dropped, 0);
    assert_eq!(status.last_error, None);
    println!(
        "{} polls, {intervals} problem intervals in {} hours; spool still open {spooled} bytes; \
         {:.1} s to hand over, {:.1} s in all",
        polls,
        arguments.hours,
        handed.as_secs_f64(),
        working.elapsed().as_secs_f64()
    );
    print_volume(dir, &arguments, intervals, status.rows_converted)
}

const BOOT: u128 = 0x5f3c_9a01_77e2_4bd1_8c55_3e01_9f2b_6d70;

/// Prints what the tables take on disk.
fn print_volume(
    dir: &Path,
    arguments: &Arguments,
    intervals: u64,
    rows: u64,
) -> Result<(), Box<dyn Error>> {
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
    for (table, (files, bytes)) in &tables {
        println!(
            "{table}: {files} files, {bytes} bytes, {:.2} MB a day, {:.2} bytes an interval",
            *bytes as f64 / 1e6 / days,
            *bytes as f64 / intervals as f64
        );
    }
    println!(
        "{{\"mb_per_day\":{:.2},\"bytes_per_interval\":{:.2},\"rows\":{rows}}}",
        total as f64 / 1e6 / days,
        total as f64 / intervals as f64,
    );
    Ok(())
}

/// A host in simulated time.
struct Simulation<'a> {
    arguments: &'a Arguments,
    random: Random,
    log: LogWriter,
    /// The latest connection's.
    cookie: u64,
    connections: Vec<Connection>,
    intervals: u64,
    polls: u64,
}

/// A connection that opens then.
fn open(cookie: &mut u64, random: &mut Random, now: WallMicros) -> Connection {
    *cookie += 1 + random.exponential(3.0) as u64;
    let mono = (now.0 - BEGAN.0) as u64 + 86_400_000_000;
    Connection::new(random, BOOT, *cookie, now, mono)
}

impl Simulation<'_> {
    fn run(&mut self) {
        let end = BEGAN.0 + self.arguments.hours as i64 * HOUR;
        for _ in 0..self.arguments.connections {
            let connection = open(&mut self.cookie, &mut self.random, BEGAN);
            self.connections.push(connection);
        }
        self.log.tick(BEGAN);
        for connection in &mut self.connections {
            self.log
                .summary(connection.checkpoint(&mut self.random, BEGAN, false));
        }
        let mut now = BEGAN;
        let mut covered = BEGAN;
        loop {
            let length = self.random.exponential(500_000.0) as u64 + 1_000;
            let next = WallMicros(now.0 + length as i64);
            let hour_ends = next.0.div_euclid(HOUR) != now.0.div_euclid(HOUR);
            if hour_ends || next.0 >= end {
                self.checkpoint(now);
            }
            if next.0 >= end {
                break;
            }
            now = next;
            self.log.tick(now);
            if hour_ends {
                // A real hour is long enough for this.
                self.log.sync();
                while self.log.status().segments_waiting > 0 {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            self.poll(now, length);
            if now.0 - covered.0 >= COVERAGE_EVERY {
                let stretch = (now.0 - covered.0) as u64;
                let sockets = self.arguments.connections;
                self.log
                    .coverage(&coverage(&mut self.random, now, stretch, sockets));
                covered = now;
            }
            if self.polls.is_multiple_of(256) {
                assert!(self.log.sync(), "{:?}", self.log.status().last_error);
            }
        }
    }

    /// Checkpoints of the connections whose turn it is: every hour has as many.
    fn checkpoint(&mut self, now: WallMicros) {
        let turns = self.arguments.checkpoint;
        let turn = now.0.div_euclid(HOUR) as u64 % turns;
        for connection in &mut self.connections {
            let traffic = traffic::since_the_hour_began(&mut self.random, connection, now);
            if connection.summary.connection.cookie % turns == turn {
                let summary = connection.checkpoint(&mut self.random, now, false);
                self.log.traffic_of(summary, &traffic);
            } else {
                self.log.traffic_of(&connection.summary, &traffic);
            }
        }
        assert!(self.log.sync(), "{:?}", self.log.status().last_error);
    }

    /// A poll: problems of some connections, and some that close while others open.
    fn poll(&mut self, now: WallMicros, length: u64) {
        self.polls += 1;
        let (random, log) = (&mut self.random, &mut self.log);
        let percent = self.arguments.percent / 100.0;
        let turnover = self.arguments.turnover / 100.0 * length as f64 / HOUR as f64;
        for connection in &mut self.connections {
            if random.chance(percent) {
                let interval = connection.trouble(random, now, length);
                // As the agent does.
                if connection.logged_in == log.segment() {
                    log.problem(&interval);
                } else {
                    connection.logged_in = log.segment();
                    let summary = connection.checkpoint(random, now, false);
                    log.problem_of(summary, &interval);
                }
                self.intervals += 1;
            }
            if random.chance(turnover) {
                let traffic = traffic::since_the_hour_began(random, connection, now);
                log.traffic_of(connection.checkpoint(random, now, true), &traffic);
                *connection = open(&mut self.cookie, random, now);
                log.summary(connection.checkpoint(random, now, false));
            }
        }
    }
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
