// SPDX-License-Identifier: Apache-2.0
//! How often slowpath is right.
//!
//! What enters: a seed. What leaves: for each problem, precision and recall of the agent's
//! verdicts on real Linux TCP over emulated paths with random parameters; and for each problem that
//! packets show, how often the agent, `slowpath trace` and the truth agree ([`agreement`]; `make
//! check-truth`, docs/reference/accuracy.md).
//!
//! ```text
//! seed ─► plan (random) ─► run: network, sockets, applications ─► captures at both ends, accounts
//!                             │                                   ├─► trace ────────────┐
//!                             │                                   └─► stream ─► truth ──┼─► agreement
//!                             └─► the agent (one for all runs) ─► findings, answers ────┴─► tally
//! ```
//!
//! What is promised: what is true comes from what was injected, from packets captured at both
//! ends and from the applications' own accounts ([`truth`]), never from the code that judges
//! or the counters that it reads. A run that the machine disturbed (a late emulator, lost
//! capture) is run again and counted.

pub mod agreement;
pub mod app;
pub mod capture;
pub mod expected;
pub mod judgement;
pub mod packet;
pub mod plan;
pub mod random;
pub mod relay;
pub mod repair;
pub mod run;
pub mod schedule;
pub mod stream;
pub mod tally;
pub mod trace;
pub mod truth;
pub mod watch;

mod counters;
mod listener_load;
mod network;
mod why;

/// Why a run has no result.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The system refused something.
    #[error("cannot {operation}: {source}")]
    Io {
        /// What.
        operation: &'static str,
        /// Why.
        source: std::io::Error,
    },
    /// The network did not come up.
    #[error(transparent)]
    Lab(#[from] slowpath_lab::emulator::LabError),
    /// The scenario is refused: a defect of the plan.
    #[error("the network of a run: {0}")]
    Scenario(String),
    /// A capture did not start.
    #[error("capturing packets: {0}")]
    Capture(String),
    /// A capture cannot be judged.
    #[error("judging a capture: {0}")]
    Trace(#[from] slowpath_trace::read::ReadError),
    /// The agent failed.
    #[error("the agent: {0}")]
    Agent(String),
    /// The machine was too busy: the run says nothing and is run again.
    #[error("disturbed: {0}")]
    Disturbed(String),
}

impl RunError {
    pub(crate) fn io(operation: &'static str) -> impl Fn(std::io::Error) -> Self {
        move |source| RunError::Io { operation, source }
    }
}
