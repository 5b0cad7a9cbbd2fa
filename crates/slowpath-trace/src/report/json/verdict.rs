// SPDX-License-Identifier: Apache-2.0
//! Verdicts as JSON.

use super::super::RankedConnection;
use super::super::capture::moment;
use super::super::csv::name;
use super::super::figures::micros;
use super::super::phrases::{advise, part, total};
use crate::message::{Category, Message};
use crate::tcp::Side;
use crate::verdict::{Basis, DirectionVerdict, Limit, Origin, Vantage, VantagePoint};
use serde_json::{Map, Value, json};
use slowpath_model::ProblemSet;
use slowpath_text::evidence::json as evidence;
use std::time::Duration;

/// What limited the data of one side.
pub fn verdict(ranked: &RankedConnection, side: Side) -> Value {
    let v = ranked.verdict(side);
    let shares = v.line.shares();
    let limits: Map<String, Value> = (Limit::ALL.into_iter())
        .map(|limit| (limit.name().to_owned(), json!(micros(shares.of(limit)))))
        .collect();
    let findings: Vec<Value> = (v.findings.iter())
        .map(|finding| {
            let time = shares.of_problem(finding.problem);
            let proof = v.proof(finding.problem);
            let advice = advise(ranked, side, finding.problem);
            json!({
                "problem": finding.problem.name(),
                "share": part(v, time),
                "time_us": micros(time),
                "events": finding.events,
                "first_frame": proof.map(|(from, _)| from.frame),
                "last_frame": proof.map(|(_, to)| to.frame),
                "advice": advice.map(|(act, advice)| json!({
                    "who": advice.who, "act": act, "what": advice.what, "source": advice.source,
                })),
            })
        })
        .collect();
    let observed: Vec<Value> = (v.observed.iter())
        .map(|other| {
            json!({
                "name": other.observation.name(),
                "time_us": other.time.map(micros),
                "events": other.events,
            })
        })
        .collect();
    json!({
        "observed_us": micros(total(v)),
        "dominating": v.dominating.name(),
        "findings": findings,
        "unmeasured": problems(v.unmeasured),
        "inferred": problems(v.inferred),
        "evidence": evidence(&v.deltas),
        "limits_us": limits,
        "intervals_forgotten": v.line.dropped(),
        "observed": observed,
        "losses": losses(v),
        "delayed_acks": delayed_acks(v),
        "messages": messages(v),
    })
}

fn losses(v: &DirectionVerdict) -> Value {
    let time = |t: Option<Duration>| t.map(micros);
    let losses = &v.losses;
    json!({
        "origin": match losses.origin {
            Origin::NoLoss => "none",
            Origin::Congestion => "congestion",
            Origin::Fault => "fault",
            Origin::Unclear => "unclear",
            Origin::TooFewLosses => "too_few_losses",
            Origin::TooFewSamples => "too_few_samples",
        },
        "lost_segments": losses.lost,
        "sent_segments": losses.sent,
        "rate": losses.rate(),
        "very_lossy": losses.is_very_lossy(),
        "rtt_samples": losses.samples,
        "rtt_least_us": time(losses.least_rtt),
        "rtt_percentile_95_us": time(losses.high_rtt),
        "rtt_variation": losses.variation(),
    })
}

fn delayed_acks(v: &DirectionVerdict) -> Value {
    let acks = &v.delayed_acks;
    json!({
        "samples": acks.waits.len(),
        "delayed": acks.waits.iter().filter(|w| w.delayed).count(),
        "share": acks.share(),
        "baseline_us": acks.baseline.map(micros),
        "samples_forgotten": acks.dropped,
    })
}

fn messages(v: &DirectionVerdict) -> Value {
    let messages = &v.messages;
    let categories: Map<String, Value> = (Category::ALL.into_iter())
        .map(|c| (c.name().to_owned(), json!(messages.with(c))))
        .collect();
    let message = |m: &Message| {
        let causes: Vec<Value> = (m.causes.iter())
            .map(|c| {
                json!({
                    "category": c.category.name(),
                    "time_us": micros(c.time),
                    "events": c.events,
                    "first_frame": c.first.frame,
                    "last_frame": c.last.frame,
                })
            })
            .collect();
        json!({
            "start": moment(m.start.time),
            "first_frame": m.start.frame,
            "last_frame": m.end.frame,
            "complete": m.complete,
            "duration_us": micros(m.duration()),
            "bytes": m.bytes,
            "causes": causes,
        })
    };
    json!({
        "count": messages.count,
        "bytes": messages.bytes,
        "time_us": micros(messages.time),
        "with_cause": categories,
        "slowest": messages.slowest.iter().map(message).collect::<Vec<_>>(),
    })
}

/// Where the capture was made.
pub fn vantage(v: &Vantage) -> Value {
    let time = |t: Option<Duration>| t.map(micros);
    json!({
        "place": match v.place {
            VantagePoint::At(side) => name(side),
            VantagePoint::Between => "between",
            VantagePoint::Unknown => "unknown",
        },
        "told_by": match v.basis {
            Basis::Checksums => "checksums",
            Basis::Halves => "round_trip_halves",
            Basis::SuperSegments => "super_segments",
            Basis::Nothing => "nothing",
        },
        "to_client_us": time(v.to_client),
        "to_server_us": time(v.to_server),
    })
}

/// The names of the problems.
pub fn problems(set: ProblemSet) -> Value {
    set.iter().map(|problem| json!(problem.name())).collect()
}
