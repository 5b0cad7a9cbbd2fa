// SPDX-License-Identifier: Apache-2.0
//! What is said of a path: JSON by its fields, and text.

use super::gaps::TrainsFinding;
use super::links::Links;
use super::loaded::LoadedFinding;
use super::verdict::NeckVerdict;
use serde::Serialize;
use std::fmt::Write as _;
use std::net::IpAddr;

/// The neck of a path.
#[derive(Clone, Debug, Serialize)]
pub struct NeckReport {
    /// The peer as it was given.
    pub peer: String,
    /// Its address.
    pub address: IpAddr,
    /// Whether the neck is known.
    pub verdict: VerdictName,
    /// The link; `None`: it cannot be said.
    pub link: Option<LinkReport>,
    /// The rate at which trains left the neck, bits of IP a second, the median of the trains: an upper bound of what is to be
    /// had there beside the traffic of others. `None`: the trains show no neck.
    pub rate_bound_bps: Option<u64>,
    /// The same of a tenth of the trains, and of nine tenths.
    pub rate_spread: Option<RateSpread>,
    /// What the neck's link carries in all, bits of IP a second; `None`: it is not known.
    pub capacity_bps: Option<u64>,
    /// What others leave of it.
    pub available_bps: Option<u64>,
    /// How certain the verdict is, 0 to 1: of the shares of trains and of bursts that agree the lesser; 0 without a link.
    pub confidence: f64,
    /// Trains that were sent.
    pub trains: usize,
    /// Hops, this host first.
    pub hops: Vec<HopReport>,
    /// What each method says.
    pub methods: Vec<MethodReport>,
    /// Octets of IP that were sent.
    pub sent_bytes: u64,
    /// What limits the verdict.
    pub notes: Vec<NeckNote>,
}

/// Whether the neck is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum VerdictName {
    /// It is.
    Link,
    /// The methods disagree, or one has no finding.
    #[serde(rename = "cannot_tell")]
    Unknown,
}

/// A link: it joins hop k − 1 and hop k.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LinkReport {
    /// k; `None`: one of several, from `hop_least` to `hop_most`, because hops between are silent.
    pub hop: Option<u8>,
    /// The address of the hop before it; `None`: it is silent.
    pub from: Option<IpAddr>,
    /// The address of the hop behind it; `None`: it is silent.
    pub to: Option<IpAddr>,
    /// The nearest link that it can be, and the furthest.
    #[serde(flatten)]
    pub links: Links,
}

/// A spread of rates, bits of IP a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RateSpread {
    /// A tenth of the trains were not above it.
    pub low: u64,
    /// Nine tenths were not above it.
    pub high: u64,
}

/// One hop.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HopReport {
    /// Its TTL; 0 is this host.
    pub ttl: u8,
    /// Its address; `None`: it is silent.
    pub address: Option<IpAddr>,
    /// The median of its gaps, ns; `None`: no train had both answers of it.
    pub gap_ns: Option<u64>,
    /// The rate at which trains came to it, bits of IP a second.
    pub rate_bps: Option<u64>,
    /// Probes that were sent to it.
    pub asked: u64,
    /// Those that it answered.
    pub answered: u64,
    /// The median of its round trips without load, ns.
    pub idle_rtt_ns: Option<u64>,
    /// The same under load.
    pub loaded_rtt_ns: Option<u64>,
}

/// What a method says.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct MethodReport {
    /// `trains` or `loaded_rtt`.
    pub method: &'static str,
    /// The link; `None`: it finds none, or one of several.
    pub hop: Option<u8>,
    /// The links that it can be.
    #[serde(flatten)]
    pub links: Option<Links>,
    /// The share of trains or bursts that agree.
    pub confidence: f64,
    /// The p-value of the change of round trips, of this method only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p_value: Option<f64>,
    /// How much later hops behind the link answer under load, ns, of this method only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub added_ns: Option<u64>,
}

impl MethodReport {
    /// Of the trains.
    #[must_use]
    pub fn of_trains(finding: Option<&TrainsFinding>) -> Self {
        let links = finding.map(|it| it.links);
        MethodReport {
            method: "trains",
            hop: links.and_then(Links::single),
            links,
            confidence: finding.map_or(0.0, |it| it.confidence),
            p_value: None,
            added_ns: None,
        }
    }

    /// Of the round trips under load.
    #[must_use]
    pub fn of_loaded(finding: Option<&LoadedFinding>) -> Self {
        let links = finding.map(|it| it.links);
        MethodReport {
            method: "loaded_rtt",
            hop: links.and_then(Links::single),
            links,
            confidence: finding.map_or(0.0, |it| it.confidence),
            p_value: finding.map(|it| it.p_value),
            added_ns: finding.map(|it| it.added_nanos as u64),
        }
    }
}

/// What limits a verdict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "note", rename_all = "snake_case")]
pub enum NeckNote {
    /// The methods find different links.
    MethodsDisagree,
    /// The trains show no hop behind which they are slower in most trains.
    TrainsFindNone,
    /// Load fills no queue that some hops are before and others behind.
    LoadFindsNone,
    /// Nothing answered: there is no path to measure.
    NothingAnswered,
    /// The destination does not answer: what is behind the last hop that does is not measured.
    DestinationSilent {
        /// The last hop that answers.
        last_hop: u8,
    },
    /// Both methods agree, and neither has answers enough of the hops at the end, behind which the neck may be.
    EndNotMeasured {
        /// The last hop that one of them has.
        last_hop: u8,
    },
    /// Hops that never answer: links beside them cannot be distinguished.
    SilentHops {
        /// Their TTLs.
        hops: Vec<u8>,
    },
    /// Hops that answer less than half of the probes, as routers do that limit their ICMP.
    RareAnswers {
        /// Their TTLs.
        hops: Vec<u8>,
    },
    /// Packets behind the load were lost: trains were made shorter.
    TrainsShortened {
        /// Load packets in the last ones.
        load_packets: u32,
    },
    /// A link carries only shorter packets: so long they were made.
    PacketsShortened {
        /// Octets of IP.
        size: usize,
    },
    /// The queue that some hops are before and others behind is that of others' traffic: our load added nothing to it.
    QueueOfOthers,
    /// The load was held at the highest rate allowed, which may be too little to fill a queue.
    LoadHeldBack {
        /// Bits of IP a second.
        rate_bps: u64,
    },
    /// A signal ended the measurement early.
    Interrupted,
}

/// The verdict's parts of a report: name, link, confidence, and why there is none.
#[must_use]
pub(super) fn of_verdict(
    verdict: NeckVerdict,
    address: impl Fn(u8) -> Option<IpAddr>,
) -> (VerdictName, Option<LinkReport>, f64) {
    match verdict {
        NeckVerdict::Link { links, confidence } => {
            let link = LinkReport {
                hop: links.single(),
                from: address(links.least - 1),
                to: address(links.most),
                links,
            };
            (VerdictName::Link, Some(link), confidence)
        }
        NeckVerdict::Disagreement | NeckVerdict::EndNotMeasured { .. } | NeckVerdict::NotFound => {
            (VerdictName::Unknown, None, 0.0)
        }
    }
}

/// The report as text.
#[must_use]
pub fn text(report: &NeckReport) -> String {
    let mut out = String::new();
    // Writing to memory does not fail.
    let _ = writeln!(
        out,
        "neck of the path to {} ({}): {} trains, {:.1} MB sent",
        report.peer,
        report.address,
        report.trains,
        report.sent_bytes as f64 / 1e6
    );
    let _ = writeln!(
        out,
        "{:>3}  {:<39} {:>9} {:>10} {:>9} {:>9}",
        "hop", "address", "gap ms", "Mbit/s", "idle ms", "loaded ms"
    );
    for hop in &report.hops {
        let address = match (hop.ttl, hop.address) {
            (0, _) => "this host".to_owned(),
            (_, Some(address)) => address.to_string(),
            (_, None) => "silent".to_owned(),
        };
        let _ = writeln!(
            out,
            "{:>3}  {:<39} {:>9} {:>10} {:>9} {:>9}",
            hop.ttl,
            address,
            millis(hop.gap_ns, 3),
            mbits(hop.rate_bps),
            millis(hop.idle_rtt_ns, 2),
            millis(hop.loaded_rtt_ns, 2)
        );
    }
    let _ = writeln!(out, "{}", finding(report));
    for note in &report.notes {
        if let Some(line) = note_text(note) {
            let _ = writeln!(out, "note: {line}");
        }
    }
    out
}

fn millis(nanos: Option<u64>, digits: usize) -> String {
    nanos.map_or_else(
        || "-".to_owned(),
        |nanos| format!("{:.digits$}", nanos as f64 / 1e6),
    )
}

fn mbits(rate: Option<u64>) -> String {
    rate.map_or_else(
        || "-".to_owned(),
        |rate| format!("{:.1}", rate as f64 / 1e6),
    )
}

/// The finding and its reason, in one sentence.
fn finding(report: &NeckReport) -> String {
    let Some(link) = report.link else {
        let opinions: Vec<String> = report.methods.iter().map(opinion).collect();
        return format!("Where the neck is cannot be said: {}.", opinions.join("; "));
    };
    let end = |address: Option<IpAddr>, ttl: u8| match (ttl, address) {
        (0, _) => "this host".to_owned(),
        (_, Some(address)) => address.to_string(),
        (_, None) => format!("hop {ttl}"),
    };
    let which = match link.hop {
        Some(hop) => format!("link {hop}"),
        None => format!(
            "one of the links {} to {}",
            link.links.least, link.links.most
        ),
    };
    let mut sentence = format!(
        "The neck is {which}, from {} to {} (confidence {:.2})",
        end(link.from, link.links.least - 1),
        end(link.to, link.links.most),
        report.confidence
    );
    if let (Some(rate), Some(spread)) = (report.rate_bound_bps, report.rate_spread) {
        let _ = write!(
            sentence,
            ": trains leave it at {} Mbit/s ({} to {})",
            mbits(Some(rate)),
            mbits(Some(spread.low)),
            mbits(Some(spread.high))
        );
    }
    if let (Some(capacity), Some(available)) = (report.capacity_bps, report.available_bps) {
        let _ = write!(
            sentence,
            "; it carries about {} Mbit/s, of which others leave about {}",
            mbits(Some(capacity)),
            mbits(Some(available))
        );
    }
    if let Some(added) = report.methods.iter().find_map(|method| method.added_ns) {
        let _ = write!(
            sentence,
            "; only hops behind it answer later under load, by {} ms",
            millis(Some(added), 1)
        );
    }
    sentence + "."
}

fn opinion(method: &MethodReport) -> String {
    let name = match method.method {
        "trains" => "trains",
        _ => "round trips under load",
    };
    match (method.links, method.hop) {
        (Some(_), Some(hop)) => format!("{name} say link {hop} ({:.2})", method.confidence),
        (Some(links), None) => format!(
            "{name} say one of the links {} to {} ({:.2})",
            links.least, links.most, method.confidence
        ),
        (None, _) => format!("{name} show none"),
    }
}

fn note_text(note: &NeckNote) -> Option<String> {
    let list = |hops: &[u8]| {
        let hops: Vec<String> = hops.iter().map(u8::to_string).collect();
        hops.join(", ")
    };
    Some(match note {
        // The sentence says it.
        NeckNote::MethodsDisagree | NeckNote::TrainsFindNone | NeckNote::LoadFindsNone => {
            return None;
        }
        NeckNote::NothingAnswered => {
            "neither a router nor the destination answered: look at the route with traceroute, or \
             whether a firewall drops ICMP"
                .to_owned()
        }
        NeckNote::DestinationSilent { last_hop } => format!(
            "the destination does not answer: what is behind hop {last_hop} is not measured"
        ),
        NeckNote::EndNotMeasured { last_hop } => format!(
            "the hops behind hop {last_hop} answer too rarely: the neck may be there as well"
        ),
        NeckNote::SilentHops { hops } => format!("hops {} never answer", list(hops)),
        NeckNote::RareAnswers { hops } => format!(
            "hops {} answer less than half of the probes, as routers do that limit their ICMP",
            list(hops)
        ),
        NeckNote::TrainsShortened { load_packets } => format!(
            "packets behind the load were lost: trains were shortened to {load_packets} load packets"
        ),
        NeckNote::PacketsShortened { size } => {
            format!("a link carries only shorter packets: they were made {size} octets long")
        }
        NeckNote::QueueOfOthers => {
            "others' traffic fills the queue there: our load added nothing to it".to_owned()
        }
        NeckNote::LoadHeldBack { rate_bps } => format!(
            "load was held at {} Mbit/s (--max-rate), which may fill no queue",
            mbits(Some(*rate_bps))
        ),
        NeckNote::Interrupted => "a signal ended the measurement early".to_owned(),
    })
}
