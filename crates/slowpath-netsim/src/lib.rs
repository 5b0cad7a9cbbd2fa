// SPDX-License-Identifier: Apache-2.0
//! A discrete-event simulator of TCP over packet-level switches.
//!
//! What enters: a [`Network`](engine::Network) of hosts, switches and links, the
//! [`Settings`](engine::Settings) of a run, and flows in the order of their start
//! ([`FlowSpec`](engine::FlowSpec)).
//!
//! What leaves: [`Results`](results::Results): flows with completion times, queries,
//! queues over time, ports, links, drops, marks and detours.
//!
//! What is promised: integer time that does not drift; the same input and seed give the
//! same results, byte for byte, whatever the machine; every run accounts for every packet,
//! or fails; memory grows with what is in the network and with the flows that are open or
//! reported, not with time. No clock, no I/O, no threads.
//!
//! The rooms: [`tcp`] is TCP as pure state, the switches are
//! [`slowpath_switch`]'s, [`engine`] moves packets between them.

pub mod engine;
mod host;
pub mod results;
pub mod scenario;
pub mod sweep;
pub mod tcp;
pub mod topology;
pub mod workload;
