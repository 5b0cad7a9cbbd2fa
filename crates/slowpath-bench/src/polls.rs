// SPDX-License-Identifier: Apache-2.0
//! What a poll costs: the agent's whole work (poll, decode, classify, log), `ss -tin` and
//! the eyes alone, over the same sockets in the same run.

use crate::farm::Farm;
use crate::{children_cpu, median, own_cpu};
use slowpath_agent::{Agent, Config};
use slowpath_model::Snapshot;
use slowpath_observe::bpf::{BpfTier, Options};
use std::error::Error;
use std::io::IsTerminal;
use std::process::{Command, Stdio};

/// Nanoseconds of CPU a socket, medians over the rounds.
#[derive(Clone, Copy, Debug, Default)]
pub struct PollCost {
    /// Sockets there were.
    pub sockets: usize,
    /// The agent's poll.
    pub agent: f64,
    /// The eyes alone, collecting what was noted as changed.
    pub collect: f64,
    /// The eyes alone, walking over the socket storage.
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
    let area = sockets as u32 + 1_000;
    let mut agent = Agent::start(Config {
        log: Some(log.path().to_owned()),
        area,
        verdicts: false,
        ..Config::default()
    })?;
    let options = Options {
        area,
        notes: 2 * sockets as u32,
        ..Options::default()
    };
    let mut collector = BpfTier::open(&options)?;
    let mut walker = BpfTier::open(&Options {
        walk: true,
        ..options
    })?;
    // The first polls meet every socket for the first time.
    agent.poll()?;
    let mut seen = 0;
    collector.poll(&mut |s: &Snapshot| seen += s.stats.segments_in)?;
    walker.poll(&mut |s: &Snapshot| seen += s.stats.segments_in)?;

    let mut samples: [Vec<f64>; 4] = Default::default();
    let a_socket = |cost: slowpath_model::Micros| cost.0 as f64 * 1e3 / sockets as f64;
    for round in 0..rounds {
        farm.move_data()?;
        let before = own_cpu();
        let report = agent.poll()?;
        samples[0].push(a_socket(own_cpu().saturating_sub(before)));
        if (report.emitted as usize) < sockets / 2 {
            return Err(format!("{} of {sockets} sockets emitted", report.emitted).into());
        }
        farm.move_data()?;
        let before = own_cpu();
        collector.poll(&mut |s: &Snapshot| seen += s.stats.segments_in)?;
        samples[1].push(a_socket(own_cpu().saturating_sub(before)));
        farm.move_data()?;
        let before = own_cpu();
        walker.poll(&mut |s: &Snapshot| seen += s.stats.segments_in)?;
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
    std::hint::black_box(seen);
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
