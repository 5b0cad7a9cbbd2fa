// SPDX-License-Identifier: Apache-2.0
//! Connections gathered by application, host or peer.

use crate::args::By;
use crate::render::plain;
use crate::tally::trouble;
use slowpath_diagnose::Totals;
use slowpath_model::{ConnectionSummary, Micros};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// One application, host or peer.
#[derive(Clone, Debug, Default)]
pub struct Group {
    /// Its name or address.
    pub name: String,
    /// Its connections.
    pub connections: u64,
    /// Of these, how many had any problem.
    pub troubled: u64,
    /// Time of all connections together.
    pub totals: Totals,
    /// Payload bytes acknowledged and received over the connections' whole lives.
    pub bytes: u64,
}

/// What the connection is gathered under.
fn key(by: By, s: &ConnectionSummary) -> String {
    match by {
        By::Application => s
            .owner
            .name()
            .map_or_else(|| "(owner unknown)".to_owned(), |n| plain(n)),
        By::Host => s.tuple.local.ip().to_string(),
        By::Peer => s.tuple.remote.ip().to_string(),
    }
}

/// The name of what is gathered by.
pub const fn by_name(by: By) -> &'static str {
    match by {
        By::Application => "application",
        By::Host => "host",
        By::Peer => "peer",
    }
}

/// Payload bytes acknowledged and received.
pub fn payload(s: &ConnectionSummary) -> u64 {
    s.stats.bytes_acked.saturating_add(s.stats.bytes_received)
}

/// The groups, most trouble first.
pub fn groups(lives: &[ConnectionSummary], by: By) -> Vec<Group> {
    let mut groups: BTreeMap<String, Group> = BTreeMap::new();
    for life in lives {
        let name = key(by, life);
        let group = groups.entry(name).or_insert_with_key(|name| Group {
            name: name.clone(),
            ..Group::default()
        });
        group.connections += 1;
        group.troubled += u64::from(trouble(&life.problem_time) > Micros::ZERO);
        group.bytes = group.bytes.saturating_add(payload(life));
        group.totals.merge(&Totals {
            observed: life.observed,
            polls: life.polls,
            problem_time: life.problem_time,
            problem_events: life.problem_events,
            unmeasured: life.unmeasured,
        });
    }
    let mut groups: Vec<Group> = groups.into_values().collect();
    groups.sort_by_key(|g| Reverse(trouble(&g.totals.problem_time)));
    groups
}
