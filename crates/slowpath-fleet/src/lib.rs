// SPDX-License-Identifier: Apache-2.0
//! The log of all hosts: batches in, hourly tables out, each row exactly once.
//!
//! What enters: batches of hosts that somebody else authenticated, and the time. What leaves:
//! the offset that is flushed of each segment, and Parquet tables that any engine reads
//! (`docs/decisions/0044-fleet.md`).
//!
//! What it never does: use the network, or authenticate.
