// SPDX-License-Identifier: Apache-2.0
//! The agent of one host.
//!
//! What enters: snapshots from the eyes (`slowpath-observe`). What leaves: live
//! connections with their latest verdict ([`LiveConnection`]), and the log
//! (`slowpath-store`): problem intervals as they are found, a summary of each connection
//! when it closes and now and then while it lives, and coverage.
//!
//! Connections can be recorded besides, and those that are asked for are kept as files
//! ([`Agent::record`]).
//!
//! What is promised: polls at Poisson times, so that sampled values see time averages
//! (SNAP section 2.1); one thread polls, classifies and spools, another makes Parquet
//! segments; a connection that opened and closed between two polls has its record; what
//! is kept in memory is bounded by the connections that live plus fixed amounts. The agent
//! judges nothing itself and stores no query.

mod accounts;
mod agent;
mod audit;
mod baselines;
mod book;
mod budget;
mod config;
mod connections;
mod eyes;
mod interactions;
mod listeners;
mod looks;
mod owners;
mod pace;
mod peers;
mod recorder;
mod rehearsal;
mod summaries;

pub use accounts::{Accounts, Applications, Charges, Histogram, OTHER, RTT_BOUNDS, Traffic};
pub use agent::{Agent, FinishReport, PollError, PollReport, StartError, host_name};
pub use budget::{Budget, BudgetError, BudgetState};
pub use config::Config;
pub use connections::{HistoryPoint, LiveConnection};
pub use eyes::{Capabilities, TierChoice};
pub use listeners::{LiveListener, Overflows};
pub use looks::Looks;
pub use owners::{CommandLines, OwnerOptions, Rules, RulesError, redacted};
pub use recorder::{
    FolderError, Kept, Opened, RecordError, RecordOptions, RecorderState, Source, Wanted, kernel,
};
pub use rehearsal::Rehearsal;
pub use slowpath_observe::{Call, Direction, Feature, FeatureState, ProgramCost};
pub use slowpath_replay::ring;
pub use slowpath_store::{Retention, WriterStatus};
