// SPDX-License-Identifier: Apache-2.0
//! Where on the path the bottleneck is, without help of the peer: by two methods that share no packet.
//!
//! What enters: a peer's address and limits. What leaves: a [`NeckReport`] with the link, a bound of its rate, and how
//! certain both are; or that it cannot be said, and why.
//!
//! ```text
//!  train, probe      what is sent, and how answers are known   ┐
//!  gaps, loaded      the two estimators: tables in, a link out │ pure
//!  capacity          the link's rate, and what others use of it │
//!  verdict           where both agree                          │
//!  report            text and JSON                             ┘
//!  prober, measure   sockets, pauses, times                    the edge
//! ```
//!
//! What is promised: traffic is bounded in octets before it begins; a link that the hops' silence leaves open is an interval
//! and not a guess; where the methods disagree there is no verdict.

pub mod capacity;
pub mod gaps;
pub mod links;
pub mod loaded;
mod measure;
mod probe;
mod prober;
pub mod report;
pub mod statistics;
pub mod train;
pub mod verdict;

pub use measure::{NeckError, NeckOptions, measure};
pub use report::NeckReport;
