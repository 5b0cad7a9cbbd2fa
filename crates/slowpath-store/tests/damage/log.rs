// SPDX-License-Identifier: Apache-2.0
//! Logs with rows in every table, in Parquet and in a spool, and all that a reader says of them.

use crate::records::{BOOT, HOUR, MIDNIGHT, Random};
use slowpath_model::{
    Finding, InteractionEvidence, InteractionInterval, InteractionKind, ListenerDeltas, ListenerId,
    ListenerInterval, Micros, Owner, Problem, ProblemSet, Share, Tier, WallMicros,
};
use slowpath_store::{
    HostIdentity, IntervalFilter, LogReader, LogWriter, Options, ReadReport, ReadRows, TimeRange,
};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::fs;
use std::path::{Path, PathBuf};

/// Connections, and intervals of each.
const CONNECTIONS: u64 = 4;
const INTERVALS: u64 = 3;

pub fn host() -> HostIdentity {
    HostIdentity {
        host: "here".to_owned(),
        boot_id: BOOT,
    }
}

pub fn open(dir: &Path) -> LogWriter {
    LogWriter::open(dir, host(), Options::default()).unwrap()
}

/// Logs records of every kind, those of the hour that begins then.
pub fn write(log: &mut LogWriter, seed: u64, hour: i64) {
    let mut random = Random(seed);
    let begun = MIDNIGHT + hour * HOUR;
    log.tick(WallMicros(begun));
    for n in 0..CONNECTIONS * INTERVALS {
        let end = WallMicros(begun + 60_000_000 * (1 + n as i64));
        let mut interval = random.interval(end);
        interval.connection.cookie = 100 * seed + n % CONNECTIONS;
        let summary = random.summary(interval.connection, end);
        log.problem_of(&summary, &interval);
        log.coverage(&random.coverage(end));
    }
    let end = WallMicros(begun + 1_000_000);
    let summary = random.summary(random_id(seed), end);
    log.listener(&ListenerInterval {
        listener: ListenerId {
            boot_id: BOOT,
            netns: 7,
            cookie: seed,
        },
        local: "[fd00::1]:443".parse().unwrap(),
        owner: Owner::named(7, "nginx"),
        tier: Tier::Bpf,
        end,
        duration: Micros(1_000_000),
        findings: vec![Finding {
            problem: Problem::AcceptQueueOverflow,
            share: Share::Coarse,
            events: Some(seed),
        }],
        unmeasured: ProblemSet::EMPTY,
        deltas: ListenerDeltas::default(),
    });
    log.interaction(&InteractionInterval {
        kind: InteractionKind::ALL[0],
        connection: summary.connection,
        tuple: summary.tuple,
        owner: Owner::named(7, "nginx"),
        cause: summary.connection,
        cause_tuple: summary.tuple,
        connections: 1,
        end,
        duration: Micros(1_000_000),
        rounds: 1,
        evidence: InteractionEvidence::TimeoutThenDelayedAck {
            timeouts: 2,
            delayed_acks: 1,
            retransmitted_segments: seed,
        },
    });
}

fn random_id(seed: u64) -> slowpath_model::ConnectionId {
    let mut interval = Random(seed).interval(WallMicros(MIDNIGHT));
    interval.connection.cookie = seed;
    interval.connection
}

/// A log whose first hour is in Parquet and whose second one a killed writer left in its spool.
pub fn killed_in_its_second_hour(dir: &Path) -> PathBuf {
    let mut log = open(dir);
    write(&mut log, 1, 0);
    log.close();
    let mut log = open(dir);
    write(&mut log, 2, 1);
    assert!(log.sync());
    let [spool] = files(dir, ".spool").try_into().expect("one spool");
    let bytes = fs::read(&spool).unwrap();
    log.close();
    fs::remove_dir_all(dir.join("date=2026-11-21/hour=01")).unwrap();
    fs::write(&spool, bytes).unwrap();
    spool
}

/// The files below a directory whose names end like this.
pub fn files(dir: &Path, suffix: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut left = vec![dir.to_owned()];
    while let Some(dir) = left.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                left.push(path);
            } else if path.to_string_lossy().ends_with(suffix) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// All rows of a log by their table, and all that is said to be missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contents {
    pub rows: BTreeMap<&'static str, Vec<String>>,
    pub lines: Vec<String>,
}

impl Contents {
    pub fn count(&self, table: &str) -> usize {
        self.rows[table].len()
    }

    /// The lines that say something of this file.
    pub fn said_of(&self, path: &Path) -> Vec<&String> {
        let name = path.to_str().unwrap();
        let lines = self.lines.iter();
        lines.filter(|line| line.contains(name)).collect()
    }
}

pub fn read(dir: &Path) -> Contents {
    let log = LogReader::open(dir).unwrap();
    let mut report = ReadReport::default();
    let mut rows = BTreeMap::new();
    let all = TimeRange::ALL;
    let mut add = |table, (mut texts, read): (Vec<String>, ReadReport)| {
        texts.sort();
        rows.insert(table, texts);
        report.absorb(read);
    };
    let intervals = log.intervals(all, &IntervalFilter::default()).unwrap();
    add("intervals", texts(intervals));
    add("connections", texts(log.connections(all).unwrap()));
    add("coverage", texts(log.coverage(all).unwrap()));
    add("listeners", texts(log.listeners(all).unwrap()));
    add("interactions", texts(log.interactions(all).unwrap()));
    add("traffic", texts(log.traffic(all).unwrap()));
    add("hops", texts(log.hops(all).unwrap()));
    Contents {
        rows,
        lines: report.lines(),
    }
}

fn texts<T: Debug>(read: ReadRows<T>) -> (Vec<String>, ReadReport) {
    let texts = read.rows.iter().map(|row| format!("{row:?}")).collect();
    (texts, read.report)
}
