// SPDX-License-Identifier: Apache-2.0
//! The agent under a CPU budget: connections that exchange messages all the time, some of
//! which are stuck on a peer that does not read, and what the agent uses meanwhile.

use crate::own_cpu;
use slowpath_agent::{Agent, Budget, BudgetState, Config, TierChoice};
use slowpath_model::Micros;
use std::collections::HashMap;
use std::error::Error;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// First argument of a child that exchanges messages.
pub const ARGUMENT: &str = "busy-child";

/// Pairs of sockets a child holds at most: RLIMIT_NOFILE is 20,000 on the reference machine.
const PAIRS: usize = 5_000;

/// One pair in this number is stuck.
const STUCK_EVERY: usize = 20;

/// Over how long means are taken.
const WINDOW: Duration = Duration::from_secs(5);

/// When the budget has to be met.
const GRACE: Duration = Duration::from_secs(10);

/// What a run under a budget showed.
#[derive(Clone, Debug)]
pub struct BudgetRun {
    /// CPU of the process in percent of one core, over each five seconds since the start.
    pub percent: Vec<f64>,
    /// Looks at each connection with problems over looks at each of the others, after ten
    /// seconds.
    pub ratio: f64,
    /// Looks a second at the two kinds.
    pub rates: [f64; 2],
    /// Connections of the two kinds.
    pub numbers: [usize; 2],
    /// How the agent says it meets the budget in the end.
    pub state: BudgetState,
}

impl BudgetRun {
    /// The means from the tenth second on.
    pub fn settled(&self) -> &[f64] {
        let skip = (GRACE.as_secs() / WINDOW.as_secs()) as usize;
        self.percent.get(skip..).unwrap_or_default()
    }
}

/// Children with busy connections; they end with this value.
pub(crate) struct Busy(Vec<(Child, ChildStdin)>);

impl Drop for Busy {
    fn drop(&mut self) {
        for (mut child, stdin) in self.0.drain(..) {
            drop(stdin);
            let _ = child.wait();
        }
    }
}

impl Busy {
    /// Opens `sockets` sockets, each pair exchanging a message `rate` times a second.
    pub(crate) fn start(sockets: usize, rate: f64) -> io::Result<Self> {
        let mut busy = Busy(Vec::new());
        let mut waiting: Vec<BufReader<ChildStdout>> = Vec::new();
        let mut left = sockets / 2;
        while left > 0 {
            let pairs = left.min(PAIRS);
            left -= pairs;
            let mut child = Command::new(std::env::current_exe()?)
                .args([ARGUMENT, &pairs.to_string(), &rate.to_string()])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()?;
            let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
                return Err(io::ErrorKind::BrokenPipe.into());
            };
            busy.0.push((child, stdin));
            waiting.push(BufReader::new(stdout));
        }
        for stdout in &mut waiting {
            if stdout.read_line(&mut String::new())? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(busy)
    }
}

/// The child's part: `busy-child PAIRS RATE`, until its input ends.
///
/// # Errors
/// If its sockets cannot be had.
pub fn child(pairs: usize, rate: f64) -> io::Result<()> {
    let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
    let address = listener.local_addr()?;
    let mut moving = Vec::new();
    let mut stuck = Vec::new();
    for i in 0..pairs {
        let mut client = TcpStream::connect(address)?;
        let (server, _) = listener.accept()?;
        if i % STUCK_EVERY == 0 {
            // Fill both buffers: the sender waits for a window that never opens.
            client.set_nonblocking(true)?;
            while client.write(&[0; 65_536]).is_ok() {}
            stuck.push((client, server));
        } else {
            moving.push((client, server));
        }
    }
    println!("ready");
    io::stdout().flush()?;
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // The end of the input is the sign to end.
            let _ = io::stdin().read_to_end(&mut Vec::new());
            ended.store(true, Ordering::Relaxed);
        });
        let begin = Instant::now();
        let mut message = [7; 100];
        for turn in 0u32.. {
            for (i, (client, server)) in moving.iter_mut().enumerate() {
                let due = (f64::from(turn) + i as f64 / pairs as f64) / rate;
                let due = begin + Duration::from_secs_f64(due);
                if i % 50 == 0 {
                    std::thread::sleep(due.saturating_duration_since(Instant::now()));
                    if ended.load(Ordering::Relaxed) {
                        return Ok(());
                    }
                }
                client.write_all(&message)?;
                server.read_exact(&mut message)?;
                server.write_all(&message)?;
                client.read_exact(&mut message)?;
            }
        }
        Ok(())
    })
}

/// Runs the agent over `sockets` sockets for `length`.
///
/// # Errors
/// If the sockets or the tier cannot be had.
pub fn measure(
    sockets: usize,
    rate: f64,
    length: Duration,
    tier: TierChoice,
    budget: Budget,
) -> Result<BudgetRun, Box<dyn Error>> {
    let _busy = Busy::start(sockets, rate)?;
    let log = tempfile::tempdir()?;
    let mut agent = Agent::start(Config {
        log: Some(log.path().to_owned()),
        verdicts: false,
        tier,
        budget: Some(budget),
        ..Config::default()
    })?;
    let begin = Instant::now();
    let mut window = (begin, own_cpu());
    let mut percent = Vec::new();
    let mut before: Option<HashMap<u64, u64>> = None;
    let mut since = begin;
    while begin.elapsed() < length {
        std::thread::sleep(agent.until_next_poll());
        agent.poll()?;
        if window.0.elapsed() >= WINDOW {
            let cpu = own_cpu();
            let used = cpu.saturating_sub(window.1).as_secs_f64();
            percent.push(100.0 * used / window.0.elapsed().as_secs_f64());
            window = (Instant::now(), cpu);
        }
        if before.is_none() && begin.elapsed() >= GRACE {
            before = Some(looks(&agent).into_iter().map(|l| (l.0, l.1)).collect());
            since = Instant::now();
            // Walking over all of them is the benchmark's own work.
            window = (Instant::now(), own_cpu());
        }
    }
    let seconds = since.elapsed().as_secs_f64();
    let state = agent.budget().ok_or("no budget")?;
    let before = before.ok_or("shorter than ten seconds")?;
    let mut numbers = [0; 2];
    let mut sums = [0.0; 2];
    for (cookie, looks, problem) in looks(&agent) {
        if let Some(then) = before.get(&cookie) {
            numbers[usize::from(problem)] += 1;
            sums[usize::from(problem)] += (looks - then) as f64;
        }
    }
    agent.finish();
    let rates = [0, 1].map(|i| sums[i] / (numbers[i].max(1) as f64) / seconds);
    Ok(BudgetRun {
        percent,
        ratio: rates[1] / rates[0],
        rates,
        numbers,
        state,
    })
}

/// Of each connection its cookie, the looks at it, and whether it had a problem.
fn looks(agent: &Agent) -> Vec<(u64, u64, bool)> {
    let of = |c: &slowpath_agent::LiveConnection| {
        let healthy = c.totals.problem_time[0].min(c.totals.observed);
        let problem = c.totals.observed.saturating_sub(healthy) > Micros::ZERO;
        (c.snapshot.id.cookie, c.totals.polls, problem)
    };
    agent.connections().map(of).collect()
}
