// SPDX-License-Identifier: Apache-2.0
//! Metrics as an OpenTelemetry message: `ExportMetricsServiceRequest` of OTLP 1.x, in
//! protobuf, which every receiver takes (specification: "http/protobuf SHOULD be the
//! default").
//!
//! Sums are cumulative since the agent's start, which is their start time. The resource has
//! the conventions' `service.name`, `service.version`, `service.instance.id`, `host.name`
//! and `os.type`.

mod pairs;

pub(crate) use pairs::pairs;

use crate::family::{Family, Kind, Label, Point, Value};
use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint,
    ResourceMetrics, ScopeMetrics, Sum, metric, number_data_point,
};
use opentelemetry_proto::tonic::resource;
use prost::Message as _;
use slowpath_model::WallMicros;

/// Metrics that only Prometheus has: OpenTelemetry says this in the resource and in each
/// point's start time.
const NOT_HERE: [&str; 2] = ["slowpath_build_info", "process_start_time_seconds"];

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
    let families = || {
        let has_points = |f: &&Family| !f.points.is_empty() && !NOT_HERE.contains(&f.prometheus);
        families.iter().filter(has_points)
    };
    let attributes = resource.attributes.iter();
    let request = ExportMetricsServiceRequest {
        resource_metrics: vec![ResourceMetrics {
            resource: Some(resource::v1::Resource {
                attributes: attributes
                    .map(|(key, value)| attribute(key, value))
                    .collect(),
                ..Default::default()
            }),
            scope_metrics: vec![ScopeMetrics {
                scope: Some(InstrumentationScope {
                    name: "slowpath".to_owned(),
                    version: version.to_owned(),
                    ..Default::default()
                }),
                metrics: families().map(|family| metric_of(family, times)).collect(),
                ..Default::default()
            }],
            ..Default::default()
        }],
    };
    Batch {
        body: request.encode_to_vec(),
        points: families().map(|family| family.points.len() as u64).sum(),
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

fn metric_of(family: &Family, times: Times) -> Metric {
    let points = family.points.iter();
    let cumulative = AggregationTemporality::Cumulative.into();
    let data = match family.kind {
        Kind::Gauge | Kind::Info => metric::Data::Gauge(Gauge {
            // Without a start: a gauge sums up nothing.
            data_points: points.map(|p| number_point(p, 0, times.at)).collect(),
        }),
        Kind::Counter | Kind::UpDown => metric::Data::Sum(Sum {
            data_points: points
                .map(|p| number_point(p, times.start, times.at))
                .collect(),
            aggregation_temporality: cumulative,
            is_monotonic: family.kind == Kind::Counter,
        }),
        Kind::Histogram => metric::Data::Histogram(Histogram {
            data_points: points.filter_map(|p| histogram_point(p, times)).collect(),
            aggregation_temporality: cumulative,
        }),
    };
    Metric {
        name: family.name.to_owned(),
        description: family.help.to_owned(),
        unit: family.unit.ucum().to_owned(),
        data: Some(data),
        ..Default::default()
    }
}

fn number_point(point: &Point, start: u64, at: u64) -> NumberDataPoint {
    NumberDataPoint {
        attributes: attributes(&point.labels),
        start_time_unix_nano: start,
        time_unix_nano: at,
        value: match &point.value {
            Value::Count(count) => Some(number_data_point::Value::AsInt(count.cast_signed())),
            Value::Number(number) => Some(number_data_point::Value::AsDouble(*number)),
            // Only in metrics of the kind histogram.
            Value::Histogram(_) => None,
        },
        ..Default::default()
    }
}

/// A bound belongs to the bucket below it there too.
fn histogram_point(point: &Point, times: Times) -> Option<HistogramDataPoint> {
    let Value::Histogram(histogram) = &point.value else {
        return None;
    };
    let bounds = histogram.bounds().iter();
    Some(HistogramDataPoint {
        attributes: attributes(&point.labels),
        start_time_unix_nano: times.start,
        time_unix_nano: times.at,
        count: histogram.count(),
        sum: Some(histogram.sum().as_secs_f64()),
        bucket_counts: histogram.counts().to_vec(),
        explicit_bounds: bounds.map(|bound| bound.as_secs_f64()).collect(),
        ..Default::default()
    })
}

fn attributes(labels: &[Label]) -> Vec<KeyValue> {
    let labels = labels.iter();
    labels.map(|l| attribute(l.name, &l.value)).collect()
}

fn attribute(key: &str, value: &str) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue {
            value: Some(any_value::Value::StringValue(value.to_owned())),
        }),
        ..Default::default()
    }
}

/// Points that a receiver refused and why, from the body of its answer. What cannot be read
/// refuses nothing.
pub fn refused(answer: &[u8]) -> (u64, String) {
    let answer = ExportMetricsServiceResponse::decode(answer).unwrap_or_default();
    let partial = answer.partial_success.unwrap_or_default();
    let points = u64::try_from(partial.rejected_data_points).unwrap_or(0);
    (points, partial.error_message)
}

#[cfg(test)]
mod tests;
