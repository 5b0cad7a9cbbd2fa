// SPDX-License-Identifier: Apache-2.0
//! Measures a path actively: one-way delay, loss, duplicates, reordering, jitter and hops, by OWAMP, TWAMP and STAMP.
//!
//! What enters: a peer's address and a schedule; on the other end, connections and packets of anyone. What leaves:
//! for each direction counts and delays, each with its error ([`report`]); session files as owamp has them ([`mod@file`]);
//! answers to the measurements of others ([`serve`]).
//!
//! ```text
//!  control   messages, keys, both ends as machines     ┐
//!  packet    test packets in every mode                │ pure: time, octets and
//!  schedule  when packets are sent, to the bit         │ randomness are arguments
//!  results   losses, reordering, delays, the clocks    │
//!  report    numbers with their errors, text, JSON     │
//!  signature what kind of loss: experiment and judge   ┘
//!  socket    kernel stamps, TTL, drops, sleeping       ┐
//!  session   what a client runs                        │ the edge
//!  serve     what a server runs                        │
//!  mesh      several peers all the time, metrics       │
//!  pscheduler results as it has them, posted           │
//!  command   arguments and output                      ┘
//! ```
//!
//! What is promised:
//!
//! - What this host lost itself (skipped sends, a full receive buffer) is counted separately, never as the path's.
//! - A one-way delay carries its error; one that cannot be true is marked and has none.
//! - Delays are given as both clocks show them. Offset, skew and steps are estimated, and taken out only if asked, by name; of
//!   the variation skew and steps are always taken out.
//! - No count, length or time of a peer takes memory or CPU beyond the limits, and a server sends nothing to an
//!   address that did not ask.
//!
//! What it never does: capture packets of others, or set a clock.

pub mod command;
pub mod control;
pub mod file;
pub mod keys;
pub mod mesh;
pub mod packet;
pub mod pscheduler;
pub mod record;
pub mod report;
pub mod results;
pub mod schedule;
pub mod serve;
pub mod session;
pub mod signature;
pub mod socket;
pub mod time;
