// SPDX-License-Identifier: Apache-2.0
//! What a report serialises to.

use super::groups::{Group, payload};
use super::interactions::InteractionRecord;
use crate::conclusion::Conclusion;
use crate::json::{
    self, ConnectionKeys, LimitReached, Losses, Owners, ProblemNames, ProblemShares, UnknownCounts,
};
use crate::listeners::ListenerEntry;
#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;
use slowpath_diagnose::{ProblemRow, TIME_PERCENTAGES};
use slowpath_model::ConnectionSummary;

/// Verdicts over a time range of the log: `{"type": "report"}`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct ReportOutput {
    /// `report`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The range's beginning, RFC 3339 in UTC.
    pub from: String,
    /// The range's end, RFC 3339 in UTC.
    pub to: String,
    /// The filter; empty if every connection is selected.
    pub filter: String,
    /// The answer made of all verdicts, by the rules of `why`.
    pub answer: Conclusion,
    /// What the records do not hold, so that the answer does not rest on it: `idle_time` (shares are of all the time
    /// observed), `endings`, `turns`.
    pub answer_lacks: Vec<&'static str>,
    /// Connections selected.
    pub connections: usize,
    /// Applications that own them.
    pub applications: u64,
    /// Whose connections they are.
    pub owners: Owners,
    /// The shares of time that the table's columns are about, in percent.
    pub time_percentages: [f64; TIME_PERCENTAGES.len()],
    /// One row for each problem.
    pub table: Vec<TableRow>,
    /// Groups of connections, if they were asked for.
    pub by: Option<GroupsEntry>,
    /// The connections with any problem, most problem time first.
    pub problem_connections: Vec<ReportedConnection>,
    /// Listeners that turned connections away.
    pub listeners: Vec<ListenerEntry>,
    /// Problems that explain each other, by pairs of connections.
    pub interactions: Vec<InteractionRecord>,
    /// Bounds beyond which something was left out; empty: nothing was.
    pub limits_reached: Vec<LimitReached>,
    /// What was and was not observed.
    pub coverage: CoverageEntry,
    /// What could not be read.
    pub unread: Vec<String>,
}

/// How many connections and applications one problem limited.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct TableRow {
    /// Its name.
    #[cfg_attr(test, schemars(schema_with = "crate::schema::problem"))]
    pub problem: &'static str,
    /// Connections of which it could not be measured.
    pub unmeasured_connections: u64,
    /// Percentage of the measured connections limited for more than each of
    /// `time_percentages`; null if it could be measured of none.
    pub connections_percent: Option<[f64; TIME_PERCENTAGES.len()]>,
    /// Applications limited for more than 5 % of their connections' time.
    pub applications_over_5_percent: u64,
    /// Applications limited for more than 50 % of their connections' time.
    pub applications_over_50_percent: u64,
}

impl From<&ProblemRow> for TableRow {
    fn from(row: &ProblemRow) -> Self {
        TableRow {
            problem: row.problem.name(),
            unmeasured_connections: row.unmeasured,
            connections_percent: row.connections_percent,
            applications_over_5_percent: row.applications_over_5_percent,
            applications_over_50_percent: row.applications_over_50_percent,
        }
    }
}

/// Connections by application, unit, peer or the like.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct GroupsEntry {
    /// `application`, `unit`, `container`, `pod`, `port`, `host` or `peer`.
    pub by: &'static str,
    /// The groups, most problem time first.
    pub groups: Vec<GroupEntry>,
}

/// One application, unit, peer or the like.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct GroupEntry {
    /// Its name, address or number; in parentheses why it has none.
    pub name: String,
    /// The answer about its connections; listening sockets are in none.
    pub answer: Conclusion,
    /// Its connections.
    pub connections: u64,
    /// Connections that had any problem.
    pub problem_connections: u64,
    /// Time observed, summed over its connections, in microseconds.
    pub observed_us: u64,
    /// Payload bytes acknowledged and received over the connections' whole lives.
    pub bytes: u64,
    /// Time and events of each problem.
    pub problems: ProblemShares,
}

impl From<&(Conclusion, Group)> for GroupEntry {
    fn from((answer, group): &(Conclusion, Group)) -> Self {
        let totals = &group.totals;
        GroupEntry {
            name: group.name.clone(),
            answer: answer.clone(),
            connections: group.connections,
            problem_connections: group.troubled,
            observed_us: totals.observed.0,
            bytes: group.bytes,
            problems: json::shares(
                &totals.problem_time,
                &totals.problem_events,
                totals.observed,
            ),
        }
    }
}

/// A connection with any problem, within the range.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct ReportedConnection {
    /// Which connection.
    #[serde(flatten)]
    pub connection: ConnectionKeys,
    /// Whether it has closed.
    pub closed: bool,
    /// Time observed in microseconds.
    pub observed_us: u64,
    /// Payload bytes acknowledged and received over its whole life.
    pub bytes: u64,
    /// Time and events of each problem.
    pub problems: ProblemShares,
    /// Problems that could not be measured.
    pub unmeasured: ProblemNames,
}

impl From<&ConnectionSummary> for ReportedConnection {
    fn from(life: &ConnectionSummary) -> Self {
        ReportedConnection {
            connection: ConnectionKeys::of(
                &life.connection,
                life.tuple,
                life.real_peer,
                &life.owner,
            ),
            closed: life.closed,
            observed_us: life.observed.0,
            bytes: payload(life),
            problems: json::shares(&life.problem_time, &life.problem_events, life.observed),
            unmeasured: json::problems(life.unmeasured),
        }
    }
}

/// What was and was not observed.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct CoverageEntry {
    /// Time in which the agent looked, in microseconds.
    pub time_us: u64,
    /// The range's length in microseconds.
    pub range_us: u64,
    /// Polls made.
    pub polls: u64,
    /// Most sockets that one poll met.
    pub sockets: u64,
    /// Sockets alive that polls did not meet, summed over stretches.
    pub missed: u64,
    /// Connections met too briefly for a verdict.
    pub unobserved_connections: u64,
    /// Connections without a known owner.
    pub owner_unknown_connections: u64,
    /// The same by reason.
    pub unknown_owners: UnknownCounts,
    /// What was lost within the range.
    pub losses: Losses,
    /// Problems that could not be measured in some of the time.
    pub unmeasured: ProblemNames,
}
