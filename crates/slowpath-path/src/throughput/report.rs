// SPDX-License-Identifier: Apache-2.0
//! A test as it is reported: the object of `--json`, and text.

use super::cpu::Cpu;
use super::delay::Delay;
use super::end::{EndReport, Role, Row};
use super::tally::StreamTally;
use super::verdict::{Facts, Stages, Verdict, judge};
use crate::requests::message::Direction;
use serde::Serialize;
use slowpath_diagnose::AdviceContext;
use slowpath_model::{Micros, TcpStats};
use slowpath_text::{bit_rate, bytes};
use std::fmt::Write;

/// A test.
#[derive(Clone, Debug, Serialize)]
pub struct ThroughputReport {
    /// The other end.
    pub peer: String,
    /// `slowpath`, `ndt7` or `iperf3`.
    pub protocol: &'static str,
    /// TCP connections.
    pub streams: usize,
    /// Which end sent: `there` this one, `back` the peer.
    pub direction: Direction,
    /// What counts, without the warm-up, s.
    pub seconds: f64,
    /// What the receiver read, bits a second; where only the sender's figures are known, what was acknowledged.
    pub goodput_bps: Option<f64>,
    /// Payload octets that the sender sent, those that were sent again included.
    pub sent_bytes: Option<u64>,
    /// Payload octets that the receiver read.
    pub received_bytes: Option<u64>,
    /// Payload octets that were sent again.
    pub retransmitted_bytes: Option<u64>,
    /// About a second each, warm-up included.
    pub intervals: Vec<Interval>,
    /// Round trips before the test.
    pub idle_delay_ns: Option<Delay>,
    /// Round trips during it.
    pub loaded_delay_ns: Option<Delay>,
    /// Both as round trips a minute.
    pub round_trips_per_minute: RoundTripsPerMinute,
    /// What each end knows of itself.
    pub ends: Vec<EndView>,
    /// What limited.
    pub verdict: Verdict,
    /// What a reader must know of the numbers.
    pub notes: Vec<ThroughputNote>,
    /// A signal ended it.
    pub interrupted: bool,
}

/// Round trips a minute.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct RoundTripsPerMinute {
    /// Before the test.
    pub idle: Option<f64>,
    /// During it.
    pub loaded: Option<f64>,
}

impl RoundTripsPerMinute {
    /// Of delays.
    #[must_use]
    pub fn of(idle: Option<Delay>, loaded: Option<Delay>) -> Self {
        let per_minute = |delay: Option<Delay>| delay.map(|delay| delay.round_trips_per_minute);
        RoundTripsPerMinute {
            idle: per_minute(idle),
            loaded: per_minute(loaded),
        }
    }
}

/// About a second.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Interval {
    /// From when, s.
    pub start: f64,
    /// To when, s.
    pub end: f64,
    /// It does not count.
    pub warm_up: bool,
    /// What the receiver read, bits a second.
    pub goodput_bps: Option<f64>,
    /// Octets that were sent again.
    pub retransmitted_bytes: Option<u64>,
    /// The congestion windows of all streams at its end, octets.
    pub cwnd_bytes: Option<u64>,
    /// The mean smoothed round trip at its end, ns.
    pub rtt_ns: Option<u64>,
}

/// What an end knows of itself.
#[derive(Clone, Debug, Serialize)]
pub struct EndView {
    /// `sender` or `receiver`.
    pub role: Role,
    /// Whether it is this end.
    pub here: bool,
    /// The statistics of each stream at the end of the counted time.
    pub tcp: Vec<TcpStats>,
    /// All threads of the test, percent of one processor.
    pub cpu_percent: Option<f64>,
    /// The busiest thread; no stream is faster than its thread.
    pub busiest_thread_percent: Option<f64>,
    /// The congestion control.
    pub congestion: Option<String>,
}

/// What a reader must know of the numbers.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "note", rename_all = "snake_case")]
pub enum ThroughputNote {
    /// All streams broke before the time was over.
    Broken,
    /// The counted time is shorter than was asked for.
    Short {
        /// What was counted, s.
        seconds: f64,
    },
    /// The path queues: the round trip grew under load by this factor.
    Queue {
        /// Loaded median by idle median.
        factor: f64,
    },
    /// The file has a test over UDP; its loss is not judged.
    UdpLoss,
    /// There are no statistics of TCP: the sender's system has none, or it is an old version.
    NoStatistics,
    /// The file's test ended with an error.
    Error {
        /// As it states it.
        error: String,
    },
    /// Statistics of the peer's end only: a client of ndt7 downloads.
    PeerStatistics,
    /// Statistics of this end only: a client of ndt7 uploads.
    OwnStatistics,
}

impl ThroughputNote {
    fn text(&self) -> String {
        match self {
            ThroughputNote::Broken => "all streams broke before the time was over".to_owned(),
            ThroughputNote::Short { seconds } => format!("only {seconds:.1} s were counted"),
            ThroughputNote::Queue { factor } => format!(
                "under load the round trip is {factor:.1} times as long: others on this path wait too"
            ),
            ThroughputNote::UdpLoss => {
                "the test is of UDP: iperf3 counts what its own receive buffer drops, and what arrives out of order, as the path's loss; it is not judged. Use `slowpath path owd`".to_owned()
            }
            ThroughputNote::NoStatistics => {
                "there is no congestion window and no round trip: the sender's system, or its version, does not report them".to_owned()
            }
            ThroughputNote::Error { error } => format!("iperf3 reports: {error}"),
            ThroughputNote::PeerStatistics => {
                "the statistics are those that the server sent of its end; ndt7 has no warm-up, slow start is in the mean"
                    .to_owned()
            }
            ThroughputNote::OwnStatistics => {
                "the statistics are this end's, octets the server's; ndt7 has no warm-up, slow start is in the mean"
                    .to_owned()
            }
        }
    }
}

/// What was measured, besides the ends' reports.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The other end.
    pub peer: String,
    /// Which end sent.
    pub direction: Direction,
    /// The warm-up.
    pub warm_up: Micros,
    /// What was asked for.
    pub length: Micros,
    /// The pace of all streams, bits a second.
    pub pace: Option<f64>,
    /// Whether the send buffer's size was set.
    pub send_buffer_set: bool,
    /// Before the test.
    pub idle: Option<Delay>,
    /// During it.
    pub loaded: Option<Delay>,
    /// A signal ended it.
    pub interrupted: bool,
}

/// The report of a test between two slowpaths.
#[must_use]
pub fn of_ends(measured: &Measured, here: &EndReport, there: &EndReport) -> ThroughputReport {
    let (sender, receiver) = match here.role {
        Role::Sender => (here, there),
        Role::Receiver => (there, here),
    };
    let seconds = receiver.length.as_secs_f64();
    let goodput = (seconds > 0.0).then(|| receiver.octets as f64 * 8.0 / seconds);
    let mut facts = of_tallies(&sender.streams);
    facts.goodput = goodput;
    facts.pace = measured.pace;
    facts.send_buffer_set = measured.send_buffer_set;
    facts.sender_cpu = sender.cpu;
    facts.receiver_cpu = receiver.cpu;
    ThroughputReport {
        peer: measured.peer.clone(),
        protocol: "slowpath",
        streams: sender.streams.len().max(receiver.streams.len()),
        direction: measured.direction,
        seconds,
        goodput_bps: goodput,
        sent_bytes: facts.sent,
        received_bytes: Some(receiver.octets),
        retransmitted_bytes: facts.retransmitted,
        intervals: intervals(&sender.rows, &receiver.rows, measured.warm_up),
        idle_delay_ns: measured.idle,
        loaded_delay_ns: measured.loaded,
        round_trips_per_minute: RoundTripsPerMinute::of(measured.idle, measured.loaded),
        ends: vec![view(here, true), view(there, false)],
        verdict: judge(&facts),
        notes: notes(measured, sender, receiver),
        interrupted: measured.interrupted,
    }
}

fn notes(measured: &Measured, sender: &EndReport, receiver: &EndReport) -> Vec<ThroughputNote> {
    let mut notes = Vec::new();
    if sender.broken || receiver.broken {
        notes.push(ThroughputNote::Broken);
    }
    // A tenth of a second is the grain of the samples.
    if receiver.length + Micros(100_000) < measured.length {
        let seconds = receiver.length.as_secs_f64();
        notes.push(ThroughputNote::Short { seconds });
    }
    if let (Some(idle), Some(loaded)) = (measured.idle, measured.loaded) {
        let factor = loaded.median as f64 / idle.median.max(1) as f64;
        // The queue that the verdict takes for one.
        let queue = loaded.median.saturating_sub(idle.median);
        if factor >= 1.25 && queue >= 5_000_000 {
            notes.push(ThroughputNote::Queue { factor });
        }
    }
    notes
}

fn view(end: &EndReport, here: bool) -> EndView {
    EndView {
        role: end.role,
        here,
        tcp: end
            .streams
            .iter()
            .filter_map(|stream| Some(stream.after?.1))
            .collect(),
        cpu_percent: end.cpu.map(|cpu: Cpu| cpu.percent),
        busiest_thread_percent: end.cpu.map(|cpu| cpu.busiest_percent),
        congestion: end.congestion.as_deref().map(slowpath_text::plain),
    }
}

/// The receiver's octets with the sender's statistics, row by row: both begin with their first octet.
fn intervals(sender: &[Row], receiver: &[Row], warm_up: Micros) -> Vec<Interval> {
    let row = |(number, row): (usize, &Row)| {
        let length = row.to.saturating_sub(row.from).as_secs_f64();
        let statistics = sender.get(number);
        Interval {
            start: row.from.as_secs_f64(),
            end: row.to.as_secs_f64(),
            // A row ends where the warm-up does, within the grain of waking.
            warm_up: row.from + Micros(1_000) < warm_up,
            goodput_bps: (length > 0.0).then(|| row.octets as f64 * 8.0 / length),
            retransmitted_bytes: statistics.and_then(|row| row.retransmitted),
            cwnd_bytes: statistics.and_then(|row| row.window),
            rtt_ns: statistics.and_then(|row| Some(row.rtt?.0.saturating_mul(1_000))),
        }
    };
    receiver.iter().enumerate().map(row).collect()
}

/// What the samples of a sender's streams say.
#[must_use]
pub fn of_tallies(streams: &[StreamTally]) -> Facts {
    let sum = |of: &dyn Fn(&StreamTally) -> Option<u64>| -> Option<u64> {
        let sum = streams
            .iter()
            .map(of)
            .try_fold(0u64, |sum, next| Some(sum.saturating_add(next?)));
        sum.filter(|_| !streams.is_empty())
    };
    let count = |of: fn(&TcpStats) -> Option<u64>| sum(&move |stream| stream.count(of));
    let observed: u64 = streams.iter().fold(0, |sum, stream| {
        sum.saturating_add(stream.totals.observed.0)
    });
    let rtts: Vec<u64> = streams
        .iter()
        .filter_map(|stream| Some(stream.mean_rtt()?.0))
        .collect();
    let rtt = rtts
        .iter()
        .fold(0u64, |sum, rtt| sum.saturating_add(*rtt))
        .checked_div(rtts.len() as u64);
    let last = || streams.iter().filter_map(|stream| stream.after);
    Facts {
        stages: stages(observed, starved(streams), &count),
        problems: problems(streams, observed),
        sent: count(|stats| stats.bytes_sent),
        retransmitted: count(|stats| stats.bytes_retransmitted),
        retransmitted_segments: count(|stats| Some(stats.retransmitted)),
        marked: count(|stats| stats.delivered_ce),
        window: sum(&|stream| stream.mean_window()),
        announced: sum(&|stream| stream.after?.1.send_window.map(u64::from)),
        rtt: rtt.map(Micros),
        min_rtt: last().filter_map(|(_, stats)| stats.min_rtt).min(),
        verdict: streams.first().and_then(|stream| {
            let context = AdviceContext::of(&stream.after?.1);
            Some((stream.verdict()?, context))
        }),
        ..Facts::default()
    }
}

/// RFC 4898's times: what is neither the receiver's nor the buffer's of the time with data outstanding is the network's.
/// `starved` is the part of the samples that only a full send buffer leaves.
fn stages(
    observed: u64,
    starved: f64,
    count: &impl Fn(fn(&TcpStats) -> Option<u64>) -> Option<u64>,
) -> Option<Stages> {
    let busy = count(|stats| Some(stats.busy?.0))?;
    let receiver = count(|stats| Some(stats.rwnd_limited?.0))?;
    let buffer = count(|stats| Some(stats.sndbuf_limited?.0))?;
    if observed == 0 {
        return None;
    }
    // The chronographs count in jiffies, and what a wait took is added when it ends.
    let share = |time: u64| (time as f64 / observed as f64).min(1.0);
    let network = share(busy.saturating_sub(receiver).saturating_sub(buffer));
    // What the chronograph of the buffer misses, it counts for the network.
    let missed = (starved - share(buffer)).clamp(0.0, network);
    Some(Stages {
        application: 1.0 - share(busy),
        send_buffer: share(buffer) + missed,
        receiver: share(receiver),
        network: network - missed,
    })
}

/// The part of the samples that only a full send buffer leaves.
fn starved(streams: &[StreamTally]) -> f64 {
    let sum = |of: fn(&StreamTally) -> u64| {
        let sum = streams
            .iter()
            .fold(0u64, |sum, stream| sum.saturating_add(of(stream)));
        sum as f64
    };
    let samples = sum(|stream| stream.samples);
    if samples == 0.0 {
        return 0.0;
    }
    (sum(|stream| stream.starved) / samples).min(1.0)
}

fn problems(streams: &[StreamTally], observed: u64) -> Vec<super::verdict::Because> {
    let mut problems: Vec<super::verdict::Because> = slowpath_model::Problem::ALL
        .into_iter()
        // What the others leave is no finding.
        .skip(1)
        .filter_map(|problem| {
            let time = streams.iter().fold(0u64, |sum, stream| {
                sum.saturating_add(stream.totals.problem_time[problem as usize].0)
            });
            (time > 0 && observed > 0).then(|| super::verdict::Because {
                problem: problem.name(),
                share: (time as f64 / observed as f64).min(1.0),
                time_us: time,
            })
        })
        .collect();
    problems.sort_by_key(|because| std::cmp::Reverse(because.time_us));
    problems
}

/// The report as text.
#[must_use]
pub fn text(report: &ThroughputReport) -> String {
    let mut out = String::new();
    // Writing into a String does not fail.
    let _ = write_text(report, &mut out);
    out
}

fn rate(bits: Option<f64>) -> String {
    bits.map_or_else(|| "unknown".to_owned(), |bits| bit_rate(bits / 8.0))
}

fn write_text(report: &ThroughputReport, out: &mut String) -> std::fmt::Result {
    let way = match report.direction {
        Direction::There => "to",
        Direction::Back => "from",
    };
    writeln!(
        out,
        "{} {way} {}: {} over {:.1} s, {} ({})",
        rate(report.goodput_bps),
        report.peer,
        report
            .received_bytes
            .map_or_else(|| "unknown".to_owned(), bytes),
        report.seconds,
        slowpath_text::plural(report.streams as u64, "stream"),
        report.protocol,
    )?;
    writeln!(out, "limit: {}", report.verdict.text)?;
    for evidence in &report.verdict.evidence {
        writeln!(out, "  {evidence}")?;
    }
    if let Some(advice) = &report.verdict.advice {
        writeln!(out, "  {} [{}]", advice.what, advice.source)?;
    }
    write_intervals(report, out)?;
    write_delays(report, out)?;
    for note in &report.notes {
        writeln!(out, "note: {}", note.text())?;
    }
    Ok(())
}

fn write_intervals(report: &ThroughputReport, out: &mut String) -> std::fmt::Result {
    if report.intervals.is_empty() {
        return Ok(());
    }
    let header = ["interval", "goodput", "sent again", "cwnd", "rtt", ""];
    let mut columns = slowpath_text::Columns::new(&header);
    let dash = || "-".to_owned();
    for row in &report.intervals {
        columns.row([
            format!("{:.1}-{:.1} s", row.start, row.end),
            rate(row.goodput_bps),
            row.retransmitted_bytes.map_or_else(dash, bytes),
            row.cwnd_bytes.map_or_else(dash, bytes),
            row.rtt_ns
                .map_or_else(dash, |nanos| Micros(nanos / 1_000).to_string()),
            if row.warm_up { "warm-up" } else { "" }.to_owned(),
        ]);
    }
    for line in columns.lines(0, slowpath_text::Paint::OFF) {
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

fn write_delays(report: &ThroughputReport, out: &mut String) -> std::fmt::Result {
    let per_minute = report.round_trips_per_minute;
    for (name, delay, per_minute) in [
        ("idle", report.idle_delay_ns, per_minute.idle),
        ("loaded", report.loaded_delay_ns, per_minute.loaded),
    ] {
        if let (Some(delay), Some(per_minute)) = (delay, per_minute) {
            writeln!(
                out,
                "round trip {name}: median {}, P95 {}, {per_minute:.0} a minute",
                Micros(delay.median / 1_000),
                Micros(delay.p95 / 1_000),
            )?;
        }
    }
    Ok(())
}
