// SPDX-License-Identifier: Apache-2.0
//! Writes what `tests/released.rs` reads for ever after: a small log in the format of this
//! version, two segments in Parquet and one still in its spool, and beside it what it
//! should hold.
//!
//! `cargo run -p slowpath-store --example fixture -- crates/slowpath-store/tests/released/v2`,
//! once for every schema version, before its release; never over an older one.

#[path = "../tests/records/mod.rs"]
mod records;

use records::{BOOT, HOUR, MIDNIGHT, Random};
use serde_json::{Value, json};
use slowpath_model::{Micros, WallMicros};
use slowpath_store::{HostIdentity, LogWriter, Options, SCHEMA_VERSION};
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    let dir = PathBuf::from(
        std::env::args()
            .nth(1)
            .ok_or("name the directory to write")?,
    );
    if dir.exists() {
        return Err(format!("{} exists; released files do not change", dir.display()).into());
    }
    let host = HostIdentity {
        host: "fixture".to_owned(),
        boot_id: BOOT,
    };
    let options = Options {
        merge_up_to: Micros::ZERO,
        ..Options::default()
    };
    let mut log = LogWriter::open(&dir, host, options)?;
    let mut random = Random(20_261_121);
    let mut rows = Expected::default();
    for segment in 0..3 {
        write_segment(&mut log, segment, &mut random, &mut rows);
        if !log.sync() {
            return Err(format!("{:?}", log.status().last_error).into());
        }
    }
    while log.status().segments_converted < 2 {
        std::thread::yield_now();
    }
    close_as_killed(log, &dir)?;
    let expected = json!({
        "schema_version": SCHEMA_VERSION,
        "intervals": rows.intervals,
        "connections": rows.connections,
        "coverage": rows.coverage,
    });
    fs::write(
        dir.join("expected.json"),
        serde_json::to_string_pretty(&expected)? + "\n",
    )?;
    println!("wrote {}", dir.display());
    Ok(())
}

/// Rows that a reader should find.
#[derive(Default)]
struct Expected {
    intervals: Vec<Value>,
    connections: Vec<Value>,
    coverage: Vec<Value>,
}

/// Writes the records of a segment, which is also an hour.
fn write_segment(log: &mut LogWriter, segment: i64, random: &mut Random, rows: &mut Expected) {
    let now = WallMicros(MIDNIGHT + segment * HOUR);
    log.tick(now);
    for i in 0..12 {
        let mut interval = random.interval(now + Micros(1_000_000 * i));
        interval.connection.cookie = 100 * segment as u64 + i;
        log.problem(&interval);
        rows.intervals.push(json!({
            "cookie": interval.connection.cookie,
            "end": interval.end.0,
            "duration": interval.duration.0,
            "problems": interval.findings.iter().map(|f| f.problem.name()).collect::<Vec<_>>(),
            "events": interval.findings.iter().map(|f| f.events).collect::<Vec<_>>(),
            "timeouts": interval.deltas.timeouts,
            "retransmitted": interval.deltas.retransmitted,
            "send_mss": interval.deltas.send_mss,
        }));
    }
    for i in 0..4 {
        let mut id = random.connection(10);
        id.cookie = 100 * segment as u64 + i;
        let summary = random.summary(id, now);
        log.summary(&summary);
        rows.connections.push(json!({
            "cookie": id.cookie,
            "local": summary.tuple.local.to_string(),
            "remote": summary.tuple.remote.to_string(),
            "command": summary.owner.command(),
            "last_seen": summary.last_observed.0,
            "observed": summary.observed.0,
            "problem_time": summary.problem_time.map(|t| t.0),
            "problem_events": summary.problem_events,
            "retransmitted": summary.stats.retransmitted,
            "closed": summary.closed,
        }));
    }
    for i in 0..2 {
        let record = random.coverage(now + Micros(i));
        log.coverage(&record);
        rows.coverage.push(json!({
            "end": record.end.0,
            "polls": record.polls,
            "records_dropped": record.losses.records_dropped,
            "cpu": record.cpu.0,
        }));
    }
}

/// Leaves the log as a killed writer does: the last segment in its spool only.
fn close_as_killed(log: LogWriter, dir: &Path) -> Result<(), Box<dyn Error>> {
    let spool = fs::read_dir(dir.join("spool"))?
        .next()
        .ok_or("the last segment has a spool")??
        .path();
    let bytes = fs::read(&spool)?;
    log.close();
    fs::remove_dir_all(dir.join("date=2026-11-21/hour=02"))?;
    fs::write(&spool, bytes)?;
    fs::remove_file(dir.join("lock"))?;
    Ok(())
}
