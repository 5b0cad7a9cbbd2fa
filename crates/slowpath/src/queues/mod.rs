// SPDX-License-Identifier: Apache-2.0
//! `slowpath queues`: the queues of switches, from the packets of hosts.
//!
//! What enters: captures of hosts (`read`) and a scenario file, of which the network is
//! taken. What leaves: what every queue held, who filled it, where lost packets were dropped,
//! and what that says ([`findings`](slowpath_queues::findings)); as text or JSON
//! (`report`), as tables, as a page with plots (`picture`).
//! What is promised: what is not known is counted and said; the same captures give the same
//! bytes; captures that make no sense are an error or counted, never a panic.

mod picture;
mod read;
mod report;
mod tables;

use crate::failure::{Failure, Outcome};
use crate::render::Paint;
use clap::Args;
use read::{Captures, Sent};
use report::Report;
use slowpath_lab::virtual_time::HZ;
use slowpath_lab::virtual_time::plan::{Options as PlanOptions, Plan};
use slowpath_netsim::engine::HostId;
use slowpath_netsim::scenario::{Scenario, Substrate};
use slowpath_netsim::topology::Topology;
use slowpath_netsim_report::table::Metadata;
use slowpath_queues::findings::{Sender, findings, reports};
use slowpath_queues::{Margin, Offered, Outcome as Replayed, replay_watched, settled};
use slowpath_switch::{Span, Time};
use slowpath_trace::segment::Endpoint;
use std::collections::{BTreeMap, HashMap};
use std::io::{Write, stdout};
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;
use tables::write;

/// Picoseconds a nanosecond.
const PICOS: u64 = 1_000;
/// IPv4 and TCP without options, and with timestamps: what captures have of a packet.
const HEADERS: [u16; 2] = [40, 52];
/// Where a laboratory's hosts listen, one port a kind of TCP.
const FIRST_LISTENER: u16 = 5_000;

/// `slowpath queues`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  slowpath lab virtual scenarios/replay/black-hole.toml --out run
  slowpath queues run --topology scenarios/replay/black-hole.toml --html queues.html
  slowpath queues captures --topology rack.toml --clock-error 5us --out tables --json
  slowpath queues captures --topology rack.toml --address web1=10.1.0.7 --address db=10.1.0.9
A capture (pcap, pcapng) is named after its host, or its interface is; or they are the two of
slowpath replay RECORDING --out DIR. docs/reference/queues.md says what the
answer rests on.")]
pub struct Queues {
    /// Where the captures of the hosts are
    pub captures: PathBuf,
    /// The network: a scenario file, of which the rest is left aside
    #[arg(long, value_name = "FILE")]
    pub topology: PathBuf,
    /// How far the clocks of hosts are from each other at most
    #[arg(long, value_name = "TIME", default_value = "0us", value_parser = humantime::parse_duration)]
    pub clock_error: Duration,
    /// How far times in the captures are from when packets were sent, at most
    #[arg(long, value_name = "TIME", default_value = "0us", value_parser = humantime::parse_duration)]
    pub time_error: Duration,
    /// Which address a host has, where the captures do not show it; may be given again
    #[arg(long, value_name = "HOST=ADDRESS")]
    pub address: Vec<String>,
    /// Write queues and drops there, as Parquet files
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Write a page with plots, one file that needs nothing else
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Print JSON; docs/reference/cli.md lists the keys
    #[arg(long)]
    pub json: bool,
    /// Exit status 3 if something is found beside full queues
    #[arg(long)]
    pub exit_code: bool,
}

/// All that is known in the end.
struct Answer {
    pub scenario: Scenario,
    pub captures: Captures,
    pub replayed: Replayed,
    pub report: Report,
}

/// Reads captures, replays the queues, and says what is asked for.
pub fn run(args: &Queues) -> Result<Outcome, Failure> {
    let answer = answer(args)?;
    let scenario = &answer.scenario;
    if let Some(folder) = &args.out {
        let text = std::fs::read_to_string(&args.topology).unwrap_or_default();
        let name = args.topology.file_name().unwrap_or_default();
        let metadata = Metadata {
            family: "queues",
            name: &name.to_string_lossy(),
            text: &text,
            seed: scenario.seed,
        };
        write(folder, metadata, &answer).map_err(|error| Failure::Write(error.to_string()))?;
    }
    if let Some(path) = &args.html {
        std::fs::write(path, picture::page(&answer))
            .map_err(|error| Failure::Write(format!("cannot write {}: {error}", path.display())))?;
    }
    let out = &mut stdout().lock();
    if args.json {
        writeln!(out, "{}", answer.report.json())?;
    } else {
        answer.report.write(Paint::for_stdout(), out)?;
    }
    out.flush()?;
    Ok(Outcome::of(
        args.exit_code,
        !answer.report.findings.is_empty(),
    ))
}

/// Everything but the writing.
fn answer(args: &Queues) -> Result<Answer, Failure> {
    let impossible = |reason: String| Failure::Scenario {
        file: args.topology.clone(),
        reason,
    };
    // Without the line that a scenario's errors have.
    std::fs::File::open(&args.topology).map_err(|error| impossible(error.to_string()))?;
    let scenario = Scenario::load_for(&args.topology, Substrate::Network)
        .map_err(|error| impossible(error.to_string()))?;
    let addresses = addresses(&args.address, &scenario.topology)?;
    let captures = read::read(&args.captures, &scenario.topology, &addresses)?;
    // What a laboratory hashes and adds to packets follows from the flows.
    let whole = Scenario::load_for(&args.topology, Substrate::VirtualTime).ok();
    let ways = Ways::new(whole.as_ref());
    let network = scenario.network();
    let origin = captures.sent.iter().map(|sent| sent.at).min().unwrap_or(0);
    let errors = [args.time_error, args.clock_error].map(nanoseconds);
    let mut packets = offered(&captures.sent, origin, &ways, errors[0]);
    let failed = |error: slowpath_queues::ReplayError| impossible(error.to_string());
    let margin = match errors {
        [0, 0] => Margin {
            bytes: 0,
            packets: 0,
        },
        _ => {
            let clocks = Span::from_nanos(errors[1]);
            packets = settled(&network, packets, clocks, Margin::default()).map_err(failed)?;
            Margin::default()
        }
    };
    let replayed = replay_watched(&network, &packets, margin).map_err(failed)?;
    let report = reported(&scenario, &captures, &packets, &replayed, origin);
    Ok(Answer {
        scenario,
        captures,
        replayed,
        report,
    })
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX / PICOS)
}

fn addresses(said: &[String], topology: &Topology) -> Result<BTreeMap<IpAddr, u32>, Failure> {
    let hosts = topology.hosts_by_name();
    let one = |said: &String| {
        let (name, address) = said.split_once('=').ok_or_else(|| {
            Failure::Usage(format!("cannot read --address {said}: say HOST=ADDRESS"))
        })?;
        let host = hosts.get(name).ok_or_else(|| {
            Failure::Usage(format!(
                "cannot read --address {said}: no host of the topology is called '{name}'"
            ))
        })?;
        let address: IpAddr = address
            .parse()
            .map_err(|error| Failure::Usage(format!("cannot read --address {said}: {error}")))?;
        Ok((address, *host))
    };
    said.iter().map(one).collect()
}

/// What switches hash, and what a packet takes on the wire beside what captures have.
struct Ways {
    keys: HashMap<(u32, u32, u16), u32>,
    /// By kind of TCP.
    framing: Vec<u16>,
}

impl Ways {
    fn new(scenario: Option<&Scenario>) -> Self {
        let mut keys = HashMap::new();
        let mut framing = Vec::new();
        if let Some(scenario) = scenario {
            let more = |header: u16| match HEADERS.contains(&header) {
                true => 0,
                false => header.saturating_sub(HEADERS[0]),
            };
            framing.extend(scenario.tcp.iter().map(|tcp| more(tcp.header)));
            if let Ok(plan) = Plan::new(scenario, &PlanOptions::default(), HZ) {
                for connection in &plan.connections {
                    let known = (connection.from, connection.to, connection.port);
                    keys.insert(known, connection.key);
                }
            }
        }
        Ways { keys, framing }
    }

    /// The key of a packet's connection in its direction.
    fn key(&self, sent: &Sent) -> u32 {
        let forth = (sent.source, sent.destination, sent.from.port);
        let back = (sent.destination, sent.source, sent.to.port);
        if let Some(key) = self.keys.get(&forth) {
            return *key;
        }
        if let Some(key) = self.keys.get(&back) {
            return key.wrapping_add(1);
        }
        hash(sent.from, sent.to)
    }

    fn bytes(&self, sent: &Sent) -> u16 {
        let kind = [sent.to.port, sent.from.port].into_iter().find_map(|port| {
            let kind = port.checked_sub(FIRST_LISTENER)?;
            self.framing.get(usize::from(kind))
        });
        let bytes = sent
            .bytes
            .saturating_add(u32::from(kind.copied().unwrap_or(0)));
        u16::try_from(bytes).unwrap_or(u16::MAX)
    }
}

/// FNV-1a, 32 bits, of both ends.
fn hash(from: Endpoint, to: Endpoint) -> u32 {
    let mut hash = 0x811c_9dc5u32;
    let mut add = |bytes: &[u8]| {
        for byte in bytes {
            hash = (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
        }
    };
    for end in [from, to] {
        match end.address {
            IpAddr::V4(address) => add(&address.octets()),
            IpAddr::V6(address) => add(&address.octets()),
        }
        add(&end.port.to_be_bytes());
    }
    hash
}

fn offered(sent: &[Sent], origin: i64, ways: &Ways, error: u64) -> Vec<Offered> {
    let packet = |(number, sent): (u32, &Sent)| {
        let at = sent.at.saturating_sub(origin).max(0).unsigned_abs();
        let moment = |nanos: u64| Time(nanos.saturating_mul(PICOS));
        Offered {
            number,
            at: moment(at),
            earliest: moment(at.saturating_sub(error)),
            latest: moment(at.saturating_add(error)),
            after: sent.after,
            source: HostId(sent.source),
            destination: HostId(sent.destination),
            key: ways.key(sent),
            bytes: ways.bytes(sent),
            lost: sent.lost,
        }
    };
    (0..).zip(sent).map(packet).collect()
}

fn reported(
    scenario: &Scenario,
    captures: &Captures,
    packets: &[Offered],
    replayed: &Replayed,
    origin: i64,
) -> Report {
    let mut ends: HashMap<Sender, (Endpoint, Endpoint)> = HashMap::new();
    for (packet, sent) in packets.iter().zip(&captures.sent) {
        let sender = (packet.source, packet.key);
        ends.entry(sender).or_insert((sent.from, sent.to));
    }
    let sources = report::Sources {
        scenario,
        captures,
        replayed,
        ends: &ends,
        origin,
    };
    let network = &scenario.network();
    let queues = reports(network, packets, replayed);
    let found = findings(network, packets, replayed);
    Report::new(&sources, &queues, &found)
}
