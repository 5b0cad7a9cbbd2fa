// SPDX-License-Identifier: Apache-2.0
//! A connection as JSON: its handshake, its turns, the figures and verdicts of both directions.

use super::super::RankedConnection;
use super::super::capture::moment;
use super::super::csv::name;
use super::super::figures::{self, figures, micros};
use super::super::selector::end;
use super::optional;
use super::verdict::{FailureOutput, VantageOutput, VerdictOutput};
use crate::tcp::{ConnectionReport, Ending, Scaling, Side};
#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// What the SYNs agreed on; null where they were not captured.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
struct HandshakeOutput {
    /// From the SYN to the ACK of the SYN-ACK.
    rtt_us: Option<f64>,
    window_scaling: Option<bool>,
    sack: Option<bool>,
    timestamps: Option<bool>,
    ecn: Option<bool>,
    accurate_ecn: Option<bool>,
}

/// Runs of new data from one side.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
struct TurnsOutput {
    /// Runs of the client's data.
    requests: u64,
    /// Runs of the server's data.
    responses: u64,
    /// From the ends of requests to the beginnings of responses, in all.
    server_think_us: f64,
    /// From the ends of responses to the beginnings of requests, in all.
    client_think_us: f64,
    largest_request_bytes: u64,
    largest_response_bytes: u64,
}

/// What the figures may suffer from.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
struct Caveats {
    /// Packets with an earlier time than the one before them.
    clock_steps_back: u64,
    bad_checksums: u64,
    /// Outstanding segments, forgotten to bound memory.
    forgotten_segments: u64,
    /// Ranges of sequence numbers, likewise.
    forgotten_ranges: u64,
}

/// The figures of one direction by their keys.
type Figures = BTreeMap<Cow<'static, str>, figures::Value>;

/// When and where in the capture its packets are.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
struct Span {
    /// When its first packet was captured, RFC 3339 in UTC.
    first: String,
    first_frame: u64,
    last_frame: u64,
    duration_us: f64,
}

/// One connection: `{"type": "connection"}`.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(super) struct ConnectionOutput {
    /// Its number.
    connection: u64,
    /// The end that opened it, as far as is known.
    client: String,
    server: String,
    #[serde(flatten)]
    span: Span,
    packets: u64,
    /// An earlier connection had the same 4-tuple.
    reused_ports: bool,
    /// `open`, `unanswered`, `refused`, `closed`, or `half_closed_by_` or `reset_by_` a side.
    ending: String,
    handshake: HandshakeOutput,
    turns: TurnsOutput,
    #[serde(flatten)]
    caveats: Caveats,
    vantage: VantageOutput,
    /// What was wrong with the connection itself: never opened, opened late, or cut.
    failures: Vec<FailureOutput>,
    /// What limited the client's data.
    client_verdict: VerdictOutput,
    /// What limited the server's data.
    server_verdict: VerdictOutput,
    /// Figures of the client's data.
    #[cfg_attr(test, schemars(schema_with = "super::schema::figures"))]
    from_client: Figures,
    /// Figures of the server's data.
    #[cfg_attr(test, schemars(schema_with = "super::schema::figures"))]
    from_server: Figures,
}

impl HandshakeOutput {
    fn of(r: &ConnectionReport) -> Self {
        HandshakeOutput {
            rtt_us: optional(r.handshake.rtt()),
            window_scaling: match r.handshake.window_scaling {
                Scaling::Unknown => None,
                Scaling::Off => Some(false),
                Scaling::On { .. } => Some(true),
            },
            sack: r.handshake.sack,
            timestamps: r.handshake.timestamps,
            ecn: r.handshake.ecn,
            accurate_ecn: r.handshake.accurate_ecn,
        }
    }
}

impl ConnectionOutput {
    pub(super) fn of(ranked: &RankedConnection) -> Self {
        let r = ranked.report();
        let side = |side: Side| -> Figures {
            figures(r, side)
                .into_iter()
                .map(|(field, value)| (field.key, value))
                .collect()
        };
        ConnectionOutput {
            connection: ranked.number,
            client: end(r.client),
            server: end(r.server),
            span: Span {
                first: moment(r.first.time),
                first_frame: ranked.finished.first_frame,
                last_frame: ranked.finished.last_frame,
                duration_us: micros(r.duration()),
            },
            packets: r.packets(),
            reused_ports: r.reused,
            ending: ending(r.ending),
            handshake: HandshakeOutput::of(r),
            turns: TurnsOutput {
                requests: r.turns.from_client,
                responses: r.turns.from_server,
                server_think_us: micros(r.turns.server_think.total()),
                client_think_us: micros(r.turns.client_think.total()),
                largest_request_bytes: r.turns.largest_request,
                largest_response_bytes: r.turns.largest_response,
            },
            caveats: Caveats {
                clock_steps_back: r.clock_steps_back,
                bad_checksums: r.bad_checksums,
                forgotten_segments: r.dropped.segments,
                forgotten_ranges: r.dropped.ranges,
            },
            vantage: VantageOutput::of(&ranked.finished.report.verdicts.vantage),
            failures: FailureOutput::all(ranked),
            client_verdict: VerdictOutput::of(ranked, Side::Client),
            server_verdict: VerdictOutput::of(ranked, Side::Server),
            from_client: side(Side::Client),
            from_server: side(Side::Server),
        }
    }
}

fn ending(ending: Ending) -> String {
    match ending {
        Ending::Open => "open".to_owned(),
        Ending::Unanswered => "unanswered".to_owned(),
        Ending::Refused => "refused".to_owned(),
        Ending::Closed => "closed".to_owned(),
        Ending::HalfClosed(side) => format!("half_closed_by_{}", name(side)),
        Ending::Reset(side) => format!("reset_by_{}", name(side)),
    }
}
