// SPDX-License-Identifier: Apache-2.0
//! The agent of one host.
//!
//! What enters: snapshots from the kernel observer (`slowpath-observe`). What leaves: live
//! connections with their latest verdict ([`LiveConnection`]), and the log
//! (`slowpath-store`): problem intervals as they are found, a summary of each connection
//! when it closes and now and then while it lives, and coverage.
//!
//! Connections can be recorded besides, and those that are asked for are kept as files
//! ([`Agent::record`]).
//!
//! A core without I/O and clocks (`agent_core`, and below it `tracker`: the connection table,
//! verdicts, records) decides; [`Agent`] is the loop around it that reads the clocks, the
//! kernel and `/proc`, and writes the log. Tests drive the core in virtual time.
//!
//! [`service`] runs an agent without a terminal: lines for the journal, reports to systemd.
//!
//! What is promised: polls at Poisson times, so that sampled values see time averages
//! (SNAP section 2.1); one thread polls, classifies and spools, another makes Parquet
//! segments; a connection that opened and closed between two polls has its record; what
//! is kept in memory is bounded by the connections that live plus fixed amounts. The agent
//! judges nothing itself and stores no query.

mod agent;
mod agent_core;
mod baselines;
mod budget;
mod clock;
mod config;
mod connection_table;
mod descendants;
mod host;
mod host_totals;
mod interactions;
mod listeners;
mod live_connection;
mod machine;
mod memory;
mod namespace_names;
mod observer;
mod owner_scans;
mod owners;
mod pace;
mod paths;
mod poll_report;
mod process_state;
pub mod processor;
mod real_peers;
mod reconcile;
mod recorder;
#[cfg(test)]
mod script;
mod scripted_agent;
pub mod service;
mod summaries;
mod tracker;
mod traffic;

pub use agent::{Agent, FinishReport, PollError, StartError, host_name};
pub use budget::{Budget, BudgetError, BudgetState};
pub use config::Config;
pub use descendants::{child_in_proc, descendants, own_pid};
pub use host_totals::{
    ANSWER_BOUNDS, APPLICATION_RTT_BOUNDS, Answers, ApplicationTotals, Applications, Histogram,
    HostTotals, LabelSet, OTHER, OwnerLabel, OwnerLabels, ProblemTotals, RTT_BOUNDS, Traffic,
};
pub use listeners::{LiveListener, Overflows};
pub use live_connection::LiveConnection;
pub use machine::process::sees_all_processes;
pub use namespace_names::namespace_name;
pub use observer::TierChoice;
pub use owner_scans::OwnerScans;
pub use owners::{CommandLines, OwnerOptions, Rules, RulesError, redacted};
pub use poll_report::PollReport;
pub use process_state::process_state;
pub use recorder::{
    EventSource, FolderError, KeepFilter, KeptRecording, Laboratory, OpenRecorder, RecordError,
    RecordOptions, RecorderState, kernel,
};
pub use scripted_agent::ScriptedAgent;
pub use slowpath_model::{Capabilities, HistoryPoint};
pub use slowpath_observe::{Call, Direction, Feature, FeatureState, Namespaces, ProgramCost};
pub use slowpath_recorder::ring;
pub use slowpath_store::{Retention, WriterStatus};
