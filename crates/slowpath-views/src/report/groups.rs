// SPDX-License-Identifier: Apache-2.0
//! Connections grouped by what their owners are, by service or by address.

use crate::tally::trouble;
use slowpath_diagnose::Totals;
use slowpath_model::{ConnectionSummary, Micros};
use slowpath_text::plain;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What the connections of a report are grouped by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupBy {
    /// The application that owns them.
    Application,
    /// This host's address.
    Host,
    /// The peer's address.
    Peer,
    /// The owner's systemd unit.
    Unit,
    /// The owner's container.
    Container,
    /// The owner's Kubernetes pod.
    Pod,
    /// The port of the service.
    Port,
}

impl GroupBy {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            GroupBy::Application => "application",
            GroupBy::Host => "host",
            GroupBy::Peer => "peer",
            GroupBy::Unit => "unit",
            GroupBy::Container => "container",
            GroupBy::Pod => "pod",
            GroupBy::Port => "port",
        }
    }
}

/// One application, unit, peer or the like.
#[derive(Clone, Debug, Default)]
pub struct Group {
    /// Its name, address or number.
    pub name: String,
    /// Its connections.
    pub connections: u64,
    /// Of these, how many had any problem.
    pub troubled: u64,
    /// Time of all connections, summed.
    pub totals: Totals,
    /// Payload bytes acknowledged and received over the connections' whole lives.
    pub bytes: u64,
    /// Its connections' places among all.
    pub(super) places: Vec<usize>,
}

/// The group of a connection.
fn key(by: GroupBy, s: &ConnectionSummary) -> String {
    let owner = &s.owner;
    // What an owner does not have is not the same as what is not known.
    let of_cgroup = |name: Option<&Arc<str>>, none: &str| match (name, &owner.cgroup) {
        (Some(name), _) => plain(name),
        (None, Some(_)) => format!("(no {none})"),
        (None, None) => "(owner unknown)".to_owned(),
    };
    match by {
        GroupBy::Application => owner
            .name()
            .map_or_else(|| "(owner unknown)".to_owned(), |n| plain(n)),
        GroupBy::Unit => of_cgroup(owner.unit(), "unit"),
        GroupBy::Container => of_cgroup(owner.container().map(|c| &c.id), "container"),
        GroupBy::Pod => of_cgroup(owner.pod(), "pod"),
        GroupBy::Port => s.tuple.service_port(s.origin).to_string(),
        GroupBy::Host => s.tuple.local.ip().to_string(),
        GroupBy::Peer => s.tuple.remote.ip().to_string(),
    }
}

/// Payload bytes acknowledged and received.
pub fn payload(s: &ConnectionSummary) -> u64 {
    s.stats.bytes_acked.saturating_add(s.stats.bytes_received)
}

/// The groups, most trouble first.
pub fn groups(lives: &[ConnectionSummary], by: GroupBy) -> Vec<Group> {
    let mut groups: BTreeMap<String, Group> = BTreeMap::new();
    for (place, life) in lives.iter().enumerate() {
        let name = key(by, life);
        let group = groups.entry(name).or_insert_with_key(|name| Group {
            name: name.clone(),
            ..Group::default()
        });
        group.connections += 1;
        group.places.push(place);
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
