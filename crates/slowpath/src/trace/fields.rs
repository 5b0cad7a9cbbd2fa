// SPDX-License-Identifier: Apache-2.0
//! What is said of each direction of a connection: one list for `--long`, CSV and JSON. It
//! has everything that `tcptrace -l -r` prints, under our names (docs/reference/trace.md compares them).

use serde_json::{Value as Json, json};
use slowpath_trace::tcp::wireshark::Flag;
use slowpath_trace::tcp::{ConnectionReport, Direction, Samples, Side};
use std::borrow::Cow;
use std::time::Duration;

/// A figure.
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
    /// As a JSON value: times in microseconds.
    pub fn json(&self) -> Json {
        match self {
            Value::Count(n) => json!(n),
            Value::Time(t) => json!(micros(*t)),
            Value::Flag(yes) => json!(yes),
            Value::Rate(rate) => json!(rate),
            Value::Unknown => Json::Null,
        }
    }

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

/// A name, its key and its value.
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

/// All figures of what `side` sent.
pub fn fields(report: &ConnectionReport, side: Side) -> Vec<Row> {
    let d = report.sent_by(side);
    let mut rows = Rows(Vec::with_capacity(128));
    packets(&mut rows, d);
    repairs(&mut rows, d);
    round_trips(&mut rows, d);
    windows(&mut rows, d);
    timing(&mut rows, d, report.duration());
    for flag in Flag::ALL {
        let key = format!("tcp_analysis_{}", flag.name());
        rows.add(key, flag.name(), count(d.wireshark(flag)));
    }
    rows.0
}

fn packets(rows: &mut Rows, d: &Direction) {
    let (data, control) = (&d.data, &d.control);
    rows.add("packets", "packets", count(d.packets));
    rows.add("wire_bytes", "bytes on the wire", count(d.wire_bytes));
    rows.add("data_packets", "data packets", count(data.packets));
    rows.add("data_bytes", "data bytes", count(data.bytes));
    rows.add("unique_bytes", "unique bytes", count(data.unique_bytes));
    rows.add("acked_bytes", "acknowledged bytes", count(data.acked_bytes));
    rows.add(
        "pushed_packets",
        "data packets with PSH",
        count(data.pushed),
    );
    rows.add(
        "urgent_packets",
        "data packets with URG",
        count(data.urgent_packets),
    );
    rows.add("urgent_bytes", "urgent bytes", count(data.urgent_bytes));
    rows.add("syns", "SYNs", count(control.syns));
    rows.add("fins", "FINs", count(control.fins));
    rows.add("resets", "resets", count(control.resets));
    rows.add("acks", "packets with ACK", count(control.acks));
    rows.add("pure_acks", "pure ACKs", count(control.pure_acks));
    rows.add("sacks", "packets with SACK blocks", count(control.sacks));
    rows.add("dsacks", "packets with DSACK", count(control.dsacks));
    rows.add(
        "most_sack_blocks",
        "most SACK blocks in one",
        count(control.most_sack_blocks),
    );
    rows.add(
        "reneged_bytes",
        "SACKed bytes taken back",
        count(control.reneged_bytes),
    );
    rows.add("keep_alives", "keep-alives", count(control.keep_alives));
    rows.add(
        "keep_alive_acks",
        "ACKs of keep-alives",
        count(control.keep_alive_acks),
    );
    rows.add("mss_bytes", "MSS offered", some(d.offered.mss));
    rows.add(
        "window_scale",
        "window scale offered",
        some(d.offered.window_scale),
    );
    let syn = |yes| {
        if control.syns > 0 {
            Value::Flag(yes)
        } else {
            Value::Unknown
        }
    };
    rows.add("sack_offered", "SACK offered", syn(d.offered.sack));
    rows.add(
        "timestamps_offered",
        "timestamps offered",
        syn(d.offered.timestamps),
    );
    rows.add("segment_max_bytes", "largest segment", count(data.largest));
    rows.add(
        "segment_min_bytes",
        "smallest segment",
        count(data.smallest),
    );
    let mean = data.bytes.checked_div(data.packets);
    rows.add("segment_mean_bytes", "mean segment", some(mean));
    rows.add(
        "super_segments",
        "segments above the MSS (offload)",
        count(data.super_segments),
    );
    rows.add(
        "small_segments",
        "segments not filled",
        count(data.small_segments),
    );
    rows.add(
        "initial_window_bytes",
        "initial window, bytes",
        count(data.initial_window.0),
    );
    rows.add(
        "initial_window_packets",
        "initial window, packets",
        count(data.initial_window.1),
    );
    rows.add(
        "stream_bytes",
        "length of the stream",
        some(data.stream_length),
    );
    rows.add(
        "missed_bytes",
        "of it never captured",
        some(data.missed_bytes),
    );
    rows.add(
        "truncated_packets",
        "packets cut by the snap length",
        count(data.truncated_packets),
    );
    rows.add("truncated_bytes", "bytes cut", count(data.truncated_bytes));
    let e = &d.ecn;
    rows.add(
        "ecn_capable_packets",
        "ECN-capable packets",
        count(e.codepoints[1] + e.codepoints[2]),
    );
    rows.add(
        "ce_packets",
        "congestion experienced",
        count(e.codepoints[3]),
    );
    rows.add("ece_packets", "packets with ECE", count(e.echoes));
    rows.add("cwr_packets", "packets with CWR", count(e.reduced));
}

fn repairs(rows: &mut Rows, d: &Direction) {
    let (r, o) = (&d.retransmitted, &d.order);
    rows.add(
        "retransmitted_packets",
        "packets sent again",
        count(r.packets),
    );
    rows.add("retransmitted_bytes", "bytes sent again", count(r.bytes));
    rows.add(
        "seen_before_packets",
        "of them seen here before",
        count(r.seen_before),
    );
    rows.add(
        "seen_before_bytes",
        "their bytes",
        count(r.seen_before_bytes),
    );
    rows.add(
        "lost_before_here",
        "first copy lost before here",
        count(r.lost_before_here),
    );
    rows.add(
        "fast_retransmissions",
        "fast retransmissions",
        count(r.fast),
    );
    rows.add("timeouts", "retransmission timeouts", count(r.timeouts));
    rows.add(
        "after_timeout",
        "sent again after a timeout",
        count(r.after_timeout),
    );
    rows.add(
        "tail_loss_probes",
        "tail loss probes",
        count(r.tail_loss_probes),
    );
    rows.add("syns_again", "SYNs sent again", count(r.syns));
    rows.add("fins_again", "FINs sent again", count(r.fins));
    rows.add(
        "unexplained",
        "sent again, unexplained",
        count(r.unexplained),
    );
    rows.add("spurious", "sent again needlessly", count(r.spurious));
    rows.add("spurious_dsack", "by DSACK", count(r.spurious_dsack));
    rows.add("spurious_eifel", "by timestamps", count(r.spurious_eifel));
    rows.add(
        "already_acked",
        "acknowledged here before",
        count(r.already_acked),
    );
    rows.add("most_times", "most times one was sent again", count(r.most));
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
    rows.add(
        "timeout_wait_us",
        "time waited for timeouts",
        Value::Time(r.timeout_wait.total()),
    );
    rows.add("out_of_order", "out of order", count(o.out_of_order));
    rows.add(
        "before_seen",
        "before data seen earlier",
        count(o.before_seen),
    );
    rows.add(
        "ambiguous_order",
        "told by the clock alone",
        count(o.ambiguous),
    );
    rows.add(
        "late_max_us",
        "latest out of order",
        time(o.lateness.longest()),
    );
    rows.add("gaps", "gaps", count(o.gaps));
    rows.add("gap_bytes", "bytes of gaps", count(o.gap_bytes));
    rows.add(
        "capture_losses",
        "times the capture lost data",
        count(o.capture_losses),
    );
    rows.add(
        "capture_lost_bytes",
        "bytes the capture lost",
        count(o.capture_lost_bytes),
    );
    rows.add(
        "unexplained_gap_bytes",
        "bytes of gaps, unexplained",
        count(o.unexplained_gap_bytes),
    );
    rows.add(
        "captured_twice",
        "packets captured twice",
        count(o.hardware_duplicates),
    );
}

fn round_trips(rows: &mut Rows, d: &Direction) {
    let (r, a) = (&d.rtt, &d.acks);
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
    rows.add(
        "rtt_handshake_us",
        "RTT of the handshake",
        time(r.handshake),
    );
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
    rows.add(
        "rtt_smoothed_us",
        "smoothed RTT at the end",
        time(r.smoothed),
    );
    rows.add("rtt_variation_us", "its variation", time(r.variation));
    rows.add("acks_after_loss", "ACKs after a loss", count(r.after_loss));
    rows.add(
        "acked_cumulatively",
        "packets acknowledged with later ones",
        count(r.cumulative),
    );
    rows.add("advancing_acks", "ACKs of new data", count(a.advancing));
    rows.add("duplicate_acks", "duplicate ACKs", count(a.duplicate));
    rows.add("triple_duplicate_acks", "third duplicates", count(a.triple));
    rows.add(
        "longest_duplicate_run",
        "longest run of duplicates",
        count(a.longest_run),
    );
    rows.add(
        "duplicate_acks_by_sack",
        "duplicates by SACK",
        count(a.duplicate_by_sack),
    );
    rows.add("stretch_acks", "stretch ACKs", count(a.stretch));
    rows.add("delayed_acks", "delayed ACKs", count(a.delayed));
    rows.add(
        "delayed_ack_time_us",
        "time they took",
        Value::Time(a.delay.total()),
    );
    rows.add("old_acks", "ACKs of old data", count(a.old));
}

fn windows(rows: &mut Rows, d: &Direction) {
    let (w, f) = (&d.window, &d.flight);
    rows.add("window_max_bytes", "largest window", count(w.largest));
    rows.add(
        "window_min_bytes",
        "smallest window but zero",
        count(w.smallest),
    );
    rows.add("window_mean_bytes", "mean window", count(w.mean()));
    rows.add("zero_windows", "zero windows", count(w.zero));
    rows.add("window_closed", "times the window closed", count(w.closed));
    rows.add(
        "window_closed_us",
        "time it was closed",
        Value::Time(w.closed_time.total()),
    );
    rows.add("window_updates", "window updates", count(w.updates));
    rows.add(
        "window_shrunk",
        "times its edge moved back",
        count(w.shrunk),
    );
    rows.add("silly_windows", "silly windows", count(w.silly));
    rows.add(
        "window_probes",
        "probes of the other's window",
        count(w.probes),
    );
    rows.add("window_probe_bytes", "their bytes", count(w.probe_bytes));
    rows.add(
        "window_filled",
        "times the other's window was filled",
        count(w.filled),
    );
    rows.add(
        "window_filled_us",
        "time waited for it",
        Value::Time(w.filled_time.total()),
    );
    rows.add("window_exceeded", "packets beyond it", count(w.exceeded));
    rows.add("flight_max_bytes", "most in flight", count(f.most));
    rows.add(
        "owin_max_bytes",
        "outstanding window, largest",
        count(f.owin.largest),
    );
    rows.add(
        "owin_min_bytes",
        "smallest but zero",
        count(f.owin.smallest),
    );
    rows.add(
        "owin_mean_bytes",
        "mean",
        some(f.owin.sum.checked_div(f.owin.count)),
    );
    rows.add("owin_weighted_bytes", "mean over time", weighted(d));
    rows.add(
        "drained",
        "times everything was acknowledged",
        count(f.drained),
    );
    rows.add(
        "idle_bursts",
        "bursts after idle time",
        count(f.idle_bursts),
    );
    rows.add(
        "idle_burst_max_bytes",
        "largest burst",
        count(f.largest_burst),
    );
    rows.add(
        "nagle_stalls",
        "packets held by Nagle's rule",
        count(f.nagle_stalls),
    );
    rows.add(
        "nagle_us",
        "time they were held",
        Value::Time(f.nagle_time.total()),
    );
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
    rows.add(
        "data_time_us",
        "from first to last data",
        time(t.data_time()),
    );
    rows.add(
        "longest_silence_us",
        "longest silence",
        Value::Time(t.longest_silence),
    );
    rows.add("idle_count", "idle times", count(t.idle.count()));
    rows.add("idle_us", "idle in all", Value::Time(t.idle.total()));
    let over = |bytes: u64, time: Option<Duration>| match time {
        Some(time) if !time.is_zero() => Value::Rate(bytes as f64 / time.as_secs_f64()),
        _ => Value::Unknown,
    };
    let sending = over(d.data.bytes, t.data_time());
    rows.add(
        "throughput_bytes_per_second",
        "bytes a second while sending",
        sending,
    );
    let goodput = over(d.data.unique_bytes, Some(whole));
    rows.add(
        "goodput_bytes_per_second",
        "unique bytes a second, whole connection",
        goodput,
    );
}
