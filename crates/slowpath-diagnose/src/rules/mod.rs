// SPDX-License-Identifier: Apache-2.0
//! SNAP's Table 2, one file a rule. Each takes two statistics of one connection and gives
//! a [`Measure`](crate::Measure), before thresholds.

pub(crate) mod delayed_ack;
pub(crate) mod fast_retransmit;
pub(crate) mod receiver_window;
pub(crate) mod send_buffer;
pub(crate) mod timeout;
