// SPDX-License-Identifier: Apache-2.0
//! The log of all hosts: batches in, hourly tables out, each row exactly once.
//!
//! What enters: batches of hosts that were authenticated before, and the time. What leaves:
//! the offset that is flushed of each segment, and Parquet tables that any engine reads
//! (`docs/decisions/0044-fleet.md`).
//!
//! What is promised:
//!
//! - [`Intake`]: what is answered [`Receipt::Flushed`] is on the disk, and a row counts once however
//!   often it is sent. Nothing of a batch is taken that is answered otherwise.
//!
//! What it never does: use the network, read a clock, or authenticate.

mod checkpoint;
mod decide;
mod error;
mod frame;
mod intake;
mod layout;
mod offsets;
mod runs;
mod status;

pub use decide::{Decision, Position, decide};
pub use error::FleetError;
pub use intake::{Intake, IntakeCounters, IntakeOptions, Receipt};
pub use offsets::{ENDED, Judgement, LIVE, Offsets};
pub use runs::{RunVerdict, Runs};
pub use status::{HostStatus, Peer};
