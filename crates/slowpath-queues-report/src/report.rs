// SPDX-License-Identifier: Apache-2.0
//! The report of replayed queues as text and JSON.

use crate::captures::Captures;
use serde::Serialize;
use slowpath_netsim::scenario::Scenario;
use slowpath_netsim::topology::Node;
use slowpath_queues::Outcome;
use slowpath_queues::findings::{Finding, QueueReport, Sender};
use slowpath_text::Paint;
use slowpath_trace::segment::Endpoint;
use std::collections::HashMap;
use std::io::{self, Write};
use std::net::SocketAddr;

/// Contenders listed for a queue at most.
const CONTENDERS: usize = 10;
/// Queues in the text.
const SHOWN: usize = 12;
const PICOS: f64 = 1e12;

/// What a report is made from.
pub struct Sources<'a> {
    /// The network.
    pub scenario: &'a Scenario,
    /// The captured packets.
    pub captures: &'a Captures,
    /// The replayed queues.
    pub replayed: &'a Outcome,
    /// The ends of each connection.
    pub ends: &'a HashMap<Sender, (Endpoint, Endpoint)>,
    /// The time of second 0, in nanoseconds since 1970.
    pub origin: i64,
}

/// One end of a connection, and what it had of a queue.
#[derive(Clone, Debug, Serialize)]
pub struct Contender {
    /// Its sending host.
    pub host: String,
    /// The sending end.
    pub source: String,
    /// The receiving end.
    pub destination: String,
    /// Bytes, or dropped packets.
    pub amount: u64,
}

/// One queue.
#[derive(Clone, Debug, Serialize)]
pub struct Queue {
    /// The queue's number in the replay.
    #[serde(skip)]
    pub number: u32,
    /// Its switch.
    pub switch: String,
    /// The node at the end of its link.
    pub neighbour: String,
    /// Packets.
    pub packets: u64,
    /// Dropped packets.
    pub dropped: u64,
    /// The longest it was, in bytes.
    pub max_bytes: u64,
    /// When it was longest.
    pub max_at_seconds: f64,
    /// Whose bytes it held then.
    pub bytes_at_max: Vec<Contender>,
    /// Whose bytes it held when it dropped.
    pub bytes_at_drops: Vec<Contender>,
    /// Whose packets it dropped.
    pub drops: Vec<Contender>,
}

/// Something that is more than a full queue.
#[derive(Clone, Debug, Serialize)]
pub struct QueueFinding {
    /// The finding's name.
    pub name: &'static str,
    /// The finding in a sentence.
    pub text: String,
    /// Its switch.
    pub switch: String,
    /// The node at the end of its link.
    pub neighbour: String,
    /// The node at the end of the other queue's link.
    pub filled_neighbour: String,
    /// Its beginning.
    pub from_seconds: f64,
    /// Its end.
    pub to_seconds: f64,
    /// The dynamic threshold at both.
    pub threshold_bytes: (u64, u64),
    /// The length of the queue at both.
    pub own_bytes: (u64, u64),
    /// The length of the other queue at both.
    pub other_bytes: (u64, u64),
    /// Packets dropped between.
    pub drops: u64,
    /// Whose packets these were.
    pub lost: Vec<Contender>,
}

/// All of it.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    #[serde(rename = "type")]
    kind: &'static str,
    /// Nanoseconds since 1970 at second 0.
    pub origin_unix_ns: i64,
    /// Captures read.
    pub captures: u64,
    /// Packets.
    pub packets: u64,
    /// Lost packets.
    pub lost: u64,
    /// Dropped packets.
    pub dropped: u64,
    /// Lost packets for which no queue was full.
    pub nowhere: u64,
    /// Packets that may have been lost or not.
    pub unknown: u64,
    /// Packets received that no host sent.
    pub unmatched: u64,
    /// Packets from or to addresses outside the topology.
    pub elsewhere: u64,
    /// Hosts without a capture.
    pub hosts_without_capture: Vec<String>,
    /// What is more than a full queue.
    pub findings: Vec<QueueFinding>,
    /// The queues, those that dropped most first.
    pub queues: Vec<Queue>,
}

impl Report {
    /// The report of queues and findings.
    pub fn new(from: &Sources<'_>, queues: &[QueueReport], findings: &[Finding]) -> Self {
        let topology = &from.scenario.topology;
        let names = |report: &QueueReport| {
            let switch = &topology.switches()[report.switch.0 as usize];
            let peer = switch.ports[usize::from(report.port.0)].peer;
            let own = topology.name(Node::Switch(report.switch.0));
            (own.to_owned(), topology.name(peer).to_owned())
        };
        let who = |all: &[(Sender, u64)]| {
            let one = |(sender, amount): &(Sender, u64)| {
                let (source, destination) = from.ends.get(sender)?;
                let text = |end: &Endpoint| SocketAddr::from((end.address, end.port)).to_string();
                Some(Contender {
                    host: topology.name(Node::Host(sender.0.0)).to_owned(),
                    source: text(source),
                    destination: text(destination),
                    amount: *amount,
                })
            };
            all.iter()
                .take(CONTENDERS)
                .filter_map(one)
                .collect::<Vec<_>>()
        };
        let of = |report: &QueueReport| {
            let (switch, neighbour) = names(report);
            Queue {
                number: report.queue,
                switch,
                neighbour,
                packets: report.joined,
                dropped: report.dropped,
                max_bytes: report.most.0,
                max_at_seconds: report.most.1.0 as f64 / PICOS,
                bytes_at_max: who(&report.at_most),
                bytes_at_drops: who(&report.at_drops),
                drops: who(&report.lost),
            }
        };
        let mut all: Vec<Queue> = queues.iter().map(of).collect();
        let findings = findings
            .iter()
            .filter_map(|finding| queue_finding(finding, &all, who));
        let findings = findings.collect();
        all.sort_by_key(|queue| {
            let (dropped, bytes) = (queue.dropped, queue.max_bytes);
            (u64::MAX - dropped, u64::MAX - bytes, queue.number)
        });
        let lost = from.captures.sent.iter().filter(|sent| sent.lost).count() as u64;
        Report {
            kind: "queues",
            origin_unix_ns: from.origin,
            captures: from.captures.files,
            packets: from.captures.sent.len() as u64,
            lost,
            dropped: from.replayed.dropped.len() as u64,
            nowhere: from.replayed.arrived,
            unknown: from.captures.unknown,
            unmatched: from.captures.unmatched,
            elsewhere: from.captures.elsewhere,
            hosts_without_capture: from.captures.without.clone(),
            findings,
            queues: all,
        }
    }

    /// As a JSON object.
    pub fn json(&self) -> String {
        // Numbers, names and lists of them are always JSON.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// As text.
    ///
    /// # Errors
    /// Writing fails.
    pub fn write(&self, paint: Paint, out: &mut impl Write) -> io::Result<()> {
        writeln!(
            out,
            "{} packets of {} captures; {} lost: {} dropped at full queues, {} at none",
            self.packets, self.captures, self.lost, self.dropped, self.nowhere
        )?;
        for (count, what) in [
            (
                self.unknown,
                "may have been lost after a capture's end, or where there is none",
            ),
            (self.unmatched, "received that no capture shows as sent"),
            (self.elsewhere, "from or to addresses outside the topology"),
            (
                self.hosts_without_capture.len() as u64,
                "hosts without a capture",
            ),
        ] {
            if count > 0 {
                writeln!(out, "  {count} {what}")?;
            }
        }
        for found in &self.findings {
            writeln!(out, "\n{}", paint.bold(found.name))?;
            writeln!(out, "  {}", found.text)?;
            for one in &found.lost {
                let Contender {
                    host,
                    source,
                    destination,
                    amount,
                } = one;
                writeln!(
                    out,
                    "  lost by {host}: {amount} packets of {source} -> {destination}"
                )?;
            }
        }
        self.write_queues(out)
    }

    fn write_queues(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(
            out,
            "\nqueue                        packets  dropped   most KiB  at s"
        )?;
        for queue in self.queues.iter().take(SHOWN) {
            let name = format!("{} -> {}", queue.switch, queue.neighbour);
            writeln!(
                out,
                "{name:28} {:7} {:8} {:10.1}  {:.6}",
                queue.packets,
                queue.dropped,
                queue.max_bytes as f64 / 1024.0,
                queue.max_at_seconds
            )?;
            for one in queue.bytes_at_max.iter().take(3) {
                let Contender {
                    host,
                    source,
                    destination,
                    amount,
                } = one;
                let share = 100.0 * *amount as f64 / queue.max_bytes.max(1) as f64;
                writeln!(out, "    {share:3.0} % {host}: {source} -> {destination}")?;
            }
        }
        if self.queues.len() > SHOWN {
            let more = self.queues.len() - SHOWN;
            writeln!(out, "{more} more queues: --json, --out")?;
        }
        Ok(())
    }
}

fn queue_finding(
    finding: &Finding,
    queues: &[Queue],
    who: impl Fn(&[(Sender, u64)]) -> Vec<Contender>,
) -> Option<QueueFinding> {
    let &Finding::ThresholdFell {
        queue,
        filled,
        span,
        threshold,
        own,
        other,
        drops,
        ref lost,
    } = finding;
    let of = |number: u32| queues.iter().find(|queue| queue.number == number);
    let (own_queue, other_queue) = (of(queue)?, of(filled)?);
    let times = [span.0, span.1].map(|time| time.0 as f64 / PICOS);
    let kib = |bytes: u64| bytes as f64 / 1024.0;
    let text = format!(
        "At {}, the queue to {} dropped {drops} packets while it became shorter ({:.0} to {:.0} KiB, {:.3} to \
         {:.3} ms): its dynamic threshold fell from {:.0} to {:.0} KiB because the queue to {} filled \
         ({:.0} to {:.0} KiB).",
        own_queue.switch,
        own_queue.neighbour,
        kib(own.0),
        kib(own.1),
        times[0] * 1e3,
        times[1] * 1e3,
        kib(threshold.0),
        kib(threshold.1),
        other_queue.neighbour,
        kib(other.0),
        kib(other.1),
    );
    Some(QueueFinding {
        name: "dynamic threshold fell because another queue filled",
        text,
        switch: own_queue.switch.clone(),
        neighbour: own_queue.neighbour.clone(),
        filled_neighbour: other_queue.neighbour.clone(),
        from_seconds: times[0],
        to_seconds: times[1],
        threshold_bytes: threshold,
        own_bytes: own,
        other_bytes: other,
        drops,
        lost: who(lost),
    })
}
