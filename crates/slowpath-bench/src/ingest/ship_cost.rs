// SPDX-License-Identifier: Apache-2.0
//! What shipping costs an agent: two `slowpath agent` at once over the same connections, each with a
//! log, of which one ships to a server in another process.

use super::monotonic;
use super::server::{Installation, Server, cpu_of, free_port};
use crate::budget::Busy;
use crate::{median, median_within};
use slowpath_ship::identity::Token;
use slowpath_ship::keys::join;
use std::error::Error;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Sockets that exchange messages. One pair in twenty is stuck, which gives a row each poll.
const SOCKETS: usize = 600;
/// Messages that a socket exchanges, a second.
const RATE: f64 = 5.0;
/// Until an agent's programs are loaded and its first polls are over.
const WARM: Duration = Duration::from_secs(10);
/// How long an agent may take to start, or to end.
const PATIENCE: Duration = Duration::from_secs(60);

/// What shipping costs.
#[derive(Clone, Copy, Debug, Default)]
pub struct ShipCost {
    /// Sockets that were observed.
    pub sockets: usize,
    /// Processor time of an agent that logs over its polls, microseconds; the median of the runs.
    pub logging: f64,
    /// The same of one that also ships.
    pub shipping: f64,
    /// The latter over the former in the same run, of two pairs: each is started first once; the
    /// median of the runs.
    pub ratio: f64,
    /// Processor time of an agent that ships over that of its other threads than the one that does;
    /// the median of the runs. Other effects on them are not in it, and no chance of the polls.
    pub thread_ratio: f64,
    /// Where the median of `ratio` lies with 95 % certainty.
    pub within: (f64, f64),
    /// Records that each agent logged a second.
    pub rows_per_second: f64,
}

/// Measures `runs` times two pairs of agents of this `slowpath`, each for `length`.
///
/// # Errors
/// A process cannot be started or ends, or nothing is shipped.
pub fn ship_cost(
    program: &Path,
    runs: usize,
    length: Duration,
) -> Result<ShipCost, Box<dyn Error>> {
    let scratch = tempfile::tempdir()?;
    let address = SocketAddr::from(([127, 0, 0, 1], free_port()?));
    let installation = Installation::make(program, &scratch.path().join("server"), address)?;
    let _server: Server = installation.start()?;
    wait_for(address)?;
    let _busy = Busy::start(SOCKETS, RATE)?;
    let bench = Bench {
        program,
        installation,
        scratch: scratch.path(),
        length,
    };
    let mut samples: [Vec<f64>; 4] = Default::default();
    let mut rows = 0.0;
    for run in 0..runs {
        // The agent that is started later costs more by some percent: its programs come second.
        let mut ratios = 1.0;
        for first in 0..2 {
            let pair = bench.pair(2 * run + first, first)?;
            let [logging, shipping] = pair.costs;
            println!(
                "run {run}: {logging:.0} us a poll when logging, {shipping:.0} us when shipping as well"
            );
            samples[0].push(logging);
            samples[1].push(shipping);
            samples[3].push(pair.thread_ratio);
            ratios *= shipping / logging;
            rows += pair.rows_per_second;
        }
        samples[2].push(ratios.sqrt());
    }
    let within = median_within(samples[2].clone());
    let [logging, shipping, ratio, thread_ratio] = samples.map(median);
    Ok(ShipCost {
        sockets: SOCKETS,
        logging,
        shipping,
        ratio,
        thread_ratio,
        within,
        rows_per_second: rows / (2 * runs.max(1)) as f64,
    })
}

/// What pairs of agents are started with.
struct Bench<'a> {
    program: &'a Path,
    installation: Installation,
    scratch: &'a Path,
    length: Duration,
}

/// What one pair cost: the one that logs, and the one that ships as well.
struct PairCost {
    costs: [f64; 2],
    thread_ratio: f64,
    rows_per_second: f64,
}

impl Bench<'_> {
    /// Two agents at once, of which `first` is started first.
    fn pair(&self, number: usize, first: usize) -> Result<PairCost, Box<dyn Error>> {
        let home = self.scratch.join(number.to_string());
        let logs = [home.join("logs"), home.join("ships")];
        let host = format!("host-{number}");
        let token: Token = self.installation.command(&["invite", &host])?.parse()?;
        let server = self.installation.address.to_string().parse()?;
        join(&logs[1].join("identity"), &server, &token)?;
        let mut agents = Vec::new();
        for of in [first, 1 - first] {
            agents.push((of, Agent::start(self.program, &logs[of])?));
        }
        agents.sort_unstable_by_key(|(of, _)| *of);
        sleep(WARM);
        let before = each(&agents)?;
        sleep(self.length);
        let after = each(&agents)?;
        for (_, agent) in agents {
            agent.end()?;
        }
        let batches = after[1].batches - before[1].batches;
        if batches <= 0.0 || after[0].batches > 0.0 {
            return Err(format!("{host}: {batches} batches were shipped").into());
        }
        let all = (after[1].cpu - before[1].cpu) as f64;
        let shipping = (after[1].shipping - before[1].shipping) as f64;
        let seconds = (after[1].at - before[1].at) as f64 / 1e6;
        Ok(PairCost {
            thread_ratio: all / (all - shipping),
            costs: [0, 1].map(|of| after[of].cost_since(&before[of])),
            rows_per_second: (after[1].rows - before[1].rows) / seconds,
        })
    }
}

fn each(agents: &[(usize, Agent)]) -> Result<Vec<State>, Box<dyn Error>> {
    agents.iter().map(|(_, agent)| agent.state()).collect()
}

fn wait_for(address: SocketAddr) -> Result<TcpStream, Box<dyn Error>> {
    let end = Instant::now() + PATIENCE;
    loop {
        match TcpStream::connect(address) {
            Ok(stream) => return Ok(stream),
            Err(error) if Instant::now() > end => {
                return Err(format!("nothing listens at {address}: {error}").into());
            }
            Err(_) => sleep(Duration::from_millis(20)),
        }
    }
}

/// How an agent fares at a moment of the clock that all share.
struct State {
    at: u64,
    /// Processor time, microseconds.
    cpu: u64,
    /// Of it that of the thread that ships.
    shipping: u64,
    polls: f64,
    /// Records in its log.
    rows: f64,
    /// Batches that the server has.
    batches: f64,
}

impl State {
    /// Polls come at random: what is compared is the cost of one.
    fn cost_since(&self, before: &State) -> f64 {
        (self.cpu - before.cpu) as f64 / (self.polls - before.polls)
    }
}

/// `slowpath agent`; it is killed with this value.
struct Agent {
    child: Child,
    metrics: SocketAddr,
}

impl Agent {
    fn start(program: &Path, log: &Path) -> Result<Agent, Box<dyn Error>> {
        let metrics = SocketAddr::from(([127, 0, 0, 1], free_port()?));
        let child = Command::new(program)
            .args(["agent", "--metrics", &metrics.to_string(), "--log"])
            .arg(log)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let agent = Agent { child, metrics };
        // The next one takes another port.
        wait_for(metrics)?;
        Ok(agent)
    }

    fn state(&self) -> Result<State, Box<dyn Error>> {
        let mut stream = wait_for(self.metrics)?;
        write!(
            stream,
            "GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
        )?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        let value = |name: &str| -> Option<f64> {
            let lines = text.lines().filter_map(|line| line.strip_prefix(name));
            let values = lines.filter_map(|rest| rest.strip_prefix(' ')?.trim().parse().ok());
            values.reduce(|sum: f64, value| sum + value)
        };
        let cpu = cpu_of(self.child.id()).ok_or("the agent has ended")?;
        let stated = |name: &str| value(name).ok_or_else(|| format!("an agent without {name}"));
        Ok(State {
            at: monotonic(),
            cpu,
            shipping: cpu_of_thread(self.child.id(), "ship")?,
            polls: stated("slowpath_polls_total")?,
            rows: stated("slowpath_log_records_total")?,
            // Only where a server was joined.
            batches: value("slowpath_ship_batches_total").unwrap_or(0.0),
        })
    }

    fn end(mut self) -> Result<(), Box<dyn Error>> {
        // SAFETY: kill takes plain numbers; the child was not waited for, so the number is its own.
        unsafe { libc::kill(self.child.id() as libc::pid_t, libc::SIGTERM) };
        self.child.wait()?;
        Ok(())
    }
}

/// Processor time of the threads of a process that have this name, microseconds (the first number of
/// schedstat is nanoseconds on a processor).
fn cpu_of_thread(pid: u32, name: &str) -> Result<u64, Box<dyn Error>> {
    let mut sum = 0;
    for task in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let task = task?.path();
        if std::fs::read_to_string(task.join("comm"))?.trim() == name {
            let statistics = std::fs::read_to_string(task.join("schedstat"))?;
            let first = statistics.split(' ').next().unwrap_or_default();
            sum += first.trim().parse::<u64>()? / 1_000;
        }
    }
    Ok(sum)
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
