// SPDX-License-Identifier: Apache-2.0
//! The agent's figures and the log's records in the formats of other tools.
//!
//! What enters: a [`State`], the agent's sums and gauges at one moment. What leaves:
//! [`catalogue`] makes metrics of it, [`prometheus`] writes them as text for a scrape,
//! [`otlp`] as a message to push. Records of the log: [`log`] reads them, [`rows`] makes rows of them, [`redaction`] and
//! [`anonymise`] hide what is sensitive, [`table`] writes CSV or JSON lines. The kernel's
//! socket state: [`mlab`] saves it as M-Lab's `tcp-info` does. Two thin shells do I/O: [`http`]
//! serves the text, [`push`] delivers the message; [`exporters`] starts and ends both.
//!
//! What is promised:
//!
//! - The number of series is bounded and does not grow with connections or time: labels are
//!   problems, kinds of loss, features and at most a configured number of applications.
//! - A counter never goes down while the process lives, but that those of an application which
//!   lost its labels end; a connection that closes leaves what it had in the sums.
//! - What is not known has no sample; it is never 0.
//! - No client of [`http`], slow, broken or one of many, makes the agent wait or take more memory
//!   than [`http::MAX_CLIENTS`] times a request and a response.
//!
//! What it never does: judge, poll, or write the log.

pub mod anonymise;
pub mod catalogue;
mod counters;
pub mod exporters;
mod family;
pub mod http;
pub mod log;
pub mod mlab;
pub mod otlp;
pub mod partition;
pub mod prometheus;
pub mod push;
pub mod reader_gone;
pub mod redaction;
pub mod rows;
mod state;
pub mod table;

pub use family::{Family, Kind, Label, Point, Unit, Value};
pub use state::{Board, LogState, Polls, ProcessUse, State, Turnover};
