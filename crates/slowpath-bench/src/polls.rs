// SPDX-License-Identifier: Apache-2.0
//! What a poll costs: the agent's whole work (poll, decode, classify, log), `ss -tin` and
//! the probes by themselves, over the same sockets in the same run.

use crate::farm::Farm;
use crate::{children_cpu, median, own_cpu};
use slowpath_agent::{Agent, Config};
use slowpath_model::{Micros, Snapshot};
use slowpath_observe::bpf::{BpfTier, Options};
use std::error::Error;
use std::io::IsTerminal;
use std::path::Path;
use std::process::{Command, Stdio};

/// Nanoseconds of CPU a socket, medians over the rounds.
#[derive(Clone, Copy, Debug, Default)]
pub struct PollCost {
    /// Sockets there were.
    pub sockets: usize,
    /// The agent's poll.
    pub agent: f64,
    /// The probes by themselves, collecting what was noted as changed.
    pub collect: f64,
    /// The probes by themselves, walking over the socket storage.
    pub walk: f64,
    /// `ss -tin`.
    pub ss: f64,
}

/// Measures all of them in turn over `sockets` sockets, half of which moved data before
/// each.
///
/// # Errors
/// If the sockets, BPF or `ss` cannot be had.
pub fn measure(sockets: usize, rounds: usize) -> Result<PollCost, Box<dyn Error>> {
    let mut farm = Farm::plant(sockets)?;
    let sockets = farm.sockets();
    let log = tempfile::tempdir()?;
    let mut agent = start(sockets, log.path())?;
    let options = Options {
        area: area(sockets),
        notes: 2 * sockets as u32,
        ..Options::default()
    };
    let mut collector = BpfTier::open(&options)?;
    let mut walker = BpfTier::open(&Options {
        walk: true,
        ..options
    })?;
    meet_all(&mut agent, sockets)?;
    let mut segments = 0;
    collector.poll(&mut |s: &Snapshot| segments += s.stats.segments_in)?;
    walker.poll(&mut |s: &Snapshot| segments += s.stats.segments_in)?;

    let mut samples: [Vec<f64>; 4] = Default::default();
    let a_socket = |cost: Micros| cost.0 as f64 * 1e3 / sockets as f64;
    for round in 0..rounds {
        samples[0].push(agent_poll(&mut agent, &mut farm)?);
        farm.move_data()?;
        let before = own_cpu();
        collector.poll(&mut |s: &Snapshot| segments += s.stats.segments_in)?;
        samples[1].push(a_socket(own_cpu().saturating_sub(before)));
        farm.move_data()?;
        let before = own_cpu();
        walker.poll(&mut |s: &Snapshot| segments += s.stats.segments_in)?;
        samples[2].push(a_socket(own_cpu().saturating_sub(before)));
        if round % 4 == 0 {
            farm.move_data()?;
            let before = children_cpu();
            let status = Command::new("ss")
                .arg("-tin")
                .stdout(Stdio::null())
                .status()?;
            if !status.success() {
                return Err(format!("ss -tin: {status}").into());
            }
            samples[3].push(a_socket(children_cpu().saturating_sub(before)));
        }
        if std::io::stderr().is_terminal() {
            eprint!("\r{sockets} sockets: round {} of {rounds} ", round + 1);
        }
    }
    std::hint::black_box(segments);
    agent.finish();
    let [agent, collect, walk, ss] = samples.map(median);
    Ok(PollCost {
        sockets,
        agent,
        collect,
        walk,
        ss,
    })
}

/// Nanoseconds of CPU a socket of each of `rounds` polls of the agent, with no other tier
/// loaded: for profiles, and to compare two builds in turns.
///
/// # Errors
/// If the sockets or BPF cannot be had.
pub fn agent(sockets: usize, rounds: usize) -> Result<Vec<f64>, Box<dyn Error>> {
    let mut farm = Farm::plant(sockets)?;
    let log = tempfile::tempdir()?;
    let mut agent = start(farm.sockets(), log.path())?;
    meet_all(&mut agent, farm.sockets())?;
    let samples = (0..rounds).map(|_| agent_poll(&mut agent, &mut farm));
    let samples = samples.collect();
    agent.finish();
    samples
}

/// The first poll meets every socket for the first time; the next ones ask conntrack for each,
/// at most `MAX_ASKED` of the agent in one.
fn meet_all(agent: &mut Agent, sockets: usize) -> Result<(), Box<dyn Error>> {
    for _ in 0..1 + sockets.div_ceil(1_024) {
        agent.poll()?;
    }
    Ok(())
}

fn area(sockets: usize) -> u32 {
    sockets as u32 + 1_000
}

fn start(sockets: usize, log: &Path) -> Result<Agent, Box<dyn Error>> {
    Ok(Agent::start(Config {
        log: Some(log.to_owned()),
        area: area(sockets),
        verdicts: false,
        ..Config::default()
    })?)
}

/// Nanoseconds of CPU a socket of one poll, half the sockets having moved data.
fn agent_poll(agent: &mut Agent, farm: &mut Farm) -> Result<f64, Box<dyn Error>> {
    let sockets = farm.sockets();
    farm.move_data()?;
    let before = own_cpu();
    let report = agent.poll()?;
    let cost = own_cpu().saturating_sub(before);
    if (report.emitted as usize) < sockets / 2 {
        return Err(format!("{} of {sockets} sockets emitted", report.emitted).into());
    }
    Ok(cost.0 as f64 * 1e3 / sockets as f64)
}
