// SPDX-License-Identifier: Apache-2.0
//! What the views' JSON has in common. Keys carry their units and are those that
//! `docs/reference/cli.md` lists; `null` is what was not measured or is not known.
//!
//! Every object that leaves is a type of this crate; `docs/schema/` publishes their schemas.

use crate::source::{self, FeatureState, LiveConnection};
use crate::tally::{Tally, share};
#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use slowpath_diagnose::{Actor, Advice};
use slowpath_model::{
    CgroupSource, ConnectionId, Finding, FourTuple, IntervalVerdict, LossCounters, Micros, Origin,
    Owner, Problem, ProblemSet, Share, TcpState, Tier, UnknownOwner, UnknownOwners, WallMicros,
};
pub use slowpath_text::evidence::Evidence;
pub use slowpath_text::wall;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

/// An output as JSON, its keys in alphabetical order.
pub fn value<T: Serialize>(output: &T) -> Value {
    // Serialising to a value fails for maps without string keys only; no output has one.
    serde_json::to_value(output).unwrap_or_default()
}

/// A process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct Process {
    /// Its process id.
    pub pid: u32,
    /// Its command name.
    pub command: Arc<str>,
}

/// The process of an owner, if it is known.
pub fn process(owner: &Owner) -> Option<Process> {
    owner.process().map(|p| Process {
        pid: p.pid,
        command: p.command.clone(),
    })
}

/// What is known of an owner beside its process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct OwnerDetails {
    /// Why the process is not known; null if it is.
    pub unknown: Option<&'static str>,
    /// The application that a rule names.
    pub application: Option<Arc<str>>,
    /// The path of the executable.
    pub executable: Option<Arc<str>>,
    /// The command line, as far as it is kept.
    pub command_line: Option<Arc<str>>,
    /// When the process started, in clock ticks since boot.
    pub start_ticks: Option<u64>,
    /// The path of its cgroup.
    pub cgroup: Option<Arc<str>>,
    /// How the cgroup is known: `process` or `socket`.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub cgroup_source: Option<CgroupSource>,
    /// The systemd unit.
    pub unit: Option<Arc<str>>,
    /// The container's id.
    pub container: Option<Arc<str>>,
    /// The container's runtime.
    pub container_runtime: Option<Arc<str>>,
    /// The Kubernetes pod's UID.
    pub pod: Option<Arc<str>>,
    /// The command name of the listener that accepted it.
    pub listener: Option<Arc<str>>,
}

impl From<&Owner> for OwnerDetails {
    fn from(owner: &Owner) -> Self {
        let process = owner.process();
        let container = owner.container();
        OwnerDetails {
            unknown: owner.why_unknown().map(UnknownOwner::name),
            application: owner.application.clone(),
            executable: process.and_then(|p| p.executable.clone()),
            command_line: process.and_then(|p| p.command_line.clone()),
            start_ticks: process.and_then(|p| p.start).map(|s| s.0),
            cgroup: owner.cgroup.as_ref().map(|c| c.path.clone()),
            cgroup_source: owner.cgroup.as_ref().map(|c| c.source),
            unit: owner.unit().cloned(),
            container: container.map(|c| c.id.clone()),
            container_runtime: container.and_then(|c| c.runtime.clone()),
            pod: owner.pod().cloned(),
            listener: owner.listener.clone(),
        }
    }
}

/// Counts by the reason why an owner is not known.
pub type UnknownCounts = BTreeMap<&'static str, u64>;

/// Connections without a known owner, by reason.
pub fn unknown_owners(counts: &UnknownOwners) -> UnknownCounts {
    counts.iter().map(|(r, n)| (r.name(), n)).collect()
}

/// Whose connections they are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct Owners {
    /// Connections of each application: the name that a rule gives, else the command name.
    pub applications: BTreeMap<String, u64>,
    /// Connections of unknown owners, by reason.
    pub unknown: UnknownCounts,
}

impl<'a> FromIterator<&'a Owner> for Owners {
    fn from_iter<I: IntoIterator<Item = &'a Owner>>(owners: I) -> Self {
        let mut applications: BTreeMap<String, u64> = BTreeMap::new();
        let mut unknown = UnknownOwners::default();
        for owner in owners {
            if let Some(name) = owner.name() {
                *applications.entry(name.to_string()).or_default() += 1;
            }
            if let Some(reason) = owner.why_unknown() {
                unknown.count(reason);
            }
        }
        Owners {
            applications,
            unknown: unknown_owners(&unknown),
        }
    }
}

/// Names of problems.
pub type ProblemNames = Vec<&'static str>;

/// The names of the problems.
pub fn problems(set: ProblemSet) -> ProblemNames {
    set.iter().map(Problem::name).collect()
}

/// Which connection an object is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct ConnectionKeys {
    /// Inode number of the network namespace.
    pub netns: u32,
    /// The socket cookie.
    pub cookie: u64,
    /// When the socket was made, in nanoseconds of the monotonic clock.
    pub start_ns: u64,
    /// This host's address and port.
    pub local: String,
    /// The peer's address and port.
    pub remote: String,
    /// The peer behind address translation, where it is another one.
    pub real_peer: Option<String>,
    /// The process that owns it.
    pub process: Option<Process>,
    /// What else is known of the owner.
    pub owner: OwnerDetails,
}

impl ConnectionKeys {
    /// The keys of a connection.
    pub fn of(
        id: &ConnectionId,
        tuple: FourTuple,
        real_peer: Option<SocketAddr>,
        owner: &Owner,
    ) -> Self {
        ConnectionKeys {
            netns: id.netns,
            cookie: id.cookie,
            start_ns: id.start.0,
            local: tuple.local.to_string(),
            remote: tuple.remote.to_string(),
            real_peer: real_peer.map(|p| p.to_string()),
            process: process(owner),
            owner: owner.into(),
        }
    }
}

/// One finding of an interval.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct FindingEntry {
    /// Its name.
    #[cfg_attr(test, schemars(schema_with = "crate::schema::problem"))]
    pub problem: &'static str,
    /// Share of the interval, 0 to 1.
    pub share: f64,
    /// Time in microseconds.
    pub time_us: u64,
    /// The duration is not measured: the whole interval counts.
    pub coarse: bool,
    /// How often it happened, if it is counted.
    pub events: Option<u64>,
}

impl FindingEntry {
    /// One finding of an interval of that length.
    pub fn of(finding: &Finding, interval: Micros) -> Self {
        FindingEntry {
            problem: finding.problem.name(),
            share: finding.share.fraction_of(interval),
            time_us: finding.share.time_of(interval).0,
            coarse: finding.share == Share::Coarse,
            events: finding.events,
        }
    }
}

/// The verdict on one interval of a connection: `{"type": "verdict"}`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct VerdictOutput {
    /// `verdict`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// When it was given, RFC 3339 in UTC.
    pub time: String,
    /// Which connection.
    #[serde(flatten)]
    pub connection: ConnectionKeys,
    /// Which end opened it: `opened` (this one), `accepted` or `unknown`.
    #[cfg_attr(test, schemars(with = "String"))]
    pub origin: Origin,
    /// The state of TCP.
    #[cfg_attr(test, schemars(schema_with = "crate::schema::state"))]
    pub state: TcpState,
    /// The tier that measured.
    #[cfg_attr(test, schemars(schema_with = "crate::schema::tier"))]
    pub tier: Tier,
    /// The name that `ip netns` gave to the namespace.
    pub netns_name: Option<String>,
    /// The interval's length in microseconds.
    pub interval_us: u64,
    /// Whether the connection has closed.
    pub closed: bool,
    /// The problem that limited most.
    #[cfg_attr(test, schemars(schema_with = "crate::schema::problem"))]
    pub dominating: &'static str,
    /// What was found.
    pub findings: Vec<FindingEntry>,
    /// Problems that could not be measured.
    pub unmeasured: ProblemNames,
    /// The numbers behind it.
    #[cfg_attr(test, schemars(schema_with = "crate::schema::evidence"))]
    pub evidence: Evidence,
}

impl VerdictOutput {
    /// The verdict given at `at` on one interval of a connection.
    pub fn of(
        at: WallMicros,
        live: LiveConnection<'_>,
        netns_name: Option<String>,
        verdict: &IntervalVerdict,
    ) -> Self {
        let snapshot = live.snapshot;
        let interval = verdict.interval();
        let findings = verdict.findings.iter();
        VerdictOutput {
            kind: "verdict",
            time: wall(at),
            connection: ConnectionKeys::of(
                &snapshot.id,
                snapshot.tuple,
                live.real_peer,
                live.owner,
            ),
            origin: snapshot.origin,
            state: snapshot.stats.state,
            tier: snapshot.tier,
            netns_name,
            interval_us: interval.0,
            closed: snapshot.closed,
            dominating: verdict.dominating.name(),
            findings: findings.map(|f| FindingEntry::of(f, interval)).collect(),
            unmeasured: problems(verdict.unmeasured),
            evidence: (&verdict.deltas).into(),
        }
    }
}

/// Time and events of one problem.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct ProblemShare {
    /// Share of the time observed, 0 to 1.
    pub share: f64,
    /// Time in microseconds.
    pub time_us: u64,
    /// How often it happened, as far as it is counted.
    pub events: u64,
}

/// Time and events of every problem, by its name.
pub type ProblemShares = BTreeMap<&'static str, ProblemShare>;

/// Time and events of each problem, each indexed by the problem's number.
pub fn shares(
    time: &[Micros; Problem::ALL.len()],
    events: &[u64; Problem::ALL.len()],
    observed: Micros,
) -> ProblemShares {
    let of = |p: Problem| {
        let i = p as usize;
        let entry = ProblemShare {
            share: share(time[i], observed),
            time_us: time[i].0,
            events: events[i],
        };
        (p.name(), entry)
    };
    Problem::ALL.into_iter().map(of).collect()
}

/// Verdicts summed over time.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct TallyKeys {
    /// Time observed in microseconds.
    pub observed_us: u64,
    /// The problem that took most time; `SenderAppLimited` if none is notable.
    #[cfg_attr(test, schemars(schema_with = "crate::schema::problem"))]
    pub dominating: &'static str,
    /// Time and events of each problem.
    pub problems: ProblemShares,
    /// Problems of which some interval counts whole because the duration is not measured.
    pub coarse: ProblemNames,
    /// Problems that could not be measured in some interval.
    pub unmeasured: ProblemNames,
}

impl From<&Tally> for TallyKeys {
    fn from(tally: &Tally) -> Self {
        let totals = &tally.totals;
        TallyKeys {
            observed_us: totals.observed.0,
            dominating: tally.dominating().name(),
            problems: shares(
                &totals.problem_time,
                &totals.problem_events,
                totals.observed,
            ),
            coarse: problems(tally.coarse),
            unmeasured: problems(totals.unmeasured),
        }
    }
}

/// A connection, and its verdicts summed over time.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct ConnectionEntry {
    /// Which connection.
    #[serde(flatten)]
    pub connection: ConnectionKeys,
    /// Its verdicts.
    #[serde(flatten)]
    pub tally: TallyKeys,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct AdviceEntry {
    /// Who has to act.
    #[cfg_attr(test, schemars(schema_with = "crate::schema::actor"))]
    pub who: Actor,
    /// What to do.
    pub what: String,
    /// What the advice rests on.
    pub source: String,
}

impl From<&Advice> for AdviceEntry {
    fn from(advice: &Advice) -> Self {
        AdviceEntry {
            who: advice.who,
            what: advice.what.clone(),
            source: advice.source.to_owned(),
        }
    }
}

/// What to do, and who has to by name.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct NamedAdvice {
    /// The advice.
    #[serde(flatten)]
    pub advice: AdviceEntry,
    /// Who has to act, by name as far as known.
    pub act: String,
}

/// Records lost since the agent's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct Losses {
    /// Sockets without storage.
    pub storage_failed: u64,
    /// Snapshots.
    pub snapshots_dropped: u64,
    /// Final records of connections.
    pub closes_dropped: u64,
    /// Records of calls.
    pub calls_dropped: u64,
    /// Records of the log.
    pub records_dropped: u64,
}

impl From<&LossCounters> for Losses {
    fn from(l: &LossCounters) -> Self {
        Losses {
            storage_failed: l.storage_failed,
            snapshots_dropped: l.snapshots_dropped,
            closes_dropped: l.closes_dropped,
            calls_dropped: l.calls_dropped,
            records_dropped: l.records_dropped,
        }
    }
}

/// A bound that was reached: what lies beyond it was left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct LimitReached {
    /// Of what: `connections` (their verdicts are in the sums only), `closed_connections` (not
    /// looked at), `other_ends` (of connections on this machine, not looked at), `listeners`
    /// (rounds) or `interactions` (records).
    pub of: &'static str,
    /// How many there can be.
    pub limit: usize,
    /// How many were left out.
    pub left_out: u64,
}

impl LimitReached {
    /// The bound, if any was left out.
    pub fn of(of: &'static str, limit: usize, left_out: u64) -> Option<Self> {
        (left_out > 0).then_some(LimitReached {
            of,
            limit,
            left_out,
        })
    }
}

/// One kind of measurement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct FeatureEntry {
    /// Its name.
    pub name: &'static str,
    /// Whether it is in use.
    pub active: bool,
    /// Why it is not.
    pub reason: Option<String>,
    /// Problems that cannot be measured without it.
    pub serves: ProblemNames,
}

/// What can be measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct Capabilities {
    /// The tier in use.
    #[cfg_attr(test, schemars(schema_with = "crate::schema::tier"))]
    pub tier: Tier,
    /// Every feature, in use or not.
    pub features: Vec<FeatureEntry>,
}

impl From<&source::Capabilities> for Capabilities {
    fn from(c: &source::Capabilities) -> Self {
        let feature = |f: &source::Feature| FeatureEntry {
            name: f.name,
            active: f.state == FeatureState::Active,
            reason: match &f.state {
                FeatureState::Active => None,
                FeatureState::Missing { reason } => Some(reason.clone()),
            },
            serves: problems(f.serves),
        };
        Capabilities {
            tier: c.tier,
            features: c.features.iter().map(feature).collect(),
        }
    }
}

/// The name of a tier, as in JSON.
pub const fn tier(tier: Tier) -> &'static str {
    match tier {
        Tier::Bpf => "bpf",
        Tier::InetDiag => "inet_diag",
        Tier::Imported => "imported",
    }
}
