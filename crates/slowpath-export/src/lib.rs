// SPDX-License-Identifier: Apache-2.0
//! What the agent knows, for others' tools.
//!
//! What enters: a [`State`], the agent's sums and gauges at one moment. What leaves:
//! [`catalogue`] makes metrics of it, [`prometheus`] writes them as text for a scrape,
//! [`otlp`] as a message to push. Rows of the log: [`table`] writes them as CSV or JSON
//! lines, [`anonymise`] makes addresses and names unrecognisable. What the kernel says of
//! sockets: [`mlab`] saves it as M-Lab's `tcp-info` does. The thin shells around that: [`http`] serves the text,
//! [`push`] delivers the message.
//!
//! What is promised:
//!
//! - The number of series is bounded and does not grow with connections or time: labels are
//!   problems, kinds of loss, features and at most a configured number of applications.
//! - A counter never goes down while the process lives; a connection that closes leaves
//!   what it had in the sums.
//! - What is not known has no sample; it is never 0.
//! - No client of [`http`], slow, mad or many, makes the agent wait or take more memory
//!   than [`http::MAX_CLIENTS`] times a request and a response.
//!
//! What it never does: judge, poll, or touch the log.

pub mod anonymise;
pub mod catalogue;
mod family;
pub mod http;
pub mod mlab;
pub mod otlp;
pub mod prometheus;
pub mod push;
mod state;
pub mod table;

pub use family::{Family, Kind, Label, Point, Unit, Value};
pub use state::{Board, LogState, Polls, ProcessUse, State, Turnover};
