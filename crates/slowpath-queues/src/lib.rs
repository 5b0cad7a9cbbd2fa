// SPDX-License-Identifier: Apache-2.0
//! The queues of switches, again: DETER section 3.4.
//!
//! What enters: the network, and every packet of all its hosts with the moment it was sent,
//! known within a bound ([`sampled`]), and whether it was lost on its way. What leaves: what
//! joined which queue when, and where the lost ones were dropped; in the same form as the
//! simulator writes its own ([`PacketLog`](slowpath_netsim::results::PacketLog)), so that
//! both can be compared ([`compare`]).
//!
//! The switches are [`slowpath_switch`]'s. Two things differ from a run of the simulator:
//!
//! 1. No sender reacts: packets enter when they did.
//! 2. Who is dropped is known. A packet that was not lost is never dropped, however long the
//!    queue that it joins. One that was lost is dropped at the first queue on its way whose
//!    room was, but for [`Margin`], used up; if there is none, at the one that had least
//!    room; if none was anywhere near full it arrives, and is counted.

mod clocks;
mod compare;
mod drops;
mod engine;
pub mod findings;
mod free_space;
mod sampled;
mod settle;

pub use compare::{Difference, DropErrors, compare};
pub use drops::{replay, replay_watched};
pub use engine::{Level, Offered, Outcome, QueueAtDrop, ReplayError};
pub use free_space::Margin;
pub use sampled::{Sampled, sampled};
pub use settle::settled;
