// SPDX-License-Identifier: Apache-2.0
//! What kind of loss a path has: an experiment with small and full packets, one by one, in trains and at several rates, and
//! the judge of what came of it.
//!
//! What enters: a [`Plan`], and for each direction the packets of its segments, each with its time of
//! sending and its delay, or lost ([`Segment`]). What leaves: a [`Judgement`]: the kind of loss, the test
//! that decided with its p-value, all other tests, and the counts of each cell.
//!
//! ```text
//!  plan        which packets are sent when                     ┐
//!  tables      packets by cell, without those of our own       │ pure
//!  statistics  exact and rank tests, trends, periodograms      │
//!  judge       which kind of loss: a fixed order of questions  ┘
//!  run         the sessions, by OWAMP or a reflector             the edge
//!  report      text and JSON
//! ```
//!
//! The order of the questions, the tests and their errors: `docs/decisions/0056-loss-signatures.md`.

mod judge;
pub mod plan;
pub mod report;
mod run;
pub mod statistics;
pub mod tables;

pub use judge::{Estimate, Judgement, Reason, Signature, Test, TestName, judge};
pub use plan::{Plan, PlanError, Size, Traffic};
pub use report::{DirectionSignature, LossReport};
pub use run::{LossError, LossOptions, LossOutcome, LossProtocol, measure_loss};
pub use tables::{Observed, Packet, PacketCell, Segment};
