// SPDX-License-Identifier: Apache-2.0
//! Metrics as an OpenTelemetry message: `ExportMetricsServiceRequest` of OTLP 1.x, in
//! protobuf, which every receiver takes (specification: "http/protobuf SHOULD be the
//! default").
//!
//! Sums are cumulative since the agent's start, which is their start time. The resource has
//! the conventions' `service.name`, `service.version`, `service.instance.id`, `host.name`
//! and `os.type`.

mod pairs;
mod protobuf;

pub(crate) use pairs::pairs;

use crate::family::{Family, Kind, Point, Value};
use protobuf::{Message, text_of};
use slowpath_agent::Histogram;
use slowpath_model::WallMicros;

/// Metrics that only Prometheus has: OpenTelemetry says this in the resource and in each
/// point's start time.
const NOT_HERE: [&str; 2] = ["slowpath_build_info", "process_start_time_seconds"];

/// `AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE`, metrics.proto.
const CUMULATIVE: u64 = 2;

/// Who sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    attributes: Vec<(String, String)>,
}

impl Resource {
    /// An agent of this version on this host; `instance` distinguishes its runs.
    pub fn new(host: &str, version: &str, instance: &str) -> Self {
        let attributes = [
            ("service.name", "slowpath-agent"),
            ("service.version", version),
            ("service.instance.id", instance),
            ("host.name", host),
            ("os.type", "linux"),
        ];
        Resource {
            attributes: attributes
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into(),
        }
    }

    /// With further attributes, `key=value,key=value` and percent-encoded, as in
    /// `$OTEL_RESOURCE_ATTRIBUTES`; they go before those that are there.
    #[must_use]
    pub fn with(mut self, list: &str) -> Self {
        for (key, value) in pairs(list) {
            match self.attributes.iter_mut().find(|(k, _)| *k == key) {
                Some((_, old)) => *old = value,
                None => self.attributes.push((key, value)),
            }
        }
        self
    }
}

/// A message, ready to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// The message.
    pub body: Vec<u8>,
    /// Data points in it.
    pub points: u64,
}

/// Writes all metrics that have points, as they were at `at`, summed since `started`.
pub fn encode(
    families: &[Family],
    resource: &Resource,
    version: &str,
    started: WallMicros,
    at: WallMicros,
) -> Batch {
    let times = Times {
        start: nanos(started),
        at: nanos(at),
    };
    let mut points = 0;
    let mut request = Message::default();
    // ExportMetricsServiceRequest.resource_metrics
    request.message(1, |metrics| {
        // ResourceMetrics.resource
        metrics.message(1, |message| {
            for (key, value) in &resource.attributes {
                attribute(message, 1, key, value);
            }
        });
        // ResourceMetrics.scope_metrics
        metrics.message(2, |scoped| {
            // ScopeMetrics.scope: InstrumentationScope.name, .version
            scoped.message(1, |scope| {
                scope.text(1, "slowpath");
                scope.text(2, version);
            });
            for family in families {
                if family.points.is_empty() || NOT_HERE.contains(&family.prometheus) {
                    continue;
                }
                points += family.points.len() as u64;
                // ScopeMetrics.metrics
                scoped.message(2, |message| metric(message, family, times));
            }
        });
    });
    Batch {
        body: request.into_bytes(),
        points,
    }
}

#[derive(Clone, Copy)]
struct Times {
    start: u64,
    at: u64,
}

fn nanos(time: WallMicros) -> u64 {
    u64::try_from(time.0).unwrap_or(0).saturating_mul(1_000)
}

/// `Metric`: name = 1, description = 2, unit = 3, gauge = 5, sum = 7, histogram = 9.
fn metric(message: &mut Message, family: &Family, times: Times) {
    message.text(1, family.name);
    message.text(2, family.help);
    message.text(3, family.unit.ucum());
    match family.kind {
        Kind::Gauge | Kind::Info => message.message(5, |gauge| {
            for point in &family.points {
                gauge.message(1, |m| data_point(m, point, None, times.at));
            }
        }),
        Kind::Counter | Kind::UpDown => message.message(7, |sum| {
            for point in &family.points {
                sum.message(1, |m| data_point(m, point, Some(times.start), times.at));
            }
            sum.number(2, CUMULATIVE);
            sum.number(3, u64::from(family.kind == Kind::Counter));
        }),
        Kind::Histogram => message.message(9, |histogram| {
            for point in &family.points {
                histogram.message(1, |m| histogram_point(m, point, times));
            }
            histogram.number(2, CUMULATIVE);
        }),
    }
}

/// `NumberDataPoint`: start_time_unix_nano = 2, time_unix_nano = 3, as_double = 4,
/// as_int = 6, attributes = 7.
fn data_point(message: &mut Message, point: &Point, start: Option<u64>, at: u64) {
    if let Some(start) = start {
        message.fixed(2, start);
    }
    message.fixed(3, at);
    match &point.value {
        Value::Count(count) => message.fixed(6, *count),
        Value::Number(number) => message.fixed(4, number.to_bits()),
        // Only in metrics of the kind histogram.
        Value::Histogram(_) => {}
    }
    for label in &point.labels {
        attribute(message, 7, label.name, &label.value);
    }
}

/// `HistogramDataPoint`: start_time_unix_nano = 2, time_unix_nano = 3, count = 4, sum = 5,
/// bucket_counts = 6, explicit_bounds = 7, attributes = 9. A bound belongs to the bucket
/// below it there too.
fn histogram_point(message: &mut Message, point: &Point, times: Times) {
    let Value::Histogram(histogram) = &point.value else {
        return;
    };
    let histogram: &Histogram = histogram;
    message.fixed(2, times.start);
    message.fixed(3, times.at);
    message.fixed(4, histogram.count());
    message.fixed(5, histogram.sum().as_secs_f64().to_bits());
    message.packed(6, histogram.counts().iter().copied());
    let bounds = histogram.bounds().iter();
    message.packed(7, bounds.map(|bound| bound.as_secs_f64().to_bits()));
    for label in &point.labels {
        attribute(message, 9, label.name, &label.value);
    }
}

/// `KeyValue`: key = 1, value = 2; `AnyValue`: string_value = 1.
fn attribute(message: &mut Message, field: u32, key: &str, value: &str) {
    message.message(field, |pair| {
        pair.text(1, key);
        pair.message(2, |any| any.text(1, value));
    });
}

/// Points that a receiver refused and why, from the body of its answer:
/// `ExportMetricsServiceResponse.partial_success` = 1, with `rejected_data_points` = 1 and
/// `error_message` = 2. What cannot be read refuses nothing.
pub fn refused(answer: &[u8]) -> (u64, String) {
    let mut points = 0;
    let mut reason = String::new();
    for (field, value) in protobuf::fields(answer) {
        if let (1, protobuf::Field::Bytes(partial)) = (field, value) {
            for (field, value) in protobuf::fields(partial) {
                match (field, value) {
                    (1, protobuf::Field::Number(n)) => points = n,
                    (2, protobuf::Field::Bytes(text)) => reason = text_of(text),
                    _ => {}
                }
            }
        }
    }
    (points, reason)
}

#[cfg(test)]
mod tests;
