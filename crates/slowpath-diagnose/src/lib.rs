// SPDX-License-Identifier: Apache-2.0
//! Pure classification of connections: which stage limits each, and what to do about it.
//!
//! What enters: two [`Snapshot`](slowpath_model::Snapshot)s of one connection, the lowest
//! RTT known to its peer, and [`Thresholds`].
//!
//! What leaves: [`classify`] gives the [`IntervalVerdict`](slowpath_model::IntervalVerdict)
//! on the interval between them, after SNAP's Table 2; [`measure`] gives the times and
//! events behind it before any threshold; [`advise`] turns a finding into something a
//! person can act on; [`Totals`] adds verdicts up over a connection's life;
//! [`problem_table`] makes SNAP's Table 4 of many connections; [`Interactions`] finds problems
//! that explain each other; and [`judge_listeners`] says which listening sockets turned
//! connections away. [`clocks`] says how two machines' clocks differ.
//!
//! What is promised: the same input gives the same output. No I/O, no clock, no
//! randomness; no allocation while nothing is wrong. A statistic that is missing, or a
//! counter that went backwards, makes the problem that needs it *unmeasured*, never
//! absent.

mod advice;
pub mod clocks;
mod delta;
mod interactions;
mod listeners;
mod measure;
mod measures;
mod opened;
mod rules;
mod table;
mod thresholds;
mod totals;

pub use advice::{Actor, Advice, AdviceContext, SendBufferSizing, advise, size_send_buffer};
pub use interactions::{
    Interaction, InteractionEvidence, InteractionKind, Interactions, Observation, ProxyFlow,
    WINDOW, may_flow,
};
pub use listeners::{ListenRound, ListenerPair, advise_listener, judge_listeners};
pub use measure::Measure;
pub use measures::{Measures, classify, measure};
pub use opened::opened;
pub use table::{ProblemRow, ProblemTable, TIME_PERCENTAGES, problem_table};
pub use thresholds::Thresholds;
pub use totals::Totals;
