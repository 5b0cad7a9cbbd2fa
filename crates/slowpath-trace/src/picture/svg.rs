// SPDX-License-Identifier: Apache-2.0
//! A drawing of one connection: for each side that sent data a time-sequence graph, and below
//! it throughput, data in flight with the window, and RTT.
//!
//! It stands by itself: colours for light and dark, text of the viewer's own font. Its size is
//! bounded by the pixels and not by the segments.

use super::html::endpoint;
use super::scale::{Scale, duration, grouped, quantity};
use super::series::{Series, letters};
use super::{Drawn, Point};
use crate::segment::Flags;
use crate::tcp::{Kind, Marks, Side};
use slowpath_text::html;
use std::collections::HashSet;
use std::fmt::Write as _;
use std::io::{self, Write};

const WIDTH: f64 = 1200.0;
const LEFT: f64 = 90.0;
const RIGHT: f64 = 16.0;
/// Heights of the four graphs.
const HEIGHTS: [f64; 4] = [440.0, 90.0, 90.0, 90.0];
const GAP: f64 = 26.0;
const LINE: f64 = 17.0;
/// Remarks written above the graphs.
const REMARKS: usize = 6;

const STYLE: &str = "\
svg{background:#fff;color:#1d2430;font:11px system-ui,'DejaVu Sans',sans-serif}\
.g{stroke:#eceff3}.f{fill:none;stroke:#dde1e7}.t{fill:#667080}.n{paint-order:stroke;stroke:#fff;stroke-width:4px}.h{fill:#1d2430;font-size:14px;font-weight:600}\
.l{fill:none;stroke-width:1.2}.d{stroke:#1f4f9e}.a{stroke:#14813d}.w{stroke:#b57900}.s{stroke:#7b3fc4}\
.r{stroke:#d3202a;stroke-width:2}.o{stroke:#c2369b;stroke-width:2}.y{stroke:#b4520b;stroke-width:1.6}\
.b{fill:#1f4f9e;fill-opacity:.65}.q{fill:#d3202a}.p{fill:#0b7285}.m{fill:#1f4f9e}\
.k{font-weight:700;font-size:10px;text-anchor:middle}.kr{fill:#d3202a}.ko{fill:#c2369b}.ky{fill:#b4520b}.ks{fill:#7b3fc4}.ka{fill:#14813d}.kw{fill:#b57900}\
@media (prefers-color-scheme:dark){svg{background:#12151b;color:#e4e8ef}.g{stroke:#1f2530}.f{stroke:#2b323e}.t{fill:#93a0b2}.n{stroke:#12151b}.h{fill:#e4e8ef}\
.d{stroke:#dfe6f2}.a{stroke:#47c878}.w{stroke:#e8c33c}.s{stroke:#b58cff}.r{stroke:#ff5d5d}.o{stroke:#ff7ad1}.y{stroke:#ff9f45}\
.b{fill:#7fb0ff}.q{fill:#ff5d5d}.p{fill:#4fd0e0}.m{fill:#dfe6f2}.kr{fill:#ff5d5d}.ko{fill:#ff7ad1}.ky{fill:#ff9f45}.ks{fill:#b58cff}.ka{fill:#47c878}.kw{fill:#e8c33c}}";

/// Writes the drawing.
///
/// # Errors
/// `out` refuses.
pub fn write(drawn: &Drawn<'_>, out: &mut dyn Write) -> io::Result<()> {
    let report = &drawn.recording.report;
    let with_data = [
        drawn.recording.main_side(),
        drawn.recording.main_side().peer(),
    ];
    let mut sides: Vec<Side> = with_data
        .into_iter()
        .filter(|s| drawn.recording.has_data(*s))
        .collect();
    if sides.is_empty() {
        sides.push(Side::Client);
    }
    let mut page = Page {
        body: String::new(),
        y: 12.0,
    };
    page.heading(&format!("#{} {}", drawn.number, drawn.title));
    for remark in drawn.remarks.iter().take(REMARKS) {
        page.text(&remark.text);
    }
    if drawn.recording.left_out > 0 {
        page.text(&format!(
            "The last {} segments are not drawn.",
            drawn.recording.left_out
        ));
    }
    for side in sides {
        let ends = [side, side.peer()].map(|s| endpoint(report.endpoint(s)));
        page.heading(&format!("{} \u{2192} {}", ends[0], ends[1]));
        page.direction(&Series::new(drawn.recording, side));
    }
    let height = page.y + 8.0;
    write!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         width=\"{WIDTH}\" height=\"{height}\" role=\"img\">\n<title>{}</title>\n\
         <style>{STYLE}</style>\n{}</svg>\n",
        html(drawn.title),
        page.body
    )?;
    out.flush()
}

/// What has been drawn, and how far down.
struct Page {
    body: String,
    y: f64,
}

/// A graph's frame.
struct Frame {
    x: Scale,
    y: Scale,
    top: f64,
    height: f64,
}

impl Page {
    fn heading(&mut self, text: &str) {
        self.y += LINE + 4.0;
        let _ = writeln!(
            self.body,
            "<text class=\"h\" x=\"12\" y=\"{:.0}\">{}</text>",
            self.y - 4.0,
            html(text)
        );
    }

    fn text(&mut self, text: &str) {
        self.y += LINE;
        let _ = writeln!(
            self.body,
            "<text class=\"t\" x=\"12\" y=\"{:.0}\">{}</text>",
            self.y - 4.0,
            html(text)
        );
    }

    /// The four graphs of one side's data.
    fn direction(&mut self, series: &Series<'_>) {
        let (low, high, edge) = series.numbers();
        let (low, high, edge) = (low as f64, high as f64, edge as f64);
        // A window far above the data would flatten them.
        let top = if edge - low < (high - low) * 2.5 {
            edge
        } else {
            high
        };
        let room = (top - low).max(1.0) * 0.05;
        let range = (low - room, top + room);
        let frame = self.frame(series, 0, range, "sequence number, bytes", |v, _| {
            grouped(v)
        });
        self.sequence(series, &frame);

        let bins = 360;
        let rates = series.throughput(bins);
        let most = rates.iter().fold(1.0, |most: f64, r| most.max(r.0));
        let bit_rate = |v: f64, _: f64| quantity(v, "bit/s");
        let frame = self.frame(
            series,
            1,
            (0.0, most * 1.1),
            "throughput and its mean",
            bit_rate,
        );
        self.rates(series, &rates, &frame);

        let most = series.flight().fold(1.0, |most: f64, f| most.max(f.1));
        let window = series.window().fold(0.0, |most: f64, w| most.max(w.1));
        let range = (0.0, most.max(window.min(most * 5.0)) * 1.1);
        let title = "in flight, and the window advertised";
        let frame = self.frame(series, 2, range, title, |v, _| quantity(v, "B"));
        self.steps("w", &frame, series.window());
        self.steps("d", &frame, series.flight());

        let most = series
            .round_trips()
            .fold(1e-6, |most: f64, r| most.max(r.1));
        let frame = self.frame(series, 3, (0.0, most * 1.1), "RTT", |v, _| duration(v));
        self.dots(&frame, series.round_trips());
    }

    fn frame(
        &mut self,
        series: &Series<'_>,
        which: usize,
        (from, to): (f64, f64),
        title: &str,
        unit: impl Fn(f64, f64) -> String,
    ) -> Frame {
        let (width, height) = (WIDTH - LEFT - RIGHT, HEIGHTS[which]);
        let length = series.length().max(1e-6);
        self.y += 12.0;
        let frame = Frame {
            x: Scale::new(-length * 0.01, length * 1.01, LEFT, width),
            y: Scale::new(from, to, self.y + height, -height),
            top: self.y,
            height,
        };
        let bottom = self.y + height;
        let out = &mut self.body;
        let (marks, step) = frame.y.marks((height / 36.0).max(2.5));
        for mark in marks {
            let y = frame.y.of(mark);
            let _ = writeln!(
                out,
                "<path class=\"g\" d=\"M{LEFT} {y:.1}h{width}\"/>\
                 <text class=\"t\" x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 6.0,
                y + 4.0,
                unit(mark, step)
            );
        }
        let (marks, step) = frame.x.marks(10.0);
        let digits = (-step.log10()).ceil().clamp(0.0, 9.0) as usize;
        for mark in marks {
            let x = frame.x.of(mark);
            let _ = write!(
                out,
                "<path class=\"g\" d=\"M{x:.1} {:.1}v{height}\"/>",
                self.y
            );
            if which == 0 || which == 3 {
                let _ = write!(
                    out,
                    "<text class=\"t\" x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{mark:.digits$} s</text>",
                    bottom + 13.0
                );
            }
            out.push('\n');
        }
        let _ = writeln!(
            out,
            "<rect class=\"f\" x=\"{LEFT}\" y=\"{:.1}\" width=\"{width}\" height=\"{height}\"/>\
             <text class=\"t n\" x=\"{:.0}\" y=\"{:.1}\">{title}</text>",
            self.y,
            LEFT + 6.0,
            self.y + 14.0
        );
        self.y = bottom
            + if which == 0 || which == 3 {
                GAP - 8.0
            } else {
                2.0
            };
        frame
    }

    fn sequence(&mut self, series: &Series<'_>, frame: &Frame) {
        let edges = series.edges().map(|(p, e)| (series.at(p), e as f64));
        self.steps("w", frame, edges);
        let acks = series.acks().map(|(p, a)| (series.at(p), a as f64));
        self.steps("a", frame, acks);
        self.acks(series, frame);
        self.data(series, frame);
    }

    /// Level to each point, then up or down; one stroke a column of pixels.
    fn steps(&mut self, class: &str, frame: &Frame, points: impl Iterator<Item = (f64, f64)>) {
        let mut path = String::new();
        let mut last: Option<(i64, f64, f64, f64)> = None;
        for (time, value) in points {
            let (x, y) = (frame.x.of(time), frame.clamp(frame.y.of(value)));
            let column = x.round() as i64;
            match &mut last {
                None => {
                    let _ = write!(path, "M{x:.1} {y:.1}");
                    last = Some((column, y, y, y));
                }
                Some((at, low, high, now)) if *at == column => {
                    (*low, *high, *now) = (low.min(y), high.max(y), y);
                }
                Some((at, low, high, now)) => {
                    if high > low {
                        let _ = write!(path, "M{at} {low:.1}V{high:.1}M{at} {now:.1}");
                    }
                    let _ = write!(path, "H{x:.1}V{y:.1}");
                    last = Some((column, now.min(y), now.max(y), y));
                }
            }
        }
        if let Some((at, low, high, now)) = last {
            let _ = write!(path, "M{at} {low:.1}V{high:.1}M{at} {now:.1}");
            let _ = write!(path, "H{:.1}", WIDTH - RIGHT);
        }
        self.path(class, &path);
    }

    fn path(&mut self, class: &str, path: &str) {
        if !path.is_empty() {
            let _ = writeln!(self.body, "<path class=\"l {class}\" d=\"{path}\"/>");
        }
    }

    fn acks(&mut self, series: &Series<'_>, frame: &Frame) {
        let (mut sack, mut ticks, mut texts) = (String::new(), String::new(), Vec::new());
        let mut drawn = HashSet::new();
        for (point, ack) in series.acks() {
            let (x, y) = (frame.x.of(series.at(point)), frame.y.of(ack as f64));
            let blocks = series.recording.sack(point);
            for (left, right) in blocks {
                let (a, b) = (frame.y.of(*left as f64), frame.y.of(*right as f64));
                if drawn.insert((x as i64, a as i64, b as i64)) {
                    let _ = write!(sack, "M{x:.1} {a:.1}V{b:.1}");
                }
            }
            if let Some(top) = blocks.iter().map(|(_, right)| *right).max() {
                let letter = if point.marks.any(Marks::DSACK) {
                    "D"
                } else {
                    "S"
                };
                texts.push((x, frame.y.of(top as f64) - 2.0, letter, "ks"));
            }
            if point.duplicate > 0 && drawn.insert((x as i64, y as i64, i64::MIN)) {
                let _ = write!(ticks, "M{x:.1} {y:.1}v5");
            }
            if point.duplicate == 3 {
                texts.push((x, y + 15.0, "3", "ka"));
            }
            if point.marks.any(Marks::ECE) {
                texts.push((x, y + 15.0, "ECE", "ky"));
            }
            if point.marks.any(Marks::ZERO_WINDOW) {
                texts.push((x, y - 2.0, "Z", "kw"));
            }
        }
        self.path("s", &sack);
        self.path("a", &ticks);
        self.letters(texts);
    }

    fn data(&mut self, series: &Series<'_>, frame: &Frame) {
        let mut paths: [String; 4] = Default::default();
        let mut diamonds = String::new();
        let mut texts = Vec::new();
        let mut drawn = HashSet::new();
        let mut name = Vec::new();
        for point in series
            .sent()
            .filter(|p| p.occupies() || p.kind == Kind::Reset)
        {
            let x = frame.x.of(series.at(point));
            let (from, to) = (
                frame.y.of(point.sequence as f64),
                frame.y.of(point.end as f64),
            );
            let class = class(point);
            if !drawn.insert((class, (x * 2.0) as i64, from as i64, to as i64)) {
                continue;
            }
            let path = &mut paths[class];
            let to = to.min(from - 1.0);
            let _ = write!(path, "M{x:.1} {from:.1}V{to:.1}");
            if from - to > 6.0 {
                let _ = write!(
                    path,
                    "m-2.5 4l2.5-4l2.5 4M{:.1} {:.1}l2.5 4l2.5-4",
                    x - 2.5,
                    from - 4.0
                );
            }
            let push = point.flags.any(Flags::PSH) && class == 0;
            if push && drawn.insert((9, x as i64 / 4, to as i64 / 4, 0)) {
                let _ = write!(
                    diamonds,
                    "M{:.1} {to:.1}l2.5-2.5l2.5 2.5l-2.5 2.5z",
                    x - 2.5
                );
            }
            if let Some(text) = sign(point) {
                name.push((x, to - 3.0, text, ["ky", "kr", "ko", "ky"][class]));
            }
        }
        for (path, class) in paths.iter().zip(["d", "r", "o", "y"]) {
            self.path(class, path);
        }
        if !diamonds.is_empty() {
            let _ = writeln!(self.body, "<path class=\"m\" d=\"{diamonds}\"/>");
        }
        texts.extend(name.iter().map(|(x, y, t, c)| (*x, *y, t.as_str(), *c)));
        self.letters(texts);
    }

    /// Letters where there is room for them.
    fn letters(&mut self, texts: Vec<(f64, f64, &str, &str)>) {
        let mut taken = HashSet::new();
        for (x, y, text, class) in texts {
            if taken.insert(((x / 11.0) as i64, (y / 11.0) as i64)) {
                let _ = writeln!(
                    self.body,
                    "<text class=\"k {class}\" x=\"{x:.1}\" y=\"{y:.1}\">{text}</text>"
                );
            }
        }
    }

    fn rates(&mut self, series: &Series<'_>, rates: &[(f64, f64)], frame: &Frame) {
        let width = series.length() / rates.len().max(1) as f64;
        let mut bars = [String::new(), String::new()];
        let base = frame.top + frame.height;
        for (place, (all, again)) in rates.iter().enumerate() {
            let (x, next) = (place as f64 * width, (place + 1) as f64 * width);
            let (x, next) = (frame.x.of(x), frame.x.of(next));
            for (bar, value) in bars.iter_mut().zip([all, again]) {
                if *value > 0.0 {
                    let y = frame.y.of(*value);
                    let _ = write!(bar, "M{x:.1} {base:.1}V{y:.1}H{:.1}V{base:.1}z", next - 0.4);
                }
            }
        }
        for (bar, class) in bars.iter().zip(["b", "q"]) {
            if !bar.is_empty() {
                let _ = writeln!(self.body, "<path class=\"{class}\" d=\"{bar}\"/>");
            }
        }
        self.steps("a", frame, series.mean().into_iter());
    }

    fn dots(&mut self, frame: &Frame, points: impl Iterator<Item = (f64, f64)>) {
        let mut drawn = HashSet::new();
        let mut path = String::new();
        for (time, value) in points {
            let (x, y) = (frame.x.of(time), frame.y.of(value));
            if drawn.insert((x as i64, y as i64)) {
                let _ = write!(path, "M{:.1} {:.1}h2.4v2.4h-2.4z", x - 1.2, y - 1.2);
            }
        }
        if !path.is_empty() {
            let _ = writeln!(self.body, "<path class=\"p\" d=\"{path}\"/>");
        }
    }
}

impl Frame {
    fn clamp(&self, y: f64) -> f64 {
        y.clamp(self.top, self.top + self.height)
    }
}

/// Ordinary, sent again, out of order, a sign.
fn class(point: &Point) -> usize {
    let sign = Flags::SYN | Flags::FIN | Flags::RST;
    match point.kind {
        Kind::Retransmission(_) => 1,
        Kind::OutOfOrder => 2,
        Kind::HardwareDuplicate | Kind::KeepAlive | Kind::ZeroWindowProbe => 3,
        _ if point.flags.any(sign) => 3,
        _ => 0,
    }
}

fn sign(point: &Point) -> Option<String> {
    if point.kind == Kind::Reset {
        return Some("RST".to_owned());
    }
    if point.marks.any(Marks::CE) {
        return Some("CE".to_owned());
    }
    letters(point)
}
