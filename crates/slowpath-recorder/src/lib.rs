// SPDX-License-Identifier: Apache-2.0
//! Recording the TCP connections of a stock kernel.
//!
//! What enters: the kernel, by BPF. [`handlers`] attaches to TCP's functions (fentry) and misses nothing; [`packets`] attaches to tracepoints only and is
//! cheap enough to run always. What leaves: events as bytes; [`stock`] and [`light`] make recordings ([`slowpath_recording`]) of them, [`ring`] holds
//! those of the last minutes and keeps those that a caller asks for, [`join`](mod@join) makes connections of the recordings of two machines.
//!
//! What is promised: whatever is left out is counted, and an end of which something is missing has a gap there. What makes recordings of events does no
//! I/O and reads no clock.

pub mod handlers;
pub mod join;
pub mod light;
pub mod packets;
pub mod ring;
pub mod stock;
mod updates;

#[cfg(test)]
#[path = "probes/tests.rs"]
mod probes;
