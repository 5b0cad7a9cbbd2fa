// SPDX-License-Identifier: Apache-2.0
//! DuckDB counts the rows of the glob again and again while batches are published and files
//! compacted: counts only grow, and no row is there twice.
//!
//! DuckDB is a wheel that `tools/duckdb/peer.py --install` puts into the user's cache.

mod agents;

use agents::{MIDNIGHT, Random, Segment};
use slowpath_fleet::{Intake, IntakeOptions, Receipt, Tables};
use slowpath_model::WallMicros;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

const PEER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tools/duckdb/peer.py");
const HOUR: i64 = 3_600_000_000;
/// Counts until a line on standard input says that all is published; then once more.
const COUNT: &str = "
import duckdb, select, sys
connection = duckdb.connect()
sql = \"SELECT count(*), count(DISTINCT polls) FROM read_parquet('tables/*/*/coverage-*.parquet')\"
last = False
while True:
    last = last or bool(select.select([sys.stdin], [], [], 0)[0])
    print(*connection.execute(sql).fetchone(), flush=True)
    if last:
        break
";

/// The interpreter with DuckDB, or why there is none.
fn interpreter() -> Result<PathBuf, String> {
    let output = Command::new("python3").args([PEER, "--which"]).output();
    let output = output.map_err(|e| format!("python3: {e}"))?;
    if output.status.success() {
        let path = String::from_utf8_lossy(&output.stdout);
        return Ok(PathBuf::from(path.trim()));
    }
    Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
}

/// Rows, and distinct ones, as they are counted.
fn counts(python: &Path, dir: &Path) -> (Child, ChildStdin, Receiver<(u64, u64)>) {
    let mut child = Command::new(python)
        .args(["-c", COUNT])
        .current_dir(dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python runs");
    let stdin = child.stdin.take().expect("is piped");
    let stdout = BufReader::new(child.stdout.take().expect("is piped"));
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in stdout.lines().map_while(Result::ok) {
            let mut numbers = line.split(' ').filter_map(|n| n.parse().ok());
            if let (Some(rows), Some(distinct)) = (numbers.next(), numbers.next()) {
                let _ = sender.send((rows, distinct));
            }
        }
    });
    (child, stdin, receiver)
}

/// Ships rows of one host and publishes them.
fn publish(random: &mut Random, next: &mut u64, (intake, tables): (&Intake, &mut Tables)) {
    let now = MIDNIGHT + 10 * HOUR;
    let mut segment = Segment::new(&format!("b-{next}"));
    for _ in 0..1 + random.below(200) {
        segment.push_numbered(*next, now - random.below(2 * HOUR as u64) as i64);
        *next += 1;
    }
    let (sender, receiver) = channel();
    let batch = segment.rest(1, 0);
    let origin = ("web-1", IpAddr::from([10, 0, 0, 1]));
    intake.submit(origin, batch, WallMicros(now), move |receipt| {
        drop(sender.send(receipt));
    });
    assert!(matches!(receiver.recv(), Ok(Receipt::Flushed(_))));
    let (sender, receiver) = channel();
    intake.end_file(move || {
        let _ = sender.send(());
    });
    receiver.recv().expect("the file ends");
    tables.publish().expect("is published");
    // As if the hours were long over.
    if random.below(4) == 0 {
        let later = WallMicros(now + 40 * HOUR);
        tables.compact(later).expect("is compacted");
    }
}

#[test]
fn counts_by_duckdb_only_grow_during_publication_and_compaction() {
    let python = match interpreter() {
        Ok(python) => python,
        Err(reason) => {
            println!(
                "SKIPPED counts_by_duckdb_only_grow_during_publication_and_compaction: {reason}"
            );
            return;
        }
    };
    /// Counts that are wanted.
    const WANTED: usize = 60;
    let dir = tempfile::tempdir().expect("a directory");
    let intake = Intake::open(dir.path(), IntakeOptions::default()).expect("opens");
    let mut tables = Tables::open(dir.path(), "s1", &intake, WallMicros(MIDNIGHT)).expect("opens");
    let mut random = Random(1);
    let mut next = 0;
    publish(&mut random, &mut next, (&intake, &mut tables));
    let first = next;
    let (mut child, mut stdin, receiver) = counts(&python, dir.path());
    let mut found = Vec::new();
    while found.len() < WANTED {
        publish(&mut random, &mut next, (&intake, &mut tables));
        found.extend(receiver.try_iter());
        // The counter has ended, and says why on standard error.
        assert!(child.try_wait().expect("its status").is_none());
    }
    stdin.write_all(b"\n").expect("takes a line");
    found.extend(receiver.iter());
    assert!(child.wait().expect("ends").success());
    assert!(found[0].0 >= first);
    for pair in found.windows(2) {
        assert!(pair[0].0 <= pair[1].0, "rows vanished: {pair:?}");
    }
    for (rows, distinct) in &found {
        assert_eq!(rows, distinct, "a row twice");
    }
    let grown = found
        .windows(2)
        .filter(|pair| pair[0].0 < pair[1].0)
        .count();
    assert!(grown > 5, "counted beside publication: {grown}");
    assert_eq!(found.last(), Some(&(next, next)), "all is there at last");
}
