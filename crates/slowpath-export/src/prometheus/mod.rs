// SPDX-License-Identifier: Apache-2.0
//! Metrics as text for a scrape: the Prometheus text format 0.0.4 and OpenMetrics 1.0.
//!
//! The two differ in what this crate uses only in small things: OpenMetrics names a counter
//! without its `_total`, has a `UNIT`, a type `info`, canonical bounds of buckets, and an
//! end mark.

use crate::family::{Family, Kind, Label, Point, Value};
use slowpath_agent::Histogram;
use std::fmt::{self, Write};

/// Which text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// The Prometheus text format, version 0.0.4.
    Text,
    /// OpenMetrics, version 1.0.0.
    OpenMetrics,
}

impl Format {
    /// Both.
    pub const ALL: [Format; 2] = [Format::Text, Format::OpenMetrics];

    /// The `Content-Type` of an answer.
    pub fn content_type(self) -> &'static str {
        match self {
            Format::Text => "text/plain; version=0.0.4; charset=utf-8",
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// What a client with this `Accept` header takes (RFC 9110 section 12.5.1): OpenMetrics
    /// 1.0.0 if it likes that at least as much as plain text, else plain text, which
    /// everybody reads.
    pub fn negotiate(accept: &str) -> Self {
        let mut text = 0.0_f32;
        let mut open_metrics = 0.0_f32;
        for range in accept.split(',') {
            let mut parts = range.split(';').map(str::trim);
            let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
            let mut quality = 1.0;
            let mut version = None;
            for part in parts {
                match part.split_once('=') {
                    Some((name, value)) if name.eq_ignore_ascii_case("q") => {
                        quality = value.parse().unwrap_or(0.0);
                    }
                    Some((name, value)) if name.eq_ignore_ascii_case("version") => {
                        version = Some(value);
                    }
                    _ => {}
                }
            }
            match kind.as_str() {
                "application/openmetrics-text" if version.is_none_or(|v| v == "1.0.0") => {
                    open_metrics = open_metrics.max(quality);
                }
                "text/plain" | "text/*" | "*/*" => text = text.max(quality),
                _ => {}
            }
        }
        if open_metrics > 0.0 && open_metrics >= text {
            Format::OpenMetrics
        } else {
            Format::Text
        }
    }
}

/// Writes all metrics; those without points are left out.
pub fn encode(families: &[Family], format: Format) -> String {
    let mut out = String::with_capacity(64 << 10);
    for family in families.iter().filter(|f| !f.points.is_empty()) {
        // Writing to a string does not fail.
        let _ = write_family(&mut out, family, format);
    }
    if format == Format::OpenMetrics {
        out.push_str("# EOF\n");
    }
    out
}

fn write_family(out: &mut String, family: &Family, format: Format) -> fmt::Result {
    let sample = family.prometheus;
    let (name, kind) = match (format, family.kind) {
        (Format::Text, Kind::Counter) => (sample, "counter"),
        (Format::OpenMetrics, Kind::Counter) => {
            (sample.strip_suffix("_total").unwrap_or(sample), "counter")
        }
        (_, Kind::Gauge | Kind::UpDown) | (Format::Text, Kind::Info) => (sample, "gauge"),
        (Format::OpenMetrics, Kind::Info) => {
            (sample.strip_suffix("_info").unwrap_or(sample), "info")
        }
        (_, Kind::Histogram) => (sample, "histogram"),
    };
    writeln!(out, "# HELP {name} {}", escaped(family.help, false))?;
    writeln!(out, "# TYPE {name} {kind}")?;
    if format == Format::OpenMetrics
        && let Some(unit) = family.unit.suffix()
        && name.ends_with(unit)
    {
        writeln!(out, "# UNIT {name} {unit}")?;
    }
    for Point { labels, value } in &family.points {
        match value {
            Value::Count(count) => {
                write_labels(out, sample, labels, None)?;
                writeln!(out, " {count}")?;
            }
            Value::Number(number) => {
                write_labels(out, sample, labels, None)?;
                writeln!(out, " {number}")?;
            }
            Value::Histogram(histogram) => {
                write_histogram(out, sample, labels, histogram, format)?;
            }
        }
    }
    Ok(())
}

fn write_histogram(
    out: &mut String,
    name: &str,
    labels: &[Label],
    histogram: &Histogram,
    format: Format,
) -> fmt::Result {
    let bucket = format!("{name}_bucket");
    let bounds = histogram.bounds().iter();
    let bounds = bounds
        .map(|bound| number(bound.as_secs_f64(), format))
        .chain(std::iter::once("+Inf".to_owned()));
    let mut below = 0;
    for (bound, count) in bounds.zip(histogram.counts()) {
        below += count;
        write_labels(out, &bucket, labels, Some(&bound))?;
        writeln!(out, " {below}")?;
    }
    write_labels(out, &format!("{name}_sum"), labels, None)?;
    writeln!(out, " {}", histogram.sum().as_secs_f64())?;
    write_labels(out, &format!("{name}_count"), labels, None)?;
    writeln!(out, " {below}")
}

/// A bound. OpenMetrics wants the canonical form (section "Canonical Numbers"), which is
/// that of C's `%g`, with `.0` behind a whole number.
fn number(value: f64, format: Format) -> String {
    if value > 0.0 && value < 1e-4 {
        let text = format!("{value:e}");
        match text.split_once("e-") {
            Some((mantissa, exponent)) => format!("{mantissa}e-{exponent:0>2}"),
            None => text,
        }
    } else if format == Format::OpenMetrics && value.fract() == 0.0 {
        format!("{value:.1}")
    } else {
        value.to_string()
    }
}

fn write_labels(
    out: &mut String,
    name: &str,
    labels: &[Label],
    bound: Option<&str>,
) -> fmt::Result {
    out.push_str(name);
    let mut before = '{';
    for label in labels {
        write!(
            out,
            "{before}{}=\"{}\"",
            label.name,
            escaped(&label.value, true)
        )?;
        before = ',';
    }
    if let Some(bound) = bound {
        write!(out, "{before}le=\"{bound}\"")?;
        before = ',';
    }
    if before == ',' {
        out.push('}');
    }
    Ok(())
}

/// A label's value or a help text: backslash and line feed, and in a value the quotation
/// mark, with a backslash.
fn escaped(text: &str, value: bool) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '"' if value => out.push_str("\\\""),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests;
