// SPDX-License-Identifier: Apache-2.0
//! SNAP's Table 2 and what goes past it, one file a rule. Each takes two looks at one
//! connection and gives a [`Measure`](crate::Measure), before thresholds.

pub(crate) mod congestion_window;
pub(crate) mod delayed_ack;
pub(crate) mod ecn_marked;
pub(crate) mod fast_retransmit;
pub(crate) mod idle_burst;
pub(crate) mod receiver_app;
pub(crate) mod receiver_window;
pub(crate) mod reordering;
pub(crate) mod send_buffer;
pub(crate) mod small_writes;
pub(crate) mod syn_retransmit;
pub(crate) mod timeout;
pub(crate) mod zero_window;
