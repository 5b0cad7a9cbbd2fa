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

/// Frames of a direction that are remembered to recognise copies: at first, and once one was
/// recognised (`tcp/frames.rs`).
const REMEMBERED: [usize; 2] = [8, 256];

/// Connections, by their ends, of which a copy comes after more other frames than are remembered, so that the first
/// is forgotten: bursts on the way through a router. Copies of these are taken for data
/// sent again without need.
fn forgotten(capture: &Capture, delay: i64) -> HashSet<[Endpoint; 2]> {
    let mut times: HashMap<[Endpoint; 2], (i64, Vec<i64>)> = HashMap::new();
    let mut found = HashSet::new();
    for frame in &capture.frames {
        let Some(tcp) = frame.tcp else { continue };
        let direction = [tcp.source, tcp.destination];
        let (first, latest) = times.entry(direction).or_insert((frame.time, Vec::new()));
        latest.retain(|t| frame.time - t <= delay);
        latest.push(frame.time);
        let recognised = usize::from(frame.time - *first > delay);
        if latest.len() > REMEMBERED[recognised] {
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
            let sides = [&report.from_client, &report.from_server];
            // With four copies at four times, which of them the repair begins with is not the same.
            let twice_already = delay > 0 && sides.iter().any(|s| s.order.captured_twice > 1);
            if twice_already || forgotten.contains(&ends(report.client, report.server)) {
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

/// A burst passes before its first copy comes.
#[test]
fn behind_a_busy_router() {
    check(|f| f.routed().later(500_000), 500_000);
}

/// By how much a firewall's numbers of client and server are ahead of the hosts'.
const AHEAD: [u32; 2] = [0x9e37_79b9, 0x3c6e_f372];

/// Inside a firewall, and outside after it: each frame has the sender's own number and what the firewall
/// says of the other's, then the firewall's number and the other's own.
fn through_a_firewall(capture: &Capture, is_client: impl Fn(&Frame) -> Option<bool>) -> Capture {
    let both = capture.frames.iter().flat_map(|f| {
        let Some(client) = is_client(f) else {
            return vec![f.clone()];
        };
        let [own, other] = match client {
            true => AHEAD,
            false => [AHEAD[1], AHEAD[0]],
        };
        // At once: no answer comes between.
        vec![f.renumbered(0, other), f.renumbered(own, 0)]
    });
    capture.with(both.collect())
}

/// Whether a copy of its SYNs is recognised: one of each, with timestamps, and no other
/// connection on its ports.
fn is_recognised(connection: &Connected, all: &[Connected]) -> bool {
    let report = &connection.report.report;
    let tuple = ends(report.client, report.server);
    let same = |c: &&Connected| ends(c.report.report.client, c.report.report.server) == tuple;
    let sides = [&report.from_client, &report.from_server];
    report.handshake.timestamps == Some(true)
        && sides.iter().all(|side| side.control.syns == 1)
        && all.iter().filter(same).count() == 1
}

#[test]
fn behind_a_firewall_that_renumbers() {
    let mut wrong = Vec::new();
    let mut compared = 0;
    for (capture, whole) in judged() {
        let chosen = whole.iter().filter(|c| is_recognised(c, whole));
        let chosen: Vec<&Connected> = chosen.collect();
        let twice = through_a_firewall(capture, |f| {
            let tcp = f.tcp?;
            let reports = chosen.iter().map(|c| &c.report.report);
            let of = reports.map(|r| [r.client, r.server]);
            of.into_iter().find_map(|[client, server]| {
                let both = [tcp.source, tcp.destination];
                let from_client = both == [client, server];
                (from_client || both == [server, client]).then_some(from_client)
            })
        });
        let found = twice.judge();
        if found.len() != whole.len() {
            let (found, whole) = (found.len(), whole.len());
            wrong.push(format!("{}: {found} of {whole} connections", capture.name));
            continue;
        }
        for once in chosen {
            let report = &once.report.report;
            let tuple = ends(report.client, report.server);
            let again = found
                .iter()
                .find(|c| ends(c.report.report.client, c.report.report.server) == tuple);
            let Some(again) = again.filter(|c| c.report.report.renumbered) else {
                wrong.push(format!("{}: not recognised", capture.name));
                continue;
            };
            compared += 1;
            let differ = differences(once, again, 0.0);
            let name = (&capture.name, report.client.port);
            wrong.extend(differ.iter().map(|d| format!("{name:?}: {d}")));
        }
    }
    assert!(wrong.is_empty(), "{}\n{}", wrong.len(), wrong.join("\n"));
    assert!(compared > 0);
}
