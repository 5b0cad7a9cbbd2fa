// SPDX-License-Identifier: Apache-2.0
//! Verdicts as JSON.

use super::super::RankedConnection;
use super::super::advice::advise;
use super::super::capture::moment;
use super::super::csv::name;
use super::super::figures::micros;
use super::super::phrases::total;
use super::super::selector::end;
use super::{optional, problems};
use crate::message::{Category, Cause, Message, Messages};
use crate::tcp::Side;
use crate::verdict::{
    Basis, DelayedAcks, DirectionVerdict, Limit, Losses, Origin, PathRate, TraceFinding,
    TraceProblem, Vantage, VantagePoint,
};
#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;
use slowpath_diagnose::{Actor, Advice};
use slowpath_text::evidence::Evidence;
use std::collections::BTreeMap;

/// What to do about a finding.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(super) struct AdviceOutput {
    /// Who has to act.
    #[cfg_attr(test, schemars(schema_with = "super::schema::actor"))]
    who: Actor,
    /// The same by name.
    act: String,
    /// What to do, in a few sentences.
    what: String,
    /// Where the advice comes from.
    source: &'static str,
}

impl From<(String, Advice)> for AdviceOutput {
    fn from((act, advice): (String, Advice)) -> Self {
        AdviceOutput {
            who: advice.who,
            act,
            what: advice.what,
            source: advice.source,
        }
    }
}

/// A problem that was found.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
struct FindingOutput {
    #[cfg_attr(test, schemars(schema_with = "super::schema::trace_problem"))]
    problem: &'static str,
    /// Share of the time observed, 0 to 1.
    share: f64,
    /// What it cost; null: packets do not show a time.
    time_us: Option<f64>,
    /// How often it happened; null for problems that have a duration only.
    events: Option<u64>,
    /// The first packet that shows it.
    first_frame: Option<u64>,
    /// The last packet that shows it.
    last_frame: Option<u64>,
    advice: Option<AdviceOutput>,
}

/// What was wrong with the connection, or with its handshake.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(super) struct FailureOutput {
    #[serde(flatten)]
    finding: FindingOutput,
    /// Who sent the SYN that waited or the RST; null: the connection.
    from: Option<String>,
    /// Of a reset: bytes that the client had sent and that were not acknowledged.
    undelivered_from_client_bytes: Option<u64>,
    /// Of a reset: bytes that the server had sent and that were not acknowledged.
    undelivered_from_server_bytes: Option<u64>,
}

/// Something else that was observed.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
struct ObservationOutput {
    name: &'static str,
    time_us: Option<f64>,
    events: Option<u64>,
}

/// Losses, and whether congestion or a fault caused them.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
struct LossesOutput {
    /// `none`, `congestion`, `fault`, `unclear`, `too_few_losses` or `too_few_samples`.
    origin: &'static str,
    lost_segments: u64,
    /// Of these, lost before the place of capture: they left a gap here.
    lost_before_capture: u64,
    /// Of these, captured and lost after it, or their ACKs.
    lost_after_capture: u64,
    sent_segments: u64,
    /// Lost of sent, 0 to 1.
    rate: f64,
    very_lossy: bool,
    rtt_samples: u64,
    rtt_least_us: Option<f64>,
    rtt_percentile_95_us: Option<f64>,
    /// Of the RTT.
    rtt_variation: Option<f64>,
}

/// What the path delivered: the highest rate over a round trip in which the application did not
/// limit it, and the RTT of the path.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
struct PathOutput {
    bytes_per_second: Option<u64>,
    rtt_least_us: Option<f64>,
    rtt_percentile_95_us: Option<f64>,
    /// In queues, at that rate and that RTT.
    queued_bytes: Option<u64>,
}

/// ACKs that the receiver held back.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
struct DelayedAcksOutput {
    samples: usize,
    delayed: usize,
    /// Delayed of samples, 0 to 1.
    share: Option<f64>,
    /// The RTT without delay.
    baseline_us: Option<f64>,
    samples_forgotten: u64,
}

/// Why a message took long.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
struct CauseOutput {
    category: &'static str,
    time_us: f64,
    events: u64,
    first_frame: u64,
    last_frame: u64,
}

/// All bytes between two idle points.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
struct MessageOutput {
    /// When its first segment was captured, RFC 3339 in UTC.
    start: String,
    first_frame: u64,
    last_frame: u64,
    /// The ACK of its last byte was captured.
    complete: bool,
    duration_us: f64,
    bytes: u64,
    /// Most time first.
    causes: Vec<CauseOutput>,
}

/// All messages of a direction.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
struct MessagesOutput {
    count: u64,
    bytes: u64,
    time_us: f64,
    /// How many had a cause of each category.
    with_cause: BTreeMap<&'static str, u64>,
    /// In the order of their beginning.
    slowest: Vec<MessageOutput>,
}

/// What limited the data of one side.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(super) struct VerdictOutput {
    observed_us: f64,
    /// The problem that took most time; `SenderAppLimited` if there are no findings.
    #[cfg_attr(test, schemars(schema_with = "super::schema::problem"))]
    dominating: &'static str,
    findings: Vec<FindingOutput>,
    /// Problems that the packets of this direction cannot decide.
    unmeasured: Vec<&'static str>,
    /// Problems that are inferred.
    inferred: Vec<&'static str>,
    /// The numbers behind it.
    #[cfg_attr(test, schemars(schema_with = "super::schema::evidence"))]
    evidence: Evidence,
    /// Time by what the sender waited for.
    limits_us: BTreeMap<&'static str, f64>,
    /// Intervals of the limits that were forgotten to bound memory.
    intervals_forgotten: u64,
    observed: Vec<ObservationOutput>,
    losses: LossesOutput,
    path: PathOutput,
    delayed_acks: DelayedAcksOutput,
    messages: MessagesOutput,
}

/// Where the capture was taken.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(super) struct VantageOutput {
    /// `client`, `server`, `between` or `unknown`.
    place: &'static str,
    /// What decided: `checksums`, `unpadded_frames`, `round_trip_halves`, `super_segments` or `nothing`.
    #[serde(rename = "told_by")]
    basis: &'static str,
    /// Shortest round trip from here to the client.
    to_client_us: Option<f64>,
    /// Shortest round trip from here to the server.
    to_server_us: Option<f64>,
    /// Shortest round trip of the whole path: both.
    path_us: Option<f64>,
    /// `client` or `server`: only what that side sent was captured.
    one_sided: Option<&'static str>,
    /// `client` or `server`: the capture was made on that side of an address translator.
    private_network_of: Option<&'static str>,
}

impl FindingOutput {
    fn of(ranked: &RankedConnection, finding: &TraceFinding) -> Self {
        FindingOutput {
            problem: finding.problem.name(),
            share: finding.share,
            time_us: optional(finding.time),
            events: finding.events,
            first_frame: finding.frames.map(|(from, _)| from.frame),
            last_frame: finding.frames.map(|(_, to)| to.frame),
            advice: advise(ranked, finding).map(AdviceOutput::from),
        }
    }
}

impl FailureOutput {
    /// All of a connection, worst first.
    pub(super) fn all(ranked: &RankedConnection) -> Vec<Self> {
        let findings = ranked.findings().iter();
        let of_connection = findings.filter(|f| f.problem.is_of_connection());
        of_connection
            .map(|f| FailureOutput::of(ranked, f))
            .collect()
    }

    fn of(ranked: &RankedConnection, finding: &TraceFinding) -> Self {
        let r = ranked.report();
        let undelivered = |side| {
            let reset = finding.problem == TraceProblem::Reset;
            reset.then(|| r.sent_by(side).data.undelivered())
        };
        FailureOutput {
            finding: FindingOutput::of(ranked, finding),
            from: finding.from.map(|side| end(r.endpoint(side))),
            undelivered_from_client_bytes: undelivered(Side::Client),
            undelivered_from_server_bytes: undelivered(Side::Server),
        }
    }
}

impl VerdictOutput {
    pub(super) fn of(ranked: &RankedConnection, side: Side) -> Self {
        let v: &DirectionVerdict = ranked.verdict(side);
        let shares = v.line.shares();
        let findings = ranked.findings_of(side);
        let observed = v.observed.iter().map(|other| ObservationOutput {
            name: other.observation.name(),
            time_us: optional(other.time),
            events: other.events,
        });
        VerdictOutput {
            observed_us: micros(total(v)),
            dominating: v.dominating.name(),
            findings: findings
                .map(|finding| FindingOutput::of(ranked, finding))
                .collect(),
            unmeasured: problems(v.unmeasured),
            inferred: problems(v.inferred),
            evidence: Evidence::from(&v.deltas),
            limits_us: Limit::ALL
                .into_iter()
                .map(|limit| (limit.name(), micros(shares.of(limit))))
                .collect(),
            intervals_forgotten: v.line.dropped(),
            observed: observed.collect(),
            losses: LossesOutput::of(&v.losses),
            path: PathOutput::of(&v.path),
            delayed_acks: DelayedAcksOutput::of(&v.delayed_acks),
            messages: MessagesOutput::of(&v.messages),
        }
    }
}

impl LossesOutput {
    fn of(losses: &Losses) -> Self {
        LossesOutput {
            origin: match losses.origin {
                Origin::NoLoss => "none",
                Origin::Congestion => "congestion",
                Origin::Fault => "fault",
                Origin::Unclear => "unclear",
                Origin::TooFewLosses => "too_few_losses",
                Origin::TooFewSamples => "too_few_samples",
            },
            lost_segments: losses.lost,
            lost_before_capture: losses.before,
            lost_after_capture: losses.after,
            sent_segments: losses.sent,
            rate: losses.rate(),
            very_lossy: losses.is_very_lossy(),
            rtt_samples: losses.samples,
            rtt_least_us: optional(losses.least_rtt),
            rtt_percentile_95_us: optional(losses.high_rtt),
            rtt_variation: losses.variation(),
        }
    }
}

impl PathOutput {
    fn of(path: &PathRate) -> Self {
        PathOutput {
            bytes_per_second: path.bytes_per_second,
            rtt_least_us: optional(path.least_rtt),
            rtt_percentile_95_us: optional(path.high_rtt),
            queued_bytes: path.queued_bytes(),
        }
    }
}

impl DelayedAcksOutput {
    fn of(acks: &DelayedAcks) -> Self {
        DelayedAcksOutput {
            samples: acks.waits.len(),
            delayed: acks.waits.iter().filter(|w| w.delayed).count(),
            share: acks.share(),
            baseline_us: optional(acks.baseline),
            samples_forgotten: acks.dropped,
        }
    }
}

impl MessagesOutput {
    fn of(messages: &Messages) -> Self {
        MessagesOutput {
            count: messages.count,
            bytes: messages.bytes,
            time_us: micros(messages.time),
            with_cause: Category::ALL
                .into_iter()
                .map(|category| (category.name(), messages.with(category)))
                .collect(),
            slowest: messages.slowest.iter().map(MessageOutput::of).collect(),
        }
    }
}

impl MessageOutput {
    fn of(message: &Message) -> Self {
        let cause = |cause: &Cause| CauseOutput {
            category: cause.category.name(),
            time_us: micros(cause.time),
            events: cause.events,
            first_frame: cause.first.frame,
            last_frame: cause.last.frame,
        };
        MessageOutput {
            start: moment(message.start.time),
            first_frame: message.start.frame,
            last_frame: message.end.frame,
            complete: message.complete,
            duration_us: micros(message.duration()),
            bytes: message.bytes,
            causes: message.causes.iter().map(cause).collect(),
        }
    }
}

impl VantageOutput {
    pub(super) fn of(v: &Vantage) -> Self {
        VantageOutput {
            place: match v.place {
                VantagePoint::At(side) => name(side),
                VantagePoint::Between => "between",
                VantagePoint::Unknown => "unknown",
            },
            basis: match v.basis {
                Basis::Checksums => "checksums",
                Basis::Unpadded => "unpadded_frames",
                Basis::Halves => "round_trip_halves",
                Basis::SuperSegments => "super_segments",
                Basis::Nothing => "nothing",
            },
            to_client_us: optional(v.to_client),
            to_server_us: optional(v.to_server),
            path_us: optional(v.path()),
            one_sided: v.one_sided.map(name),
            private_network_of: v.private.map(name),
        }
    }
}
