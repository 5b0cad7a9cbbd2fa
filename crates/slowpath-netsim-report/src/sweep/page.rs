// SPDX-License-Identifier: Apache-2.0
//! A sweep as a page: one HTML file without a script, a chart for each measure and workload.

use super::points::{Estimate, Point, PointWorkload};
use crate::colours::{Colours, Pen};
use crate::page::STYLE;
use crate::plot::{self, Axes, Frame, Tick};
use crate::terminal::time;
use slowpath_netsim::sweep::Sweep;
use slowpath_text::{PAGE_POLICY, bit_rate, html, html_lines, plural};
use std::fmt::Write;

/// A chart's size, in pixels.
const WIDTH: f64 = 520.0;
const HEIGHT: f64 = 250.0;
/// Of the width, on either side of the points.
const INSET: f64 = 0.04;
/// Lines of a scale.
const TICKS: f64 = 4.0;

/// What a chart shows of a workload.
struct Measure {
    title: &'static str,
    of: fn(&PointWorkload) -> Option<Estimate>,
    text: fn(f64) -> String,
}

const MEASURES: [Measure; 7] = [
    Measure {
        title: "flow completion time, median",
        of: |it| it.fct_p50_us,
        text: time,
    },
    Measure {
        title: "flow completion time, 99th percentile",
        of: |it| it.fct_p99_us,
        text: time,
    },
    Measure {
        title: "slowdown, 99th percentile",
        of: |it| it.slowdown_p99,
        text: |it| format!("{it:.1}"),
    },
    Measure {
        title: "query completion time, 99th percentile",
        of: |it| it.qct_p99_us,
        text: time,
    },
    Measure {
        title: "goodput",
        of: |it| it.goodput_bits_per_second,
        text: |bits| bit_rate(bits / 8.0),
    },
    Measure {
        title: "packets dropped in a run",
        of: |it| it.packets_dropped,
        text: number,
    },
    Measure {
        title: "retransmission timeouts in a run",
        of: |it| it.timeouts,
        text: number,
    },
];

fn number(value: f64) -> String {
    let digits = usize::from(value.fract() != 0.0 && value < 100.0);
    format!("{value:.digits$}")
}

/// The key along the horizontal scale, and where its values are.
struct Axis {
    key: usize,
    places: Vec<f64>,
}

impl Axis {
    /// The key with the most values that are numbers, otherwise the one with the most, evenly spaced; `None`: nothing varies.
    fn of(sweep: &Sweep) -> Option<Self> {
        let numbers = |key: usize| -> Option<Vec<f64>> {
            let values = sweep.vary[key].values.iter();
            values.map(|value| leading_number(value)).collect()
        };
        let most = |key: &usize| sweep.vary[*key].values.len();
        let keys = || (0..sweep.vary.len()).rev();
        let numeric = keys().filter(|key| numbers(*key).is_some());
        let key = numeric
            .max_by_key(most)
            .or_else(|| keys().max_by_key(most))?;
        let even = || (0..most(&key)).map(|place| place as f64).collect();
        Some(Axis {
            key,
            places: numbers(key).unwrap_or_else(even),
        })
    }

    /// From 0 to 1.
    fn share(&self, value: usize) -> f64 {
        let low = self.places.iter().copied().fold(f64::INFINITY, f64::min);
        let high = self
            .places
            .iter()
            .copied()
            .fold(f64::NEG_INFINITY, f64::max);
        if high > low {
            (self.places[value] - low) / (high - low)
        } else {
            0.5
        }
    }
}

/// `0.3`, `20 packets`: the number; `None`: it begins with none.
fn leading_number(value: &str) -> Option<f64> {
    let first = value.split_whitespace().next()?;
    first.parse().ok().filter(|it: &f64| it.is_finite())
}

/// Combinations that differ in the axis's key only.
struct Series {
    label: String,
    /// The value's place on the axis, and the combination.
    points: Vec<(usize, usize)>,
}

fn series(sweep: &Sweep, axis: Option<&Axis>) -> Vec<Series> {
    let mut all: Vec<Series> = Vec::new();
    for point in 0..sweep.points() {
        let values = sweep.values(point);
        let others = values.iter().zip(&sweep.vary).enumerate();
        let others = others.filter(|(key, _)| axis.is_none_or(|axis| axis.key != *key));
        let label: Vec<String> = others
            .map(|(_, (value, one))| format!("{} {value}", one.key))
            .collect();
        let label = label.join(", ");
        let place = axis.map_or(0, |axis| {
            let known = &sweep.vary[axis.key].values;
            known
                .iter()
                .position(|it| it == values[axis.key])
                .unwrap_or(0)
        });
        let entry = (place, point as usize);
        match all.iter_mut().find(|series| series.label == label) {
            Some(series) => series.points.push(entry),
            None => all.push(Series {
                label,
                points: vec![entry],
            }),
        }
    }
    all
}

/// The page; `text` is the scenario's.
pub(super) fn page(name: &str, sweep: &Sweep, points: &[Point], text: &str) -> String {
    let axis = Axis::of(sweep);
    let series = series(sweep, axis.as_ref());
    let title = html(name);
    let version = env!("CARGO_PKG_VERSION");
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{PAGE_POLICY}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"generator\" content=\"slowpath {version}\">\n<title>{title} - slowpath sweep</title>\n\
         <style>\n{STYLE}</style>\n</head>\n<body>\n<header>\n<h1>{title}</h1>\n\
         <p id=\"description\">{}: {} with {} each. Means over the seeds; bars are their 95 % confidence intervals.</p>\n</header>\n<main>\n",
        plural(sweep.runs(), "run"),
        plural(sweep.points(), "combination"),
        plural(sweep.seeds.len() as u64, "seed"),
    );
    let workloads = points.first().map_or(&[][..], |point| &point.workloads);
    for (place, workload) in workloads.iter().enumerate() {
        page += &format!(
            "<section><h2>{}</h2><div class=\"charts\">\n",
            html(&workload.name)
        );
        for measure in &MEASURES {
            let of = |point: usize| (measure.of)(points.get(point)?.workloads.get(place)?);
            page += &figure(measure, sweep, axis.as_ref(), &series, &of);
        }
        page += "</div></section>\n";
    }
    page += &format!(
        "<section><h2>Scenario</h2><pre>{}</pre></section>\n</main>\n<footer>slowpath {version}</footer>\n</body>\n</html>\n",
        html_lines(text)
    );
    page
}

/// One chart; nothing if no combination has the measure, or all are 0.
fn figure(
    measure: &Measure,
    sweep: &Sweep,
    axis: Option<&Axis>,
    series: &[Series],
    of: &dyn Fn(usize) -> Option<Estimate>,
) -> String {
    let all = series.iter().flat_map(|series| &series.points);
    let tops = all.filter_map(|(_, point)| of(*point).map(|it| it.high.unwrap_or(it.mean)));
    let top = tops.fold(0.0, f64::max);
    if top <= 0.0 {
        return String::new();
    }
    let scale = plot::scale(top, TICKS);
    let place = |value: usize| {
        let share = axis.map_or(0.5, |axis| axis.share(value));
        INSET + share * (1.0 - 2.0 * INSET)
    };
    let values = axis.map_or(&[][..], |axis| &sweep.vary[axis.key].values[..]);
    let frame = Frame::new(&Axes {
        width: WIDTH,
        height: HEIGHT,
        x: below(values, place),
        y: plot::ticks(scale, measure.text),
        title: axis.map_or(String::new(), |axis| sweep.vary[axis.key].key.clone()),
        ..Axes::default()
    });
    let x = |value: usize| frame.x(place(value));
    let y = |value: f64| frame.y((value / scale.1).clamp(0.0, 1.0));
    let colours = Colours::of(series.iter().map(|series| series.label.as_str()));
    let mut inside = String::new();
    for series in series {
        inside += &line(measure, series, colours.pen(&series.label), of, &x, &y);
    }
    format!(
        "<figure><h3>{}</h3>{}{}</figure>\n",
        measure.title,
        legend(series, &colours),
        frame.svg(measure.title, &inside)
    )
}

/// The names along the horizontal scale, from left to right.
fn below(values: &[String], place: impl Fn(usize) -> f64) -> Vec<Tick> {
    let tick = |(number, value): (usize, &String)| Tick {
        at: place(number),
        text: value.clone(),
    };
    let mut ticks: Vec<Tick> = values.iter().enumerate().map(tick).collect();
    ticks.sort_by(|a, b| a.at.total_cmp(&b.at));
    ticks
}

/// One series: a line, and for each combination its mean and interval.
fn line(
    measure: &Measure,
    series: &Series,
    pen: Pen,
    of: &dyn Fn(usize) -> Option<Estimate>,
    x: &dyn Fn(usize) -> f64,
    y: &dyn Fn(f64) -> f64,
) -> String {
    let (colour, dashes) = (pen.css(), pen.dashes());
    let mut points: Vec<(f64, Estimate)> = series
        .points
        .iter()
        .filter_map(|(place, point)| Some((x(*place), of(*point)?)))
        .collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let path: Vec<String> = points
        .iter()
        .map(|(at, estimate)| format!("{at:.1} {:.1}", y(estimate.mean)))
        .collect();
    let mut svg = format!(
        "<path class=\"line\" style=\"stroke:{colour};stroke-dasharray:{dashes}\" d=\"M{}\"/>",
        path.join("L")
    );
    for (at, estimate) in points {
        let mut words = (measure.text)(estimate.mean);
        if let (Some(low), Some(high)) = (estimate.low, estimate.high) {
            let _ = write!(
                svg,
                "<path style=\"stroke:{colour}\" d=\"M{at:.1} {:.1}V{:.1}\"/>",
                y(low),
                y(high)
            );
            let _ = write!(
                words,
                ", {} to {}",
                (measure.text)(low.max(0.0)),
                (measure.text)(high)
            );
        }
        let _ = write!(
            svg,
            "<circle cx=\"{at:.1}\" cy=\"{:.1}\" r=\"3.2\" style=\"fill:{colour}\"><title>{} {words}</title></circle>",
            y(estimate.mean),
            html(&series.label)
        );
    }
    svg
}

fn legend(series: &[Series], colours: &Colours) -> String {
    if series.len() < 2 {
        return String::new();
    }
    let entries = series.iter().map(|series| {
        let pen = colours.pen(&series.label);
        let dashed = if pen.round > 0 {
            " class=\"dashed\""
        } else {
            ""
        };
        format!(
            "<span><i{dashed} style=\"border-color:{}\"></i>{}</span>",
            pen.css(),
            html(&series.label)
        )
    });
    format!(
        "<div class=\"legend\">{}</div>",
        entries.collect::<String>()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use slowpath_netsim::sweep::Vary;

    fn sweep(vary: &[&str]) -> Sweep {
        let vary = vary.iter().map(|it| Vary::parse(it).unwrap()).collect();
        Sweep::new(vary, 1, 2).unwrap()
    }

    #[test]
    fn the_key_with_most_numbers_is_the_axis_and_the_others_are_series() {
        let sweep = sweep(&["tcp.algorithm=dctcp,cubic", "workload.load=0.1..0.4/4"]);
        let axis = Axis::of(&sweep).unwrap();
        assert_eq!(axis.key, 1);
        assert!((axis.share(1) - 1.0 / 3.0).abs() < 1e-9);
        let series = series(&sweep, Some(&axis));
        let labels: Vec<&str> = series.iter().map(|it| it.label.as_str()).collect();
        assert_eq!(labels, ["tcp.algorithm dctcp", "tcp.algorithm cubic"]);
        assert_eq!(series[1].points, [(0, 4), (1, 5), (2, 6), (3, 7)]);
    }

    #[test]
    fn a_page_has_a_chart_for_what_there_is_and_no_tag_from_outside() {
        let sweep = sweep(&["tcp.algorithm=<b>,cubic"]);
        let estimate = Estimate::of(&[1_000.0, 1_200.0]);
        let workload = PointWorkload {
            name: "<script>".to_owned(),
            flows: 1,
            flows_done: 1,
            fct_mean_us: estimate,
            fct_p50_us: estimate,
            fct_p95_us: estimate,
            fct_p99_us: estimate,
            slowdown_p50: None,
            slowdown_p99: None,
            qct_p50_us: None,
            qct_p99_us: None,
            goodput_bits_per_second: estimate,
            packets_dropped: Estimate::of(&[0.0, 0.0]),
            timeouts: None,
        };
        let point = Point {
            values: std::collections::BTreeMap::new(),
            workloads: vec![workload],
        };
        let page = page("a<i>", &sweep, &[point.clone(), point], "seed = 1");
        assert_eq!(page.matches("<figure>").count(), 3);
        assert_eq!(page.matches("<circle").count(), 6);
        for tag in ["<script", "<b>", "<i>"] {
            assert!(!page.contains(tag), "{tag}");
        }
    }
}
