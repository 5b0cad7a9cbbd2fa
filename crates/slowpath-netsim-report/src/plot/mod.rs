// SPDX-License-Identifier: Apache-2.0
//! The frame of a chart: scales, ticks and titles, laid out by the lengths of their texts.
//!
//! Margins follow from the longest label. Labels keep a distance from each other: those below the
//! horizontal scale take further lines before one is left out.

use slowpath_text::html;
use std::fmt::Write;

/// The size of text, pixels.
const FONT: f64 = 12.0;
/// The width of a character, on the wide side for the fonts of the style.
const CHARACTER: f64 = 0.64 * FONT;
/// The height of a line of text.
const LINE: f64 = 15.0;
/// The least distance of two labels beside each other.
const GAP: f64 = 8.0;
/// From the horizontal scale to its labels: clear of the lowest label beside it.
const BELOW: f64 = LINE / 2.0 + 1.0;
/// Lines of labels below the horizontal scale.
const MOST_LINES: usize = 3;
/// Around everything.
const EDGE: f64 = 6.0;

/// How wide a text is drawn, or less.
pub fn text_width(text: &str) -> f64 {
    text.chars().count() as f64 * CHARACTER
}

/// A rectangle, pixels from the upper left.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Area {
    /// Its left edge.
    pub left: f64,
    /// Its upper edge.
    pub top: f64,
    /// Its right edge.
    pub right: f64,
    /// Its lower edge.
    pub bottom: f64,
}

impl Area {
    /// Whether both have a point in common.
    pub fn intersects(&self, other: &Area) -> bool {
        self.left < other.right
            && other.left < self.right
            && self.top < other.bottom
            && other.top < self.bottom
    }
}

/// A text with its place.
#[derive(Clone, Debug, PartialEq)]
pub struct Label {
    /// What it says.
    pub text: String,
    /// Where it is, generously.
    pub area: Area,
}

impl Label {
    /// A text of one line, in the middle of its area.
    fn new(text: &str, middle: f64, top: f64) -> Self {
        let half = text_width(text) / 2.0;
        Label {
            text: text.to_owned(),
            area: Area {
                left: middle - half,
                top,
                right: middle + half,
                bottom: top + LINE,
            },
        }
    }

    fn svg(&self, class: &str) -> String {
        format!(
            "<text{class} x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            (self.area.left + self.area.right) / 2.0,
            self.area.bottom - 3.5,
            html(&self.text)
        )
    }
}

/// A mark of a scale.
#[derive(Clone, Debug, PartialEq)]
pub struct Tick {
    /// Where on the scale, 0 to 1.
    pub at: f64,
    /// What it says.
    pub text: String,
}

/// The scales of a chart.
#[derive(Clone, Debug, Default)]
pub struct Axes {
    /// Of the whole chart, pixels.
    pub width: f64,
    /// Without what further lines of labels take.
    pub height: f64,
    /// Below.
    pub x: Vec<Tick>,
    /// On the left, with lines across the chart.
    pub y: Vec<Tick>,
    /// On the right: a second scale.
    pub right: Vec<Tick>,
    /// What is below means.
    pub title: String,
}

/// A chart's frame, laid out.
#[derive(Clone, Debug)]
pub struct Frame {
    /// Where curves are drawn.
    pub inner: Area,
    /// Every text of the frame.
    pub labels: Vec<Label>,
    width: f64,
    height: f64,
    grid: String,
    title: Option<Label>,
}

impl Frame {
    /// Lays out the scales.
    pub fn new(axes: &Axes) -> Self {
        let widest = |ticks: &[Tick]| {
            let widths = ticks.iter().map(|tick| text_width(&tick.text));
            widths.fold(0.0, f64::max)
        };
        let left = EDGE + widest(&axes.y) + GAP;
        let right = match widest(&axes.right) {
            0.0 => 2.0 * EDGE,
            widest => EDGE + widest + GAP,
        };
        let titled = if axes.title.is_empty() { 0.0 } else { LINE };
        let mut frame = Frame {
            inner: Area {
                left,
                top: EDGE + LINE / 2.0,
                right: (axes.width - right).max(left + 1.0),
                bottom: axes.height - BELOW - LINE - titled - EDGE,
            },
            labels: Vec::new(),
            width: axes.width,
            height: axes.height,
            grid: String::new(),
            title: None,
        };
        let lines = frame.below(&axes.x);
        frame.height += lines.saturating_sub(1) as f64 * LINE;
        frame.beside(&axes.y, EDGE + widest(&axes.y), true);
        frame.beside(&axes.right, axes.width - EDGE, false);
        if !axes.title.is_empty() {
            let middle = (frame.inner.left + frame.inner.right) / 2.0;
            let title = Label::new(&axes.title, middle, frame.height - EDGE - LINE);
            frame.title = Some(title.clone());
            frame.labels.push(title);
        }
        frame
    }

    /// A share of the horizontal scale in pixels.
    pub fn x(&self, share: f64) -> f64 {
        self.inner.left + share * (self.inner.right - self.inner.left)
    }

    /// A share of the vertical scale in pixels.
    pub fn y(&self, share: f64) -> f64 {
        self.inner.bottom - share * (self.inner.bottom - self.inner.top)
    }

    /// Labels below the horizontal scale, each in the first line where it is clear of the others;
    /// how many lines there are.
    fn below(&mut self, ticks: &[Tick]) -> usize {
        let mut ends = [f64::NEG_INFINITY; MOST_LINES];
        let mut lines = 0;
        for tick in ticks {
            let half = text_width(&tick.text) / 2.0;
            // Not beyond the picture.
            let most = (self.width - EDGE - half).max(EDGE + half);
            let middle = self.x(tick.at).clamp(EDGE + half, most);
            let free = ends.iter().position(|end| end + GAP <= middle - half);
            let Some(line) = free else {
                continue;
            };
            ends[line] = middle + half;
            lines = lines.max(line + 1);
            let top = self.inner.bottom + BELOW + line as f64 * LINE;
            self.labels.push(Label::new(&tick.text, middle, top));
        }
        lines
    }

    /// Labels beside the vertical scale, that end at `end`; those too near to the one before are
    /// left out.
    fn beside(&mut self, ticks: &[Tick], end: f64, has_grid: bool) {
        let mut above = f64::INFINITY;
        for tick in ticks {
            let y = self.y(tick.at);
            if has_grid {
                let (left, right) = (self.inner.left, self.inner.right);
                // Writing to a string does not fail.
                let _ = write!(
                    self.grid,
                    "<path class=\"grid\" d=\"M{left:.1} {y:.1}H{right:.1}\"/>"
                );
            }
            if y + LINE / 2.0 > above {
                continue;
            }
            above = y - LINE / 2.0;
            let middle = end - text_width(&tick.text) / 2.0;
            self.labels.push(Label::new(&tick.text, middle, above));
        }
    }

    /// The chart as SVG: the frame, and in it what is drawn.
    pub fn svg(&self, name: &str, inside: &str) -> String {
        let Area {
            left,
            top,
            right,
            bottom,
        } = self.inner;
        let mut svg = format!(
            "<svg viewBox=\"0 0 {:.0} {:.0}\" style=\"max-width:{:.0}px\" role=\"img\" aria-label=\"{}\">{}\
             <path class=\"axis\" d=\"M{left:.1} {top:.1}V{bottom:.1}H{right:.1}\"/>{inside}",
            self.width,
            self.height,
            self.width * 1.25,
            html(name),
            self.grid
        );
        for label in &self.labels {
            let is_title = self.title.as_ref() == Some(label);
            svg += &label.svg(if is_title { " class=\"title\"" } else { "" });
        }
        svg + "</svg>"
    }
}

/// The distance of a scale's lines (1, 2 or 5 times a power of ten) and its end, at or above `top`.
pub fn scale(top: f64, ticks: f64) -> (f64, f64) {
    let rough = top / ticks;
    let power = 10_f64.powf(rough.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|times| times * power);
    let step = steps.into_iter().find(|step| *step >= rough);
    let step = step.unwrap_or(10.0 * power);
    (step, (top / step).ceil() * step)
}

/// The ticks of a scale from 0, which needs no unit.
pub fn ticks((step, end): (f64, f64), text: impl Fn(f64) -> String) -> Vec<Tick> {
    let count = (end / step).round() as usize;
    let tick = |number: usize| Tick {
        at: number as f64 * step / end,
        text: match number {
            0 => "0".to_owned(),
            _ => text(number as f64 * step),
        },
    };
    (0..=count).map(tick).collect()
}

#[cfg(test)]
mod tests;
