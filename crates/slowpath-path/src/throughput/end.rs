// SPDX-License-Identifier: Apache-2.0
//! One end of a test: threads that send or receive, and the samples of their sockets.

use super::cpu::{Cpu, ThreadTime};
use super::tally::{StreamTally, window};
use super::tcp;
use crate::session::{PathError, fill_random};
use crate::socket::{monotonic, sleep_until};
use serde::{Deserialize, Serialize};
use slowpath_model::{Micros, MonoNanos, TcpStats};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// Octets of one call: many segments, so that calls cost little.
const BLOCK: usize = 128 * 1024;

/// How often sockets are sampled, ns. The kernel's chronographs count in jiffies of 1 to 10 ms: a tenth of this.
const SAMPLE: i64 = 100_000_000;

/// Length of a row, ns.
const ROW: i64 = 1_000_000_000;

/// How long one call waits before its thread looks whether it is to end.
const PATIENCE: Duration = Duration::from_millis(100);

/// How long a receiver waits for the first octet, and a sender goes on after its time until the receiver is through, ns.
const GRACE: i64 = 10_000_000_000;

/// Rows that are kept; a test of more seconds has longer ones.
const MOST_ROWS: i64 = 600;

/// What an end does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Sends.
    Sender,
    /// Receives.
    Receiver,
}

/// When an end counts.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// What passes first.
    pub warm_up: Duration,
    /// What counts.
    pub length: Duration,
}

/// About a second of a test, as one end observed it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Row {
    /// From when, since this end's first octet.
    pub from: Micros,
    /// To when.
    pub to: Micros,
    /// Octets that were read, or written.
    pub octets: u64,
    /// Octets that were sent again; the sender's only.
    pub retransmitted: Option<u64>,
    /// The congestion windows of all streams at its end, octets; the sender's only.
    pub window: Option<u64>,
    /// The mean of the streams' smoothed round trips at its end; the sender's only.
    pub rtt: Option<Micros>,
}

/// What one end says of a test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EndReport {
    /// What it did.
    pub role: Role,
    /// Octets in the counted time.
    pub octets: u64,
    /// The counted time as it was.
    pub length: Micros,
    /// All of the time, warm-up included.
    pub rows: Vec<Row>,
    /// Its sockets over the counted time.
    pub streams: Vec<StreamTally>,
    /// Its threads over the counted time.
    pub cpu: Option<Cpu>,
    /// The congestion control of its first stream.
    pub congestion: Option<String>,
    /// All its streams broke before the time was over.
    pub broken: bool,
}

/// What the threads of an end share.
#[derive(Debug, Default)]
struct Shared {
    octets: AtomicU64,
    /// When the first octet came or went, ns of the monotonic clock; 0: not yet.
    started: AtomicI64,
    /// Threads that go on.
    alive: AtomicU64,
    stop: AtomicBool,
}

impl Shared {
    fn count(&self, octets: usize) {
        if self.started.load(Ordering::Relaxed) == 0 {
            // Of several streams the first one counts.
            let _ =
                self.started
                    .compare_exchange(0, monotonic(), Ordering::Relaxed, Ordering::Relaxed);
        }
        self.octets.fetch_add(octets as u64, Ordering::Relaxed);
    }
}

/// Counts a thread's time within bounds that are known once the first octet has passed.
struct Stopwatch<'a> {
    shared: &'a Shared,
    timing: Timing,
    begin: Option<ThreadTime>,
    end: Option<ThreadTime>,
}

impl Stopwatch<'_> {
    fn look(&mut self) {
        let started = self.shared.started.load(Ordering::Relaxed);
        if started == 0 || self.end.is_some() {
            return;
        }
        let passed = monotonic() - started;
        if passed >= nanos(self.timing.warm_up) && self.begin.is_none() {
            self.begin = Some(ThreadTime::now());
        } else if passed >= nanos(self.timing.warm_up) + nanos(self.timing.length) {
            self.end = Some(ThreadTime::now());
        }
    }

    fn time(self) -> ThreadTime {
        let end = self.end.unwrap_or_else(ThreadTime::now);
        self.begin
            .map_or(ThreadTime::default(), |begin| end.since(begin))
    }
}

fn nanos(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX / 4)
}

/// Sends or receives until the time is over, a signal (`stop`) comes, or all streams break. A sender goes on after its time
/// until `stop`, so that the receiver's time, which begins later, is full.
///
/// # Errors
/// A thread cannot be started, or a socket refuses an option.
pub fn run(
    role: Role,
    streams: &[TcpStream],
    timing: Timing,
    stop: &AtomicBool,
) -> Result<EndReport, PathError> {
    let mut block = vec![0; BLOCK];
    fill_random(&mut block)?;
    for stream in streams {
        stream
            .set_read_timeout(Some(PATIENCE))
            .and_then(|()| stream.set_write_timeout(Some(PATIENCE)))
            .and_then(|()| stream.set_nonblocking(false))
            .map_err(PathError::io("prepare a stream"))?;
    }
    let shared = Shared::default();
    shared.alive.store(streams.len() as u64, Ordering::Relaxed);
    thread::scope(|scope| {
        let mut threads = Vec::new();
        for stream in streams {
            let (shared, block) = (&shared, &block[..]);
            let work = move || match role {
                Role::Sender => send(stream, block, shared, timing),
                Role::Receiver => receive(stream, shared, timing),
            };
            let name = "path-stream".to_owned();
            match thread::Builder::new().name(name).spawn_scoped(scope, work) {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    shared.stop.store(true, Ordering::Relaxed);
                    return Err(PathError::io("start a thread")(error));
                }
            }
        }
        let mut report = Observer::new(role, streams, timing, &shared, stop).observe();
        shared.stop.store(true, Ordering::Relaxed);
        let times: Vec<ThreadTime> = threads
            .into_iter()
            // A thread that panicked has said so.
            .filter_map(|thread| thread.join().ok())
            .collect();
        report.cpu = Cpu::of(&times, Duration::from_micros(report.length.0));
        Ok(report)
    })
}

/// Writes one block again and again.
fn send(mut stream: &TcpStream, block: &[u8], shared: &Shared, timing: Timing) -> ThreadTime {
    let mut watch = Stopwatch {
        shared,
        timing,
        begin: None,
        end: None,
    };
    let mut at = 0;
    while !shared.stop.load(Ordering::Relaxed) {
        match stream.write(&block[at..]) {
            Ok(0) => break,
            Ok(written) => {
                shared.count(written);
                at = (at + written) % block.len();
            }
            Err(error) if is_wait(error.kind()) => {}
            Err(_) => break,
        }
        watch.look();
    }
    shared.alive.fetch_sub(1, Ordering::Relaxed);
    watch.time()
}

/// Reads and forgets.
fn receive(mut stream: &TcpStream, shared: &Shared, timing: Timing) -> ThreadTime {
    let mut watch = Stopwatch {
        shared,
        timing,
        begin: None,
        end: None,
    };
    let mut buffer = vec![0; BLOCK];
    while !shared.stop.load(Ordering::Relaxed) {
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(length) => shared.count(length),
            Err(error) if is_wait(error.kind()) => {}
            Err(_) => break,
        }
        watch.look();
    }
    shared.alive.fetch_sub(1, Ordering::Relaxed);
    watch.time()
}

fn is_wait(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
    )
}

/// Samples an end's sockets.
struct Observer<'a> {
    role: Role,
    streams: &'a [TcpStream],
    timing: Timing,
    shared: &'a Shared,
    stop: &'a AtomicBool,
    tallies: Vec<StreamTally>,
    rows: Vec<Row>,
    /// Of the current row: its beginning, octets and retransmitted octets then.
    row: (i64, u64, Option<u64>),
    /// Of the counted time: its beginning, octets then.
    counted: Option<(i64, u64)>,
    ended: Option<(i64, u64)>,
}

impl<'a> Observer<'a> {
    fn new(
        role: Role,
        streams: &'a [TcpStream],
        timing: Timing,
        shared: &'a Shared,
        stop: &'a AtomicBool,
    ) -> Self {
        Observer {
            role,
            streams,
            timing,
            shared,
            stop,
            tallies: vec![StreamTally::default(); streams.len()],
            rows: Vec::new(),
            row: (0, 0, None),
            counted: None,
            ended: None,
        }
    }

    fn observe(mut self) -> EndReport {
        let started = self.wait_for_start();
        if let Some(started) = started {
            self.sample_until_end(started);
        }
        let broken = self.shared.alive.load(Ordering::Relaxed) == 0 && self.ended.is_none();
        let now = (monotonic(), self.shared.octets.load(Ordering::Relaxed));
        let (length, octets) = match (self.counted, self.ended.unwrap_or(now)) {
            (Some(from), to) => (to.0 - from.0, to.1 - from.1),
            (None, _) => (0, 0),
        };
        EndReport {
            role: self.role,
            octets,
            length: micros(length),
            rows: self.rows,
            streams: self.tallies,
            cpu: None,
            congestion: self.streams.first().and_then(tcp::congestion),
            broken,
        }
    }

    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.shared.alive.load(Ordering::Relaxed) == 0
    }

    fn wait_for_start(&self) -> Option<i64> {
        let deadline = monotonic() + GRACE;
        loop {
            match self.shared.started.load(Ordering::Relaxed) {
                0 if self.is_over() || monotonic() > deadline => return None,
                0 => {
                    let _ = sleep_until(monotonic() + 1_000_000, self.stop);
                }
                started => return Some(started),
            }
        }
    }

    fn sample_until_end(&mut self, started: i64) {
        let warm_up = nanos(self.timing.warm_up);
        let whole = warm_up.saturating_add(nanos(self.timing.length));
        let row = ROW.max(whole / MOST_ROWS);
        let mut next = started;
        let mut row_end = started + row.min(if warm_up > 0 { warm_up } else { whole });
        self.row.0 = started;
        loop {
            let slept = sleep_until(next, self.stop);
            let now = monotonic();
            let octets = self.shared.octets.load(Ordering::Relaxed);
            let stats: Vec<Option<TcpStats>> = self.streams.iter().map(tcp::stats).collect();
            let over = !slept || self.is_over();
            if now >= row_end || over {
                self.end_row(now, started, octets, &stats);
                row_end = (now + row).min(match now < started + warm_up {
                    true => started + warm_up,
                    false => started.saturating_add(whole),
                });
            }
            if now >= started + warm_up && self.ended.is_none() {
                self.counted.get_or_insert((now, octets));
                self.add(now, &stats);
                if now >= started.saturating_add(whole) {
                    self.ended = Some((now, octets));
                }
            }
            if over || self.ended.is_some() {
                break;
            }
            next = (next + SAMPLE).min(row_end);
        }
        // The receiver's time began later, and its octets are the ones that count.
        if self.role == Role::Sender && !self.is_over() {
            let deadline = monotonic() + GRACE;
            while !self.is_over() && monotonic() < deadline {
                let _ = sleep_until(monotonic() + 20_000_000, self.stop);
            }
        }
    }

    fn add(&mut self, now: i64, stats: &[Option<TcpStats>]) {
        let at = MonoNanos(u64::try_from(now).unwrap_or(0));
        for (tally, stats) in self.tallies.iter_mut().zip(stats) {
            if let Some(stats) = stats {
                tally.add(at, *stats);
            }
        }
    }

    fn end_row(&mut self, now: i64, started: i64, octets: u64, stats: &[Option<TcpStats>]) {
        let (from, octets_then, retransmitted_then) = self.row;
        let sender = self.role == Role::Sender;
        let all = || stats.iter().flatten();
        // Sums are of sockets that all have the statistic.
        let retransmitted = all()
            .map(|stats| stats.bytes_retransmitted)
            .sum::<Option<u64>>()
            .filter(|_| sender && all().next().is_some());
        let rtts: Vec<u64> = all().filter_map(|stats| Some(stats.srtt?.0)).collect();
        let mean = rtts.iter().sum::<u64>().checked_div(rtts.len() as u64);
        if now > from {
            self.rows.push(Row {
                from: micros(from - started),
                to: micros(now - started),
                octets: octets - octets_then,
                retransmitted: retransmitted
                    .map(|count| count.saturating_sub(retransmitted_then.unwrap_or(0))),
                window: sender.then(|| all().map(window).sum()),
                rtt: mean.map(Micros).filter(|_| sender),
            });
        }
        self.row = (now, octets, retransmitted);
    }
}

fn micros(nanos: i64) -> Micros {
    Micros(u64::try_from(nanos / 1_000).unwrap_or(0))
}
