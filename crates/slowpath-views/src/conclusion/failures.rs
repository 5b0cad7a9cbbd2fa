// SPDX-License-Identifier: Apache-2.0
//! Connections that failed, counted by how, by peer and by process.
//!
//! 1. What counts is what the answer counts ([`End::failure`](super::End)): refused, unanswered, unreachable, and
//!    resets that cost something.
//! 2. A connection counts once, at the end that was asked about: its process, and the peer's address; where
//!    the peer opened the connection, without its port, which differs from connection to connection. Where only the peer's
//!    socket shows a reset, it is said from this end: what reset the peer's socket was sent here.

use super::connection::failure;
use super::{ActingProcess, Observed};
#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;
use slowpath_model::{Failure, Origin};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Connections that failed alike.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct FailureEntry {
    /// How.
    #[cfg_attr(test, schemars(schema_with = "crate::schema::failure"))]
    pub failure: Failure,
    /// How many connections.
    pub connections: u64,
    /// The peer's address, with the port where this end opened them.
    pub peer: String,
    /// This end's process; null if none is known. Its `pid` is null if several of that name had such connections.
    pub process: Option<ActingProcess>,
}

/// The connections that failed, most first.
pub(super) fn count<'a>(connections: impl IntoIterator<Item = Observed<'a>>) -> Vec<FailureEntry> {
    let mut entries: BTreeMap<_, FailureEntry> = BTreeMap::new();
    for observed in connections {
        let Some((_, failure)) = failure(&observed) else {
            continue;
        };
        let failure = match (observed.near.failure(), failure) {
            (None, Failure::ResetByPeer) => Failure::ResetHere,
            (None, Failure::ResetHere) => Failure::ResetByPeer,
            (_, failure) => failure,
        };
        let peer = match observed.near.origin {
            Origin::Accepted => observed.peer.ip().to_string(),
            Origin::Opened | Origin::Unknown => observed.peer.to_string(),
        };
        let process = ActingProcess::of(observed.near.owner);
        let command = process.as_ref().map(|process| process.command.clone());
        let key = (failure, peer.clone(), command);
        let entry = entries.entry(key).or_insert_with(|| FailureEntry {
            failure,
            connections: 0,
            peer,
            process: process.clone(),
        });
        entry.connections += 1;
        if let (Some(all), Some(process)) = (&mut entry.process, process)
            && all.pid != process.pid
        {
            all.pid = None;
        }
    }
    let mut entries: Vec<FailureEntry> = entries.into_values().collect();
    entries.sort_by_key(|entry| Reverse(entry.connections));
    entries
}
