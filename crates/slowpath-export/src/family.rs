// SPDX-License-Identifier: Apache-2.0
//! Metrics before they are written in a certain format.

use slowpath_agent::Histogram;

/// What a metric measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Seconds.
    Seconds,
    /// Bytes.
    Bytes,
    /// How many of something: its UCUM annotation, as OpenTelemetry wants it (`{poll}`).
    Count(&'static str),
    /// Times a second.
    Hertz,
    /// A ratio.
    One,
}

impl Unit {
    /// The UCUM code (OpenTelemetry, "Instrument Units").
    pub fn ucum(self) -> &'static str {
        match self {
            Unit::Seconds => "s",
            Unit::Bytes => "By",
            Unit::Hertz => "Hz",
            Unit::Count(what) => what,
            Unit::One => "1",
        }
    }

    /// The suffix of a name in Prometheus, if it has one.
    pub fn suffix(self) -> Option<&'static str> {
        match self {
            Unit::Seconds => Some("seconds"),
            Unit::Bytes => Some("bytes"),
            Unit::Hertz => Some("hertz"),
            Unit::One => Some("ratio"),
            Unit::Count(_) => None,
        }
    }
}

/// How a metric behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Never goes down while the process lives.
    Counter,
    /// A value of now.
    Gauge,
    /// A value of now that adds up over agents.
    UpDown,
    /// Observations by size.
    Histogram,
    /// Always 1; the labels say it.
    Info,
}

/// What distinguishes the points of a metric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// Its name, the same in every format: one query then fits both ways to a store.
    pub name: &'static str,
    /// Its value.
    pub value: String,
}

impl Label {
    /// A label.
    pub fn new(name: &'static str, value: impl Into<String>) -> Self {
        Label {
            name,
            value: value.into(),
        }
    }
}

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A whole number.
    Count(u64),
    /// Any number.
    Number(f64),
    /// Observations by size.
    Histogram(Histogram),
}

/// One point of a metric.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// Which.
    pub labels: Vec<Label>,
    /// What.
    pub value: Value,
}

/// A metric with its points.
#[derive(Clone, Debug, PartialEq)]
pub struct Family {
    /// Its name in OpenTelemetry.
    pub name: &'static str,
    /// Its name in Prometheus, with unit and `_total`.
    pub prometheus: &'static str,
    /// How it behaves.
    pub kind: Kind,
    /// What it measures.
    pub unit: Unit,
    /// One sentence about it.
    pub help: &'static str,
    /// Its points; none of a metric that is not known.
    pub points: Vec<Point>,
}

impl Family {
    /// A point without labels.
    #[must_use]
    pub fn with(mut self, value: Value) -> Self {
        self.points.push(Point {
            labels: Vec::new(),
            value,
        });
        self
    }

    /// Many points.
    #[must_use]
    pub fn with_all(mut self, points: impl IntoIterator<Item = (Vec<Label>, Value)>) -> Self {
        let points = points.into_iter();
        self.points
            .extend(points.map(|(labels, value)| Point { labels, value }));
        self
    }
}
