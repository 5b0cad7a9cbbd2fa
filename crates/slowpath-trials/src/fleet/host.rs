// SPDX-License-Identifier: Apache-2.0
//! A host as a process: the log's writer and the agent's shipper, and rows of a connection each.

use super::observer::observe;
use crate::records;
use serde::{Deserialize, Serialize};
use slowpath_model::{ConnectionId, Micros, MonoNanos, WallMicros};
use slowpath_ship::shipper::{Shipper, ShipperOptions};
use slowpath_store::{HostIdentity, LogWriter, OpenError, Options, Retention, WriterStatus};
use std::error::Error;
use std::io::{BufRead, BufReader, Write, stdin, stdout};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The variable of the environment that has such a process's task.
pub const TASK: &str = "SLOWPATH_TRIALS_HOST";
/// Between two groups of rows.
const STEP: Duration = Duration::from_millis(10);
/// Steps between two reports.
const REPORT: u64 = 5;

/// What a host does.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Task {
    pub log: PathBuf,
    pub identity: PathBuf,
    /// Where the server is, if it is not where it was joined.
    pub server: Option<String>,
    /// Hexadecimal: JSON has no number of that size.
    pub boot_id: String,
    /// Which of the processes of this host it is; part of its connections' cookies.
    pub run: u32,
    /// Rows a second; 0: it only ships what is there.
    pub rows: u64,
    /// It observes its network namespace instead of drawing rows.
    pub observes: bool,
    /// The clock of its rows begins so far back and goes so many times as fast.
    pub behind: Duration,
    pub speed: u32,
    pub segment_bytes: u64,
    pub ship_limit: u64,
}

impl Task {
    /// Rows at the pace of the clock, in segments of 128 KiB.
    pub(super) fn new(home: &Path) -> Self {
        Task {
            log: home.join("log"),
            identity: home.join("identity"),
            server: None,
            boot_id: format!("{:x}", records::BOOT),
            run: 0,
            rows: 400,
            observes: false,
            behind: Duration::ZERO,
            speed: 1,
            segment_bytes: 128 << 10,
            ship_limit: 256 << 20,
        }
    }
}

/// How a host fares.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Report {
    /// Steps of its loop.
    pub steps: u64,
    /// Bytes that wait for the server.
    pub waiting_bytes: u64,
    pub batches: u64,
    pub lost_bytes: u64,
    /// Rows that the log took no longer.
    pub dropped_rows: u64,
    pub log_error: Option<String>,
    pub ship_error: Option<String>,
    /// Segments of which the server has other bytes.
    pub conflicts: Vec<String>,
    /// It refuses this host as such.
    pub stopped: Option<String>,
    /// Lines for the journal.
    pub journal: Vec<String>,
}

/// The process, if the environment has its [`TASK`]; false if it does not. It reports on its standard
/// output. A line of its standard input ends it in order, the input's end at once.
///
/// # Errors
/// The task cannot be read, the log not be opened, or shipping not be started.
pub fn run_if_asked() -> Result<bool, Box<dyn Error>> {
    match std::env::var(TASK) {
        Ok(task) => child(&serde_json::from_str(&task)?).map(|()| true),
        Err(_) => Ok(false),
    }
}

fn child(task: &Task) -> Result<(), Box<dyn Error>> {
    let asked = Arc::new(AtomicBool::new(false));
    let ends = asked.clone();
    spawn(move || {
        if stdin().lock().lines().next().is_none() {
            std::process::exit(1);
        }
        ends.store(true, Ordering::Relaxed);
    });
    if task.observes {
        let shipping = Shipping::start(task)?;
        let mut steps = 0;
        observe(&task.log, || {
            steps += 1;
            let goes_on = !asked.load(Ordering::Relaxed);
            goes_on && print(&shipping.report(steps)).is_ok()
        })?;
        shipping.shipper.stop();
        return Ok(());
    }
    let boot_id = u128::from_str_radix(&task.boot_id, 16)?;
    let mut log = open_log(task, boot_id)?;
    let shipping = Shipping::start(task)?;
    let mut rows = Rows::new(task, boot_id)?;
    let mut step = 0;
    while !asked.load(Ordering::Relaxed) {
        rows.write(&mut log, step);
        if step % REPORT == 0 {
            let mut report = shipping.report(step);
            report.of_log(&log.status());
            print(&report)?;
        }
        step += 1;
        sleep(STEP);
    }
    let log = log.close();
    let ship = shipping.shipper.stop();
    if let Some(error) = log.last_error.or(ship.last_error) {
        eprintln!("{error}");
    }
    Ok(())
}

fn open_log(task: &Task, boot_id: u128) -> Result<LogWriter, OpenError> {
    let host = HostIdentity {
        host: "host".to_owned(),
        boot_id,
    };
    let options = Options {
        batch_age: Duration::from_millis(20),
        segment_bytes: task.segment_bytes,
        ship: true,
        retention: Retention {
            max_bytes: 1 << 40,
            max_age: None,
        },
        ..Options::default()
    };
    LogWriter::open(&task.log, host, options)
}

/// The shipper, and what it said.
struct Shipping {
    shipper: Shipper,
    journal: Arc<Mutex<Vec<String>>>,
}

impl Shipping {
    fn start(task: &Task) -> Result<Self, Box<dyn Error>> {
        let journal = Arc::new(Mutex::new(Vec::new()));
        let lines = journal.clone();
        let options = ShipperOptions {
            log: task.log.clone(),
            identity: task.identity.clone(),
            server: task.server.as_deref().map(str::parse).transpose()?,
            limit: task.ship_limit,
            interval: Duration::from_millis(60),
        };
        let say = move |_, line: &str| locked(&lines).push(line.to_owned());
        Ok(Shipping {
            shipper: Shipper::start(options, Box::new(say))?,
            journal,
        })
    }

    fn report(&self, steps: u64) -> Report {
        let ship = self.shipper.status();
        Report {
            steps,
            waiting_bytes: ship.queue.waiting_bytes,
            batches: ship.batches,
            lost_bytes: ship.queue.lost_bytes.values().sum(),
            dropped_rows: 0,
            log_error: None,
            ship_error: ship.last_error,
            conflicts: ship.queue.conflicts,
            stopped: ship.stopped.map(|reason| format!("{reason:?}")),
            journal: locked(&self.journal).clone(),
        }
    }
}

impl Report {
    fn of_log(&mut self, log: &WriterStatus) {
        self.waiting_bytes += log.buffered_bytes as u64;
        self.dropped_rows = log.records_dropped;
        self.log_error.clone_from(&log.last_error);
    }
}

fn locked(journal: &Mutex<Vec<String>>) -> MutexGuard<'_, Vec<String>> {
    journal.lock().unwrap_or_else(PoisonError::into_inner)
}

fn print(report: &Report) -> Result<(), Box<dyn Error>> {
    writeln!(stdout().lock(), "{}", serde_json::to_string(report)?)?;
    Ok(())
}

/// Rows of a connection each: half of them intervals, half summaries.
struct Rows {
    random: records::Random,
    boot_id: u128,
    run: u32,
    /// Rows so far, and in each second.
    number: u64,
    a_second: u64,
    began: WallMicros,
    speed: u32,
}

impl Rows {
    fn new(task: &Task, boot_id: u128) -> Result<Self, Box<dyn Error>> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH)? - task.behind;
        Ok(Rows {
            random: records::Random(u64::from(task.run) << 32 | boot_id as u64 & 0xffff_ffff),
            boot_id,
            run: task.run,
            number: 0,
            a_second: task.rows,
            began: WallMicros(now.as_micros() as i64),
            speed: task.speed,
        })
    }

    fn write(&mut self, log: &mut LogWriter, step: u64) {
        let elapsed = STEP.as_micros() as u64 * step;
        let now = self.began + Micros(elapsed * u64::from(self.speed));
        log.tick(now);
        while self.number * 1_000_000 < self.a_second * elapsed {
            let cookie = u64::from(self.run) << 32 | self.number;
            let connection = ConnectionId {
                boot_id: self.boot_id,
                netns: 1,
                cookie,
                start: MonoNanos(cookie),
            };
            if self.number.is_multiple_of(2) {
                let mut interval = self.random.interval(now);
                interval.connection = connection;
                log.problem(&interval);
            } else {
                log.summary(&self.random.summary(connection, now));
            }
            self.number += 1;
        }
    }
}

/// A host's process; it is killed with this value.
pub(super) struct Process {
    child: Child,
    stdin: Option<ChildStdin>,
    latest: Arc<Mutex<Report>>,
    reader: Option<JoinHandle<()>>,
}

impl Process {
    /// Starts a host by a command, which may begin with others such as `ip netns exec NAME`.
    pub(super) fn start(words: &[String], task: &Task) -> Result<Process, Box<dyn Error>> {
        let (program, arguments) = words.split_first().ok_or("a host without a command")?;
        let mut child = Command::new(program)
            .args(arguments)
            .env(TASK, serde_json::to_string(task)?)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("running {program}: {error}"))?;
        let stdout = child.stdout.take().ok_or("a process without its pipes")?;
        let latest = Arc::new(Mutex::new(Report::default()));
        let reports = latest.clone();
        let reader = spawn(move || follow(stdout, &reports));
        Ok(Process {
            stdin: child.stdin.take(),
            child,
            latest,
            reader: Some(reader),
        })
    }

    /// What it reported last.
    pub(super) fn report(&self) -> Report {
        let latest = self.latest.lock();
        latest.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether it has ended by itself.
    pub(super) fn has_ended(&mut self) -> std::io::Result<bool> {
        Ok(self.child.try_wait()?.is_some())
    }

    /// Asks it to end in order, and does not wait.
    pub(super) fn ask_to_end(&mut self) {
        if let Some(stdin) = &mut self.stdin {
            // One that has ended says so when it is waited for.
            let _ = writeln!(stdin, "end");
        }
    }

    /// Asks it to end in order, and waits; whether it did so well.
    pub(super) fn end(mut self) -> std::io::Result<bool> {
        self.ask_to_end();
        Ok(self.child.wait()?.success())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // kill -9.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

fn follow(stdout: ChildStdout, latest: &Mutex<Report>) {
    for line in BufReader::new(stdout).lines().map_while(Result::ok) {
        if let Ok(report) = serde_json::from_str(&line) {
            *latest.lock().unwrap_or_else(PoisonError::into_inner) = report;
        }
    }
}
