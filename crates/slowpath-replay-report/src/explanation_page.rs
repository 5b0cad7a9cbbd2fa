// SPDX-License-Identifier: Apache-2.0
//! A page with a time-sequence graph for each slow message: calls, packets, acknowledgments, windows and waits on one axis.

use crate::chart::{Chart, WIDTH, page_head};
use crate::end_name;
use crate::explanation::{ConnectionExplanation, Selection, message_text, ms, names_packets};
use crate::frames::{Frames, HINT};
use slowpath_explain::Explanation;
use slowpath_recording::{Moment, Recording};
use slowpath_text::{html, html_lines};
use std::fmt::Write;
use std::time::Duration;

const HEIGHT: f64 = 340.0;
const TOP: f64 = 26.0;
const BOTTOM: f64 = 44.0;
/// Messages that are drawn.
const DRAWN: usize = 50;

/// What it has beside what all pages have.
const OWN_STYLE: &str = ".sent{stroke:#1f5fa8;stroke-width:1.6}.again{stroke:#d9730d;stroke-width:2.4}.lost{stroke:#c62828;stroke-width:2.4}\
.ack{stroke:#2e7d32;fill:none;stroke-width:1.3}.receive{stroke:#8e44ad;fill:none;stroke-width:1.1}\
.congestion{stroke:#8e44ad;fill:none;stroke-width:1.1;stroke-dasharray:5 3}.call{fill:#444}.wait{fill:#fff1d6}\
@media (prefers-color-scheme:dark){.wait{fill:#3a2f17}.call{fill:#ccc}}";

/// What is drawn how.
const KEY: [(&str, &str); 6] = [
    ("#1f5fa8", "sent"),
    ("#d9730d", "sent again"),
    ("#c62828", "lost"),
    ("#2e7d32", "acknowledged"),
    ("#8e44ad", "receive window; dashed: congestion window"),
    ("#f0c36d", "waits"),
];

/// The page of the messages that lost the most time; `frames` are those of the written captures.
pub fn page(
    selection: Selection,
    recording: &Recording,
    all: &[ConnectionExplanation],
    frames: &Frames,
    title: &str,
) -> String {
    let (shown, left_out) = selection.of(all);
    let mut page = page_head(title, "slowpath explain", OWN_STYLE, &KEY);
    if frames.is_empty() && names_packets(&shown) {
        let _ = write!(page, "<p>{HINT}</p>");
    }
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
        let _ = message_text(*number, message, frames, &mut text);
        let text = String::from_utf8_lossy(&text);
        let _ = write!(
            page,
            "<h2>{}</h2>{}<pre>{}</pre>",
            html(&heading),
            graph(*number, message, frames),
            html_lines(&text)
        );
    }
    let not_drawn = left_out + shown.len().saturating_sub(DRAWN);
    if not_drawn > 0 {
        let _ = write!(
            page,
            "<p>{not_drawn} more, which lost less time, are not drawn.</p>"
        );
    }
    if shown.is_empty() {
        page += "<p>No message was slow.</p>";
    }
    page += "</body></html>\n";
    page
}

/// The axes of a message's graph: milliseconds since its first call, bytes of it.
struct Axes {
    begun: u64,
    first: u64,
    chart: Chart,
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
        let length = last.saturating_sub(begun).max(1) as f64 * 1.03 / 1e6;
        let high = bytes.max(1) as f64 * 1.12;
        Axes {
            begun,
            first: it.message.bytes.start,
            chart: Chart::new((0.0, length), (0.0, high), TOP, HEIGHT - TOP - BOTTOM),
        }
    }

    fn ms(&self, at: Moment) -> f64 {
        at.0.saturating_sub(self.begun) as f64 / 1e6
    }

    fn x(&self, at: Moment) -> f64 {
        self.chart.x(self.ms(at))
    }

    fn y(&self, place: u64) -> f64 {
        self.chart.y(place.saturating_sub(self.first) as f64)
    }

    /// A line that keeps its height until the next point.
    fn steps(&self, class: &str, points: impl Iterator<Item = (Moment, u64)>, svg: &mut String) {
        let points = points.map(|(at, place)| {
            let bytes = place.saturating_sub(self.first) as f64;
            (self.ms(at), Some(bytes))
        });
        self.chart.steps(class, points, svg);
    }
}

fn graph(number: usize, it: &Explanation, frames: &Frames) -> String {
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
    axes.chart.grid(true, &mut svg);
    let titles = ("ms since the first call", "bytes of the message");
    axes.chart.titles(titles.0, titles.1, &mut svg);
    let windows = || it.picture.windows.iter();
    let receive = windows().map(|edges| (edges.at, edges.receive));
    axes.steps("receive", receive, &mut svg);
    let congestion = windows().map(|edges| (edges.at, edges.congestion));
    axes.steps("congestion", congestion, &mut svg);
    let acknowledged = it.picture.acknowledged.iter().copied();
    axes.steps("ack", acknowledged, &mut svg);
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
        let frame = frames.name(number, it.message.end, &[packet.number]);
        let frame = frame.map_or(String::new(), |frame| format!(", {frame}"));
        let _ = write!(
            svg,
            "<path class=\"{class}\" d=\"M{x:.1} {low:.1}V{:.1}\"><title>packet {}, {} bytes{frame}{}</title></path>",
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
