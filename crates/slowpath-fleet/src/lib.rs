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
//! - [`Tables`]: a file under a visible name is only ever replaced, by rename, by one that holds all
//!   its rows and perhaps more. Any engine that reads a glob reads each row at most once at any
//!   moment, and counts never fall. A kill at any moment loses no row and doubles none.
//! - [`FleetReader`]: each row exactly once, those that are in no table yet included.
//!
//! What it never does: use the network, read a clock, or authenticate.

mod checkpoint;
mod closing;
mod compaction;
mod copies;
mod decide;
mod decode;
mod ends;
mod error;
mod files;
mod frame;
mod hour;
mod intake;
mod intakes;
mod layout;
mod minutes;
mod offsets;
mod owners;
mod pending;
mod publish;
mod reader;
mod retention;
mod runs;
mod scan;
mod sink;
mod status;
mod tables;

pub use closing::Closed;
pub use copies::ObjectStore;
pub use decide::{Decision, Position, decide};
pub use error::FleetError;
pub use hour::{Hour, assign_hour};
pub use intake::{Intake, IntakeCounters, IntakeOptions, Receipt};
pub use offsets::{ENDED, Judgement, LIVE, Offsets};
pub use publish::{Published, Tables};
pub use reader::{FleetReadReport, FleetReader};
pub use retention::{KeepLimits, Retained};
pub use runs::{RunVerdict, Runs};
pub use status::{HostStatus, Peer};
pub use tables::Table;
