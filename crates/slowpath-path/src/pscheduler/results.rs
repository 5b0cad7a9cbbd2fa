// SPDX-License-Identifier: Apache-2.0
//! The results of pScheduler's tests.

use super::{Run, iso_8601};
use crate::record::Record;
use crate::report::{DirectionReport, PathReport, Way, with_stamps};
use crate::session::{Measured, OneWayOutcome, PathError, TestOptions, TwoWayOutcome};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Delays of a histogram are counted in steps of 0.01 of a bucket of 1 ms.
const HISTOGRAM_STEP_NS: i64 = 10_000;

/// One-way delays: pScheduler's test `latency`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Latency {
    /// Packets that were sent.
    pub sent: u64,
    /// Of these, lost.
    pub lost: u64,
    /// Further copies.
    pub duplicated: u64,
    /// Packets that came after later ones.
    pub reordered: u64,
    /// How far the clocks may differ by what they say themselves, ms; `None`: one is not synchronised.
    pub clock_error_ms: Option<f64>,
    /// First arrivals.
    pub records: Vec<Record>,
    /// Whether each packet is listed.
    pub raw: bool,
}

impl Latency {
    /// The result.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let (mut delays, mut ttls) = (BTreeMap::<i64, u64>::new(), BTreeMap::<u8, u64>::new());
        let came = || self.records.iter().filter(|record| !record.lost());
        for record in came() {
            let step = HISTOGRAM_STEP_NS;
            let delay = record.delay().unwrap_or(0);
            // To the nearest, as Python's rounding does but for ties.
            *delays
                .entry((delay + step / 2).div_euclid(step))
                .or_default() += 1;
            *ttls.entry(record.ttl).or_default() += 1;
        }
        let hundredths = |(steps, count): (i64, u64)| {
            let sign = if steps < 0 { "-" } else { "" };
            let (whole, rest) = (steps.unsigned_abs() / 100, steps.unsigned_abs() % 100);
            (format!("{sign}{whole}.{rest:02}"), count.into())
        };
        let delays: Map<String, Value> = delays.into_iter().map(hundredths).collect();
        let ttls = ttls
            .into_iter()
            .map(|(ttl, count)| (ttl.to_string(), count.into()));
        let mut result = json!({
            "schema": 1,
            "succeeded": true,
            "packets-sent": self.sent,
            "packets-received": self.sent - self.lost.min(self.sent),
            "packets-lost": self.lost,
            "packets-duplicated": self.duplicated,
            "packets-reordered": self.reordered,
            "histogram-latency": delays,
            "histogram-ttl": ttls.collect::<Map<String, Value>>(),
        });
        if let Some(error) = self.clock_error_ms {
            result["max-clock-error"] = error.into();
        }
        if self.raw {
            result["raw-packets"] = came().map(raw).collect();
        }
        result
    }
}

fn raw(record: &Record) -> Value {
    json!({
        "seq-num": record.sequence,
        "src-ts": record.sent.0,
        "src-clock-sync": record.sent_error.synchronised(),
        "src-clock-err": record.sent_error.error().as_secs_f64(),
        "dst-ts": record.received.0,
        "dst-clock-sync": record.received_error.synchronised(),
        "dst-clock-err": record.received_error.error().as_secs_f64(),
        "ip-ttl": record.ttl,
    })
}

/// One packet there and back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundTrip {
    /// Its number, from 1.
    pub number: u64,
    /// Who sent it back.
    pub from: IpAddr,
    /// TTL or hop limit with which it came.
    pub ttl: u8,
    /// How long it took.
    pub rtt: Duration,
}

/// Round trips: pScheduler's test `rtt`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rtt {
    /// Packets that were sent.
    pub sent: u64,
    /// Of these, lost.
    pub lost: u64,
    /// Further copies.
    pub duplicated: u64,
    /// Packets that came after later ones.
    pub reordered: u64,
    /// Those that came.
    pub round_trips: Vec<RoundTrip>,
}

impl Rtt {
    /// The result.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let trip = |trip: &RoundTrip| {
            json!({
                "seq": trip.number,
                "ip": trip.from.to_string(),
                // A count from 1 on there.
                "ttl": trip.ttl.max(1),
                "rtt": iso_8601(trip.rtt),
            })
        };
        let mut result = json!({
            "schema": 1,
            "succeeded": true,
            "received": self.sent - self.lost.min(self.sent),
            "lost": self.lost,
            "duplicates": self.duplicated,
            "reorders": self.reordered,
            "loss": self.lost as f64 / self.sent.max(1) as f64,
            "roundtrips": self.round_trips.iter().map(trip).collect::<Vec<_>>(),
        });
        if self.sent > 0 {
            result["sent"] = self.sent.into();
        }
        let seconds: Vec<f64> = self
            .round_trips
            .iter()
            .map(|trip| trip.rtt.as_secs_f64())
            .collect();
        let least = self.round_trips.iter().map(|trip| trip.rtt).min();
        let most = self.round_trips.iter().map(|trip| trip.rtt).max();
        if let (Some(least), Some(most)) = (least, most) {
            let mean = seconds.iter().sum::<f64>() / seconds.len() as f64;
            let square =
                seconds.iter().map(|s| (s - mean).powi(2)).sum::<f64>() / seconds.len() as f64;
            result["min"] = iso_8601(least).into();
            result["max"] = iso_8601(most).into();
            result["mean"] = iso_8601(Duration::from_secs_f64(mean)).into();
            result["stddev"] = iso_8601(Duration::from_secs_f64(square.sqrt())).into();
        }
        result
    }
}

/// A hop; without an address it was silent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hop {
    /// Who answered.
    pub ip: Option<IpAddr>,
    /// Its name.
    pub name: Option<String>,
    /// How long it took.
    pub rtt: Option<Duration>,
    /// The MTU that it stated.
    pub mtu: Option<u32>,
}

/// Routes: pScheduler's test `trace`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// Each way, from the first hop on.
    pub paths: Vec<Vec<Hop>>,
}

impl Trace {
    /// The result.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let hop = |hop: &Hop| {
            let mut value = Map::new();
            let mut put = |key: &str, found: Option<Value>| {
                if let Some(found) = found {
                    value.insert(key.to_owned(), found);
                }
            };
            put("ip", hop.ip.map(|ip| ip.to_string().into()));
            put("hostname", hop.name.clone().map(Value::from));
            put("rtt", hop.rtt.map(|rtt| iso_8601(rtt).into()));
            put("mtu", hop.mtu.filter(|&mtu| mtu > 0).map(Value::from));
            Value::Object(value)
        };
        let paths = self.paths.iter().map(|path| path.iter().map(hop).collect());
        json!({ "schema": 1, "succeeded": true, "paths": paths.collect::<Vec<Value>>() })
    }
}

/// A stretch of a transfer, or all of it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Interval {
    /// From when on, s from the start of the test.
    pub start: f64,
    /// Until when.
    pub end: f64,
    /// Octets.
    pub bytes: u64,
    /// Retransmitted segments, where they are known.
    pub retransmits: Option<u64>,
    /// The smoothed round trip, ms, where it is known.
    pub rtt_ms: Option<f64>,
}

impl Interval {
    fn to_json(self, stream: Option<usize>) -> Value {
        let seconds = (self.end - self.start).max(1e-9);
        let mut value = json!({
            "start": self.start,
            "end": self.end,
            "throughput-bytes": self.bytes,
            "throughput-bits": self.bytes as f64 * 8.0 / seconds,
            "retransmits": self.retransmits,
            "rtt": self.rtt_ms,
        });
        if let Some(stream) = stream {
            value["stream-id"] = stream.into();
        }
        value
    }
}

/// A transfer over TCP: pScheduler's test `throughput`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Throughput {
    /// For each interval that of each stream, and that of all.
    pub intervals: Vec<(Vec<Interval>, Interval)>,
    /// The whole of each stream, and of all.
    pub whole: (Vec<Interval>, Interval),
    /// The most octets of a segment, where known.
    pub mss: Option<u32>,
}

impl Throughput {
    /// The result.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let of = |(streams, all): &(Vec<Interval>, Interval)| {
            let streams = (0..)
                .zip(streams)
                .map(|(number, one)| one.to_json(Some(number)));
            json!({ "streams": streams.collect::<Vec<_>>(), "summary": all.to_json(None) })
        };
        let mut result = json!({
            "schema": 1,
            "succeeded": true,
            "diags": "",
            "intervals": self.intervals.iter().map(of).collect::<Vec<_>>(),
            "summary": of(&self.whole),
        });
        if let Some(mss) = self.mss {
            result["mss"] = mss.into();
        }
        result
    }
}

/// A run of `latency` for each direction of OWAMP's sessions.
///
/// # Errors
/// The kernel gives no random octets.
pub fn latency_of(
    outcome: &OneWayOutcome,
    report: &PathReport,
    options: &TestOptions,
    raw: bool,
) -> Result<Vec<Run>, PathError> {
    let mut runs = Vec::new();
    for direction in &report.directions {
        let measured = match direction.way {
            Way::There => outcome.there.as_ref(),
            Way::Back => outcome.back.as_ref(),
            Way::RoundTrip => None,
        };
        let Some(measured) = measured else { continue };
        let latency = latency(measured, direction, (options, raw));
        let (from, to) = (
            host(measured.request.sender),
            host(measured.request.receiver),
        );
        let interval = options.slots.mean().as_duration().as_secs_f64();
        let mut spec = json!({
            "schema": 1,
            "source": from,
            "dest": to,
            "packet-count": options.packets,
            "packet-timeout": options.timeout.as_duration().as_secs(),
            "packet-padding": options.padding,
            "ip-tos": u32::from(options.dscp) << 2,
            "bucket-width": 0.001,
            "output-raw": raw,
        });
        if interval > 0.0 {
            spec["packet-interval"] = interval.into();
        }
        let time = (report.start.clone(), length(options));
        runs.push(Run::new(
            "latency",
            time,
            vec![from, to],
            (spec, latency.to_json()),
        )?);
    }
    Ok(runs)
}

fn latency(
    measured: &Measured,
    direction: &DirectionReport,
    (options, raw): (&TestOptions, bool),
) -> Latency {
    let mut records = with_stamps(&measured.records, &measured.stamps);
    // First arrivals within the timeout of the shortest delay: what the report counts.
    let mut came = std::collections::HashSet::new();
    let least = records.iter().filter_map(Record::delay).min().unwrap_or(0);
    let timeout = i64::try_from(options.timeout.as_nanos()).unwrap_or(i64::MAX);
    records.retain(|record| {
        let timely = record.delay().is_some_and(|delay| delay - least <= timeout);
        timely && came.insert(record.sequence)
    });
    let summary = &direction.summary;
    let clocks = direction.error.and_then(|error| error.clocks_ns);
    Latency {
        sent: summary.sent,
        // pScheduler has no place for what an end dropped itself: it did not come.
        lost: summary.lost + summary.lost_here,
        duplicated: summary.duplicates,
        reordered: summary.reordering.first().map_or(0, |first| first.packets),
        clock_error_ms: clocks.map(|error| error as f64 / 1e6),
        records,
        raw,
    }
}

/// A run of `rtt` of a reflector's answers.
///
/// # Errors
/// The kernel gives no random octets.
pub fn rtt_of(
    outcome: &TwoWayOutcome,
    report: &PathReport,
    options: &TestOptions,
) -> Result<Vec<Run>, PathError> {
    let direction = report
        .directions
        .iter()
        .find(|direction| direction.way == Way::RoundTrip);
    let Some(direction) = direction else {
        return Ok(Vec::new());
    };
    let mut came = std::collections::HashSet::new();
    let first = outcome
        .replies
        .iter()
        .filter(|r| came.insert(r.reply.request.sequence));
    let round_trips = first.filter_map(|reflected| {
        let reply = &reflected.reply;
        let inside = reply.sent.nanos_since(reply.received);
        let nanos = reflected.received.nanos_since(reply.request.sent) - inside;
        Some(RoundTrip {
            number: u64::from(reply.request.sequence) + 1,
            from: outcome.ends.1.ip().to_canonical(),
            ttl: reflected.ttl,
            rtt: Duration::from_nanos(u64::try_from(nanos).ok()?),
        })
    });
    let summary = &direction.summary;
    let rtt = Rtt {
        sent: summary.sent,
        lost: summary.lost + summary.lost_here,
        duplicated: summary.duplicates,
        reordered: summary.reordering.first().map_or(0, |first| first.packets),
        round_trips: round_trips.collect(),
    };
    let (from, to) = (host(outcome.ends.0), host(outcome.ends.1));
    let spec = json!({
        // The first with protocols other than ICMP; it has no name for STAMP.
        "schema": 2,
        "source": from,
        "dest": to,
        "count": options.packets,
        "interval": iso_8601(options.slots.mean().as_duration()),
        "timeout": iso_8601(options.timeout.as_duration()),
        "ip-tos": u32::from(options.dscp) << 2,
        "protocol": "twamp",
    });
    let time = (report.start.clone(), length(options));
    let run = Run::new("rtt", time, vec![from], (spec, rtt.to_json()))?;
    Ok(vec![run])
}

fn host(address: SocketAddr) -> String {
    address.ip().to_canonical().to_string()
}

fn length(options: &TestOptions) -> Duration {
    options.slots.mean_of(options.packets).as_duration() + options.timeout.as_duration()
}

#[cfg(test)]
mod tests;
