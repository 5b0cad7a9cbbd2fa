// SPDX-License-Identifier: Apache-2.0
//! Frames captured twice: by two interfaces, by a mirror port, before and after a router.

use crate::capture::{Capture, Connected, Frame, judged};
use crate::claims::{claims, ending};
use slowpath_trace::segment::Endpoint;
use slowpath_trace::tcp::Side;
use slowpath_trace::verdict::TraceProblem;
use std::collections::{HashMap, HashSet};

/// Every frame twice, the second time changed.
fn doubled(capture: &Capture, copy: impl Fn(&Frame) -> Frame) -> Capture {
    let both = capture.frames.iter().flat_map(|f| [f.clone(), copy(f)]);
    let mut frames: Vec<Frame> = both.collect();
    frames.sort_by_key(|f| f.time);
    capture.with(frames)
}

/// What is claimed otherwise than of the frames captured once; `delay` is the copies', ms.
fn differences(once: &Connected, twice: &Connected, delay: f64) -> Vec<String> {
    let mut wrong = Vec::new();
    if ending(once) != ending(twice) {
        wrong.push(format!("{:?} instead of {:?}", ending(twice), ending(once)));
    }
    let (before, after) = (claims(once), claims(twice));
    for claim in &before {
        let Some(again) = after.iter().find(|c| c.is_like(claim)) else {
            wrong.push(format!("no longer {claim}"));
            continue;
        };
        // Each event begins and ends with a frame or its copy.
        let events = claim.events.unwrap_or(1).max(1) as f64;
        let near = 2.0 * delay * events + 0.01 * claim.time.unwrap_or(0.0);
        let off = (claim.time.unwrap_or(0.0) - again.time.unwrap_or(0.0)).abs();
        // Resets of the same numbers and without an identification are not distinguished from copies.
        let as_often = match claim.problem {
            TraceProblem::Reset => again.events <= claim.events,
            _ => again.events == claim.events,
        };
        if off > near || !as_often {
            wrong.push(format!("{again} instead of {claim}"));
        }
    }
    let new = after
        .iter()
        .filter(|a| !before.iter().any(|b| b.is_like(a)));
    wrong.extend(new.map(|claim| format!("new: {claim}")));
    for side in [Side::Client, Side::Server] {
        let (once, twice) = (
            once.report.report.sent_by(side),
            twice.report.report.sent_by(side),
        );
        // What ACKs repeat of each other, as all other ACKs do, is not always distinguished from copies.
        let (copies, data) = (twice.order.captured_twice, once.data.packets);
        if copies < data {
            wrong.push(format!(
                "{copies} copies of {data} segments of the {side:?}"
            ));
        }
    }
    wrong
}

/// Frames of a direction that are remembered to recognise copies (`tcp/frames.rs`).
const REMEMBERED: usize = 8;

/// Connections, by their ends, of which a copy comes after so many other frames that the first
/// is forgotten: bursts on the way through a router. Copies of these are taken for data
/// sent again without need.
fn forgotten(capture: &Capture, delay: i64) -> HashSet<[Endpoint; 2]> {
    let mut times: HashMap<[Endpoint; 2], Vec<i64>> = HashMap::new();
    let mut found = HashSet::new();
    for frame in &capture.frames {
        let Some(tcp) = frame.tcp else { continue };
        let latest = times.entry([tcp.source, tcp.destination]).or_default();
        latest.retain(|t| frame.time - t <= delay);
        latest.push(frame.time);
        if latest.len() > REMEMBERED {
            found.insert(ends(tcp.source, tcp.destination));
        }
    }
    found
}

fn ends(a: Endpoint, b: Endpoint) -> [Endpoint; 2] {
    [a.min(b), a.max(b)]
}

/// `delay` of the copies, ns.
fn check(copy: impl Fn(&Frame) -> Frame, delay: i64) {
    let mut wrong = Vec::new();
    for (capture, whole) in judged() {
        let found = doubled(capture, &copy).judge();
        let forgotten = forgotten(capture, delay);
        if found.len() != whole.len() {
            let (found, whole) = (found.len(), whole.len());
            wrong.push(format!("{}: {found} of {whole} connections", capture.name));
            continue;
        }
        for (once, twice) in whole.iter().zip(&found) {
            let report = &once.report.report;
            if forgotten.contains(&ends(report.client, report.server)) {
                continue;
            }
            let differ = differences(once, twice, delay as f64 / 1e6);
            let name = (&capture.name, report.client.port);
            wrong.extend(differ.iter().map(|d| format!("{name:?}: {d}")));
        }
    }
    assert!(wrong.is_empty(), "{}\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn at_once() {
    check(Frame::clone, 0);
}

#[test]
fn by_another_interface() {
    check(|f| f.clone().later(7_000), 7_000);
}

#[test]
fn behind_a_router() {
    check(|f| f.routed().later(60_000), 60_000);
}
