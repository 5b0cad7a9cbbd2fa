// SPDX-License-Identifier: Apache-2.0
//! Record always, replay exactly (DETER, NSDI 2019).
//!
//! [`recording`] is what is kept of a connection: the runs of its handlers at both ends. [`sampling`] keeps the times at which a connection sent its
//! packets within a stated error without keeping the times: moments enter, one a packet;
//! samples leave, and from samples the moments again. [`queues`] pushes the packets of all
//! connections through the switches once more: packets with their moments enter; what
//! waited where leaves, and where the lost ones were dropped.
//!
//! What is promised: no inferred time is further from the true one than the threshold; the
//! same input gives the same output; no I/O, no clocks.
//!
//! How recording and replaying are to work: `docs/decisions/0021-record-and-replay.md`.

pub mod coarse;
pub mod explain;
pub mod headers;
pub mod probe;
pub mod queues;
pub mod recording;
pub mod retell;
pub mod sampling;
pub mod stock;
