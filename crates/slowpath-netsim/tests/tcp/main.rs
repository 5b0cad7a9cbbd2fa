// SPDX-License-Identifier: Apache-2.0
//! TCP step by step: what is sent when, as the RFCs have it. Offsets are in segments of
//! 1,000 bytes, times in milliseconds.

mod acknowledgments;
mod congestion;
mod ecn;
mod kernel;
mod newreno;
mod pacing;
mod rack;
mod sack;
mod script;
mod timeout;
mod undo;
mod window;
