// SPDX-License-Identifier: Apache-2.0
//! What network namespaces add to a poll: the same sockets in one namespace and in ten of
//! fifty, turn and turn about.

use crate::farm::Farm;
use crate::{median, own_cpu};
use slowpath_agent::{Agent, Config, TierChoice};
use std::error::Error;

/// Namespaces with sockets, and without any.
const BUSY: usize = 10;
const EMPTY: usize = 40;

/// Polls of each farm; the median counts.
const POLLS: usize = 9;

/// The cost of a poll over `sockets` sockets in ten of fifty namespaces, over that of as many
/// in one: the median of `rounds` pairs.
///
/// # Errors
/// If the sockets, the namespaces or the tier cannot be had.
pub fn ratio(sockets: usize, rounds: usize, tier: TierChoice) -> Result<f64, Box<dyn Error>> {
    let mut ratios = Vec::new();
    for round in 0..rounds {
        let one = || poll_cost(Farm::plant(sockets)?, tier);
        let fifty = || poll_cost(Farm::plant_separate(sockets, BUSY, EMPTY)?, tier);
        // What warms up favours neither.
        let (one, fifty) = if round % 2 == 0 {
            let first = one()?;
            (first, fifty()?)
        } else {
            let first = fifty()?;
            (one()?, first)
        };
        ratios.push(fifty / one);
    }
    Ok(median(ratios))
}

/// Nanoseconds of CPU for a poll, half the sockets having moved data.
fn poll_cost(mut farm: Farm, tier: TierChoice) -> Result<f64, Box<dyn Error>> {
    let log = tempfile::tempdir()?;
    let mut agent = Agent::start(Config {
        log: Some(log.path().to_owned()),
        area: farm.sockets() as u32 + 1_000,
        verdicts: false,
        tier,
        ..Config::default()
    })?;
    // The first polls meet every socket and look for owners.
    for _ in 0..2 {
        agent.poll()?;
        farm.move_data()?;
    }
    let mut costs = Vec::new();
    for _ in 0..POLLS {
        farm.move_data()?;
        let before = own_cpu();
        let report = agent.poll()?;
        costs.push(own_cpu().saturating_sub(before).0 as f64 * 1e3);
        if (report.sockets as usize) < farm.sockets() {
            return Err(
                format!("{} of {} sockets observed", report.sockets, farm.sockets()).into(),
            );
        }
    }
    agent.finish();
    Ok(median(costs))
}
