// SPDX-License-Identifier: Apache-2.0
//! Many agents in one process: on one thread, because they share the processors with the server.
//!
//! Its standard input says when they ship; its standard output has a line of JSON ten times a
//! second.

use super::agent::{Agent, Signal};
use super::connection::{Connection, Trust};
use super::hosts::{Amount, Maker};
use super::identities::Identities;
use super::monotonic;
use serde::{Deserialize, Serialize};
use slowpath_model::WallMicros;
use slowpath_ship::client::Failure;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::error::Error;
use std::io::{BufRead, Write, stdin, stdout};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::runtime;
use tokio::sync::watch;
use tokio::task::LocalSet;
use tokio::time::{Instant, interval};

/// First argument of such a process.
pub const ARGUMENT: &str = "ingest-load";
/// How often counts are reported.
const REPORT: Duration = Duration::from_millis(100);

/// What the process is asked for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Task {
    /// A file of [`Identities`].
    pub identities: PathBuf,
    /// Where the server is.
    pub server: SocketAddr,
    /// Which process it is.
    pub number: u8,
    pub seed: u64,
    /// How long its hosts have live rows.
    pub seconds: u64,
    /// How many of its hosts have hours that wait, and how many hours.
    pub waiting_hosts: usize,
    pub hours: u64,
}

/// What happened since the report before.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Counts {
    /// By the clock that all processes share, microseconds.
    pub at: u64,
    /// Rows that were flushed, of live batches and of those that waited.
    pub live_rows: u64,
    pub waiting_rows: u64,
    /// Of each live batch the time from handing in to the answer, microseconds.
    pub live: Vec<u32>,
    /// Failures by kind.
    pub failures: BTreeMap<String, u64>,
    /// Answers that a server must not give.
    pub wrong: u64,
    /// By a server's `start`: agents whose last answer came from it.
    pub starts: BTreeMap<String, usize>,
}

impl Counts {
    pub(super) fn flushed(&mut self, waiting: bool, rows: u64, took: Duration) {
        if waiting {
            self.waiting_rows += rows;
        } else {
            self.live_rows += rows;
            self.live.push(took.as_micros() as u32);
        }
    }

    pub(super) fn failed(&mut self, failure: &Failure) {
        let kind = match failure {
            Failure::Refused {
                status, refusal, ..
            } => format!("{status} {:?}", refusal.error),
            Failure::NoAnswer(reason) => reason.clone(),
        };
        *self.failures.entry(kind).or_default() += 1;
    }

    pub(super) fn back(&mut self, before: &str, start: &str) {
        if let Some(count) = self.starts.get_mut(before) {
            *count -= 1;
        }
        *self.starts.entry(start.to_owned()).or_default() += 1;
    }

    fn take(&mut self) -> Counts {
        let starts = self.starts.clone();
        let taken = std::mem::take(self);
        self.starts = starts.clone();
        Counts {
            at: monotonic(),
            starts,
            ..taken
        }
    }
}

/// The process: `ingest-load TASK`, JSON. Its first line of output says that all is made; then the
/// lines `live`, `waiting` and `end` of its input begin and end the shipping.
///
/// # Errors
/// The task cannot be read, or its batches not be made.
pub fn child(task: &str) -> Result<(), Box<dyn Error>> {
    let task: Task = serde_json::from_str(task)?;
    let identities: Identities = serde_json::from_slice(&std::fs::read(&task.identities)?)?;
    let from = Ipv4Addr::new(127, 78, task.number, 1);
    let trust = Rc::new(Trust::new(&identities.bundle, task.server, from)?);
    let counts = Rc::new(RefCell::new(Counts::default()));
    let mut agents = Vec::new();
    let mut maker = Maker::new()?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let now = WallMicros(now.as_micros() as i64);
    for (number, identity) in identities.hosts.iter().enumerate() {
        let seed = task.seed ^ ((u64::from(task.number) << 32 | number as u64) << 8);
        let amount = Amount {
            live: Duration::from_secs(task.seconds),
            hours: if number < task.waiting_hosts {
                task.hours
            } else {
                0
            },
        };
        let stock = maker.stock(&identity.host, seed, amount, now)?;
        let connection = Connection::new(&trust, identity)?;
        agents.push(Agent::new(
            (trust.clone(), counts.clone()),
            connection,
            stock,
            seed,
        ));
    }
    println!("made");
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let (sender, receiver) = watch::channel(Signal::default());
    let listener = std::thread::spawn(move || listen(&sender));
    let local = LocalSet::new();
    for agent in agents {
        local.spawn_local(agent.run(receiver.clone()));
    }
    let reported = local.run_until(report(&counts, receiver));
    runtime.block_on(reported)?;
    let _ = listener.join();
    // The log of the workload is not worth closing: that would make it Parquet.
    std::process::exit(0);
}

fn listen(sender: &watch::Sender<Signal>) {
    for line in stdin().lock().lines().map_while(Result::ok) {
        sender.send_modify(|signal| match line.as_str() {
            "live" => signal.live = Some(Instant::now()),
            "waiting" => signal.waiting = true,
            _ => signal.ended = true,
        });
    }
    sender.send_modify(|signal| signal.ended = true);
}

async fn report(
    counts: &RefCell<Counts>,
    signal: watch::Receiver<Signal>,
) -> Result<(), Box<dyn Error>> {
    let mut ticks = interval(REPORT);
    loop {
        ticks.tick().await;
        let line = serde_json::to_string(&counts.borrow_mut().take())?;
        writeln!(stdout().lock(), "{line}")?;
        if signal.borrow().ended {
            return Ok(());
        }
    }
}
