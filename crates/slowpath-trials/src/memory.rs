// SPDX-License-Identifier: Apache-2.0
//! What an agent holds with 29,000 connections under churn and with 100,000 that are idle.

use crate::Tally;
use crate::agent::Agent;
use crate::farm::Farm;
use crate::limits::MemoryLimit;
use crate::traffic::Traffic;
use std::error::Error;
use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Sockets that stay while others come and go, and how many of those a second.
const CHURNED: usize = 29_000;
const RATE: u32 = 1_000;
/// Idle sockets afterwards.
const IDLE: usize = 100_000;
/// How long each lasts: the log's first segment of 16 MiB ends within it.
const LENGTH: Duration = Duration::from_secs(60);
/// `MemoryMax` of the unit (`packaging/systemd`), which is for 200,000 connections.
const LIMIT: u64 = 512 << 20;

/// The most that may be resident, in MiB (`docs/guide/install.md`): the limit of the unit.
pub(crate) const BOUND: u64 = LIMIT >> 20;

pub(crate) fn run(program: &Path, tally: &mut Tally) -> Result<(), Box<dyn Error>> {
    let scratch = tempfile::tempdir()?;
    let log = scratch.path().join("log");
    let text = log.to_str().ok_or("a path without a name")?;
    let mut agent = Agent::start(program, &["--log", text], scratch.path(), "")?;
    let limit = MemoryLimit::new(LIMIT);
    match &limit {
        Some(limit) => limit.take(agent.pid())?,
        None => tally.skip("memory.max: no control group can be made here".to_owned()),
    }
    agent.wait_until(|_| log.join("spool").exists())?;
    let churn = {
        let mut farm = Farm::plant(CHURNED)?;
        let _traffic = Traffic::start(100, RATE)?;
        highest(&agent, || Ok(farm.move_data()?))?
    };
    let idle = {
        let _farm = Farm::plant(IDLE)?;
        highest(&agent, || Ok(()))?
    };
    println!("memory: {churn} MiB with {CHURNED} sockets under churn, {idle} MiB with {IDLE} idle");
    let most = churn.max(idle);
    tally.rss_mib = Some(most);
    if most > BOUND {
        tally.find(format!("{most} MiB are resident, more than {BOUND}"));
    }
    let ended = agent.end(tally)?;
    if !ended.succeeded() {
        tally.find(format!("the agent fails: {}", ended.err));
    }
    drop(limit);
    Ok(())
}

/// The most that is resident for a while, in MiB.
fn highest(
    agent: &Agent,
    mut work: impl FnMut() -> Result<(), Box<dyn Error>>,
) -> Result<u64, Box<dyn Error>> {
    let end = Instant::now() + LENGTH;
    let mut most = 0;
    while Instant::now() < end {
        work()?;
        let resident = resident(agent.pid());
        most = most.max(resident.ok_or_else(|| format!("it ended: {}", agent.said()))?);
        sleep(Duration::from_millis(250));
    }
    Ok(most)
}

/// `VmRSS` of a process (proc_pid_status(5)), in MiB, rounded up.
fn resident(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|it| it.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kib.div_ceil(1_024))
}
