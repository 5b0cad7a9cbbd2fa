// SPDX-License-Identifier: Apache-2.0
//! The numbers behind a problem, in words and as JSON.

use crate::{bytes, plural};
use serde_json::{Value, json};
use slowpath_model::{Deltas, Micros, Problem, Stage};

/// The statistics that speak for `problem`, most significant first; statistics that were not
/// measured are left out. The kernel counts limited times in jiffies, so that they can be a
/// little longer than the interval: they are shown as the interval then.
pub fn of(problem: Problem, d: &Deltas, interval: Micros) -> Vec<String> {
    let mut out = Vec::new();
    let mut say = |text: Option<String>| out.extend(text);
    match problem {
        Problem::SenderAppLimited => {
            say(d.writes.map(|n| written(n, d.bytes_written.unwrap_or(0))));
            say(d.bytes_acked.map(|b| format!("{} acknowledged", bytes(b))));
            say(d
                .busy
                .map(|t| format!("data outstanding for {} of {interval}", t.min(interval))));
        }
        Problem::SendBufferLimited => {
            say(d
                .sndbuf_limited
                .map(|t| format!("send buffer full for {} of {interval}", t.min(interval))));
            say(d
                .send_buffer
                .map(|b| format!("send buffer limit {} of memory", bytes(b.into()))));
            say(Some(format!("{} in it", bytes(d.send_queue.into()))));
            say(Some(window(d)));
        }
        Problem::FastRetransmit => {
            say(d.fast_recoveries.map(|n| {
                if n == 1 {
                    "1 fast recovery".to_owned()
                } else {
                    format!("{n} fast recoveries")
                }
            }));
            say(d
                .retransmitted
                .map(|n| format!("{} retransmitted", plural(n, "segment"))));
            say(Some(window(d)));
        }
        Problem::Timeout => {
            say(d.timeouts.map(|n| plural(n, "retransmission timeout")));
            say(d
                .retransmitted
                .map(|n| format!("{} retransmitted", plural(n, "segment"))));
            say(Some(window(d)));
        }
        Problem::DelayedAck => {
            say(d.delayed_acks.map(|n| plural(n, "delayed ACK")));
            say(match (d.rtt_sum, d.rtt_count) {
                (Some(sum), Some(count)) if count > 0 => Some(format!(
                    "mean RTT {} over {}",
                    Micros(sum.0 / count),
                    plural(count, "sample")
                )),
                _ => None,
            });
            say(d.baseline_rtt.map(|t| format!("RTT without delay {t}")));
        }
        Problem::ReceiverWindowLimited => {
            say(d
                .rwnd_limited
                .map(|t| format!("receive window full for {} of {interval}", t.min(interval))));
            say(d
                .send_window
                .map(|w| format!("peer announces {}", bytes(w.into()))));
            say(Some(window(d)));
        }
        Problem::CongestionWindowLimited => {
            say(d
                .busy
                .map(|t| format!("data outstanding for {} of {interval}", t.min(interval))));
            say(Some(window(d)));
        }
        Problem::SmallWrites => {
            say(d.writes.map(|n| written(n, d.bytes_written.unwrap_or(0))));
            say(Some(format!(
                "segments hold up to {}",
                bytes(d.send_mss.into())
            )));
        }
        Problem::IdleBurst | Problem::Reordering => {
            say(d
                .retransmitted
                .map(|n| format!("{} retransmitted", plural(n, "segment"))));
            say(Some(window(d)));
        }
        Problem::ZeroWindow => {
            say(d
                .send_window
                .map(|w| format!("peer announces {}", bytes(w.into()))));
            say(Some(format!(
                "{} in the send buffer",
                bytes(d.send_queue.into())
            )));
        }
        Problem::EcnMarked => say(Some(window(d))),
        Problem::ReceiverAppSlow => {
            say(Some(format!("{} not read", bytes(d.receive_queue.into()))));
            say(d.reads.map(|n| {
                format!(
                    "{} read in {}",
                    bytes(d.bytes_read.unwrap_or(0)),
                    plural(n, "call")
                )
            }));
        }
        Problem::SynRetransmit | Problem::AcceptQueueOverflow | Problem::SynQueueOverflow => {}
    }
    if problem != Problem::DelayedAck {
        say(d.srtt.map(|t| format!("RTT {t}")));
    }
    out
}

fn written(calls: u64, written: u64) -> String {
    format!("{} written in {}", bytes(written), plural(calls, "call"))
}

fn window(d: &Deltas) -> String {
    format!(
        "congestion window {} ({})",
        plural(d.cwnd.into(), "segment"),
        bytes(u64::from(d.cwnd) * u64::from(d.send_mss))
    )
}

/// The stage that limits, as the subject of a sentence.
pub const fn stage(problem: Problem) -> &'static str {
    match problem.stage() {
        Stage::SenderApp => "the sending application",
        Stage::SendBuffer => "the send buffer",
        Stage::Network => "the network",
        Stage::Receiver => "the receiver",
        Stage::ReceiverApp => "the receiving application",
    }
}

fn micros(time: Option<Micros>) -> Value {
    time.map_or(Value::Null, |t| json!(t.0))
}

/// The statistics as JSON: units in the keys, `null` for what was not measured.
pub fn json(d: &Deltas) -> Value {
    json!({
        "bytes_sent": d.bytes_sent,
        "bytes_acked": d.bytes_acked,
        "bytes_received": d.bytes_received,
        "retransmitted_segments": d.retransmitted,
        "fast_recoveries": d.fast_recoveries,
        "timeouts": d.timeouts,
        "rtt_sum_us": micros(d.rtt_sum),
        "rtt_count": d.rtt_count,
        "delayed_acks": d.delayed_acks,
        "busy_us": micros(d.busy),
        "rwnd_limited_us": micros(d.rwnd_limited),
        "sndbuf_limited_us": micros(d.sndbuf_limited),
        "bytes_written": d.bytes_written,
        "writes": d.writes,
        "bytes_read": d.bytes_read,
        "reads": d.reads,
        "cwnd_segments": d.cwnd,
        "send_window_bytes": d.send_window,
        "send_queue_bytes": d.send_queue,
        "receive_queue_bytes": d.receive_queue,
        "srtt_us": micros(d.srtt),
        "baseline_rtt_us": micros(d.baseline_rtt),
        "send_mss_bytes": d.send_mss,
        "send_buffer_bytes": d.send_buffer,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_measured_is_not_said() {
        let nothing = Deltas::default();
        for problem in Problem::ALL {
            for line in of(problem, &nothing, Micros::from_millis(500)) {
                assert!(
                    !line.contains("timeout") && !line.contains("full for"),
                    "{line}"
                );
            }
        }
        let some = Deltas {
            timeouts: Some(2),
            retransmitted: Some(1),
            ..nothing
        };
        let lines = of(Problem::Timeout, &some, Micros::from_millis(500));
        assert_eq!(lines[0], "2 retransmission timeouts");
        assert_eq!(lines[1], "1 segment retransmitted");
    }
}
