// SPDX-License-Identifier: Apache-2.0
//! What the agent holds in memory: under churn with conversions of its log, with 100,000
//! connections, and after they are gone.

use crate::farm::Farm;
use slowpath_agent::{Agent, Config, TierChoice};
use std::error::Error;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// First argument of a child that opens and closes connections.
pub const ARGUMENT: &str = "churn-child";

/// Connections that each of [`CHILDREN`] opens and closes a second.
const RATE: u32 = 500;
const CHILDREN: u8 = 2;

/// The agent releases memory once a minute; two polls more end what closed.
const RELEASE: Duration = Duration::from_secs(62);

/// Resident memory of this process in MiB, the highest of what was sampled after each poll.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Memory {
    /// 10,000 sockets that stay and 1,000 connections opened and closed a second, until two
    /// segments of the log were converted.
    pub churn: f64,
    /// 100,000 sockets, in polls that met them all.
    pub many: f64,
    /// When all are closed and memory was released.
    pub after: f64,
}

/// How many sockets, and how long at most until two segments were converted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Sockets that stay under churn.
    pub churned: usize,
    /// Sockets that are open at the same time afterwards.
    pub many: usize,
    /// How long the churn lasts at most.
    pub longest: Duration,
}

/// Runs an agent with a log over such a load.
///
/// # Errors
/// If the sockets or the tier cannot be had.
pub fn measure(load: Load) -> Result<Memory, Box<dyn Error>> {
    let log = tempfile::tempdir()?;
    let mut agent = Agent::start(Config {
        log: Some(log.path().to_owned()),
        verdicts: false,
        tier: TierChoice::Bpf,
        ..Config::default()
    })?;
    let churn = {
        let mut farm = Farm::plant(load.churned)?;
        let _churning = Churning::start()?;
        let begin = Instant::now();
        highest(&mut agent, |agent| {
            farm.move_data()?;
            let converted = agent.log_status().map_or(0, |s| s.segments_converted);
            Ok(converted >= 2 || begin.elapsed() >= load.longest)
        })?
    };
    let many = {
        let mut farm = Farm::plant(load.many)?;
        let mut rounds = 0;
        highest(&mut agent, |_| {
            farm.move_data()?;
            rounds += 1;
            Ok(rounds == 10)
        })?
    };
    let closed = Instant::now();
    highest(&mut agent, |_| Ok(closed.elapsed() >= RELEASE))?;
    let after = resident()?;
    agent.finish();
    Ok(Memory { churn, many, after })
}

/// Polls until `done`; gives the most that was resident after a poll.
fn highest(
    agent: &mut Agent,
    mut done: impl FnMut(&Agent) -> io::Result<bool>,
) -> Result<f64, Box<dyn Error>> {
    let mut most = 0.0_f64;
    loop {
        std::thread::sleep(agent.until_next_poll());
        agent.poll()?;
        most = most.max(resident()?);
        if done(agent)? {
            return Ok(most);
        }
    }
}

/// MiB of this process that are resident (`proc_pid_statm(5)`).
fn resident() -> io::Result<f64> {
    let text = fs::read_to_string("/proc/self/statm")?;
    let pages = text.split(' ').nth(1).and_then(|n| n.parse::<f64>().ok());
    let pages = pages.ok_or(io::ErrorKind::InvalidData)?;
    Ok(pages * rustix::param::page_size() as f64 / f64::from(1 << 20))
}

/// Children that open and close connections; they end with this value.
struct Churning(Vec<Child>);

impl Churning {
    fn start() -> io::Result<Self> {
        let mut churning = Churning(Vec::new());
        for number in 0..CHILDREN {
            churning.0.push(
                Command::new(std::env::current_exe()?)
                    .args([ARGUMENT, &number.to_string()])
                    .stdin(Stdio::piped())
                    .spawn()?,
            );
        }
        Ok(churning)
    }
}

impl Drop for Churning {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The child's part: `churn-child NUMBER`, until it is killed.
///
/// # Errors
/// If its sockets cannot be had.
pub fn child(number: u8) -> io::Result<()> {
    let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::new(127, 78, number, 1), 0)))?;
    let address = listener.local_addr()?;
    let begin = Instant::now();
    for turn in 1.. {
        let mut client = TcpStream::connect(address)?;
        let (mut server, _) = listener.accept()?;
        client.write_all(&[1; 100])?;
        server.read_exact(&mut [0; 100])?;
        // Closed by a RST, so that no port waits in TIME_WAIT.
        reset_on_close(&client)?;
        drop((client, server));
        let due = begin + turn * Duration::from_secs(1) / RATE;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
    }
    Ok(())
}

fn reset_on_close(socket: &TcpStream) -> io::Result<()> {
    let linger = libc::linger {
        l_onoff: 1,
        l_linger: 0,
    };
    // SAFETY: the kernel reads `linger`, whose size is given.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            (&raw const linger).cast(),
            size_of::<libc::linger>() as libc::socklen_t,
        )
    };
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
