// SPDX-License-Identifier: Apache-2.0
//! The agent watching a scenario of the test networks.
//!
//! What enters: a running scenario (`slowpath-testbed`) and an agent. What leaves: what the
//! scenario really did, beside what the agent says of its connections. The program
//! `slowpath-demo` shows it to a person, the tests of this crate compare both.

use slowpath_agent::{Agent, LiveConnection, PollError};
use slowpath_model::FourTuple;
use slowpath_testbed::{Outcome, Running, ScenarioConnection, TestbedError};
use std::sync::mpsc::{RecvTimeoutError, channel};

/// Why a scenario could not be watched.
#[derive(Debug)]
pub enum WatchError {
    /// The scenario failed.
    Testbed(TestbedError),
    /// A poll failed.
    Poll(PollError),
}

impl std::fmt::Display for WatchError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            WatchError::Testbed(error) => write!(f, "running the scenario: {error}"),
            WatchError::Poll(error) => write!(f, "polling: {error}"),
        }
    }
}

impl std::error::Error for WatchError {}

/// Starts the workloads of `running`, polls until they have ended, and once more.
///
/// # Errors
/// If the scenario or a poll fails.
pub fn watch(agent: &mut Agent, running: &mut Running) -> Result<Outcome, WatchError> {
    watch_each(agent, running, |_| {})
}

/// [`watch`], with a look at the agent after each poll.
///
/// # Errors
/// If the scenario or a poll fails.
pub fn watch_each(
    agent: &mut Agent,
    running: &mut Running,
    mut each: impl FnMut(&Agent),
) -> Result<Outcome, WatchError> {
    // The connections are open; what follows is the scenario's.
    agent.poll().map_err(WatchError::Poll)?;
    running.go().map_err(WatchError::Testbed)?;
    std::thread::scope(|scope| {
        let (done, ended) = channel::<()>();
        let waiting = scope.spawn(move || {
            let outcome = running.wait();
            drop(done);
            outcome
        });
        let mut polled = Ok(());
        while polled.is_ok()
            && ended.recv_timeout(agent.until_next_poll()) == Err(RecvTimeoutError::Timeout)
        {
            polled = agent.poll().map(drop);
            each(agent);
        }
        let outcome = waiting
            .join()
            .unwrap_or_else(|p| std::panic::resume_unwind(p));
        polled
            .and_then(|()| agent.poll())
            .map_err(WatchError::Poll)?;
        each(agent);
        outcome.map_err(WatchError::Testbed)
    })
}

/// The agent's view of one end of a scenario's connection, if it has one.
pub fn find<'a>(
    agent: &'a Agent,
    running: &Running,
    end: ScenarioConnection,
) -> Option<&'a LiveConnection> {
    let netns = running.testbed().namespace(end.side).inode().ok()?;
    let tuple = FourTuple::new(end.local, end.remote);
    agent
        .connections()
        .find(|c| c.snapshot.id.netns == netns && c.snapshot.tuple == tuple)
}
