// SPDX-License-Identifier: Apache-2.0
//! What the probes take from loopback request/response, with and without the agent in turn.

use crate::bare::Bare;
use crate::transactions::Transactions;
use crate::{median, median_within};
use slowpath_agent::{Agent, Config, ProgramCost};
use std::error::Error;
use std::time::Duration;

/// The loss and its bound, in percent of the transactions a second without the agent.
#[derive(Clone, Copy, Debug, Default)]
pub struct Loss {
    /// Measured: the median over the rounds.
    pub percent: f64,
    /// Where the true median lies with 95 % certainty (order statistics).
    pub within: (f64, f64),
    /// 1.2 x (events of a transaction x nanoseconds an event) / transaction time.
    pub bound: f64,
    /// Measured with the bare counting program in the agent's place.
    pub bare_percent: f64,
    /// The bare program's own bound, by the same arithmetic.
    pub bare_bound: f64,
    /// Measured with nothing in the agent's place: what the machine makes of equal runs.
    pub nothing_within: (f64, f64),
    /// Transactions a second without either.
    pub rate: f64,
}

/// Measures it over `connections`, both processes on one processor or free.
///
/// A round is a run without the agent, one with it, one without, and one with the bare
/// program: each is compared with the mean of its neighbours, so that a drift of the machine
/// cancels. What an event costs depends on the caches and so on the traffic: it is measured by
/// the kernel's statistics on this very traffic, in slices of their own.
///
/// # Errors
/// If the traffic or the agent fails.
pub fn measure(connections: usize, pinned: bool, rounds: usize) -> Result<Loss, Box<dyn Error>> {
    let mut traffic = Transactions::start(connections, pinned)?;
    let slice = Duration::from_millis(400);
    traffic.run(slice)?;
    let (mut losses, mut rates, mut events) = (Vec::new(), Vec::new(), Vec::new());
    let (mut bare_losses, mut nothing, mut bare_events) = (Vec::new(), Vec::new(), Vec::new());
    let lost = |rate: f64, before: f64, after: f64| 100.0 * (1.0 - 2.0 * rate / (before + after));
    let mut before = without_agent(&mut traffic, slice)?;
    for round in 0..rounds {
        let watched = with_agent(&mut traffic, slice)?;
        let between = without_agent(&mut traffic, slice)?;
        drop(Agent::start(Config::default())?);
        let counted = {
            let _program = Bare::attach()?;
            traffic.run(slice)?
        };
        let after = without_agent(&mut traffic, slice)?;
        losses.push(lost(watched, before, between));
        bare_losses.push(lost(counted, between, after));
        nothing.push(lost(between, before, after));
        rates.push(between);
        before = after;
        if round % 3 == 0 {
            events.push(event_nanos(&mut traffic, slice)?);
            bare_events.push(bare_event_nanos(&mut traffic, slice)?);
        }
    }
    let rate = median(rates);
    let bound = |nanos: Vec<f64>| 1.2 * 100.0 * median(nanos) / (1e9 / rate);
    Ok(Loss {
        within: median_within(losses.clone()),
        percent: median(losses),
        bare_percent: median(bare_losses),
        nothing_within: median_within(nothing),
        bound: bound(events),
        bare_bound: bound(bare_events),
        rate,
    })
}

/// Transactions a second with the agent.
fn with_agent(traffic: &mut Transactions, slice: Duration) -> Result<f64, Box<dyn Error>> {
    let mut agent = Agent::start(Config::default())?;
    agent.poll()?;
    Ok(traffic.run(slice)?)
}

/// Transactions a second without it, but after it was there: loading and unloading leave
/// work and cold caches behind.
fn without_agent(traffic: &mut Transactions, slice: Duration) -> Result<f64, Box<dyn Error>> {
    drop(Agent::start(Config::default())?);
    Ok(traffic.run(slice)?)
}

/// Nanoseconds of BPF programs a transaction.
fn event_nanos(traffic: &mut Transactions, slice: Duration) -> Result<f64, Box<dyn Error>> {
    let mut agent = Agent::start(Config::default())?;
    agent.poll()?;
    agent.measure_programs()?;
    let nanos = |agent: &Agent| -> u64 {
        let events = |p: &&ProgramCost| matches!(p.probe, "calls" | "segment");
        agent
            .programs()
            .iter()
            .filter(events)
            .map(|p| p.nanos)
            .sum()
    };
    let before = nanos(&agent);
    let rate = traffic.run(slice)?;
    Ok((nanos(&agent) - before) as f64 / (rate * slice.as_secs_f64()))
}

/// The same of the bare counting program.
fn bare_event_nanos(traffic: &mut Transactions, slice: Duration) -> Result<f64, Box<dyn Error>> {
    let _statistics = slowpath_observe::bpf::enable_statistics()?;
    let program = Bare::attach()?;
    let rate = traffic.run(slice)?;
    Ok(program.cost("bare_").1 as f64 / (rate * slice.as_secs_f64()))
}
