// SPDX-License-Identifier: Apache-2.0
//! The slowpath command: arguments, terminal output, exit statuses.
//!
//! What enters: the command line, and verdicts: live ones from the agent,
//! records of the log, a saved series.
//! What leaves: text, the full screen, or JSON on standard output; messages on standard
//! error; an exit status ([`failure`]).
//!
//! The modules: [`args`] and [`options`] define the command line and [`commands`] carries it out; [`machine`]
//! is the agent of this machine as a source of connections; [`session`] is the loop of every
//! live command, fed by [`events`]; [`watch`], [`why`], [`report`], [`series`] and [`overhead`]
//! print what `slowpath-views` answers; [`sim`] runs a scenario in the simulator, [`lab`] in
//! networks of real kernels; [`record`] makes recordings and [`recording`] shows what one holds.
//!
//! What is promised: names from outside cannot steer the terminal; an exit status means what
//! `docs/reference/cli.md` lists; nothing here panics on input.
//!
//! What it never does: measure, judge, decide what an answer says.

// Messages are cleaned, in one place: `message`.
#![deny(clippy::print_stderr)]

pub mod agent;
pub mod args;
pub mod command;
pub mod commands;
pub mod events;
pub mod explain;
pub mod export;
pub mod failure;
pub mod lab;
pub mod machine;
pub mod manual;
pub mod message;
pub mod options;
mod outputs;
pub mod overhead;
pub mod queues;
pub mod record;
pub mod recording;
pub mod replay;
pub mod report;
mod results;
pub mod series;
pub mod server;
pub mod session;
pub mod sim;
pub mod trace;
pub mod up;
pub mod watch;
pub mod why;

pub use commands::main;
pub use slowpath_text as render;
