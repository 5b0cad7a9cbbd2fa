// SPDX-License-Identifier: Apache-2.0
//! What the probes take from loopback request/response, with and without the agent in turn.

use crate::bare::Bare;
use crate::median;
use crate::transactions::Transactions;
use slowpath_agent::{Agent, Config, ProgramCost};
use std::error::Error;
use std::time::Duration;

/// The loss and its bound, in percent of the transactions a second without the agent.
#[derive(Clone, Copy, Debug, Default)]
pub struct Loss {
    /// Measured: the median over pairs.
    pub percent: f64,
    /// 1.2 x (events of a transaction x nanoseconds an event) / transaction time.
    pub bound: f64,
    /// Measured with the bare counting program in the agent's place.
    pub bare_percent: f64,
    /// Transactions a second without either.
    pub rate: f64,
}

/// Measures it over so many connections, both processes on one processor or free.
///
/// What an event costs depends on the caches and so on the traffic: it is measured by the
/// kernel's statistics on this very traffic, in slices of their own.
///
/// # Errors
/// If the traffic or the agent fails.
pub fn measure(connections: usize, pinned: bool, pairs: usize) -> Result<Loss, Box<dyn Error>> {
    let mut traffic = Transactions::start(connections, pinned)?;
    let slice = Duration::from_millis(400);
    traffic.run(slice)?;
    let (mut losses, mut rates, mut events) = (Vec::new(), Vec::new(), Vec::new());
    let mut bare_losses = Vec::new();
    for pair in 0..pairs {
        let (bare, watched) = if pair % 2 == 0 {
            let watched = with_agent(&mut traffic, slice)?;
            (without_agent(&mut traffic, slice)?, watched)
        } else {
            let bare = without_agent(&mut traffic, slice)?;
            (bare, with_agent(&mut traffic, slice)?)
        };
        losses.push(100.0 * (1.0 - watched / bare));
        rates.push(bare);
        drop(Agent::start(Config::default())?);
        let counting = {
            let _program = Bare::attach()?;
            traffic.run(slice)?
        };
        bare_losses.push(100.0 * (1.0 - counting / bare));
        if pair % 3 == 0 {
            events.push(event_nanos(&mut traffic, slice)?);
        }
    }
    let rate = median(rates);
    Ok(Loss {
        percent: median(losses),
        bare_percent: median(bare_losses),
        bound: 1.2 * 100.0 * median(events) / (1e9 / rate),
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
