// SPDX-License-Identifier: Apache-2.0
//! The fleet's server: who may ship, what is taken in, how the fleet is doing.
//!
//! What enters: connections of agents, commands of the operator. What leaves: batches for
//! [`slowpath_fleet`], certificates, status (`docs/decisions/0044-fleet.md`).
//!
//! [`ca`] has CAs, invitations, certificates of hosts and revocations; [`state`] keeps them.
//!
//! What it never does: kernel access, judging.

pub mod ca;
pub mod clock;
pub mod state;
