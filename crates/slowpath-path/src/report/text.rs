// SPDX-License-Identifier: Apache-2.0
//! A report as text, in owping's form where that says it.

use super::{DirectionReport, PathReport, Way};
use crate::record::Record;
use crate::results::{Hops, MOST_REORDERING, Reordering};
use crate::time::Timestamp;
use std::fmt::Write;

/// Milliseconds with three significant digits and more.
fn millis(nanos: i64) -> String {
    let value = nanos as f64 / 1e6;
    match value.abs() {
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        v if v >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// A length of time with its unit.
pub(crate) fn span(nanos: i64) -> String {
    if nanos.unsigned_abs() >= 10_000_000_000 {
        return format!("{:.1} s", nanos as f64 / 1e9);
    }
    format!("{} ms", millis(nanos))
}

/// The same with its sign.
pub(crate) fn signed(nanos: i64) -> String {
    let sign = if nanos < 0 { "" } else { "+" };
    format!("{sign}{}", span(nanos))
}

/// A moment, RFC 3339 in UTC with milliseconds.
pub(crate) fn moment(time: Timestamp) -> String {
    let nanos = u64::try_from(time.unix_nanos()).unwrap_or(0);
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_nanos(nanos);
    humantime::format_rfc3339_millis(time).to_string()
}

/// The whole report.
#[must_use]
pub fn report(report: &PathReport) -> String {
    let mut out = String::new();
    for direction in &report.directions {
        write_direction(&mut out, direction);
        out.push('\n');
    }
    if let Some(clock) = &report.clock {
        let error = span(i64::try_from(clock.offset_error_ns).unwrap_or(i64::MAX));
        let _ = writeln!(
            out,
            "clocks: the peer's is {} ahead (± {error})",
            span(clock.offset_ns)
        );
    }
    for note in &report.notes {
        let _ = writeln!(out, "note: {}", note.text());
    }
    if report.interrupted {
        out.push_str("interrupted: the session ended before its time\n");
    }
    out
}

fn write_direction(out: &mut String, direction: &DirectionReport) {
    let summary = &direction.summary;
    let what = match direction.way {
        Way::RoundTrip => "round trip",
        _ => "one-way",
    };
    // Writing to a string cannot fail.
    let _ = writeln!(
        out,
        "--- {what} statistics from {} to {} ---",
        direction.from, direction.to
    );
    if !direction.session.is_empty() {
        let _ = writeln!(out, "SID:\t{}", direction.session);
    }
    let lost = match direction.losses_known {
        true => format!("{} lost ({:.3}%)", summary.lost, summary.lost_percent()),
        false => "losses not known".to_owned(),
    };
    let _ = writeln!(
        out,
        "{} sent, {lost}, {} duplicates",
        summary.sent, summary.duplicates
    );
    let own = [
        (summary.lost_here, "dropped by the receiver"),
        (summary.skipped, "never sent"),
        (summary.late, "late"),
    ];
    let own: Vec<String> = own
        .iter()
        .filter(|(n, _)| *n > 0)
        .map(|(n, what)| format!("{n} {what}"))
        .collect();
    if !own.is_empty() {
        let _ = writeln!(out, "{}", own.join(", "));
    }
    let Some(delay) = &summary.delay else {
        let _ = writeln!(out, "nothing came");
        return;
    };
    let error = match direction.error {
        None => String::new(),
        Some(error) => match (error.doubt, error.error_ns) {
            (Some(_), _) => ", (impossible: see note)".to_owned(),
            (None, Some(error)) => format!(
                ", (err={} ms)",
                millis(i64::try_from(error).unwrap_or(i64::MAX))
            ),
            (None, None) => ", (err unknown)".to_owned(),
        },
    };
    let [min, median, max] = [delay.min_ns, delay.median_ns, delay.max_ns].map(millis);
    let _ = writeln!(
        out,
        "{what} delay min/median/max = {min}/{median}/{max} ms{error}"
    );
    let _ = writeln!(
        out,
        "{what} jitter = {} ms (P95-P50)",
        millis(delay.jitter_ns)
    );
    if !delay.percentiles.is_empty() {
        let _ = writeln!(out, "Percentiles:");
        for percentile in &delay.percentiles {
            let percent = f64::from(percentile.millipercent) / 1e3;
            let _ = writeln!(out, "\t{percent:.1}: {} ms", millis(percentile.ns));
        }
    }
    write_hops(out, &summary.hops);
    write_reordering(out, &summary.reordering);
    if summary.lost > 0 && direction.losses_known {
        write_losses(out, direction);
    }
}

fn write_hops(out: &mut String, hops: &Hops) {
    let _ = match (hops.least, hops.most) {
        (Some(least), Some(most)) if least == most => {
            writeln!(out, "Hops = {least} (consistently)")
        }
        (Some(least), Some(most)) => {
            let changes: Vec<String> = hops
                .first_changes
                .iter()
                .take(4)
                .map(|change| {
                    format!(
                        "{} to {} at packet {}",
                        change.from, change.to, change.sequence
                    )
                })
                .collect();
            let more = if hops.changes > 4 {
                format!(", {} changes in all", hops.changes)
            } else {
                String::new()
            };
            writeln!(
                out,
                "Hops takes {} values; Min Hops = {least}, Max Hops = {most} ({}{more})",
                hops.values,
                changes.join(", ")
            )
        }
        _ => writeln!(out, "Hops: no packet had a TTL"),
    };
}

fn write_reordering(out: &mut String, reordering: &[Reordering]) {
    for one in reordering {
        let _ = writeln!(
            out,
            "{}-reordering = {:.6}% (m={}, l={}; {:.6}% of l)",
            one.n, one.percent, one.packets, one.received, one.percent_of_received
        );
    }
    let _ = match reordering.len() {
        0 => writeln!(out, "no reordering"),
        most if most >= MOST_REORDERING => writeln!(out, "only up to {most}-reordering is handled"),
        most => writeln!(out, "no {}-reordering", most + 1),
    };
}

fn write_losses(out: &mut String, direction: &DirectionReport) {
    let pattern = &direction.summary.loss_pattern;
    let distance = match (pattern.least_distance, pattern.median_distance) {
        (Some(least), Some(median)) => format!("; loss distance min/median = {least}/{median}"),
        _ => String::new(),
    };
    let _ = writeln!(
        out,
        "{} loss periods, longest {}, median {}{distance}",
        pattern.periods, pattern.longest_period, pattern.median_period
    );
}

/// One record as owstats -R prints it: number, time, synchronised and error of the sending, the same of the
/// arrival, TTL.
#[must_use]
pub fn raw(record: &Record) -> String {
    format!(
        "{} {:020} {} {:e} {:020} {} {:e} {}",
        record.sequence,
        record.sent.0,
        u8::from(record.sent_error.synchronised()),
        record.sent_error.error().as_secs_f64(),
        record.received.0,
        u8::from(record.received_error.synchronised()),
        record.received_error.error().as_secs_f64(),
        record.ttl
    )
}
