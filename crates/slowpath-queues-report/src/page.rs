// SPDX-License-Identifier: Apache-2.0
//! A page with a plot a queue: its length, its dynamic threshold, its drops so far.

use super::Answer;
use crate::report::Queue;
use slowpath_netsim_report::colours::Colours;
use slowpath_netsim_report::page::STYLE as ALL_PAGES;
use slowpath_netsim_report::plot::{Axes, Frame, Tick, scale, ticks};
use slowpath_queues::findings::threshold;
use slowpath_switch::Shared;
use slowpath_text::{PAGE_POLICY, html};
use std::fmt::Write;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 260.0;
/// Lines of a scale.
const TICKS: f64 = 4.0;
/// Points of a line at most: the most and the least of each stretch of time.
const POINTS: usize = 1_500;
/// Queues that are drawn: those that dropped most, or were longest.
const DRAWN: usize = 6;
/// Around a finding so much of its length is drawn on either side.
const AROUND: f64 = 3.0;

/// What the lines of a plot are, in the order in which they are drawn.
const NAMES: [&str; 3] = ["drops so far", "dynamic threshold", "bytes that wait"];

/// Beyond the style of all pages: plots are wide, since they show much time.
const STYLE: &str = ".charts{grid-template-columns:minmax(0,900px)}\
.f{background:var(--panel);padding:.5em 1em;border-left:4px solid var(--warn)}";

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

/// The steps as a path, `most` at the top.
fn path(steps: &Steps, range: (u64, u64), most: f64, frame: &Frame) -> String {
    let x = |at: u64| frame.x((at - range.0) as f64 / (range.1 - range.0).max(1) as f64);
    let y = |value: f64| frame.y((value / most.max(1.0)).min(1.0));
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

/// Milliseconds along the horizontal scale, round ones.
fn times(range: (u64, u64)) -> Vec<Tick> {
    let (from, to) = (range.0 as f64 / 1e9, range.1 as f64 / 1e9);
    let length = (to - from).max(1e-9);
    let (step, _) = scale(length, TICKS + 2.0);
    let digits = (-step.log10().floor()).max(0.0) as usize;
    let first = (from / step - 1e-6).ceil();
    let count = ((to - first * step) / step + 1e-6).floor().max(0.0) as usize;
    let tick = |number: usize| {
        let at = (first + number as f64) * step;
        Tick {
            at: ((at - from) / length).clamp(0.0, 1.0),
            text: format!("{at:.digits$} ms"),
        }
    };
    (0..=count).map(tick).collect()
}

/// Bytes that wait: of a queue of some packets in bytes.
fn size(bytes: f64) -> String {
    match bytes {
        bytes if bytes < 1024.0 => format!("{bytes:.0} B"),
        bytes if (bytes / 1024.0).fract() == 0.0 => format!("{:.0} KiB", bytes / 1024.0),
        bytes => format!("{:.1} KiB", bytes / 1024.0),
    }
}

/// The scale of bytes: steps of round numbers of KiB, if there is one.
fn bytes_scale(most: f64) -> (f64, f64) {
    let unit = if most > 2048.0 { 1024.0 } else { 1.0 };
    let (step, end) = scale(most / unit, TICKS);
    (step * unit, end * unit)
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
    let (waiting, drops) = (bytes_scale(most), highest(&lines.drops));
    let lost = match scale(drops.max(1.0), TICKS) {
        // There are no parts of drops.
        (step, _) if step < 1.0 => (1.0, drops.max(1.0)),
        whole => whole,
    };
    let right = match drops {
        0.0 => Vec::new(),
        _ => ticks(lost, |it| format!("{it}")),
    };
    let frame = Frame::new(&Axes {
        width: WIDTH,
        height: HEIGHT,
        x: times(range),
        y: ticks(waiting, size),
        right,
        title: "time".to_owned(),
    });
    let colours = Colours::of(NAMES);
    let curves = [
        path(&lines.drops, range, lost.1, &frame),
        path(&lines.threshold, range, waiting.1, &frame),
        path(&lines.length, range, waiting.1, &frame),
    ];
    let (mut inside, mut legend) = (String::new(), String::new());
    for (name, curve) in NAMES
        .iter()
        .zip(curves)
        .filter(|(_, curve)| !curve.is_empty())
    {
        let colour = colours.pen(name).css();
        let _ = write!(
            inside,
            "<path class=\"line\" style=\"stroke:{colour}\" d=\"{curve}\"/>"
        );
        let beside = if *name == NAMES[0] {
            ", scale on the right"
        } else {
            ""
        };
        let _ = write!(
            legend,
            "<span><i style=\"border-color:{colour}\"></i>{name}{beside}</span>"
        );
    }
    let name = format!("{} \u{2192} {}", queue.switch, queue.neighbour);
    let _ = write!(
        page,
        "<figure><h3>{}</h3><div class=\"legend\">{legend}</div>{}</figure>",
        html(&name),
        frame.svg(&name, &inside)
    );
}

/// The page.
pub fn page(answer: &Answer) -> String {
    let report = &answer.report;
    let mut page = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\">\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{PAGE_POLICY}\"><title>Queues</title><style>{ALL_PAGES}{STYLE}</style>\
         <h1>Queues</h1><p>{} packets, {} lost, {} of them dropped at queues of the replay. A queue takes \
         nothing more above its dynamic threshold.</p>",
        report.packets, report.lost, report.dropped
    );
    let end = answer.replayed.levels.last().map_or(1, |level| level.at.0);
    for found in &report.findings {
        let _ = write!(
            page,
            "<h2>{}</h2><p class=\"f\">{}</p><div class=\"charts\">",
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
        page.push_str("</div>");
    }
    page.push_str("<h2>The longest, and those that dropped most</h2><div class=\"charts\">");
    for queue in report.queues.iter().take(DRAWN) {
        plot(answer, queue, (0, end), &mut page);
    }
    page.push_str("</div>");
    page
}
