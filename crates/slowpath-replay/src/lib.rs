// SPDX-License-Identifier: Apache-2.0
//! Record always, replay exactly (DETER, NSDI 2019).
//!
//! So far one room of it: [`sampling`], which keeps the times at which a connection sent
//! its packets within a stated error without keeping the times. What enters: moments, one a
//! packet. What leaves: samples, and from samples the moments again. What is promised: no
//! inferred time is further from the true one than the threshold; the same moments give the
//! same samples; no I/O, no clocks, no allocation but the caller's.
//!
//! How recording and replaying are to work: `docs/decisions/0021-record-and-replay.md`.

pub mod sampling;
