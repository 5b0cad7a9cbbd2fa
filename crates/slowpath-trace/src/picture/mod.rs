// SPDX-License-Identifier: Apache-2.0
//! Pictures of a connection: time-sequence graph, RTT, throughput, data in flight.
//!
//! What enters: a connection's segments through a [`Recorder`], which keeps what each of them
//! meant, and what there is to say about it ([`Remark`]).
//!
//! What leaves: one self-contained page ([`html`]), a drawing ([`svg`]), files for xplot
//! ([`xpl`]). All draw the same things in the field's signs, those of tcptrace and xplot: data a
//! vertical line from its first to its last byte with arrow heads, the ACKs a line below them, the
//! window's edge a line above, SACK blocks beside, R for sent again, O for out of order, a tick
//! for an ACK that says nothing new, 3 for the third duplicate, S above SACK blocks, a diamond
//! for PUSH, Z for a closed window.
//!
//! What is promised: nothing leaves the page, no file but the one that is written is needed.
//! Memory is bounded: where a connection has more segments than asked for, neighbours that
//! nothing distinguishes are drawn as one, and how many is said.

pub mod html;
mod pack;
mod record;
mod scale;
mod series;
pub mod svg;
pub mod xpl;

pub use record::{Point, Recorder, Recording};
pub use scale::Scale;

use crate::segment::Timestamp;
use crate::tcp::Side;

/// Something to be said about a stretch of a connection, and where to look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// What.
    pub text: String,
    /// Whose data it is about; `None`: the whole connection.
    pub side: Option<Side>,
    /// From when.
    pub from: Timestamp,
    /// To when.
    pub to: Timestamp,
    /// The frames that decided it, the most significant first.
    pub frames: Vec<u64>,
}

/// One connection to be drawn.
#[derive(Clone, Copy, Debug)]
pub struct Drawn<'a> {
    /// Its number in the capture, from 1.
    pub number: u64,
    /// A line about it: what limits it.
    pub title: &'a str,
    /// What happened on it.
    pub recording: &'a Recording,
    /// What there is to say.
    pub remarks: &'a [Remark],
}
