// SPDX-License-Identifier: Apache-2.0
//! A host of the trials that observes instead of drawing rows: the agent's own loop beside the
//! shipper, in the network namespace that it was started in.

use slowpath_agent::{Agent, Config, Namespaces};
use std::error::Error;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

/// The mean time between two polls.
const INTERVAL: Duration = Duration::from_millis(100);

/// Observes until `goes_on` says no, which is asked after each poll.
///
/// # Errors
/// The kernel cannot be read.
pub(super) fn observe(log: &Path, mut goes_on: impl FnMut() -> bool) -> Result<(), Box<dyn Error>> {
    let mut agent = Agent::start(Config {
        log: Some(log.to_owned()),
        interval: INTERVAL,
        namespaces: Namespaces::Own,
        ship: true,
        verdicts: false,
        ..Config::default()
    })?;
    while goes_on() {
        agent.poll()?;
        sleep(agent.until_next_poll());
    }
    agent.finish();
    Ok(())
}
