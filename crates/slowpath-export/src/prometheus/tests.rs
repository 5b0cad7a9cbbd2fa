// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::family::Unit;
use slowpath_model::Micros;

fn counter(points: Vec<Point>) -> Family {
    Family {
        name: "x.time",
        prometheus: "x_time_seconds_total",
        kind: Kind::Counter,
        unit: Unit::Seconds,
        help: "Time\nof \\x.",
        points,
    }
}

fn point(value: &str) -> Point {
    Point {
        labels: vec![Label::new("application", value)],
        value: Value::Number(1.5),
    }
}

/// After the format's specification, by hand.
#[test]
fn a_counter_in_both_formats() {
    let families = [counter(vec![point("a\"b\\c\nd")])];
    assert_eq!(
        encode(&families, Format::Text),
        "# HELP x_time_seconds_total Time\\nof \\\\x.\n\
         # TYPE x_time_seconds_total counter\n\
         x_time_seconds_total{application=\"a\\\"b\\\\c\\nd\"} 1.5\n"
    );
    assert_eq!(
        encode(&families, Format::OpenMetrics),
        "# HELP x_time_seconds Time\\nof \\\\x.\n\
         # TYPE x_time_seconds counter\n\
         # UNIT x_time_seconds seconds\n\
         x_time_seconds_total{application=\"a\\\"b\\\\c\\nd\"} 1.5\n\
         # EOF\n"
    );
}

#[test]
fn a_histogram_is_cumulative() {
    static BOUNDS: [Micros; 3] = [Micros(50), Micros(250), Micros(1_000_000)];
    let mut histogram = Histogram::new(&BOUNDS);
    for us in [50, 51, 999_999, 2_000_000] {
        histogram.observe(Micros(us));
    }
    let family = Family {
        name: "x",
        prometheus: "x_seconds",
        kind: Kind::Histogram,
        unit: Unit::Seconds,
        help: "X.",
        points: vec![],
    }
    .with(Value::Histogram(histogram));
    let lines = |format| {
        let text = encode(std::slice::from_ref(&family), format);
        let lines: Vec<String> = text
            .lines()
            .filter(|l| !l.starts_with('#'))
            .map(str::to_owned)
            .collect();
        lines
    };
    let text = lines(Format::Text);
    assert_eq!(
        text,
        [
            "x_seconds_bucket{le=\"5e-05\"} 1",
            "x_seconds_bucket{le=\"0.00025\"} 2",
            "x_seconds_bucket{le=\"1\"} 3",
            "x_seconds_bucket{le=\"+Inf\"} 4",
            "x_seconds_sum 3.0001",
            "x_seconds_count 4",
        ]
    );
    assert_eq!(
        lines(Format::OpenMetrics)[2],
        "x_seconds_bucket{le=\"1.0\"} 3"
    );
}

#[test]
fn a_metric_without_points_is_not_there() {
    assert_eq!(encode(&[counter(vec![])], Format::Text), "");
    assert_eq!(encode(&[counter(vec![])], Format::OpenMetrics), "# EOF\n");
}

#[test]
fn formats_are_negotiated() {
    // The first is what Prometheus 2.42 sends, the second 3.0.
    for (accept, format) in [
        (
            "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            Format::OpenMetrics,
        ),
        (
            "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,text/plain;version=0.0.4;q=0.2,*/*;q=0.1",
            Format::OpenMetrics,
        ),
        ("", Format::Text),
        ("*/*", Format::Text),
        (
            "text/plain, application/openmetrics-text;q=0.5",
            Format::Text,
        ),
        ("application/openmetrics-text; q=0", Format::Text),
        ("application/openmetrics-text;version=0.0.1", Format::Text),
        ("Application/OpenMetrics-Text", Format::OpenMetrics),
        (";;;,,q=x", Format::Text),
    ] {
        assert_eq!(Format::negotiate(accept), format, "{accept}");
    }
}
