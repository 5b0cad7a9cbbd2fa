// SPDX-License-Identifier: Apache-2.0
//! The numbers behind a problem, in words and as JSON.

use crate::{bytes, plural};
use serde::Serialize;
use serde_json::Value;
use slowpath_model::{Deltas, Finding, Micros, Problem, Share, Stage};

/// The statistics that speak for a finding, most significant first; what was not measured is left
/// out. How long it lasted is the finding's own time, whichever statistic that rests on, of `within`: the
/// time that its share is of. `d` are the counters of the connection in that time, and its gauges in the last
/// interval that has the problem.
pub fn of(finding: &Finding, d: &Deltas, within: Micros) -> Vec<String> {
    let lasted = |what: &str| match finding.share {
        Share::Measured(time) => Some(format!("{what} for {} of {within}", time.min(within))),
        Share::Coarse => None,
    };
    let outstanding = || {
        let busy = d.busy?.min(within);
        Some(format!("data outstanding for {busy} of {within}"))
    };
    let problem = finding.problem;
    let mut out = Vec::new();
    let mut say = |text: Option<String>| out.extend(text);
    match problem {
        Problem::SenderAppLimited => {
            say(d.writes.map(|n| written(n, d.bytes_written.unwrap_or(0))));
            say(d.bytes_acked.map(|b| format!("{} acknowledged", bytes(b))));
            say(outstanding());
        }
        Problem::SendBufferLimited => {
            say(lasted("send buffer full"));
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
            say(lasted("receive window full"));
            say(d
                .send_window
                .map(|w| format!("peer announces {}", bytes(w.into()))));
            say(Some(window(d)));
        }
        Problem::CongestionWindowLimited => {
            say(lasted("congestion window full").or_else(outstanding));
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
        Problem::SynRetransmit => say(Some(match finding.events.filter(|n| *n > 0) {
            Some(n) => format!("{} sent again", plural(n, "SYN")),
            None => "a SYN sent again".to_owned(),
        })),
        Problem::AcceptQueueOverflow | Problem::SynQueueOverflow => {
            say(finding
                .events
                .map(|n| format!("{} turned away", plural(n, "segment"))));
        }
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

/// The statistics as they leave: units in the keys, null for what was not measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Evidence {
    /// Those that cover the interval or, in sums, the whole time.
    #[serde(flatten)]
    pub counters: Counters,
    /// Those that are as they were last.
    #[serde(flatten)]
    pub gauges: Gauges,
}

/// What was counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// SentBytes: payload bytes sent.
    pub bytes_sent: Option<u64>,
    /// Payload bytes acknowledged.
    pub bytes_acked: Option<u64>,
    /// Payload bytes received.
    pub bytes_received: Option<u64>,
    /// Segments retransmitted for whatever reason.
    pub retransmitted_segments: Option<u64>,
    /// #FastRetrans: entries to fast recovery.
    pub fast_recoveries: Option<u64>,
    /// #Timeout: expirations of the retransmission timer.
    pub timeouts: Option<u64>,
    /// SumRTT.
    pub rtt_sum_us: Option<u64>,
    /// #SampleRTT.
    pub rtt_count: Option<u64>,
    /// Delayed ACKs.
    pub delayed_acks: Option<u64>,
    /// Time with data outstanding.
    pub busy_us: Option<u64>,
    /// RwinLimitTime.
    pub rwnd_limited_us: Option<u64>,
    /// Time limited by the send buffer.
    pub sndbuf_limited_us: Option<u64>,
    /// WriteBytes.
    pub bytes_written: Option<u64>,
    /// Send calls.
    pub writes: Option<u64>,
    /// ReadBytes.
    pub bytes_read: Option<u64>,
    /// Receive calls.
    pub reads: Option<u64>,
}

/// What was last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Gauges {
    /// Cwin at the end, segments.
    pub cwnd_segments: u32,
    /// Rwin at the end, bytes.
    pub send_window_bytes: Option<u32>,
    /// CurAppWQueue at the end, bytes.
    pub send_queue_bytes: u32,
    /// Bytes received and not read at the end.
    pub receive_queue_bytes: u32,
    /// Smoothed RTT at the end.
    pub srtt_us: Option<u64>,
    /// The RTT baseline used for delayed ACKs.
    pub baseline_rtt_us: Option<u64>,
    /// Sending MSS, bytes.
    pub send_mss_bytes: u32,
    /// Send-buffer limit, bytes of truesize.
    pub send_buffer_bytes: Option<u32>,
}

impl From<&Deltas> for Evidence {
    fn from(d: &Deltas) -> Self {
        Evidence {
            counters: Counters {
                bytes_sent: d.bytes_sent,
                bytes_acked: d.bytes_acked,
                bytes_received: d.bytes_received,
                retransmitted_segments: d.retransmitted,
                fast_recoveries: d.fast_recoveries,
                timeouts: d.timeouts,
                rtt_sum_us: d.rtt_sum.map(|t| t.0),
                rtt_count: d.rtt_count,
                delayed_acks: d.delayed_acks,
                busy_us: d.busy.map(|t| t.0),
                rwnd_limited_us: d.rwnd_limited.map(|t| t.0),
                sndbuf_limited_us: d.sndbuf_limited.map(|t| t.0),
                bytes_written: d.bytes_written,
                writes: d.writes,
                bytes_read: d.bytes_read,
                reads: d.reads,
            },
            gauges: Gauges {
                cwnd_segments: d.cwnd,
                send_window_bytes: d.send_window,
                send_queue_bytes: d.send_queue,
                receive_queue_bytes: d.receive_queue,
                srtt_us: d.srtt.map(|t| t.0),
                baseline_rtt_us: d.baseline_rtt.map(|t| t.0),
                send_mss_bytes: d.send_mss,
                send_buffer_bytes: d.send_buffer,
            },
        }
    }
}

/// The statistics as JSON, keys in alphabetical order.
pub fn json(d: &Deltas) -> Value {
    // Serialising to a value fails for maps without string keys only.
    serde_json::to_value(Evidence::from(d)).unwrap_or_default()
}

/// The statistics by their keys in [`json`], in the same order.
pub fn cells(d: &Deltas) -> [(&'static str, Option<u64>); 24] {
    let Evidence {
        counters: c,
        gauges: g,
    } = Evidence::from(d);
    [
        ("baseline_rtt_us", g.baseline_rtt_us),
        ("busy_us", c.busy_us),
        ("bytes_acked", c.bytes_acked),
        ("bytes_read", c.bytes_read),
        ("bytes_received", c.bytes_received),
        ("bytes_sent", c.bytes_sent),
        ("bytes_written", c.bytes_written),
        ("cwnd_segments", Some(g.cwnd_segments.into())),
        ("delayed_acks", c.delayed_acks),
        ("fast_recoveries", c.fast_recoveries),
        ("reads", c.reads),
        ("receive_queue_bytes", Some(g.receive_queue_bytes.into())),
        ("retransmitted_segments", c.retransmitted_segments),
        ("rtt_count", c.rtt_count),
        ("rtt_sum_us", c.rtt_sum_us),
        ("rwnd_limited_us", c.rwnd_limited_us),
        ("send_buffer_bytes", g.send_buffer_bytes.map(u64::from)),
        ("send_mss_bytes", Some(g.send_mss_bytes.into())),
        ("send_queue_bytes", Some(g.send_queue_bytes.into())),
        ("send_window_bytes", g.send_window_bytes.map(u64::from)),
        ("sndbuf_limited_us", c.sndbuf_limited_us),
        ("srtt_us", g.srtt_us),
        ("timeouts", c.timeouts),
        ("writes", c.writes),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_those_of_the_json() {
        let deltas = Deltas {
            bytes_sent: Some(1),
            rtt_sum: Some(Micros(2)),
            writes: Some(3),
            cwnd: 4,
            send_window: Some(5),
            send_queue: 6,
            receive_queue: 7,
            srtt: Some(Micros(8)),
            baseline_rtt: Some(Micros(9)),
            send_mss: 10,
            send_buffer: Some(11),
            timeouts: Some(12),
            busy: Some(Micros(13)),
            ..Deltas::default()
        };
        let Value::Object(object) = json(&deltas) else {
            panic!("no object");
        };
        let cells = cells(&deltas).map(|(key, value)| (key.to_owned(), Value::from(value)));
        assert_eq!(cells.to_vec(), object.into_iter().collect::<Vec<_>>());
    }

    #[test]
    fn what_was_not_measured_is_not_said() {
        let nothing = Deltas::default();
        let coarse = |problem| Finding {
            problem,
            share: Share::Coarse,
            events: None,
        };
        for problem in Problem::ALL {
            for line in of(&coarse(problem), &nothing, Micros::from_millis(500)) {
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
        let lines = of(&coarse(Problem::Timeout), &some, Micros::from_millis(500));
        assert_eq!(lines[0], "2 retransmission timeouts");
        assert_eq!(lines[1], "1 segment retransmitted");
    }

    /// SendBufferLimited is the sum of two clocks; the kernel's is one of them.
    #[test]
    fn how_long_it_lasted_is_the_findings_time_and_no_counters() {
        let finding = Finding {
            problem: Problem::SendBufferLimited,
            share: Share::Measured(Micros::from_millis(450)),
            events: None,
        };
        let deltas = Deltas {
            sndbuf_limited: Some(Micros::ZERO),
            ..Deltas::default()
        };
        let lines = of(&finding, &deltas, Micros::from_millis(500));
        assert_eq!(lines[0], "send buffer full for 450ms of 500ms");
    }
}
