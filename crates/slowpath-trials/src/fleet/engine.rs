// SPDX-License-Identifier: Apache-2.0
//! DuckDB as a process that counts the rows of a server's tables once a second, by globs.
//!
//! It is a wheel that `tools/duckdb/peer.py --install` puts into the user's cache.

use super::tally::FleetTally;
use std::collections::BTreeMap;
use std::error::Error;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

const PEER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tools/duckdb/peer.py");
/// Counts once a second until there is a line on standard input; then once more.
const COUNT: &str = r#"
import duckdb, glob, json, select, sys, time
connection = duckdb.connect()
connection.execute("SET threads = 1")
# It would go to standard output.
connection.execute("SET enable_progress_bar = false")
queries = json.loads(sys.argv[1])
last = False
while not last:
    began = time.monotonic()
    last = bool(select.select([sys.stdin], [], [], 0)[0])
    counts = {}
    for table, key in queries.items():
        files = f"tables/*/*/{table}-*.parquet"
        sql = f"SELECT count(*), count(DISTINCT {key}) FROM read_parquet('{files}')"
        counts[table] = connection.execute(sql).fetchone() if glob.glob(files) else (0, 0)
    print(json.dumps(counts), flush=True)
    if not last:
        time.sleep(max(0, began + 1 - time.monotonic()))
"#;

/// Rows by table.
pub(super) type Counts = BTreeMap<&'static str, u64>;
/// The same as DuckDB counts them: rows, and distinct ones.
type Counted = BTreeMap<String, (u64, u64)>;

/// DuckDB; it ends with this value.
pub(super) struct Engine {
    child: Child,
    stdin: ChildStdin,
    lines: Receiver<String>,
    latest: Counted,
}

impl Engine {
    /// Starts to count in a server's directory, or says why it cannot. Of each table: what no two
    /// rows have in common.
    pub(super) fn start(
        directory: &Path,
        queries: &[(&str, &str)],
    ) -> Result<Result<Engine, String>, Box<dyn Error>> {
        let which = Command::new("python3").args([PEER, "--which"]).output();
        let python = match which {
            Ok(output) if output.status.success() => output.stdout,
            Ok(output) => {
                return Ok(Err(String::from_utf8_lossy(&output.stderr)
                    .trim()
                    .to_owned()));
            }
            Err(error) => return Ok(Err(format!("python3: {error}"))),
        };
        let queries: BTreeMap<_, _> = queries.iter().copied().collect();
        let mut child = Command::new(String::from_utf8(python)?.trim())
            .args(["-c", COUNT, &serde_json::to_string(&queries)?])
            .current_dir(directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("a process without its pipes".into());
        };
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            let lines = BufReader::new(stdout).lines().map_while(Result::ok);
            lines.map(|line| sender.send(line)).all(|sent| sent.is_ok())
        });
        Ok(Ok(Engine {
            child,
            stdin,
            lines,
            latest: Counted::new(),
        }))
    }

    /// Looks at what it counted since the last time: no count falls, no row is there twice.
    pub(super) fn check(&mut self, tally: &mut FleetTally) -> Result<(), Box<dyn Error>> {
        if let Some(status) = self.child.try_wait()? {
            return Err(format!("DuckDB has ended: {status}").into());
        }
        while let Ok(line) = self.lines.try_recv() {
            self.compare(&line, tally)?;
        }
        Ok(())
    }

    fn compare(&mut self, line: &str, tally: &mut FleetTally) -> Result<(), Box<dyn Error>> {
        let counted: Counted = serde_json::from_str(line)?;
        tally.counts += 1;
        for (table, (rows, distinct)) in &counted {
            let before = self.latest.get(table).map_or(0, |(rows, _)| *rows);
            if *rows < before {
                tally.find(format!("DuckDB: {table}: {rows} rows after {before}"));
            }
            if rows != distinct {
                tally.doubled_rows += rows.abs_diff(*distinct);
                tally.find(format!("DuckDB: {table}: {rows} rows, {distinct} distinct"));
            }
        }
        self.latest = counted;
        Ok(())
    }

    /// Whether its last counts were at least these.
    pub(super) fn has(&self, accepted: &Counts) -> bool {
        let rows = |table: &str| self.latest.get(table).map_or(0, |(rows, _)| *rows);
        accepted.iter().all(|(table, count)| rows(table) >= *count)
    }

    /// The last count, which has to be this; whatever else was counted has rows.
    pub(super) fn end(
        mut self,
        accepted: &Counts,
        tally: &mut FleetTally,
    ) -> Result<(), Box<dyn Error>> {
        self.check(tally)?;
        self.stdin.write_all(b"\n")?;
        while let Ok(line) = self.lines.recv() {
            self.compare(&line, tally)?;
        }
        let status = self.child.wait()?;
        if !status.success() {
            return Err(format!("DuckDB: {status}").into());
        }
        for (table, (rows, _)) in &self.latest {
            let is_right = match accepted.get(table.as_str()) {
                Some(accepted) => rows == accepted,
                None => *rows > 0,
            };
            if !is_right {
                let accepted = accepted.get(table.as_str());
                tally.find(format!(
                    "DuckDB: {table}: {rows} rows at last, not {accepted:?}"
                ));
            }
        }
        Ok(())
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
