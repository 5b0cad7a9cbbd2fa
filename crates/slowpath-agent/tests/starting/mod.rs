// SPDX-License-Identifier: Apache-2.0
//! Agents that tests start.

use slowpath_agent::{Agent, Config};

/// An agent; `None` where it cannot run, which is then said of the test.
pub fn start(test: &str, config: Config) -> Option<Agent> {
    let agent = Agent::start(config);
    agent
        .inspect_err(|error| println!("SKIPPED {test}: {error}"))
        .ok()
}
