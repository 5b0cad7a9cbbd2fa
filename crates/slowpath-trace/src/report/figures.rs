// SPDX-License-Identifier: Apache-2.0
//! The figures of each direction of a connection: one list for `--long`, CSV and JSON. It
//! has everything that `tcptrace -l -r` prints, under our names (docs/reference/trace.md compares them).

use crate::tcp::wireshark::Flag;
use crate::tcp::{ConnectionReport, Direction, Samples, Side};
use serde::{Serialize, Serializer};
use std::borrow::Cow;
use std::time::Duration;

/// The value of a figure.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A count, or bytes.
    Count(u64),
    /// A time.
    Time(Duration),
    /// Yes or no.
    Flag(bool),
    /// Bytes a second.
    Rate(f64),
    /// Not known.
    Unknown,
}

impl Value {
    /// As text, nothing for what is unknown.
    pub fn text(&self) -> String {
        match self {
            Value::Count(n) => n.to_string(),
            Value::Time(t) => micros(*t).to_string(),
            Value::Flag(yes) => yes.to_string(),
            Value::Rate(rate) => format!("{rate:.1}"),
            Value::Unknown => String::new(),
        }
    }
}

/// As a JSON value: times in microseconds.
impl Serialize for Value {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Value::Count(n) => to.serialize_u64(*n),
            Value::Time(t) => to.serialize_f64(micros(*t)),
            Value::Flag(yes) => to.serialize_bool(*yes),
            Value::Rate(rate) => to.serialize_f64(*rate),
            Value::Unknown => to.serialize_none(),
        }
    }
}

/// Microseconds, with the nanoseconds as fraction.
pub fn micros(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1000.0
}

fn count(n: impl Into<u64>) -> Value {
    Value::Count(n.into())
}

fn some(n: Option<impl Into<u64>>) -> Value {
    n.map_or(Value::Unknown, count)
}

fn time(t: Option<Duration>) -> Value {
    t.map_or(Value::Unknown, Value::Time)
}

/// One figure of a direction.
pub struct Field {
    /// Its key in JSON and CSV, ending in its unit.
    pub key: Cow<'static, str>,
    /// Its name for a person.
    pub name: &'static str,
}

/// Adds figures: key, name, value.
macro_rules! figures {
    ($rows:ident, $($key:literal, $name:literal: $value:expr;)*) => {
        $($rows.add($key, $name, $value);)*
    };
}

/// A figure's key, name and value.
pub type Row = (Field, Value);

struct Rows(Vec<Row>);

impl Rows {
    fn add(&mut self, key: impl Into<Cow<'static, str>>, name: &'static str, value: Value) {
        let key = key.into();
        self.0.push((Field { key, name }, value));
    }

    fn samples(&mut self, keys: [&'static str; 5], names: [&'static str; 5], s: &Samples) {
        let values = [
            count(s.count()),
            time(s.shortest()),
            time(s.mean()),
            time(s.longest()),
            time(s.deviation()),
        ];
        for ((key, name), value) in keys.into_iter().zip(names).zip(values) {
            self.add(key, name, value);
        }
    }
}

/// All figures of the data that `side` sent.
pub fn figures(report: &ConnectionReport, side: Side) -> Vec<Row> {
    of_direction(report.sent_by(side), report.duration())
}

/// All figures of a direction of a connection that took `whole`.
pub(super) fn of_direction(d: &Direction, whole: Duration) -> Vec<Row> {
    let mut rows = Rows(Vec::with_capacity(128));
    packets(&mut rows, d);
    repairs(&mut rows, d);
    round_trips(&mut rows, d);
    acks(&mut rows, d);
    windows(&mut rows, d);
    timing(&mut rows, d, whole);
    for flag in Flag::ALL {
        let key = format!("tcp_analysis_{}", flag.name());
        rows.add(key, flag.name(), count(d.wireshark(flag)));
    }
    rows.0
}

fn packets(rows: &mut Rows, d: &Direction) {
    let (data, control) = (&d.data, &d.control);
    figures! { rows,
        "packets", "packets": count(d.packets);
        "wire_bytes", "bytes on the wire": count(d.wire_bytes);
        "data_packets", "data packets": count(data.packets);
        "data_bytes", "data bytes": count(data.bytes);
        "unique_bytes", "unique bytes": count(data.unique_bytes);
        "acked_bytes", "acknowledged bytes": count(data.acked_bytes);
        "pushed_packets", "data packets with PSH": count(data.pushed);
        "urgent_packets", "data packets with URG": count(data.urgent_packets);
        "urgent_bytes", "urgent bytes": count(data.urgent_bytes);
        "syns", "SYNs": count(control.syns);
        "fins", "FINs": count(control.fins);
        "resets", "resets": count(control.resets);
        "acks", "packets with ACK": count(control.acks);
        "pure_acks", "pure ACKs": count(control.pure_acks);
        "sacks", "packets with SACK blocks": count(control.sacks);
        "dsacks", "packets with DSACK": count(control.dsacks);
        "most_sack_blocks", "most SACK blocks in one": count(control.most_sack_blocks);
        "reneged_bytes", "SACKed bytes taken back": count(control.reneged_bytes);
        "keep_alives", "keep-alives": count(control.keep_alives);
        "keep_alive_acks", "ACKs of keep-alives": count(control.keep_alive_acks);
        "mss_bytes", "MSS offered": some(d.offered.mss);
        "window_scale", "window scale offered": some(d.offered.window_scale);
    }
    let syn = |yes| {
        if control.syns > 0 {
            Value::Flag(yes)
        } else {
            Value::Unknown
        }
    };
    figures! { rows,
        "sack_offered", "SACK offered": syn(d.offered.sack);
        "timestamps_offered", "timestamps offered": syn(d.offered.timestamps);
        "segment_max_bytes", "largest segment": count(data.largest);
        "segment_min_bytes", "smallest segment": count(data.smallest);
    }
    let mean = data.bytes.checked_div(data.packets);
    figures! { rows,
        "segment_mean_bytes", "mean segment": some(mean);
        "super_segments", "segments above the MSS (offload)": count(data.super_segments);
        "small_segments", "segments not filled": count(data.small_segments);
        "initial_window_bytes", "initial window, bytes": count(data.initial_window.0);
        "initial_window_packets", "initial window, packets": count(data.initial_window.1);
        "stream_bytes", "length of the stream": some(data.stream_length);
        "missed_bytes", "of it never captured": some(data.missed_bytes);
        "truncated_packets", "packets cut by the snap length": count(data.truncated_packets);
        "truncated_bytes", "bytes cut": count(data.truncated_bytes);
    }
    let e = &d.ecn;
    figures! { rows,
        "ecn_capable_packets", "ECN-capable packets": count(e.codepoints[1] + e.codepoints[2]);
        "ce_packets", "congestion experienced": count(e.codepoints[3]);
        "ece_packets", "packets with ECE": count(e.echoes);
        "cwr_packets", "packets with CWR": count(e.reduced);
    }
}

fn repairs(rows: &mut Rows, d: &Direction) {
    let (r, o) = (&d.retransmitted, &d.order);
    figures! { rows,
        "retransmitted_packets", "packets sent again": count(r.packets);
        "retransmitted_bytes", "bytes sent again": count(r.bytes);
        "seen_before_packets", "of them observed here before": count(r.observed_before);
        "seen_before_bytes", "their bytes": count(r.observed_before_bytes);
        "lost_before_here", "first copy lost before here": count(r.lost_before_here);
        "fast_retransmissions", "fast retransmissions": count(r.fast);
        "timeouts", "retransmission timeouts": count(r.timeouts);
        "after_timeout", "sent again after a timeout": count(r.after_timeout);
        "tail_loss_probes", "tail loss probes": count(r.tail_loss_probes);
        "syns_again", "SYNs sent again": count(r.syns);
        "fins_again", "FINs sent again": count(r.fins);
        "unexplained", "sent again, unexplained": count(r.unexplained);
        "spurious", "sent again needlessly": count(r.spurious);
        "spurious_dsack", "by DSACK": count(r.spurious_dsack);
        "spurious_eifel", "by timestamps": count(r.spurious_eifel);
        "already_acked", "acknowledged here before": count(r.already_acked);
        "most_times", "most times one was sent again": count(r.most);
    }
    rows.samples(
        [
            "resend_count",
            "resend_min_us",
            "resend_mean_us",
            "resend_max_us",
            "resend_deviation_us",
        ],
        [
            "times between transmissions",
            "shortest",
            "mean",
            "longest",
            "deviation",
        ],
        &r.interval,
    );
    figures! { rows,
        "timeout_wait_us", "time waited for timeouts": Value::Time(r.timeout_wait.total());
        "out_of_order", "out of order": count(o.out_of_order);
        "before_seen", "before data observed earlier": count(o.before_observed);
        "ambiguous_order", "decided only by the clock": count(o.ambiguous);
        "late_max_us", "latest out of order": time(o.lateness.longest());
        "gaps", "gaps": count(o.gaps);
        "gap_bytes", "bytes of gaps": count(o.gap_bytes);
        "capture_losses", "times the capture lost data": count(o.capture_losses);
        "capture_lost_bytes", "bytes the capture lost": count(o.capture_lost_bytes);
        "unexplained_gap_bytes", "bytes of gaps, unexplained": count(o.unexplained_gap_bytes);
        "captured_twice", "packets captured twice": count(o.captured_twice);
    }
}

fn round_trips(rows: &mut Rows, d: &Direction) {
    let r = &d.rtt;
    let names = ["samples", "shortest", "mean", "longest", "deviation"];
    rows.samples(
        [
            "rtt_count",
            "rtt_min_us",
            "rtt_mean_us",
            "rtt_max_us",
            "rtt_deviation_us",
        ],
        ["RTT samples", names[1], names[2], names[3], names[4]],
        &r.acked,
    );
    figures! { rows,
        "rtt_handshake_us", "RTT of the handshake": time(r.handshake);
    }
    rows.samples(
        [
            "rtt_full_count",
            "rtt_full_min_us",
            "rtt_full_mean_us",
            "rtt_full_max_us",
            "rtt_full_deviation_us",
        ],
        [
            "RTT samples, full size",
            names[1],
            names[2],
            names[3],
            names[4],
        ],
        &r.full_size,
    );
    rows.samples(
        [
            "rtt_timestamps_count",
            "rtt_timestamps_min_us",
            "rtt_timestamps_mean_us",
            "rtt_timestamps_max_us",
            "rtt_timestamps_deviation_us",
        ],
        [
            "RTT samples, timestamps",
            names[1],
            names[2],
            names[3],
            names[4],
        ],
        &r.timestamps,
    );
    rows.samples(
        [
            "rtt_ambiguous_count",
            "rtt_ambiguous_min_us",
            "rtt_ambiguous_mean_us",
            "rtt_ambiguous_max_us",
            "rtt_ambiguous_deviation_us",
        ],
        [
            "ACKs of last copies",
            names[1],
            names[2],
            names[3],
            names[4],
        ],
        &r.ambiguous,
    );
    figures! { rows,
        "rtt_smoothed_us", "smoothed RTT at the end": time(r.smoothed);
        "rtt_variation_us", "its variation": time(r.variation);
        "acks_after_loss", "ACKs after a loss": count(r.after_loss);
        "acked_cumulatively", "packets acknowledged with later ones": count(r.cumulative);
    }
}

fn acks(rows: &mut Rows, d: &Direction) {
    let a = &d.acks;
    figures! { rows,
        "advancing_acks", "ACKs of new data": count(a.advancing);
        "duplicate_acks", "duplicate ACKs": count(a.duplicate);
        "triple_duplicate_acks", "third duplicates": count(a.triple);
        "longest_duplicate_run", "longest run of duplicates": count(a.longest_run);
        "duplicate_acks_by_sack", "duplicates by SACK": count(a.duplicate_by_sack);
        "stretch_acks", "stretch ACKs": count(a.stretch);
        "delayed_acks", "delayed ACKs": count(a.delayed);
        "delayed_ack_time_us", "time they took": Value::Time(a.delay.total());
        "old_acks", "ACKs of old data": count(a.old);
    }
}

fn windows(rows: &mut Rows, d: &Direction) {
    let (w, f) = (&d.window, &d.flight);
    figures! { rows,
        "window_max_bytes", "largest window": count(w.largest);
        "window_min_bytes", "smallest window but zero": count(w.smallest);
        "window_mean_bytes", "mean window": count(w.mean());
        "zero_windows", "zero windows": count(w.zero);
        "window_closed", "times the window closed": count(w.closed);
        "window_closed_us", "time it was closed": Value::Time(w.closed_time.total());
        "window_updates", "window updates": count(w.updates);
        "window_shrunk", "times its edge moved back": count(w.shrunk);
        "silly_windows", "silly windows": count(w.silly);
        "window_probes", "probes of the other's window": count(w.probes);
        "window_probe_bytes", "their bytes": count(w.probe_bytes);
        "window_filled", "times the other's window was filled": count(w.filled);
        "window_filled_us", "time waited for it": Value::Time(w.filled_time.total());
        "window_exceeded", "packets beyond it": count(w.exceeded);
        "flight_max_bytes", "most in flight": count(f.most);
        "owin_max_bytes", "outstanding window, largest": count(f.owin.largest);
        "owin_min_bytes", "smallest but zero": count(f.owin.smallest);
        "owin_mean_bytes", "mean": some(f.owin.sum.checked_div(f.owin.count));
        "owin_weighted_bytes", "mean over time": weighted(d);
        "drained", "times everything was acknowledged": count(f.drained);
        "idle_bursts", "bursts after idle time": count(f.idle_bursts);
        "idle_burst_max_bytes", "largest burst": count(f.largest_burst);
        "nagle_stalls", "packets held by Nagle's rule": count(f.nagle_stalls);
        "nagle_us", "time they were held": Value::Time(f.nagle_time.total());
    }
}

fn weighted(d: &Direction) -> Value {
    let (Some(first), Some(last)) = (d.timing.first, d.timing.last) else {
        return Value::Unknown;
    };
    let nanos = u128::try_from(last.0.saturating_sub(first.0)).unwrap_or(0);
    let mean = d.flight.owin.time_weighted.checked_div(nanos);
    some(mean.and_then(|m| u64::try_from(m).ok()))
}

fn timing(rows: &mut Rows, d: &Direction, whole: Duration) {
    let t = &d.timing;
    figures! { rows,
        "data_time_us", "from first to last data": time(t.data_time());
        "longest_silence_us", "longest silence": Value::Time(t.longest_silence);
        "idle_count", "idle times": count(t.idle.count());
        "idle_us", "idle in all": Value::Time(t.idle.total());
    }
    let over = |bytes: u64, time: Option<Duration>| match time {
        Some(time) if !time.is_zero() => Value::Rate(bytes as f64 / time.as_secs_f64()),
        _ => Value::Unknown,
    };
    let sending = over(d.data.bytes, t.data_time());
    figures! { rows,
        "throughput_bytes_per_second", "bytes a second while sending": sending;
    }
    let goodput = over(d.data.unique_bytes, Some(whole));
    figures! { rows,
        "goodput_bytes_per_second", "unique bytes a second, whole connection": goodput;
    }
}
