// SPDX-License-Identifier: Apache-2.0
//! Measures a path actively: one-way delay, loss, duplicates, reordering, jitter and hops, by OWAMP, TWAMP and STAMP; the kind of
//! loss; the route; the link that limits; what TCP carries.
//!
//! What enters: a peer's address and a schedule; on the other end, connections and packets of anyone. What leaves:
//! for each direction counts and delays, each with its error ([`report`]); session files as owamp has them ([`mod@file`]);
//! results for an archive of perfSONAR ([`pscheduler`]); answers to the measurements of others ([`serve`]).
//!
//! ```text
//!  control     messages, keys, both ends as machines     ┐
//!  packet      test packets in every mode                │
//!  schedule    when packets are sent, to the bit         │ pure: time, octets and
//!  results     losses, reordering, delays, the clocks    │ randomness are arguments
//!  report      numbers with their errors, text, JSON     │
//!  pscheduler  the same as perfSONAR's archives have it  ┘
//!  icmp        ICMP errors, and what they quote          ┐
//!  requests    what slowpaths ask each other for         │
//!  route       traces                                    │ each a pure core, and
//!  neck        where a path is narrow                    │ sockets at its edge
//!  signature   what kind of loss there is                │
//!  throughput  what TCP carries, and what limits it      ┘
//!  socket      kernel stamps, TTL, drops, sleeping       ┐
//!  session     what a client runs                        │
//!  mesh        many peers, all the time                  │ the edge
//!  serve       what a server runs                        │
//!  command     arguments and output                      ┘
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
pub mod icmp;
pub mod keys;
pub mod mesh;
pub mod neck;
pub mod packet;
pub mod pscheduler;
pub mod record;
pub mod report;
pub mod requests;
pub mod results;
pub mod route;
pub mod schedule;
pub mod serve;
pub mod session;
pub mod signature;
pub mod socket;
pub mod throughput;
pub mod time;
