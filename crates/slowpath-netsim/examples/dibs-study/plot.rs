// SPDX-License-Identifier: Apache-2.0
//! Line charts as SVG, small enough to read in a diff.

use std::fmt::Write as _;

const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 56.0;
const RIGHT: f64 = 548.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 256.0;
/// Distinct for the colour-blind (Okabe and Ito).
const COLOURS: [&str; 4] = ["#d55e00", "#0072b2", "#009e73", "#555555"];

/// Points of one kind.
pub struct Series {
    pub name: &'static str,
    pub points: Vec<(f64, f64)>,
    /// Joined by a line; otherwise dots.
    pub line: bool,
    /// Which of the colours.
    pub colour: usize,
}

/// A picture.
pub struct Chart {
    pub title: &'static str,
    pub x: &'static str,
    pub y: &'static str,
    /// Scales of ratios.
    pub log: (bool, bool),
    pub series: Vec<Series>,
}

/// One direction of the picture: from values to places.
struct Axis {
    log: bool,
    from: f64,
    to: f64,
    /// Where the least and the greatest value lie.
    ends: (f64, f64),
}

impl Axis {
    fn new(values: impl Iterator<Item = f64> + Clone, log: bool, ends: (f64, f64)) -> Axis {
        let least = values.clone().fold(f64::INFINITY, f64::min);
        let most = values.fold(f64::NEG_INFINITY, f64::max);
        let (from, to) = if log {
            (least / 1.1, most * 1.1)
        } else {
            (0.0, most * 1.06)
        };
        Axis {
            log,
            from,
            to,
            ends,
        }
    }

    fn place(&self, value: f64) -> f64 {
        let share = if self.log {
            (value / self.from).ln() / (self.to / self.from).ln()
        } else {
            (value - self.from) / (self.to - self.from)
        };
        self.ends.0 + share * (self.ends.1 - self.ends.0)
    }

    /// Round values inside.
    fn ticks(&self) -> Vec<f64> {
        let inside = |value: &f64| *value >= self.from && *value <= self.to;
        if self.log {
            let decades = self.from.log10().floor() as i32..=self.to.log10().ceil() as i32;
            let all = decades.flat_map(|decade| [1.0, 2.0, 5.0].map(|n| n * 10f64.powi(decade)));
            return all.filter(inside).collect();
        }
        let rough = (self.to - self.from) / 6.0;
        let decade = 10f64.powf(rough.log10().floor());
        let steps = [1.0, 2.0, 5.0, 10.0].map(|n| n * decade);
        let step = steps.into_iter().find(|step| *step >= rough);
        let step = step.unwrap_or(10.0 * decade);
        // Without the digits that fractions of two have behind the last.
        let all = (0..20).map(|n| (f64::from(n) * step * 1e9).round() / 1e9);
        all.filter(inside).collect()
    }
}

impl Chart {
    /// The picture's text.
    pub fn svg(&self) -> String {
        let points = self.series.iter().flat_map(|series| &series.points);
        let x = Axis::new(points.clone().map(|p| p.0), self.log.0, (LEFT, RIGHT));
        let y = Axis::new(points.map(|p| p.1), self.log.1, (BOTTOM, TOP));
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"11\">\n\
             <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#fff\"/>\n\
             <text x=\"{LEFT}\" y=\"16\" font-size=\"13\">{}</text>\n",
            self.title
        );
        self.add_axes(&mut svg, &x, &y);
        self.add_series(&mut svg, &x, &y);
        svg + "</svg>\n"
    }

    fn add_axes(&self, svg: &mut String, x: &Axis, y: &Axis) {
        for tick in x.ticks() {
            let at = x.place(tick);
            add(
                svg,
                format_args!(
                    "<path d=\"M{at:.1} {TOP}V{BOTTOM}\" stroke=\"#ddd\"/><text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{tick}</text>",
                    BOTTOM + 14.0
                ),
            );
        }
        for tick in y.ticks() {
            let at = y.place(tick);
            add(
                svg,
                format_args!(
                    "<path d=\"M{LEFT} {at:.1}H{RIGHT}\" stroke=\"#ddd\"/><text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{tick}</text>",
                    LEFT - 5.0,
                    at + 4.0
                ),
            );
        }
        add(
            svg,
            format_args!(
                "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                (LEFT + RIGHT) / 2.0,
                BOTTOM + 32.0,
                self.x
            ),
        );
        let middle = (TOP + BOTTOM) / 2.0;
        add(
            svg,
            format_args!(
                "<text x=\"14\" y=\"{middle}\" text-anchor=\"middle\" transform=\"rotate(-90 14 {middle})\">{}</text>",
                self.y
            ),
        );
    }

    fn add_series(&self, svg: &mut String, x: &Axis, y: &Axis) {
        let mut label = RIGHT;
        for series in self.series.iter().rev() {
            let colour = COLOURS[series.colour % COLOURS.len()];
            if !series.name.is_empty() {
                add(
                    svg,
                    format_args!(
                        "<text x=\"{label}\" y=\"{}\" text-anchor=\"end\" fill=\"{colour}\">{}</text>",
                        TOP - 6.0,
                        series.name
                    ),
                );
                label -= 6.0 * series.name.len() as f64 + 10.0;
            }
            let points = series.points.iter().map(|p| (x.place(p.0), y.place(p.1)));
            if series.line {
                let path: Vec<String> = points.map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
                let path = path.join("L");
                add(
                    svg,
                    format_args!(
                        "<path d=\"M{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>"
                    ),
                );
            } else {
                for (x, y) in points {
                    add(
                        svg,
                        format_args!(
                            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\" fill=\"{colour}\"/>"
                        ),
                    );
                }
            }
        }
    }
}

fn add(svg: &mut String, line: std::fmt::Arguments<'_>) {
    // Writing to a string does not fail.
    let _ = writeln!(svg, "{line}");
}
