// SPDX-License-Identifier: Apache-2.0
//! A page with a time-sequence graph for each slow message: calls, packets, acknowledgments, windows and waits on one axis.

use crate::end_name;
use crate::explanation::{ConnectionExplanation, Selection, message_text, ms};
use slowpath_explain::Explanation;
use slowpath_recording::{Moment, Recording};
use slowpath_text::{PAGE_POLICY, html, html_lines};
use std::fmt::Write;
use std::time::Duration;

const WIDTH: f64 = 940.0;
const HEIGHT: f64 = 340.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 26.0;
const BOTTOM: f64 = 44.0;
/// Messages that are drawn.
const DRAWN: usize = 50;

const STYLE: &str = "body{font:14px/1.5 system-ui,sans-serif;max-width:980px;margin:2em auto;padding:0 1em;color:#1b1f24;background:#fff}\
h2{margin:2em 0 .2em;font-size:1.05em}pre{background:#f5f6f8;padding:.7em 1em;overflow-x:auto;font-size:12.5px}\
svg{display:block;width:100%;height:auto}text{font-size:11px;fill:#555}.grid{stroke:#e3e6ea}.axis{stroke:#888;fill:none}\
.sent{stroke:#1f5fa8;stroke-width:1.6}.again{stroke:#d9730d;stroke-width:2.4}.lost{stroke:#c62828;stroke-width:2.4}\
.ack{stroke:#2e7d32;fill:none;stroke-width:1.3}.receive{stroke:#8e44ad;fill:none;stroke-width:1.1}\
.congestion{stroke:#8e44ad;fill:none;stroke-width:1.1;stroke-dasharray:5 3}.call{fill:#444}.wait{fill:#fff1d6}\
.key span{margin-right:1.4em;white-space:nowrap}.key i{display:inline-block;width:18px;height:0;border-top:3px solid;margin-right:.4em;vertical-align:middle}\
@media (prefers-color-scheme:dark){body{background:#14171b;color:#dfe3e8}pre{background:#1e2329}text{fill:#a8b0ba}.grid{stroke:#2b3138}.wait{fill:#3a2f17}.call{fill:#ccc}}";

/// What is drawn how.
const KEY: [(&str, &str); 6] = [
    ("#1f5fa8", "sent"),
    ("#d9730d", "sent again"),
    ("#c62828", "lost"),
    ("#2e7d32", "acknowledged"),
    ("#8e44ad", "receive window; dashed: congestion window"),
    ("#f0c36d", "waits"),
];

/// The page of the messages that lost the most time.
pub fn page(
    selection: Selection,
    recording: &Recording,
    all: &[ConnectionExplanation],
    title: &str,
) -> String {
    let (shown, left_out) = selection.of(all);
    let title = html(title);
    let mut page = format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{PAGE_POLICY}\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>{title} - slowpath explain</title><style>{STYLE}</style></head><body><h1>{title}</h1><p class=\"key\">"
    );
    for (colour, words) in KEY {
        let _ = write!(page, "<span><i style=\"color:{colour}\"></i>{words}</span>");
    }
    page += "</p>";
    for (number, message) in shown.iter().take(DRAWN) {
        let [client, server] = recording.connections[*number].addresses;
        let heading = format!(
            "connection {number}  {client} -> {server}, message {} of the {}: {}",
            message.message.number,
            end_name(message.message.end),
            message.category.words()
        );
        let mut text = Vec::new();
        // Writing into memory does not fail.
        let _ = message_text(message, &mut text);
        let text = String::from_utf8_lossy(&text);
        let _ = write!(
            page,
            "<h2>{}</h2>{}<pre>{}</pre>",
            html(&heading),
            graph(message),
            html_lines(&text)
        );
    }
    let not_drawn = left_out + shown.len().saturating_sub(DRAWN);
    if not_drawn > 0 {
        let _ = write!(
            page,
            "<p>{not_drawn} more that lost less time are not drawn.</p>"
        );
    }
    if shown.is_empty() {
        page += "<p>No message was slow.</p>";
    }
    page += "</body></html>\n";
    page
}

/// Where moments and places of a message are in its graph.
struct Axes {
    begun: u64,
    /// Nanoseconds.
    length: f64,
    first: u64,
    /// Bytes.
    high: f64,
}

impl Axes {
    fn of(it: &Explanation) -> Self {
        let picture = &it.picture;
        let ends = picture.packets.iter().map(|packet| packet.at);
        let ends = ends
            .chain(picture.acknowledged.iter().map(|(at, _)| *at))
            .chain(it.message.done)
            .chain(it.waits.iter().map(|wait| wait.until));
        let begun = it.message.begun.0;
        let last = ends.map(|at| at.0).max().unwrap_or(begun);
        let bytes = it.message.bytes.end - it.message.bytes.start;
        Axes {
            begun,
            length: last.saturating_sub(begun).max(1) as f64 * 1.03,
            first: it.message.bytes.start,
            high: bytes.max(1) as f64 * 1.12,
        }
    }

    fn x(&self, at: Moment) -> f64 {
        let share = at.0.saturating_sub(self.begun) as f64 / self.length;
        LEFT + share.min(1.0) * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, place: u64) -> f64 {
        let share = place.saturating_sub(self.first) as f64 / self.high;
        HEIGHT - BOTTOM - share.min(1.0) * (HEIGHT - TOP - BOTTOM)
    }

    fn grid(&self, svg: &mut String) {
        let (bottom, right) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
        for tick in ticks(self.length / 1e6) {
            let x = self.x(Moment(self.begun + (tick * 1e6) as u64));
            let _ = write!(
                svg,
                "<path class=\"grid\" d=\"M{x:.1} {TOP}V{bottom}\"/><text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{tick}</text>",
                bottom + 15.0
            );
        }
        for tick in ticks(self.high) {
            let y = self.y(self.first + tick as u64);
            let _ = write!(
                svg,
                "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{right}\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{tick}</text>",
                LEFT - 6.0,
                y + 4.0
            );
        }
        let middle = (LEFT + right) / 2.0;
        let _ = write!(
            svg,
            "<path class=\"axis\" d=\"M{LEFT} {TOP}V{bottom}H{right}\"/>\
             <text x=\"{middle}\" y=\"{:.1}\" text-anchor=\"middle\">ms since the first call</text>\
             <text x=\"{LEFT}\" y=\"{:.1}\">bytes of the message</text>",
            HEIGHT - 8.0,
            TOP - 10.0
        );
    }
}

/// Round values from 0 up to that, about six.
fn ticks(most: f64) -> Vec<f64> {
    let rough = most / 6.0;
    let size = 10f64.powf(rough.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0];
    let step = steps.map(|n| n * size).into_iter().find(|it| *it >= rough);
    let step = step.unwrap_or(rough);
    let count = (most / step) as usize;
    // As many decimals as the step has.
    let round = |value: f64| (value / size).round() * size;
    (0..=count)
        .map(|n| round(n as f64 * step))
        .map(|value| format!("{value:.6}").parse().unwrap_or(value))
        .collect()
}

/// A line that keeps its height until the next point.
fn steps(axes: &Axes, class: &str, points: impl Iterator<Item = (Moment, u64)>, svg: &mut String) {
    let mut line = String::new();
    for (at, place) in points {
        let (x, y) = (axes.x(at), axes.y(place));
        let _ = match line.is_empty() {
            true => write!(line, "M{x:.1} {y:.1}"),
            false => write!(line, "H{x:.1}V{y:.1}"),
        };
    }
    if !line.is_empty() {
        let right = WIDTH - RIGHT;
        let _ = write!(svg, "<path class=\"{class}\" d=\"{line}H{right}\"/>");
    }
}

fn graph(it: &Explanation) -> String {
    let axes = Axes::of(it);
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"time-sequence graph\">"
    );
    for wait in &it.waits {
        let (from, until) = (axes.x(wait.from), axes.x(wait.until));
        let _ = write!(
            svg,
            "<rect class=\"wait\" x=\"{from:.1}\" y=\"{TOP}\" width=\"{:.1}\" height=\"{:.1}\"><title>{:.3} ms for {}</title></rect>",
            (until - from).max(1.0),
            HEIGHT - TOP - BOTTOM,
            ms(Duration::from_nanos(
                wait.until.0.saturating_sub(wait.from.0)
            )),
            html(wait.waited.words())
        );
    }
    axes.grid(&mut svg);
    let windows = || it.picture.windows.iter();
    let receive = windows().map(|edges| (edges.at, edges.receive));
    steps(&axes, "receive", receive, &mut svg);
    let congestion = windows().map(|edges| (edges.at, edges.congestion));
    steps(&axes, "congestion", congestion, &mut svg);
    let acknowledged = it.picture.acknowledged.iter().copied();
    steps(&axes, "ack", acknowledged, &mut svg);
    for packet in &it.picture.packets {
        let class = match (packet.lost, packet.again) {
            (true, _) => "lost",
            (false, true) => "again",
            (false, false) => "sent",
        };
        let (x, low, high) = (
            axes.x(packet.at),
            axes.y(packet.bytes.start),
            axes.y(packet.bytes.end),
        );
        let _ = write!(
            svg,
            "<path class=\"{class}\" d=\"M{x:.1} {low:.1}V{:.1}\"><title>packet {}, {} bytes{}</title></path>",
            high.min(low - 1.5),
            packet.number,
            packet.bytes.end - packet.bytes.start,
            if packet.lost { ", lost" } else { "" }
        );
    }
    for (at, place) in &it.picture.calls {
        let (x, y) = (axes.x(*at), HEIGHT - BOTTOM);
        let _ = write!(
            svg,
            "<path class=\"call\" d=\"M{x:.1} {y:.1}l-4 8h8Z\"><title>a call: {} bytes written</title></path>",
            place.saturating_sub(axes.first)
        );
    }
    svg += "</svg>";
    svg
}

#[cfg(test)]
mod tests {
    use super::ticks;

    #[test]
    fn ticks_are_round() {
        assert_eq!(ticks(6.0), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        assert_eq!(ticks(0.61), [0.0, 0.2, 0.4, 0.6]);
        assert_eq!(ticks(33_600.0), [0.0, 10_000.0, 20_000.0, 30_000.0]);
    }
}
