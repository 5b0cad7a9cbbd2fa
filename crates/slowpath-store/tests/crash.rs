// SPDX-License-Identifier: Apache-2.0
//! Writers killed at random moments: what they handed over more than a second before is
//! there, and nothing is there twice. What was handed over is reported by a pipe, not by the log.

mod records;

use records::{BOOT, Random};
use slowpath_model::{Micros, WallMicros};
use slowpath_store::spool::{MAX_HEADER, Payload, Record, Scan, Stretch, header_of};
use slowpath_store::{HostIdentity, IntervalFilter, LogReader, LogWriter, Options, TimeRange};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const KILLS: usize = 100;
/// For `make soak`.
const MANY_KILLS: usize = 500;
/// Directories, each with its own succession of writers.
const LOGS: usize = 10;
/// The age from which a record must be readable.
const AGE: Duration = Duration::from_secs(1);

const DIR: &str = "SLOWPATH_STORE_TEST_DIR";
const FIRST: &str = "SLOWPATH_STORE_TEST_FIRST";
const SEGMENT: &str = "SLOWPATH_STORE_TEST_SEGMENT_US";
const SHIP: &str = "SLOWPATH_STORE_TEST_SHIP";

static TERMINATED: AtomicBool = AtomicBool::new(false);

extern "C" fn terminate(_signal: libc::c_int) {
    TERMINATED.store(true, Ordering::Relaxed);
}

/// Not a test of its own: the writer that the tests start and kill. Every record carries a
/// number, and a line with that number and the time follows on standard output.
#[test]
fn the_writer_that_is_killed() {
    let (Some(dir), Ok(first)) = (std::env::var_os(DIR), std::env::var(FIRST)) else {
        return;
    };
    // SAFETY: the handler only stores to an atomic.
    unsafe { libc::signal(libc::SIGTERM, terminate as *const () as libc::sighandler_t) };
    let host = HostIdentity {
        host: "here".to_owned(),
        boot_id: BOOT,
    };
    let segment = std::env::var(SEGMENT).unwrap().parse().unwrap();
    // Ages as they are by default.
    let options = Options {
        segment_time: Micros(segment),
        ship: std::env::var_os(SHIP).is_some(),
        ..Options::default()
    };
    let mut log = LogWriter::open(Path::new(&dir), host, options).unwrap();
    let mut number: u64 = first.parse().unwrap();
    let mut random = Random(number);
    let mut out = std::io::stdout().lock();
    while !TERMINATED.load(Ordering::Relaxed) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let now = WallMicros(now.as_micros() as i64);
        log.tick(now);
        for _ in 0..1 + random.below(5) {
            if number % 4 == 3 {
                let mut coverage = random.coverage(now);
                coverage.polls = number;
                log.coverage(&coverage);
            } else {
                let mut interval = random.interval(now);
                interval.connection.cookie = number;
                log.problem(&interval);
            }
            writeln!(out, "handed {number} {}", monotonic().as_micros()).unwrap();
            number += 1;
        }
        out.flush().unwrap();
        std::thread::sleep(Duration::from_millis(1 + random.below(15)));
    }
    let status = log.close();
    assert_eq!((status.last_error, status.records_dropped), (None, 0));
}

/// Time on the clock that parent and child share.
fn monotonic() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Starts a writer; waits until it has handed over its first record.
fn start(
    dir: &Path,
    first: u64,
    segment: Duration,
    ship: bool,
) -> (Child, std::thread::JoinHandle<Vec<(u64, Duration)>>) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    if ship {
        command.env(SHIP, "1");
    }
    let mut child = command
        .args([
            "the_writer_that_is_killed",
            "--exact",
            "--nocapture",
            "--test-threads=1",
        ])
        .env(DIR, dir)
        .env(FIRST, first.to_string())
        .env(SEGMENT, segment.as_micros().to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let out = child.stdout.take().unwrap();
    let (begun, wait) = std::sync::mpsc::channel();
    let handed = std::thread::spawn(move || {
        let mut handed = Vec::new();
        for line in BufReader::new(out).split(b'\n') {
            let line = line.unwrap();
            let line = String::from_utf8_lossy(&line);
            // libtest's own line may precede on the same line; a killed writer's last may be cut.
            let words: Vec<&str> = line.split_whitespace().collect();
            if let [.., "handed", number, time] = words[..]
                && let (Ok(number), Ok(time)) = (number.parse(), time.parse())
            {
                handed.push((number, Duration::from_micros(time)));
                begun.send(()).ok();
            }
        }
        handed
    });
    wait.recv_timeout(Duration::from_secs(60))
        .expect("the writer hands something over");
    (child, handed)
}

/// The numbers in the log; each once.
fn numbers(dir: &Path) -> BTreeSet<u64> {
    let reader = LogReader::open(dir).unwrap();
    let intervals = reader
        .intervals(TimeRange::ALL, &IntervalFilter::default())
        .unwrap();
    let coverage = reader.coverage(TimeRange::ALL).unwrap();
    for report in [&intervals.report, &coverage.report] {
        assert_eq!(report.unreadable, []);
        assert_eq!((report.corrupt, report.not_understood), (0, 0));
    }
    let mut numbers = BTreeSet::new();
    let all = intervals.rows.iter().map(|i| i.connection.cookie);
    for number in all.chain(coverage.rows.iter().map(|c| c.polls)) {
        assert!(numbers.insert(number), "record {number} is there twice");
    }
    numbers
}

/// The numbers in the spools, those kept for a server included; each once.
fn waiting_to_be_shipped(dir: &Path) -> BTreeSet<u64> {
    let mut numbers = BTreeSet::new();
    for folder in ["spool", "ship"] {
        let Ok(entries) = std::fs::read_dir(dir.join(folder)) else {
            continue;
        };
        for entry in entries {
            let mut file = std::fs::File::open(entry.unwrap().path()).unwrap();
            let mut start = Vec::new();
            (&file)
                .take(MAX_HEADER as u64)
                .read_to_end(&mut start)
                .unwrap();
            let Ok((header, length)) = header_of(&start) else {
                // Its writer was killed before the first record.
                continue;
            };
            file.seek(SeekFrom::Start(length as u64)).unwrap();
            let mut scan = Scan::new(file);
            while let Some(stretch) = scan.next().unwrap() {
                let Stretch::Record(record) = stretch else {
                    panic!("damage: {stretch:?}");
                };
                let number = match record.decode(header.host.boot_id) {
                    Payload::Record(Record::Problem(interval)) => interval.connection.cookie,
                    Payload::Record(Record::Coverage(coverage)) => coverage.polls,
                    other => panic!("not written: {other:?}"),
                };
                assert!(numbers.insert(number), "record {number} is there twice");
            }
        }
    }
    numbers
}

/// One log over many lives of its writer. Returns how many records had to be there.
fn lives(log: usize, seed: u64, kills: usize) -> usize {
    let dir = tempfile::tempdir().unwrap();
    let mut random = Random(seed ^ (log as u64) << 32);
    // Segments so short that a kill often meets a conversion, and ones so long that only a
    // record's age brings it to the disk.
    let segment = Duration::from_millis(if log.is_multiple_of(2) {
        400
    } else {
        3_600_000
    });
    let ship = log % 4 >= 2;
    let mut must = BTreeSet::new();
    let mut may = BTreeSet::new();
    for life in 0..kills / LOGS {
        let (mut child, handed) = start(dir.path(), 1_000_000 * life as u64, segment, ship);
        let wait = 100 + random.below(2_500);
        std::thread::sleep(Duration::from_millis(wait));
        let killed = monotonic();
        child.kill().unwrap();
        child.wait().unwrap();
        for (number, time) in handed.join().unwrap() {
            may.insert(number);
            if killed.saturating_sub(time) > AGE {
                must.insert(number);
            }
        }
        let found = numbers(dir.path());
        let lost: Vec<_> = must.difference(&found).collect();
        assert!(
            lost.is_empty(),
            "log {log}, life {life}, killed after {wait} ms: lost {lost:?}"
        );
        // A record may be in the log whose line did not make it into the pipe: at most the
        // last one of a life.
        let unheard = found.difference(&may).count();
        assert!(
            unheard <= life + 1,
            "{unheard} records that no writer reported"
        );
        if ship {
            assert_eq!(waiting_to_be_shipped(dir.path()), found);
        }
        // What survived a kill survives all that follow.
        must = found;
    }
    must.len()
}

#[test]
fn killed_writers_lose_nothing_older_than_a_second() {
    survive(KILLS);
}

#[test]
#[ignore = "soak: 500 kills take minutes"]
fn many_killed_writers_lose_nothing_older_than_a_second() {
    survive(MANY_KILLS);
}

fn survive(kills: usize) {
    let seed = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_nanos() as u64;
    println!("seed {seed}");
    let begun = Instant::now();
    let logs: Vec<_> = (0..LOGS)
        .map(|log| std::thread::spawn(move || lives(log, seed, kills)))
        .collect();
    let mut records = 0;
    for log in logs {
        records += log
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    }
    println!(
        "{kills} kills, {records} records checked, {:.1?}",
        begun.elapsed()
    );
    assert!(records > 1_000, "the writers wrote");
}

#[test]
fn sigterm_in_the_middle_of_a_segment_keeps_everything() {
    let dir = tempfile::tempdir().unwrap();
    let (mut child, handed) = start(dir.path(), 0, Duration::from_secs(3_600), false);
    std::thread::sleep(Duration::from_millis(150));
    let pid = libc::pid_t::try_from(child.id()).unwrap();
    // SAFETY: sends a signal to a child that has not been waited for.
    assert_eq!(unsafe { libc::kill(pid, libc::SIGTERM) }, 0);
    assert!(child.wait().unwrap().success());
    let handed: BTreeSet<u64> = handed.join().unwrap().into_iter().map(|h| h.0).collect();
    assert_eq!(numbers(dir.path()), handed);
    let spools = std::fs::read_dir(dir.path().join("spool")).unwrap().count();
    assert_eq!(spools, 0, "all of it in Parquet");
}
