// SPDX-License-Identifier: Apache-2.0
//! What records of packets say of a direction: losses, duplicates, reordering, delays, hops.
//!
//! What enters: records in the order of arrival, what the sender skipped, what this host dropped. What leaves:
//! a [`Summary`] a direction, or one a row of time ([`Tally`]).
//!
//! What is promised: every packet that was sent is in exactly one row, and there received or lost; what
//! the ends themselves lost is counted separately and is no loss of the path.

mod clock;
mod loss;
mod reordering;
mod summary;
mod tally;

pub use clock::{ClockFinding, Corrections, Doubt, OneWayError, Step, impossible, judge};
pub use loss::LossPattern;
pub use reordering::{MOST_REORDERING, Reordering};
pub(crate) use summary::jitter;
pub use summary::{Delays, HopChange, Hops, Summary};
pub use tally::{Plan, Tally};
