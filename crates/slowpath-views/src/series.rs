// SPDX-License-Identifier: Apache-2.0
//! The verdicts on a series of `tcp_info` that another tool polled and saved.

use crate::advice::{self, Host};
use crate::json;
use crate::source::Live;
use crate::tally::Tally;
use serde_json::{Value, json};
use slowpath_diagnose::{Thresholds, classify};
use slowpath_model::{IntervalVerdict, Micros, Owner, Problem, Snapshot, UnknownOwner, WallMicros};
use slowpath_text::evidence;
use slowpath_text::{Columns, Paint, percent, plain, plural, wrapped};
use std::collections::VecDeque;

/// Snapshots of one connection, as saved by another tool.
#[derive(Debug)]
pub struct Series {
    /// The tool's name of the connection.
    pub uuid: String,
    /// When the series begins.
    pub start: WallMicros,
    /// The snapshots, each with its time.
    pub snapshots: Vec<(WallMicros, Snapshot)>,
    /// Lines without a usable snapshot: why, and how many.
    pub left_out: Vec<(String, u64)>,
    /// Why the file breaks off, if it does.
    pub cut: Option<String>,
}

/// The verdicts on a series.
pub struct Judged {
    verdicts: Vec<(WallMicros, Snapshot, IntervalVerdict)>,
    tally: Tally,
    /// Intervals in which each problem could not be measured, indexed by its number.
    unmeasured: [u64; Problem::ALL.len()],
}

/// Judges every interval of a series; `None` where no two snapshots have different times.
pub fn judge(series: &Series) -> Option<Judged> {
    let thresholds = Thresholds::default();
    let mut judged = Judged {
        verdicts: Vec::new(),
        tally: Tally::default(),
        unmeasured: Default::default(),
    };
    for pair in series.snapshots.windows(2) {
        let [(_, before), (time, after)] = pair else {
            continue;
        };
        let verdict = classify(before, after, None, &thresholds);
        if verdict.interval() == Micros::ZERO {
            continue;
        }
        judged.tally.add(&verdict);
        for problem in verdict.unmeasured.iter() {
            judged.unmeasured[problem as usize] += 1;
        }
        judged.verdicts.push((*time, after.clone(), verdict));
    }
    (!judged.verdicts.is_empty()).then_some(judged)
}

fn skipped(series: &Series) -> Vec<String> {
    let mut lines: Vec<String> = series
        .left_out
        .iter()
        .map(|(reason, count)| format!("left out: {}, {reason}", plural(*count, "line")))
        .collect();
    lines.extend(
        series
            .cut
            .as_ref()
            .map(|error| format!("the file breaks off: {error}; what came before is judged")),
    );
    lines
}

impl Judged {
    /// Whether any problem was found.
    pub fn problems_found(&self) -> bool {
        !self.tally.found().is_empty()
    }

    fn last(&self) -> &(WallMicros, Snapshot, IntervalVerdict) {
        // `judge` gives no value without a verdict.
        &self.verdicts[self.verdicts.len() - 1]
    }

    /// What limited the connection, in lines.
    pub fn lines(&self, series: &Series, paint: Paint) -> Vec<String> {
        let (_, last, last_verdict) = self.last();
        let tuple = last.tuple;
        let total = &self.tally;
        let problem = total.dominating();
        let all = self.verdicts.len() as u64;
        let mut lines = vec![
            paint.bold(&format!("{tuple}  {}", plain(&series.uuid))),
            format!("{} over {}", plural(all, "interval"), total.totals.observed),
            String::new(),
        ];
        let mut columns = Columns::new(&["problem", ">share", ">time", ">events", ""]);
        for p in Problem::ALL {
            let i = p as usize;
            let missing = self.unmeasured[i];
            let note = match missing {
                0 => String::new(),
                n if n == all => "could not measure".to_owned(),
                n => format!("could not measure in {n} of {all}"),
            };
            let time = total.totals.problem_time[i];
            if missing == all && time == Micros::ZERO {
                columns.row([p.name(), "-", "-", "-", &note]);
                continue;
            }
            let coarse = if total.coarse.contains(p) {
                " or less"
            } else {
                ""
            };
            columns.row([
                p.name().to_owned(),
                percent(total.share(p)),
                format!("{time}{coarse}"),
                total.totals.problem_events[i].to_string(),
                note,
            ]);
        }
        lines.extend(columns.lines(2, paint));
        lines.push(String::new());
        let verdict = format!(
            "Limited by {}: {problem}, {} of the time",
            evidence::stage(problem),
            percent(total.share(problem))
        );
        lines.push(paint.problem(problem, &paint.bold(&verdict)));
        let numbers = evidence::of(problem, &total.deltas, total.totals.observed);
        let context = Host::default().with(Some(&last.stats));
        let whole = total.verdict(last_verdict.connection);
        let advice = advice::on(&total.finding(problem), &whole, &context);
        for (head, text) in [
            ("act", advice::who(advice.who, None, Some(tuple))),
            ("evidence", numbers.join(", ")),
            ("advice", advice.what),
        ] {
            for (i, line) in wrapped(&text, 84).into_iter().enumerate() {
                let head = if i == 0 { head } else { "" };
                lines.push(format!("  {head:<10}{line}"));
            }
        }
        let notes = skipped(series);
        if !notes.is_empty() {
            lines.push(String::new());
            lines.extend(notes);
        }
        lines
    }

    /// Every verdict as a JSON object, then one that sums them up.
    pub fn json(&self, series: &Series) -> Vec<Value> {
        let tuple = self.last().1.tuple;
        let mut objects = Vec::new();
        let nothing = VecDeque::new();
        let nobody = Owner::unknown(UnknownOwner::NotRecorded);
        let mut seen = Tally::default();
        for (time, snapshot, verdict) in &self.verdicts {
            seen.add(verdict);
            let live = Live {
                snapshot,
                owner: &nobody,
                real_peer: None,
                latest: Some(verdict),
                observed: seen.totals.observed,
                problem_time: &seen.totals.problem_time,
                history: &nothing,
            };
            objects.push(json::verdict(*time, live, None, verdict));
        }
        let missing: serde_json::Map<String, Value> = Problem::ALL
            .into_iter()
            .map(|p| (p.name().to_owned(), json!(self.unmeasured[p as usize])))
            .collect();
        let left_out: Vec<Value> = series
            .left_out
            .iter()
            .map(|(reason, count)| json!({"reason": reason, "lines": count}))
            .collect();
        let mut map = json::tally(&self.tally);
        for (key, value) in [
            ("type", json!("tcp_info")),
            ("uuid", json!(series.uuid)),
            ("local", json!(tuple.local.to_string())),
            ("remote", json!(tuple.remote.to_string())),
            ("start", json!(json::wall(series.start))),
            ("intervals", json!(self.verdicts.len())),
            ("unmeasured_intervals", Value::Object(missing)),
            ("evidence", json::evidence(&self.tally.deltas)),
            ("left_out", Value::Array(left_out)),
            ("cut", json!(series.cut)),
        ] {
            map.insert(key.to_owned(), value);
        }
        objects.push(Value::Object(map));
        objects
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scripted as fake;
    use slowpath_model::{MonoNanos, Tier};

    /// One snapshot a second, the receive window full for `limited` ms of each.
    fn series(limited: &[u64]) -> Series {
        let mut snapshot = fake::live(7, "x", "10.0.0.1:1", "[2001:db8::2]:80").snapshot;
        snapshot.tier = Tier::Imported;
        snapshot.stats.busy = Some(Micros::ZERO);
        snapshot.stats.rwnd_limited = Some(Micros::ZERO);
        let mut snapshots = vec![(WallMicros(0), snapshot.clone())];
        for (i, ms) in limited.iter().enumerate() {
            let seconds = i as u64 + 1;
            snapshot.at = MonoNanos(seconds * 1_000_000_000);
            let more = |t: Option<Micros>, by: u64| t.map(|t| t + Micros::from_millis(by));
            snapshot.stats.busy = more(snapshot.stats.busy, 1000);
            snapshot.stats.rwnd_limited = more(snapshot.stats.rwnd_limited, *ms);
            snapshot.stats.bytes_acked += 1_000_000;
            snapshot.stats.retransmitted += 1;
            let wall = WallMicros(seconds as i64 * 1_000_000);
            snapshots.push((wall, snapshot.clone()));
        }
        Series {
            uuid: "host_1_unsafe_7".to_owned(),
            start: WallMicros(0),
            snapshots,
            left_out: vec![("it carries no tcp_info".to_owned(), 1)],
            cut: None,
        }
    }

    #[test]
    fn shares_come_from_the_file_and_gaps_are_said() {
        let series = series(&[600, 600]);
        let judged = judge(&series).unwrap();
        let text = judged.lines(&series, Paint::OFF).join("\n");
        let row = |name: &str| text.lines().find(|l| l.trim_start().starts_with(name));
        let window = row("ReceiverWindowLimited").unwrap();
        assert!(window.contains("60%") && window.contains("1.20s"), "{text}");
        // Segments were retransmitted, but nothing in this series tells why.
        for name in ["DelayedAck", "Timeout", "FastRetransmit"] {
            let row = row(name).unwrap();
            assert!(row.contains("could not measure"), "{text}");
            assert!(!row.contains('%'), "{text}");
        }
        assert!(
            text.contains("left out: 1 line, it carries no tcp_info"),
            "{text}"
        );
        assert!(text.contains("[2001:db8::2]:80"), "{text}");
    }

    #[test]
    fn json_has_every_interval_and_a_sum() {
        let series = series(&[0, 500]);
        let objects = judge(&series).unwrap().json(&series);
        assert_eq!(objects.len(), 3);
        assert_eq!(objects[0]["time"], "1970-01-01T00:00:01.000000Z");
        assert_eq!(objects[1]["dominating"], "ReceiverWindowLimited");
        assert_eq!(
            objects[2]["problems"]["ReceiverWindowLimited"]["share"],
            0.25
        );
        assert_eq!(objects[2]["unmeasured_intervals"]["DelayedAck"], 2);
    }
}
