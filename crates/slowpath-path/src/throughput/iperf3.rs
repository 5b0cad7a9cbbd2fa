// SPDX-License-Identifier: Apache-2.0
//! What iperf3 3.1 to 3.21 wrote with `--json`, or with `--json-stream` (3.17), judged as far as it goes.
//!
//! Differences between versions and systems: a field that is not there, or negative (a kernel without it), is missing, not
//! zero: round trips and windows are those systems' that have tcp_info, `snd_wnd` is new in 3.10, the target rate in 3.10's
//! `test_start`. Up to 3.15 all streams of an end share one thread, from 3.16 on each has its own. Who received (`--reverse`)
//! has the sender's statistics only with `--get-server-output`.

use super::cpu::Cpu;
use super::end::Role;
use super::report::{EndView, Interval, RoundTripsPerMinute, ThroughputNote, ThroughputReport};
use super::verdict::{Facts, Limiter, Role as Actor, Verdict, judge};
use crate::requests::message::Direction;
use serde_json::{Map, Value};
use slowpath_model::Micros;

/// Why a text is no result.
#[derive(Debug, thiserror::Error)]
pub enum Iperf3Error {
    /// It is no JSON.
    #[error("it is no JSON of iperf3 (iperf3 --json): {0}")]
    Json(#[from] serde_json::Error),
    /// There are none of the parts.
    #[error("it has no `start`, `intervals` and `end`, as iperf3 --json writes them")]
    Parts,
    /// The test did not come about.
    #[error("iperf3 itself failed: {0}")]
    Failed(String),
}

/// The parts of a result.
struct Parts {
    start: Value,
    intervals: Vec<Value>,
    end: Value,
    error: Option<String>,
    /// The same of the server.
    server: Option<Value>,
}

/// A number that is there and not negative.
fn number(value: &Value, key: &str) -> Option<f64> {
    value.get(key)?.as_f64().filter(|number| *number >= 0.0)
}

/// A count that is there and not negative.
fn count(value: &Value, key: &str) -> Option<u64> {
    // The conversion saturates.
    number(value, key).map(|number| number as u64)
}

/// One that says nothing if it is 0: a round trip, a window.
fn positive(value: &Value, key: &str) -> Option<u64> {
    count(value, key).filter(|count| *count > 0)
}

fn is(value: &Value, key: &str) -> Option<bool> {
    value.get(key)?.as_bool()
}

fn list(value: &Value, key: &str) -> Vec<Value> {
    value
        .get(key)
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default()
}

impl Parts {
    fn read(text: &str) -> Result<Self, Iperf3Error> {
        let mut stream = serde_json::Deserializer::from_str(text).into_iter::<Value>();
        let first = match stream.next() {
            Some(first) => first?,
            None => return Err(Iperf3Error::Parts),
        };
        let whole = match first.get("event") {
            // 3.17: an object a line, each with its event.
            Some(_) => Self::joined(first, stream)?,
            None => first,
        };
        let error = whole.get("error").and_then(Value::as_str);
        let error = error.map(slowpath_text::plain);
        let parts = Parts {
            start: whole.get("start").cloned().unwrap_or(Value::Null),
            intervals: list(&whole, "intervals"),
            end: whole.get("end").cloned().unwrap_or(Value::Null),
            server: whole.get("server_output_json").cloned(),
            error,
        };
        match (parts.start.is_object(), parts.end.is_object(), &parts.error) {
            (_, _, Some(error)) if parts.intervals.is_empty() => {
                Err(Iperf3Error::Failed(error.clone()))
            }
            (true, true, _) => Ok(parts),
            _ => Err(Iperf3Error::Parts),
        }
    }

    fn joined(
        first: Value,
        rest: impl Iterator<Item = Result<Value, serde_json::Error>>,
    ) -> Result<Value, Iperf3Error> {
        let mut whole = Map::new();
        let mut intervals = Vec::new();
        for event in std::iter::once(Ok(first)).chain(rest) {
            let event = event?;
            let data = event.get("data").cloned().unwrap_or(Value::Null);
            match event.get("event").and_then(Value::as_str) {
                Some("interval") => intervals.push(data),
                Some(name @ ("start" | "end" | "error" | "server_output_json")) => {
                    whole.insert(name.to_owned(), data);
                }
                _ => {}
            }
        }
        whole.insert("intervals".to_owned(), Value::Array(intervals));
        Ok(Value::Object(whole))
    }

    fn test(&self, key: &str) -> Option<u64> {
        count(self.start.get("test_start")?, key)
    }

    /// Major and minor version.
    fn version(&self) -> Option<(u32, u32)> {
        let version = self.start.get("version")?.as_str()?;
        let mut numbers = version
            .trim_start_matches("iperf ")
            .split(['.', '-', '+'])
            .map(|number| number.parse::<u32>());
        Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
    }

    /// Whether this end, the client, received.
    fn reversed(&self) -> bool {
        self.test("reverse").unwrap_or(0) != 0
    }

    fn streams(&self) -> usize {
        let streams = self.test("num_streams").unwrap_or(0);
        usize::try_from(streams.max(1)).unwrap_or(1)
    }

    /// Streams of an interval that go the way of the test.
    fn of_interval(interval: &Value, sender: bool) -> Vec<Value> {
        // Before 3.7 only one way was possible, and streams do not say.
        let mut streams = list(interval, "streams");
        streams.retain(|stream| is(stream, "sender").unwrap_or(sender) == sender);
        streams
    }

    /// Intervals with the sender's statistics.
    fn sender_intervals(&self) -> Vec<Vec<Value>> {
        let (intervals, sender) = match (self.reversed(), &self.server) {
            (true, Some(server)) => (list(server, "intervals"), true),
            (reversed, _) => (self.intervals.clone(), !reversed),
        };
        intervals
            .iter()
            .map(|interval| Self::of_interval(interval, sender))
            .collect()
    }
}

/// Sums over streams that all have the number; `None` if one has not.
fn sum(streams: &[Value], key: &str) -> Option<u64> {
    let mut all = streams.iter().map(|stream| positive(stream, key));
    let sum = all.try_fold(0u64, |sum, next| Some(sum.saturating_add(next?)));
    sum.filter(|_| !streams.is_empty())
}

fn mean(numbers: &[u64]) -> Option<u64> {
    let sum = numbers
        .iter()
        .fold(0u64, |sum, next| sum.saturating_add(*next));
    sum.checked_div(numbers.len() as u64)
}

/// Reads a result and judges it.
///
/// # Errors
/// It is none.
pub fn read_iperf3(text: &str) -> Result<ThroughputReport, Iperf3Error> {
    let parts = Parts::read(text)?;
    let udp = parts
        .start
        .get("test_start")
        .and_then(|test| test.get("protocol")?.as_str())
        .is_some_and(|protocol| protocol.eq_ignore_ascii_case("udp"));
    let (sent, received) = totals(&parts);
    let intervals = intervals(&parts);
    let facts = facts(&parts, &sent, &received);
    let mut notes = Vec::new();
    if let Some(error) = &parts.error {
        let error = error.clone();
        notes.push(ThroughputNote::Error { error });
    }
    if udp {
        notes.push(ThroughputNote::UdpLoss);
    } else if facts.window.is_none() && facts.rtt.is_none() {
        notes.push(ThroughputNote::NoStatistics);
    }
    Ok(ThroughputReport {
        peer: peer(&parts),
        protocol: "iperf3",
        streams: parts.streams(),
        direction: match parts.reversed() {
            true => Direction::Back,
            false => Direction::There,
        },
        seconds: number(&received, "seconds")
            .or(number(&sent, "seconds"))
            .unwrap_or(0.0),
        goodput_bps: facts.goodput,
        sent_bytes: count(&sent, "bytes"),
        received_bytes: count(&received, "bytes"),
        // iperf3 counts segments, whose sizes are not known.
        retransmitted_bytes: None,
        intervals,
        idle_delay_ns: None,
        loaded_delay_ns: None,
        round_trips_per_minute: RoundTripsPerMinute::default(),
        ends: ends(&parts),
        verdict: match udp {
            true => of_udp(),
            false => judge(&facts),
        },
        notes,
        interrupted: false,
    })
}

fn of_udp() -> Verdict {
    Verdict {
        limiter: Limiter::Unknown,
        share: None,
        who: Actor::None,
        because: Vec::new(),
        evidence: Vec::new(),
        advice: None,
        text: "unknown: UDP has no statistics, and its rate is the one that was asked for"
            .to_owned(),
    }
}

fn peer(parts: &Parts) -> String {
    let of = |key: &str, host: &str, port: &str| {
        let end = parts.start.get(key)?;
        let end = end.get(0).unwrap_or(end);
        let port = count(end, port)?;
        Some(format!(
            "{}:{port}",
            slowpath_text::plain(end.get(host)?.as_str()?)
        ))
    };
    of("connecting_to", "host", "port")
        .or_else(|| of("accepted_connection", "host", "port"))
        .or_else(|| of("connected", "remote_host", "remote_port"))
        .unwrap_or_else(|| "unknown".to_owned())
}

/// `sum_sent` and `sum_received`; a server's result has one of them only, or zeros in the other.
fn totals(parts: &Parts) -> (Value, Value) {
    let of = |key: &str| {
        let sum = parts.end.get(key).cloned().unwrap_or(Value::Null);
        match positive(&sum, "bytes") {
            Some(_) => sum,
            None => Value::Null,
        }
    };
    (of("sum_sent"), of("sum_received"))
}

fn facts(parts: &Parts, sent: &Value, received: &Value) -> Facts {
    let counted: Vec<Vec<Value>> = parts
        .sender_intervals()
        .into_iter()
        .filter(|streams| {
            !streams
                .iter()
                .any(|stream| is(stream, "omitted") == Some(true))
        })
        .collect();
    let of = |key: &str| -> Vec<u64> {
        counted
            .iter()
            .filter_map(|streams| sum(streams, key))
            .collect()
    };
    let rtts: Vec<u64> = counted
        .iter()
        .flatten()
        .filter_map(|stream| positive(stream, "rtt"))
        .collect();
    let streams = list(&parts.end, "streams");
    let senders = streams.iter().filter_map(|stream| stream.get("sender"));
    let least = senders
        .filter_map(|sender| positive(sender, "min_rtt"))
        .min();
    let goodput = number(received, "bits_per_second").or(number(sent, "bits_per_second"));
    let target = target(parts);
    let (sender_cpu, receiver_cpu) = cpus(parts);
    Facts {
        goodput,
        retransmitted_segments: count(sent, "retransmits"),
        window: mean(&of("snd_cwnd")),
        announced: mean(&of("snd_wnd")),
        rtt: mean(&rtts).map(Micros),
        min_rtt: least.or(rtts.into_iter().min()).map(Micros),
        pace: target.map(|target| target * parts.streams() as f64),
        sender_cpu,
        receiver_cpu,
        ..Facts::default()
    }
}

/// The rate of one stream that was asked for: `-b`, or `--fq-rate`.
fn target(parts: &Parts) -> Option<f64> {
    let test = parts.start.get("test_start").unwrap_or(&Value::Null);
    let of = |value, key| positive(value, key).map(|rate| rate as f64);
    let rates = [
        of(test, "target_bitrate"),
        of(&parts.start, "target_bitrate"),
        of(test, "fqrate"),
        of(&parts.start, "fq_rate"),
    ];
    rates.into_iter().flatten().reduce(f64::min)
}

/// Sender's and receiver's. iperf3 gives the whole process: up to 3.15 that is one thread.
fn cpus(parts: &Parts) -> (Option<Cpu>, Option<Cpu>) {
    let utilisation = parts.end.get("cpu_utilization_percent");
    let threads = match parts.version() {
        Some(version) if version < (3, 16) => 1,
        _ => parts.streams(),
    };
    let of = |key: &str| {
        let percent = number(utilisation?, key)?;
        Some(Cpu {
            percent,
            // Threads of one rate: each has its part.
            busiest_percent: percent / threads as f64,
            waited_percent: None,
        })
    };
    let (host, remote) = (of("host_total"), of("remote_total"));
    match parts.reversed() {
        true => (remote, host),
        false => (host, remote),
    }
}

fn ends(parts: &Parts) -> Vec<EndView> {
    let (sender, receiver) = cpus(parts);
    let congestion = |key: &str| {
        let name = parts.end.get(key)?.as_str()?;
        Some(slowpath_text::plain(name))
    };
    [
        (
            Role::Sender,
            sender,
            congestion("sender_tcp_congestion"),
            !parts.reversed(),
        ),
        (
            Role::Receiver,
            receiver,
            congestion("receiver_tcp_congestion"),
            parts.reversed(),
        ),
    ]
    .into_iter()
    .map(|(role, cpu, congestion, here)| EndView {
        role,
        here,
        tcp: Vec::new(),
        cpu_percent: cpu.map(|cpu| cpu.percent),
        busiest_thread_percent: cpu.map(|cpu| cpu.busiest_percent),
        congestion,
    })
    .collect()
}

fn intervals(parts: &Parts) -> Vec<Interval> {
    let statistics = parts.sender_intervals();
    let row = |(index, interval): (usize, &Value)| {
        let total = interval.get("sum").unwrap_or(&Value::Null);
        let streams = statistics.get(index).map_or(&[][..], |streams| streams);
        let rtts: Vec<u64> = streams
            .iter()
            .filter_map(|stream| positive(stream, "rtt"))
            .collect();
        Some(Interval {
            start: number(total, "start")?,
            end: number(total, "end")?,
            warm_up: is(total, "omitted").unwrap_or(false),
            goodput_bps: number(total, "bits_per_second"),
            retransmitted_bytes: None,
            cwnd_bytes: sum(streams, "snd_cwnd"),
            rtt_ns: mean(&rtts).map(|micros| micros.saturating_mul(1_000)),
        })
    };
    parts.intervals.iter().enumerate().filter_map(row).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    /// A result of 3.12 of one stream, by its parts.
    pub fn result(changes: impl FnOnce(&mut Value)) -> ThroughputReport {
        let interval = |start: u32, omitted: bool, window: u64| {
            json!({
                "streams": [{"socket": 5, "start": start, "end": start + 1, "seconds": 1.0, "bytes": 6_000_000,
                    "bits_per_second": 48e6, "retransmits": 0, "snd_cwnd": window, "snd_wnd": 3_000_000,
                    "rtt": 40_000, "rttvar": 100, "pmtu": 1500, "omitted": omitted, "sender": true}],
                "sum": {"start": start, "end": start + 1, "seconds": 1.0, "bytes": 6_000_000,
                    "bits_per_second": 48e6, "retransmits": 0, "omitted": omitted, "sender": true}
            })
        };
        let mut value = json!({
            "start": {"version": "iperf 3.12", "connecting_to": {"host": "192.0.2.7", "port": 5201},
                "test_start": {"protocol": "TCP", "num_streams": 1, "omit": 1, "duration": 2, "reverse": 0,
                    "target_bitrate": 0}},
            "intervals": [interval(0, true, 9_000_000), interval(1, false, 240_000), interval(2, false, 260_000)],
            "end": {
                "streams": [{"sender": {"min_rtt": 20_000, "mean_rtt": 40_000, "sender": true}}],
                "sum_sent": {"seconds": 2.0, "bytes": 12_000_000, "bits_per_second": 48e6, "retransmits": 0},
                "sum_received": {"seconds": 2.02, "bytes": 11_900_000, "bits_per_second": 47e6},
                "cpu_utilization_percent": {"host_total": 3.0, "remote_total": 4.0},
                "sender_tcp_congestion": "cubic", "receiver_tcp_congestion": "cubic"
            }
        });
        changes(&mut value);
        read_iperf3(&value.to_string()).expect("a result")
    }

    fn limiter(changes: impl FnOnce(&mut Value)) -> Limiter {
        result(changes).verdict.limiter
    }

    #[test]
    fn a_window_each_round_trip_explains_the_rate() {
        // 250,000 octets each 40 ms are 50 Mbit/s, of which 47 arrived; the omitted interval's window is in no mean.
        let report = result(|_| {});
        assert_eq!(report.verdict.limiter, Limiter::Network, "{report:?}");
        // 20 of 40 ms are queue.
        assert_eq!(report.verdict.who, Actor::Network);
        assert_eq!(report.goodput_bps, Some(47e6));
        assert_eq!(report.peer, "192.0.2.7:5201");
        let warm: Vec<bool> = report.intervals.iter().map(|row| row.warm_up).collect();
        assert_eq!(warm, [true, false, false]);
        assert_eq!(report.intervals[1].cwnd_bytes, Some(240_000));
        assert_eq!(report.ends[0].congestion.as_deref(), Some("cubic"));
    }

    #[test]
    fn an_announced_window_that_is_smaller_is_the_receivers() {
        // 240,000 octets each 40 ms: 48 Mbit/s, and a congestion window of four times that.
        let set = |value: &mut Value| {
            for interval in value["intervals"].as_array_mut().expect("three") {
                interval["streams"][0]["snd_wnd"] = json!(240_000);
                interval["streams"][0]["snd_cwnd"] = json!(1_000_000);
            }
        };
        assert_eq!(limiter(set), Limiter::Receiver);
    }

    #[test]
    fn a_window_that_is_far_from_full_is_not_the_limit() {
        // A window of 2,500,000 octets would allow 500 Mbit/s, and nothing says what did not.
        let set = |value: &mut Value| {
            for interval in value["intervals"].as_array_mut().expect("three") {
                interval["streams"][0]["snd_cwnd"] = json!(2_500_000);
            }
        };
        assert_eq!(limiter(set), Limiter::Unknown);
    }

    #[test]
    fn a_target_rate_and_a_processor_come_first() {
        assert_eq!(
            limiter(|value| value["start"]["test_start"]["target_bitrate"] = json!(50_000_000)),
            Limiter::Application
        );
        let cpu = |value: &mut Value| {
            value["end"]["cpu_utilization_percent"]["remote_total"] = json!(98.0);
        };
        let report = result(cpu);
        assert_eq!(report.verdict.limiter, Limiter::Cpu);
        assert_eq!(report.verdict.who, Actor::ReceivingHost);
        // From 3.16 on each stream has its own thread: 98 % are four of 25 %.
        let threads = |value: &mut Value| {
            cpu(value);
            value["start"]["version"] = json!("iperf 3.16");
            value["start"]["test_start"]["num_streams"] = json!(4);
        };
        assert_eq!(limiter(threads), Limiter::Network);
    }

    #[test]
    fn what_an_old_version_or_another_system_lacks_is_missing_and_not_zero() {
        let set = |value: &mut Value| {
            value["start"]["version"] = json!("iperf 3.1");
            value["end"]
                .as_object_mut()
                .expect("an object")
                .remove("cpu_utilization_percent");
            value["end"]["streams"] = json!([]);
            for interval in value["intervals"].as_array_mut().expect("three") {
                let stream = interval["streams"][0].as_object_mut().expect("an object");
                for key in ["snd_cwnd", "snd_wnd", "rtt", "sender"] {
                    stream.remove(key);
                }
                // What iperf3 writes where the kernel has none.
                stream.insert("snd_cwnd".to_owned(), json!(-1));
            }
        };
        let report = result(set);
        assert_eq!(report.intervals[1].cwnd_bytes, None);
        assert_eq!(report.intervals[1].rtt_ns, None);
        assert_eq!(report.ends[0].cpu_percent, None);
        assert_eq!(report.verdict.limiter, Limiter::Unknown);
        assert_eq!(report.notes, [ThroughputNote::NoStatistics]);
    }

    #[test]
    fn loss_of_udp_is_not_judged() {
        let report = result(|value| value["start"]["test_start"]["protocol"] = json!("UDP"));
        assert_eq!(report.verdict.limiter, Limiter::Unknown);
        assert_eq!(report.notes, [ThroughputNote::UdpLoss]);
    }

    #[test]
    fn a_stream_of_events_is_the_same_result() {
        let lines = [
            json!({"event": "start", "data": {"test_start": {"protocol": "TCP", "num_streams": 2}}}),
            json!({"event": "interval", "data": {"streams": [], "sum": {"start": 0, "end": 1, "bits_per_second": 5.0}}}),
            json!({"event": "end", "data": {"sum_received": {"bytes": 9, "bits_per_second": 7.0, "seconds": 1}}}),
        ];
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        let report = read_iperf3(&text).expect("a result");
        assert_eq!((report.streams, report.intervals.len()), (2, 1));
        assert_eq!(report.goodput_bps, Some(7.0));
    }

    #[test]
    fn what_is_no_result_is_named() {
        let error = |text: &str| read_iperf3(text).expect_err("none").to_string();
        assert!(error("{}").contains("`start`"));
        assert!(error("").contains("`start`"));
        assert!(error("Connecting to host").contains("no JSON"));
        let failed = "{\"start\":{},\"intervals\":[],\"end\":{},\"error\":\"unable to connect\"}";
        assert!(error(failed).contains("unable to connect"));
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in ".{0,200}") {
            let _ = read_iperf3(&text);
        }

        #[test]
        fn any_numbers_give_a_verdict(numbers in prop::collection::vec(any::<f64>(), 8)) {
            let number = |i: usize| json!(numbers[i]);
            let set = |value: &mut Value| {
                let stream = &mut value["intervals"][1]["streams"][0];
                stream["snd_cwnd"] = number(0);
                stream["snd_wnd"] = number(1);
                stream["rtt"] = number(2);
                value["start"]["test_start"]["num_streams"] = number(3);
                value["start"]["test_start"]["target_bitrate"] = number(4);
                value["end"]["sum_received"]["bits_per_second"] = number(5);
                value["end"]["cpu_utilization_percent"]["host_total"] = number(6);
                value["end"]["sum_sent"]["retransmits"] = number(7);
            };
            let report = result(set);
            prop_assert!(!report.verdict.text.is_empty());
        }
    }
}
