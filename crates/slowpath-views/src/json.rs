// SPDX-License-Identifier: Apache-2.0
//! JSON objects, their keys as `docs/reference/cli.md` lists them: units in the names, `null` for what
//! was not measured.

use crate::source::{BudgetState, Capabilities, FeatureState, Live};
use crate::tally::{Tally, share};
use serde_json::{Map, Value, json};
use slowpath_model::{
    Finding, FourTuple, IntervalVerdict, LossCounters, Micros, Owner, Problem, ProblemSet, Share,
    UnknownOwner, UnknownOwners, WallMicros,
};
pub use slowpath_text::evidence::json as evidence;
pub use slowpath_text::wall;
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// `{"pid", "command"}` or null.
pub fn process(owner: &Owner) -> Value {
    owner.process().map_or(
        Value::Null,
        |p| json!({"pid": p.pid, "command": p.command.as_ref()}),
    )
}

/// What is known of an owner beside `process`; `unknown` is the reason if `process` is null.
pub fn owner(owner: &Owner) -> Value {
    let process = owner.process();
    json!({
        "unknown": owner.why_unknown().map(UnknownOwner::name),
        "application": owner.application,
        "executable": process.and_then(|p| p.executable.as_ref()),
        "command_line": process.and_then(|p| p.command_line.as_ref()),
        "start_ticks": process.and_then(|p| p.start).map(|s| s.0),
        "cgroup": owner.cgroup.as_ref().map(|c| &c.path),
        "cgroup_source": owner.cgroup.as_ref().map(|c| c.source),
        "unit": owner.unit(),
        "container": owner.container().map(|c| &c.id),
        "container_runtime": owner.container().and_then(|c| c.runtime.as_ref()),
        "pod": owner.pod(),
        "listener": owner.listener,
    })
}

/// Connections without a known owner, by reason.
pub fn unknown_owners(counts: &UnknownOwners) -> Value {
    let counts = counts.iter().map(|(r, n)| (r.name().to_owned(), json!(n)));
    Value::Object(counts.collect())
}

/// Whose connections they are: how many of each application (the name that a rule gives,
/// else the command name), and of unknown owners by reason.
pub fn owners<'a>(owners: impl Iterator<Item = &'a Owner>) -> Value {
    let mut applications: BTreeMap<&str, u64> = BTreeMap::new();
    let mut unknown = UnknownOwners::default();
    for owner in owners {
        if let Some(name) = owner.name() {
            *applications.entry(name).or_default() += 1;
        }
        if let Some(reason) = owner.why_unknown() {
            unknown.count(reason);
        }
    }
    json!({"applications": applications, "unknown": unknown_owners(&unknown)})
}

/// How a CPU budget is met, or null; percentages of one core.
pub fn budget(state: Option<BudgetState>) -> Value {
    state.map_or(Value::Null, |s| {
        json!({
            "low_percent": s.low * 100.0,
            "high_percent": s.high * 100.0,
            "used_percent": s.used * 100.0,
            "programs_percent": s.programs.map(|share| share * 100.0),
            "polls_per_second": s.polls,
            "quiet_looks_per_second": s.quiet_rate,
            "problem_looks_per_second": s.problem_rate,
            "worst_looks_per_second": s.worst_rate,
            "polls_left_out": s.left_out,
            "exceeded": s.exceeded,
        })
    })
}

/// The names of the problems.
pub fn problems(set: ProblemSet) -> Value {
    set.iter().map(|p| json!(p.name())).collect()
}

/// The keys that say which connection an object is about.
pub fn connection(live: Live<'_>, netns_name: Option<String>) -> Map<String, Value> {
    let mut map = id(&live.snapshot.id, live.snapshot.tuple, live.owner);
    map.insert("origin".to_owned(), json!(live.snapshot.origin));
    map.insert("state".to_owned(), json!(live.snapshot.stats.state));
    map.insert("tier".to_owned(), json!(live.snapshot.tier));
    map.insert("netns_name".to_owned(), json!(netns_name));
    map.insert("real_peer".to_owned(), real_peer(live.real_peer));
    map
}

/// `netns`, `cookie`, `start_ns`, `local`, `remote`, `process`, `owner`.
pub fn id(id: &slowpath_model::ConnectionId, tuple: FourTuple, of: &Owner) -> Map<String, Value> {
    let value = json!({
        "netns": id.netns,
        "cookie": id.cookie,
        "start_ns": id.start.0,
        "local": tuple.local.to_string(),
        "remote": tuple.remote.to_string(),
        "process": process(of),
        "owner": owner(of),
    });
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

/// The peer behind address translation, or null.
pub fn real_peer(peer: Option<SocketAddr>) -> Value {
    json!(peer.map(|p| p.to_string()))
}

/// One finding of an interval of that length.
pub fn finding(finding: &Finding, interval: Micros) -> Value {
    json!({
        "problem": finding.problem.name(),
        "share": finding.share.fraction_of(interval),
        "time_us": finding.share.time_of(interval).0,
        "coarse": finding.share == Share::Coarse,
        "events": finding.events,
    })
}

/// One verdict on one interval of a connection.
pub fn verdict(
    at: WallMicros,
    live: Live<'_>,
    netns_name: Option<String>,
    verdict: &IntervalVerdict,
) -> Value {
    let mut map = connection(live, netns_name);
    let interval = verdict.interval();
    let findings: Vec<Value> = verdict
        .findings
        .iter()
        .map(|f| finding(f, interval))
        .collect();
    map.insert("type".to_owned(), json!("verdict"));
    map.insert("time".to_owned(), json!(wall(at)));
    map.insert("interval_us".to_owned(), json!(interval.0));
    map.insert("closed".to_owned(), json!(live.snapshot.closed));
    map.insert("dominating".to_owned(), json!(verdict.dominating.name()));
    map.insert("findings".to_owned(), Value::Array(findings));
    map.insert("unmeasured".to_owned(), problems(verdict.unmeasured));
    map.insert("evidence".to_owned(), evidence(&verdict.deltas));
    Value::Object(map)
}

/// Time and events of each problem: an object by problem name.
pub fn shares(
    time: &[Micros; Problem::ALL.len()],
    events: &[u64; Problem::ALL.len()],
    observed: Micros,
) -> Value {
    let of = |p: Problem| {
        let i = p as usize;
        (
            p.name().to_owned(),
            json!({"share": share(time[i], observed), "time_us": time[i].0, "events": events[i]}),
        )
    };
    Value::Object(Problem::ALL.into_iter().map(of).collect())
}

/// A tally: observed time, dominating problem, shares, what could not be measured.
pub fn tally(tally: &Tally) -> Map<String, Value> {
    let value = json!({
        "observed_us": tally.totals.observed.0,
        "dominating": tally.dominating().name(),
        "problems": shares(
            &tally.totals.problem_time,
            &tally.totals.problem_events,
            tally.totals.observed,
        ),
        "coarse": problems(tally.coarse),
        "unmeasured": problems(tally.totals.unmeasured),
    });
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

/// Losses since the agent's start.
pub fn losses(l: &LossCounters) -> Value {
    json!({
        "storage_failed": l.storage_failed,
        "snapshots_dropped": l.snapshots_dropped,
        "closes_dropped": l.closes_dropped,
        "calls_dropped": l.calls_dropped,
        "records_dropped": l.records_dropped,
    })
}

/// Tier and features.
pub fn capabilities(c: &Capabilities) -> Value {
    let features: Vec<Value> = c
        .features
        .iter()
        .map(|f| {
            let reason = match &f.state {
                FeatureState::Active => Value::Null,
                FeatureState::Missing { reason } => json!(reason),
            };
            json!({
                "name": f.name,
                "active": f.state == FeatureState::Active,
                "reason": reason,
                "serves": problems(f.serves),
            })
        })
        .collect();
    json!({"tier": c.tier, "features": features})
}

/// The name of a tier, as in JSON.
pub const fn tier(tier: slowpath_model::Tier) -> &'static str {
    match tier {
        slowpath_model::Tier::Bpf => "bpf",
        slowpath_model::Tier::InetDiag => "inet_diag",
        slowpath_model::Tier::Imported => "imported",
    }
}
