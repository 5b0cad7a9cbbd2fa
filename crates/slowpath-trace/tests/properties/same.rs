// SPDX-License-Identifier: Apache-2.0
//! Changes that leave every figure as it is: other clocks, other names.

use crate::capture::{Capture, Connected, Frame, judged};
use slowpath_trace::tcp::Side;
use slowpath_trace::verdict::{Judged, TraceProblem};

/// Everything that was reported of a capture, its moments earlier by so much.
fn described(connections: &[Connected], earlier: i64) -> Vec<String> {
    let text = |c: &Connected| timeless(&format!("{c:?}"), earlier);
    connections.iter().map(text).collect()
}

/// A report's text with its moments earlier by so much, but for those that no frame has.
fn timeless(text: &str, earlier: i64) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((at, mark)) = MOMENTS
        .iter()
        .filter_map(|m| Some((rest.find(m)?, m)))
        .min()
    {
        let (before, after) = rest.split_at(at + mark.len());
        out.push_str(before);
        let is_digit = |c: char| c.is_ascii_digit() || c == '-';
        let end = after.find(|c| !is_digit(c)).unwrap_or(after.len());
        let none = before.ends_with("frame: 0, time: Timestamp(");
        match after[..end].parse::<i64>() {
            Ok(time) if !none => out.push_str(&(time - earlier).to_string()),
            _ => out.push_str(&after[..end]),
        }
        rest = &after[end..];
    }
    out.push_str(rest);
    out
}

/// What is before a time in a report's text.
const MOMENTS: [&str; 2] = ["Timestamp(", "Mark { time: "];

/// Where two texts differ first.
fn difference(expected: &str, found: &str) -> String {
    let same = expected.bytes().zip(found.bytes());
    let at = same.take_while(|(a, b)| a == b).count();
    let near = |s: &str| {
        let part = s
            .as_bytes()
            .get(at.saturating_sub(160)..s.len().min(at + 60));
        String::from_utf8_lossy(part.unwrap_or_default()).into_owned()
    };
    format!("{}\n  instead of\n{}", near(found), near(expected))
}

fn must_be_same(name: &str, expected: &[String], found: &[String], wrong: &mut Vec<String>) {
    if expected.len() != found.len() {
        wrong.push(format!(
            "{name}: {} instead of {} connections",
            found.len(),
            expected.len()
        ));
        return;
    }
    let pairs = expected.iter().zip(found);
    let differ = pairs.filter(|(e, f)| e != f).map(|(e, f)| difference(e, f));
    wrong.extend(differ.take(1).map(|d| format!("{name}: {d}")));
}

fn shifted(capture: &Capture, nanos: i64) -> Capture {
    capture.map(|f| f.clone().later(nanos))
}

#[test]
fn another_clock() {
    let mut wrong = Vec::new();
    for (capture, whole) in judged() {
        let whole = described(whole, 0);
        let first = capture.frames.iter().map(|f| f.time).min().unwrap_or(0);
        // An hour later; odd nanoseconds earlier; a clock that began just before the capture.
        // Not with it: at 0, tshark's rules and the mean of what is outstanding take the first
        // frame's time for none.
        for by in [3_600_000_000_000, -1_234_567_891, 1_000 - first] {
            let moved = described(&shifted(capture, by).judge(), by);
            must_be_same(
                &format!("{} {by}", capture.name),
                &whole,
                &moved,
                &mut wrong,
            );
        }
    }
    assert!(wrong.is_empty(), "{}\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn other_names() {
    let mut wrong = Vec::new();
    for (capture, whole) in judged() {
        let mut whole = whole.clone();
        let mut mirrored = capture.map(Frame::mirrored).judge();
        for connection in whole.iter_mut().chain(&mut mirrored) {
            // Without a SYN the port says who serves (RFC 6335): it goes with the names.
            let Judged { report, verdicts } = &mut connection.report;
            if report.from_client.control.syns + report.from_server.control.syns == 0 {
                let thinks = TraceProblem::SenderAppLimited;
                verdicts.findings.retain(|f| f.problem != thinks);
            }
        }
        for connection in &mut mirrored {
            let Judged { report, verdicts } = &mut connection.report;
            std::mem::swap(&mut report.client, &mut report.server);
            // Which end has a private address is a matter of names.
            let private = &mut verdicts.vantage.private;
            *private = private.map(Side::peer);
        }
        let (whole, mirrored) = (described(&whole, 0), described(&mirrored, 0));
        must_be_same(&capture.name, &whole, &mirrored, &mut wrong);
    }
    assert!(wrong.is_empty(), "{}\n{}", wrong.len(), wrong.join("\n"));
}
