// SPDX-License-Identifier: Apache-2.0
//! How replays compare with their recording.

use super::explanation::NamedPacketOutput;
#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;

/// How far the light recorder observed a connection.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct ObservedOutput {
    /// Its number.
    pub connection: usize,
    /// The last observed run of the client; null: none.
    pub client: Option<ObservedRunOutput>,
    /// The same of the server.
    pub server: Option<ObservedRunOutput>,
}

/// The last observed run of an end.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct ObservedRunOutput {
    /// Its number.
    pub run: usize,
    /// Since the connection's beginning.
    pub milliseconds: f64,
}

/// What was fitted of a connection.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct FittedOutput {
    /// Its number.
    pub connection: usize,
    /// What is replayed otherwise than it was inferred.
    pub changes: Vec<ChangeOutput>,
}

/// A change to what was inferred.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct ChangeOutput {
    /// `client` or `server`.
    pub end: &'static str,
    /// The run; null: all of the end.
    pub run: Option<u64>,
    /// The change in words.
    pub what: String,
}

/// A connection whose replay diverged.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct DivergenceOutput {
    /// Its number.
    pub connection: usize,
    /// Address and port of the end that connected.
    pub client: String,
    /// Address and port of the end that accepted.
    pub server: String,
    /// The end that diverged first.
    pub end: &'static str,
    /// Its run.
    pub run: u64,
    /// The packet that came in then; null: none did.
    pub packet: Option<NamedPacketOutput>,
    /// How it diverged.
    pub how: String,
    /// What was recorded.
    pub expected: u32,
    /// What the replay found.
    pub found: u32,
    /// Runs of each end that are exact.
    pub exact_runs: ExactRunsOutput,
    /// Each end's state there, a number a field.
    pub state: BTreeMap<&'static str, BTreeMap<&'static str, u32>>,
}

/// Runs of each end that are exact.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct ExactRunsOutput {
    /// Of the client.
    pub client: u64,
    /// Of the server.
    pub server: u64,
}
