// SPDX-License-Identifier: Apache-2.0
//! A page with a plot a queue: its length, its dynamic threshold, its drops so far.

use super::Answer;
use crate::report::Queue;
use slowpath_queues::findings::threshold;
use slowpath_switch::Shared;
use slowpath_text::{PAGE_POLICY, html};
use std::fmt::Write;

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 260.0;
const MARGIN: f64 = 60.0;
/// Points of a line at most: the most and the least of each stretch of time.
const POINTS: usize = 1_500;
/// Queues that are drawn: those that dropped most, or were longest.
const DRAWN: usize = 6;
/// Around a finding so much of its length is drawn on either side.
const AROUND: f64 = 3.0;

const STYLE: &str = "body{font:14px/1.5 sans-serif;max-width:960px;margin:2em auto;color:#222}\
svg{display:block;margin:.5em 0 2em}.q{stroke:#1f5fa8}.t{stroke:#c33;stroke-dasharray:5 3}\
.d{stroke:#777}path{fill:none;stroke-width:1.3}text{font-size:11px;fill:#444}\
.f{background:#fff3e0;padding:.5em 1em;border-left:4px solid #e67e22}";

/// Values at moments, in picoseconds.
type Steps = Vec<(u64, f64)>;

struct Lines {
    length: Steps,
    threshold: Steps,
    drops: Steps,
}

fn lines(answer: &Answer, queue: &Queue, switch: usize, range: (u64, u64)) -> Lines {
    let network = answer.scenario.network();
    let shared: Option<Shared> = network
        .switches
        .get(switch)
        .and_then(|config| config.shared);
    let ports = |switch: &slowpath_netsim::topology::SwitchNode| switch.ports.len();
    let before = &answer.scenario.topology.switches()[..switch];
    let first = before.iter().map(ports).sum::<usize>() as u32;
    let count = ports(&answer.scenario.topology.switches()[switch]) as u32;
    let mut lines = Lines {
        length: Vec::new(),
        threshold: Vec::new(),
        drops: Vec::new(),
    };
    let inside = |at: u64| at >= range.0 && at <= range.1;
    for level in &answer.replayed.levels {
        if !inside(level.at.0) || !(first..first + count).contains(&level.queue) {
            continue;
        }
        if level.queue == queue.number {
            lines.length.push((level.at.0, level.bytes as f64));
        }
        if let Some(limit) = shared.and_then(|shared| threshold(shared, level.used)) {
            lines.threshold.push((level.at.0, limit as f64));
        }
    }
    let mut dropped = 0.0;
    for (drop, found) in answer.replayed.dropped.iter().zip(&answer.replayed.found) {
        if drop.port.is_some() && found.queue == queue.number {
            dropped += 1.0;
            if inside(drop.at.0) {
                lines.drops.push((drop.at.0, dropped));
            }
        }
    }
    lines
}

/// The least and the most of each stretch, of which the plot has a fixed number.
fn thinned(steps: &Steps, range: (u64, u64)) -> Steps {
    let stretch = ((range.1 - range.0) / POINTS as u64).max(1);
    let mut result = Steps::new();
    for part in steps.chunk_by(|a, b| a.0 / stretch == b.0 / stretch) {
        let by = |a: &&(u64, f64), b: &&(u64, f64)| a.1.total_cmp(&b.1);
        let (least, most) = (part.iter().min_by(by), part.iter().max_by(by));
        let mut both: Vec<_> = least.into_iter().chain(most).copied().collect();
        both.sort_by_key(|step| step.0);
        result.extend(both);
    }
    result
}

fn path(steps: &Steps, range: (u64, u64), most: f64) -> String {
    let x = |at: u64| {
        MARGIN + (at - range.0) as f64 / (range.1 - range.0).max(1) as f64 * (WIDTH - 2.0 * MARGIN)
    };
    let y = |value: f64| HEIGHT - 30.0 - (value / most.max(1.0)).min(1.0) * (HEIGHT - 50.0);
    let mut path = String::new();
    let mut last = None;
    for (at, value) in thinned(steps, range) {
        let (x, y) = (x(at), y(value));
        // Writing to a string does not fail.
        let _ = match last {
            None => write!(path, "M{x:.1} {y:.1}"),
            Some(_) => write!(path, "H{x:.1}V{y:.1}"),
        };
        last = Some(y);
    }
    path
}

fn plot(answer: &Answer, queue: &Queue, range: (u64, u64), page: &mut String) {
    let switches = answer.scenario.topology.switches();
    let Some(switch) = switches
        .iter()
        .position(|switch| switch.name == queue.switch)
    else {
        return;
    };
    let lines = lines(answer, queue, switch, range);
    let highest = |steps: &Steps| steps.iter().map(|step| step.1).fold(0.0, f64::max);
    let longest = highest(&lines.length).max(1.0);
    // An empty switch has a threshold far above any queue: it is cut off.
    let most = highest(&lines.threshold).min(2.0 * longest).max(longest);
    let drops = highest(&lines.drops);
    let (from, to) = (range.0 as f64 / 1e9, range.1 as f64 / 1e9);
    let (right, base) = (WIDTH - MARGIN, HEIGHT - 30.0);
    let _ = write!(
        page,
        "<h3>{} &rarr; {}</h3><svg width=\"{WIDTH}\" height=\"{HEIGHT}\" role=\"img\">\
         <path class=\"q\" d=\"{}\"/><path class=\"t\" d=\"{}\"/><path class=\"d\" d=\"{}\"/>\
         <path stroke=\"#999\" d=\"M{MARGIN} 20V{base}H{right}V20\"/>\
         <text x=\"{MARGIN}\" y=\"{}\">{from:.3} ms</text>\
         <text x=\"{right}\" y=\"{}\" text-anchor=\"end\">{to:.3} ms</text>\
         <text x=\"4\" y=\"24\">{:.0} KiB</text><text x=\"{}\" y=\"24\">{drops:.0} drops</text></svg>",
        html(&queue.switch),
        html(&queue.neighbour),
        path(&lines.length, range, most),
        path(&lines.threshold, range, most),
        path(&lines.drops, range, drops),
        HEIGHT - 12.0,
        HEIGHT - 12.0,
        most / 1024.0,
        right + 4.0,
    );
}

/// The page.
pub fn page(answer: &Answer) -> String {
    let report = &answer.report;
    let mut page = format!(
        "<!doctype html><meta charset=\"utf-8\">\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{PAGE_POLICY}\"><title>Queues</title><style>{STYLE}</style>\
         <h1>Queues</h1><p>{} packets, {} lost, {} of them dropped at queues of the replay. Blue: bytes that \
         wait; red, dashed: the dynamic threshold, above which the queue takes nothing; grey: drops so far, \
         scale on the right.</p>",
        report.packets, report.lost, report.dropped
    );
    let end = answer.replayed.levels.last().map_or(1, |level| level.at.0);
    for found in &report.findings {
        let _ = write!(
            page,
            "<h2>{}</h2><p class=\"f\">{}</p>",
            html(found.name),
            html(&found.text)
        );
        let (from, to) = (found.from_seconds * 1e12, found.to_seconds * 1e12);
        let around = (to - from).max(1e9) * AROUND;
        let range = (
            (from - around).max(0.0) as u64,
            ((to + around) as u64).min(end),
        );
        let of = |name: &str| {
            let mut queues = report.queues.iter();
            queues.find(|queue| queue.switch == found.switch && queue.neighbour == name)
        };
        for name in [&found.neighbour, &found.filled_neighbour] {
            if let Some(queue) = of(name) {
                plot(answer, queue, range, &mut page);
            }
        }
    }
    page.push_str("<h2>The longest, and those that dropped most</h2>");
    for queue in report.queues.iter().take(DRAWN) {
        plot(answer, queue, (0, end), &mut page);
    }
    page
}
