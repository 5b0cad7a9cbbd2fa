// SPDX-License-Identifier: Apache-2.0
//! A chart of a page: two axes with round marks, lines that keep their height until the next point.

use slowpath_text::{PAGE_POLICY, count, html};
use slowpath_trace::picture::Scale;
use std::fmt::Write;

/// Of a drawing, in pixels.
pub(crate) const WIDTH: f64 = 940.0;
/// Where its charts begin.
pub(crate) const LEFT: f64 = 70.0;
/// What is left free behind them.
const MARGIN: f64 = 16.0;
/// Where its charts end.
pub(crate) const RIGHT: f64 = WIDTH - MARGIN;
/// Pixels between two marks of a scale, about: along, and up.
const SPACING: (f64, f64) = (140.0, 45.0);
/// Stretches of a line; of each the least and the most are drawn.
const STRETCHES: f64 = 800.0;

/// What every page with charts has.
const STYLE: &str = "body{font:14px/1.5 system-ui,sans-serif;max-width:980px;margin:2em auto;padding:0 1em;color:#1b1f24;background:#fff}\
h2{margin:2em 0 .2em;font-size:1.05em}pre{background:#f5f6f8;padding:.7em 1em;overflow-x:auto;font-size:12.5px}\
svg{display:block;width:100%;height:auto}text{font-size:11px;fill:#555}.grid{stroke:#e3e6ea}.axis{stroke:#888;fill:none}\
.key span{margin-right:1.4em;white-space:nowrap}.key i{display:inline-block;width:18px;height:0;border-top:3px solid;margin-right:.4em;vertical-align:middle}\
@media (prefers-color-scheme:dark){body{background:#14171b;color:#dfe3e8}pre{background:#1e2329}text{fill:#a8b0ba}.grid{stroke:#2b3138}}";

/// One chart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chart {
    across: (f64, f64),
    up: (f64, f64),
    /// Its upper edge, in pixels.
    pub top: f64,
    /// Its lower edge.
    pub bottom: f64,
}

impl Chart {
    /// One that is so high, with these ranges of values along and up.
    pub fn new(across: (f64, f64), up: (f64, f64), top: f64, height: f64) -> Self {
        Chart {
            across,
            up,
            top,
            bottom: top + height,
        }
    }

    fn scales(&self) -> [Scale; 2] {
        let height = self.bottom - self.top;
        [
            Scale::new(self.across.0, self.across.1, LEFT, RIGHT - LEFT),
            Scale::new(self.up.0, self.up.1, self.bottom, -height),
        ]
    }

    /// Where a value along the axis is; what is outside is at its end.
    pub fn x(&self, value: f64) -> f64 {
        let [x, _] = self.scales();
        x.of(value.clamp(self.across.0, self.across.1))
    }

    /// Where a value up the axis is.
    pub fn y(&self, value: f64) -> f64 {
        let [_, y] = self.scales();
        y.of(value.clamp(self.up.0, self.up.1))
    }

    /// The axes with their marks; those along have their values if that is wanted.
    pub fn grid(&self, values_along: bool, svg: &mut String) {
        let (top, bottom) = (self.top, self.bottom);
        let [x, y] = self.scales();
        let (marks, step) = x.marks((RIGHT - LEFT) / SPACING.0);
        for mark in marks {
            let at = x.of(mark);
            // Writing into memory does not fail.
            let _ = write!(svg, "<path class=\"grid\" d=\"M{at:.1} {top}V{bottom}\"/>");
            if values_along {
                let below = bottom + 15.0;
                let _ = write!(
                    svg,
                    "<text x=\"{at:.1}\" y=\"{below:.1}\" text-anchor=\"middle\">{}</text>",
                    label(mark, step)
                );
            }
        }
        let (marks, step) = y.marks((bottom - top) / SPACING.1);
        for mark in marks {
            let at = y.of(mark);
            let _ = write!(
                svg,
                "<path class=\"grid\" d=\"M{LEFT} {at:.1}H{RIGHT}\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 6.0,
                at + 4.0,
                label(mark, step)
            );
        }
        let _ = write!(
            svg,
            "<path class=\"axis\" d=\"M{LEFT} {top}V{bottom}H{RIGHT}\"/>"
        );
    }

    /// The words below and above it.
    pub fn titles(&self, along: &str, up: &str, svg: &mut String) {
        if !along.is_empty() {
            let _ = write!(
                svg,
                "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"middle\">{along}</text>",
                (LEFT + RIGHT) / 2.0,
                self.bottom + 36.0
            );
        }
        let above = self.top - 10.0;
        let _ = write!(svg, "<text x=\"{LEFT}\" y=\"{above:.1}\">{up}</text>");
    }

    /// A line that keeps its height until the next point; a point without a value interrupts it.
    pub fn steps(
        &self,
        class: &str,
        points: impl Iterator<Item = (f64, Option<f64>)>,
        svg: &mut String,
    ) {
        let mut line = String::new();
        let mut drawn = false;
        for (at, value) in points {
            let x = self.x(at);
            let Some(value) = value else {
                if drawn {
                    let _ = write!(line, "H{x:.1}");
                }
                drawn = false;
                continue;
            };
            let y = self.y(value);
            let _ = match drawn {
                true => write!(line, "H{x:.1}V{y:.1}"),
                false => write!(line, "M{x:.1} {y:.1}"),
            };
            drawn = true;
        }
        if drawn {
            let _ = write!(line, "H{RIGHT}");
        }
        if !line.is_empty() {
            let _ = write!(svg, "<path class=\"{class}\" d=\"{line}\"/>");
        }
    }
}

/// As many decimals as the distance of the marks has; of large numbers some digits.
fn label(value: f64, step: f64) -> String {
    if step >= 1e3 && value >= 0.0 {
        return count(value as u64);
    }
    let digits = (-step.log10().floor()).clamp(0.0, 9.0) as usize;
    format!("{value:.digits$}")
}

/// A point of a line.
pub(crate) type Point = (f64, Option<f64>);

/// What of a line can be distinguished between these values along the axis: where it changes, and of many changes in one stretch the first, the least, the most and the last.
pub(crate) fn thinned(points: &[Point], (from, to): (f64, f64)) -> Vec<Point> {
    let mut changes: Vec<Point> = Vec::new();
    for point in points {
        if changes.last().is_none_or(|last| last.1 != point.1) {
            changes.push(*point);
        }
    }
    let stretch = ((to - from) / STRETCHES).max(f64::MIN_POSITIVE);
    let place = |point: &Point| ((point.0 - from) / stretch).floor();
    let mut result = Vec::new();
    for part in changes.chunk_by(|a, b| place(a) == place(b)) {
        if part.len() <= 4 {
            result.extend_from_slice(part);
            continue;
        }
        let by = |a: &&Point, b: &&Point| {
            let value = |it: &Point| it.1.unwrap_or(f64::NEG_INFINITY);
            value(a).total_cmp(&value(b))
        };
        let (least, most) = (part.iter().min_by(by), part.iter().max_by(by));
        let mut few: Vec<Point> = [part.first(), least, most, part.last()]
            .into_iter()
            .flatten()
            .copied()
            .collect();
        few.sort_by(|a, b| a.0.total_cmp(&b.0));
        few.dedup();
        result.append(&mut few);
    }
    result
}

/// A page as far as its key, which says what each colour is; `style` is what the page has beside what all have.
pub(crate) fn page_head(title: &str, command: &str, style: &str, key: &[(&str, &str)]) -> String {
    let title = html(title);
    let mut page = format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{PAGE_POLICY}\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>{title} - {command}</title><style>{STYLE}{style}</style></head><body><h1>{title}</h1><p class=\"key\">"
    );
    for (colour, words) in key {
        let _ = write!(page, "<span><i style=\"color:{colour}\"></i>{words}</span>");
    }
    page + "</p>"
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The texts of a drawing, in its order.
    fn texts(svg: &str) -> Vec<&str> {
        let parts = svg.split("</text>");
        parts
            .filter_map(|part| part.rsplit_once('>'))
            .map(|(_, text)| text)
            .filter(|text| !text.is_empty())
            .collect()
    }

    #[test]
    fn marks_are_round() {
        let marks = |to: f64| {
            let mut svg = String::new();
            Chart::new((0.0, to), (0.0, 1.0), 0.0, 45.0).grid(true, &mut svg);
            let texts = texts(&svg);
            texts[..texts.len() - 2].join(" ")
        };
        // 854 pixels have room for six marks with 140 between them.
        assert_eq!(marks(5.9), "0 1 2 3 4 5");
        assert_eq!(marks(0.59), "0.0 0.1 0.2 0.3 0.4 0.5");
        assert_eq!(marks(33_600.0), "0 10.0k 20.0k 30.0k");
    }

    #[test]
    fn a_line_is_interrupted_where_it_has_no_value() {
        let chart = Chart::new((0.0, 854.0), (0.0, 100.0), 0.0, 100.0);
        let mut svg = String::new();
        let points = [
            (0.0, None),
            (10.0, Some(100.0)),
            (20.0, Some(50.0)),
            (30.0, None),
        ];
        chart.steps("c", points.into_iter(), &mut svg);
        // 854 values on as many pixels, from 70 on; 100 at the top, 0 at 100.
        assert_eq!(svg, "<path class=\"c\" d=\"M80.0 0.0H90.0V50.0H100.0\"/>");
    }

    #[test]
    fn many_changes_in_one_pixel_become_few_and_extremes_stay() {
        let saw = |n: u32| (f64::from(n), Some(f64::from(n % 97)));
        let points: Vec<Point> = (0..80_000).map(saw).collect();
        let few = thinned(&points, (0.0, 80_000.0));
        // 800 stretches of 100 points.
        assert!(few.len() <= 4 * 801, "{}", few.len());
        assert_eq!((few[0], few[few.len() - 1]), (points[0], points[79_999]));
        let highest = few.iter().filter(|it| it.1 == Some(96.0)).count();
        assert!(highest >= 800, "each stretch has one: {highest}");
        let level = [(0.0, Some(5.0)), (1.0, Some(5.0)), (2.0, Some(6.0))];
        assert_eq!(
            thinned(&level, (0.0, 2.0)),
            [(0.0, Some(5.0)), (2.0, Some(6.0))]
        );
    }
}
