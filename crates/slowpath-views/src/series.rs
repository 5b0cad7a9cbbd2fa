// SPDX-License-Identifier: Apache-2.0
//! The verdicts on a series of `tcp_info` that another tool polled and saved.

use crate::advice::{self, HostFigures};
use crate::criterion::Criterion;
use crate::json::{self, Evidence, TallyKeys, VerdictOutput};
use crate::source::LiveConnection;
use crate::tally::Tally;
#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;
use slowpath_diagnose::{Thresholds, classify};
use slowpath_model::{IntervalVerdict, Micros, Owner, Problem, Snapshot, UnknownOwner, WallMicros};
use slowpath_text::evidence;
use slowpath_text::{Columns, Paint, percent, plain, plural};
use std::collections::{BTreeMap, VecDeque};

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
    /// Whether a problem was found that counts.
    pub fn problems_found(&self, criterion: &Criterion) -> bool {
        let totals = &self.tally.totals;
        criterion.is_met_by(&totals.problem_time, totals.observed)
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
        let numbers = total.evidence(problem, total.totals.observed);
        let context = HostFigures::default().with(Some(&last.stats));
        let whole = total.verdict(last_verdict.connection, problem);
        let advice = advice::on(&total.finding(problem), &whole, &context);
        let points = [
            ("act", advice::who(advice.who, None, Some(tuple))),
            ("evidence", numbers.join(", ")),
            ("advice", advice.what),
        ];
        lines.extend(crate::points::lines(points, 84));
        let notes = skipped(series);
        if !notes.is_empty() {
            lines.push(String::new());
            lines.extend(notes);
        }
        lines
    }

    /// The verdicts that serialise, oldest first.
    pub fn verdicts(&self) -> impl Iterator<Item = VerdictOutput> {
        let mut sum = Tally::default();
        self.verdicts.iter().map(move |(time, snapshot, verdict)| {
            sum.add(verdict);
            let live = LiveConnection {
                snapshot,
                owner: &Owner::unknown(UnknownOwner::NotRecorded),
                real_peer: None,
                latest: Some(verdict),
                observed: sum.totals.observed,
                problem_time: &sum.totals.problem_time,
                history: &VecDeque::new(),
            };
            VerdictOutput::of(*time, live, None, verdict)
        })
    }

    /// The sum that serialises.
    pub fn output(&self, series: &Series) -> SeriesOutput {
        let tuple = self.last().1.tuple;
        let unmeasured = |p: Problem| (p.name(), self.unmeasured[p as usize]);
        let left_out = series.left_out.iter();
        SeriesOutput {
            kind: "tcp_info",
            uuid: series.uuid.clone(),
            local: tuple.local.to_string(),
            remote: tuple.remote.to_string(),
            start: json::wall(series.start),
            intervals: self.verdicts.len(),
            tally: (&self.tally).into(),
            unmeasured_intervals: Problem::ALL.into_iter().map(unmeasured).collect(),
            evidence: (&self.tally.deltas).into(),
            left_out: left_out
                .map(|(reason, lines)| LeftOut {
                    reason: reason.clone(),
                    lines: *lines,
                })
                .collect(),
            cut: series.cut.clone(),
        }
    }
}

/// Lines of a saved series without a usable snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct LeftOut {
    /// Why they are not used.
    pub reason: String,
    /// How many they are.
    pub lines: u64,
}

/// What limited the connection of a saved series: `{"type": "tcp_info"}`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct SeriesOutput {
    /// `tcp_info`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The tool's name of the connection.
    pub uuid: String,
    /// The saving host's address and port.
    pub local: String,
    /// The peer's address and port.
    pub remote: String,
    /// When the series begins, RFC 3339 in UTC.
    pub start: String,
    /// Intervals judged.
    pub intervals: usize,
    /// All verdicts.
    #[serde(flatten)]
    pub tally: TallyKeys,
    /// Intervals in which each problem could not be measured.
    pub unmeasured_intervals: BTreeMap<&'static str, u64>,
    /// The numbers behind the verdict.
    #[cfg_attr(test, schemars(schema_with = "crate::schema::evidence"))]
    pub evidence: Evidence,
    /// Lines without a usable snapshot.
    pub left_out: Vec<LeftOut>,
    /// Why the file breaks off, if it does.
    pub cut: Option<String>,
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
        // Segments were retransmitted, but nothing in this series states why.
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
        let judged = judge(&series).unwrap();
        let mut objects: Vec<_> = judged.verdicts().map(|v| json::value(&v)).collect();
        objects.push(json::value(&judged.output(&series)));
        crate::schema::conforms("verdict", &objects[0]);
        crate::schema::conforms("verdict", &objects[1]);
        crate::schema::conforms("tcp-info", &objects[2]);
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
