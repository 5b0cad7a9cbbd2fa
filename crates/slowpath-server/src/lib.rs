// SPDX-License-Identifier: Apache-2.0
//! The fleet's server: who may ship, what is taken in, how the fleet is doing.
//!
//! What enters: connections of agents, commands of the operator. What leaves: batches for
//! [`slowpath_fleet`], certificates, status (`docs/decisions/0044-fleet.md`).
//!
//! - [`ca`]: CAs, invitations, certificates of hosts, revocations; [`state`] keeps them.
//! - [`door`]: TLS 1.3, who gets in; [`api`]: what they may ask; [`intake`]: where batches go,
//!   [`log`]: into the fleet's log; [`objects`]: object stores that get its tables, too.
//! - [`hosts`], [`status`], [`refusals`]: what is known of the fleet.
//! - [`admin`]: the operator's commands to a running server; [`command`]: the same from the
//!   command line; [`server`]: all of it in one process.
//!
//! What is promised: who has no certificate of ours reaches nothing but the CA's certificates and the
//! use of a token; what is answered is on the disk; every queue and table has a bound; the time is
//! an argument.
//!
//! What it never does: kernel access, judging.

pub mod admin;
pub mod api;
pub mod ca;
pub mod clock;
pub mod command;
pub mod door;
pub mod hosts;
pub mod intake;
pub mod journal;
pub mod log;
pub mod objects;
pub mod refusals;
pub mod server;
pub mod state;
pub mod status;
