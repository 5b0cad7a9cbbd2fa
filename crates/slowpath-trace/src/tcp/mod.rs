// SPDX-License-Identifier: Apache-2.0
//! TCP reconstructed: segments of one connection in, what happened on it out.
//!
//! What enters: [`Segment`](crate::segment::Segment)s of one 4-tuple in the capture's order;
//! whoever feeds them ([`engine`](crate::engine)) finds the [`Connection`] by the 4-tuple
//! and decides where another begins. What leaves: a [`ConnectionReport`] at the end and,
//! for those who ask, an [`Event`] a segment. No clock, no I/O.
//!
//! What is promised:
//! - any sequence of segments is accepted, with any numbers and any times; memory is bounded
//!   by what is in flight, and by [`Options::outstanding`] whatever happens;
//! - every figure has one definition, in docs/reference/trace.md, and is about what passed at the
//!   place of capture: nothing is known of segments that were lost before it, nor of what
//!   the hosts meant. Where evidence is missing the judgement is counted as ambiguous or
//!   unexplained;
//! - sequence numbers are unwrapped at once; sums are integers.

mod acking;
mod connection;
mod event;
mod flow;
mod frames;
mod ledger;
mod options;
mod ranges;
mod renumbering;
mod report;
mod retransmission;
mod rtt;
mod samples;
mod sending;
mod tally;
mod turns;
pub mod wireshark;

#[cfg(test)]
mod tests;

pub use connection::{Connection, Options};
pub use event::{Cause, Event, Events, Ignore, Kind, Marks, Proof, Spurious};
pub use report::{
    Acks, ConnectionReport, Control, Data, Direction, Dropped, Ecn, Ending, FastOpen, Flight,
    Handshake, Moment, Offered, Order, Owin, Retransmitted, Rtt, Scaling, Side, Timing, Window,
};
pub use samples::Samples;
pub use turns::Turns;
