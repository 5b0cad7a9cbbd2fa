// SPDX-License-Identifier: Apache-2.0
//! What slowpath says about connections, whatever shows it: a terminal, `--json`, an API, a page.
//!
//! What enters: live connections and listeners behind [`source::Source`] (the agent of this
//! machine is one), records of the log ([`report::Records`]), saved series
//! ([`series::Series`]); the user's filters and targets; the time, as an argument.
//! What leaves: values that serialise to the JSON that `docs/reference/cli.md` lists, and the
//! same answers as lines of text.
//!
//! The modules: [`filter`] reads `ss` expressions and [`selection`] applies them; [`tally`]
//! sums verdicts over time; [`conclusion`] makes one answer of them, [`criterion`] an exit status; [`watch`] follows live connections, [`why`] answers for one target,
//! [`report`] for a time range of the log, [`series`] for a saved series, [`overhead`] for the
//! cost of monitoring; [`interactions`] and [`listeners`] are parts of several of them;
//! [`json`] is their common vocabulary.
//!
//! What is promised: what was not measured is stated and never zero; a filter selects what
//! `ss` selects; nothing here panics on input; every list is bounded or as long as its input.
//!
//! What it never does: I/O, clocks, terminals, arguments, judging an interval. Only a source performs I/O.

pub mod advice;
pub mod conclusion;
pub mod criterion;
pub mod filter;
pub mod interactions;
pub mod json;
pub mod listeners;
pub mod overhead;
mod points;
pub mod report;
#[allow(missing_docs)]
pub mod scripted;
pub mod selection;
pub mod series;
pub mod source;
pub mod tally;
pub mod target;
pub mod watch;
pub mod why;

#[cfg(test)]
mod schema;
