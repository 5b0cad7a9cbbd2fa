// SPDX-License-Identifier: Apache-2.0
//! Record always, replay exactly (DETER, NSDI 2019).
//!
//! [`recording`] is what is kept of a connection, the runs of its handlers at both ends, and the file that holds it; [`stock`] makes one of what
//! BPF saw on a stock kernel, [`ring`] holds those of the last minutes and keeps what somebody asks for. Replays run elsewhere (`slowpath-lab`); what they leave is told here: [`headers`] compares packets with a capture of
//! the runtime, [`retell`] gives them the recorded addresses and times, [`probe`] names the fields of the socket, [`explain`] says why messages
//! were slow.
//!
//! [`sampling`] and [`coarse`] keep the times at which packets were sent within a stated error: moments enter, one a packet; samples leave, and
//! from samples the moments again. [`queues`] pushes the packets of all connections through the switches once more: packets with their moments
//! enter; what waited where leaves, where the lost ones were dropped, and why.
//!
//! What is promised: no inferred time is further from the true one than the threshold; the
//! same input gives the same output; no I/O, no clocks.
//!
//! How recording and replaying work: `docs/decisions/0021-record-and-replay.md`.

pub mod coarse;
pub mod explain;
pub mod headers;
pub mod join;
pub mod light;
mod network;
pub mod probe;
pub mod queues;
pub mod recording;
pub mod retell;
pub mod ring;
pub mod sampling;
pub mod stock;
