// SPDX-License-Identifier: Apache-2.0
//! A run in numbers: what the terminal, the JSON document and the report say.
//!
//! Everything here follows from the tables too (`docs/reference/simulator.md` says how), and a test
//! computes it from them.

use super::distribution::{Percentiles, Spread, Times, micros, p99_spread};
use super::fabric::FabricSummary;
use super::queues::Series;
use super::slowdown::{ENDLESS, Ideals, Slowdowns};
use serde::Serialize;
use slowpath_netsim::engine::PauseRecord;
use slowpath_netsim::results::{FlowRecord, Results};
use slowpath_netsim::scenario::Scenario;
use slowpath_netsim::topology::{Node, Topology};
use slowpath_switch::{DropReason, PauseCounts, Time};
use std::collections::BTreeMap;

/// The largest size of each class of flows, bytes; beyond the last, any.
pub(crate) const SIZES: [u64; 4] = [10_000, 100_000, 1_000_000, 10_000_000];
/// A run in numbers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// The scenario file's name.
    pub scenario: String,
    /// What the file says of itself.
    pub description: String,
    /// What decided everything random.
    pub seed: u64,
    /// How long the network was simulated.
    pub simulated_us: f64,
    /// How much of that is the warm-up: completion times, slowdowns and what queues were like are
    /// of what came after it. Left out if there is none.
    #[serde(skip_serializing_if = "is_zero")]
    pub warm_up_us: f64,
    /// Hosts in it.
    pub hosts: usize,
    /// Switches in it.
    pub switches: usize,
    /// Flows that began.
    pub flows: u64,
    /// Flows whose receiver had everything at the end.
    pub flows_done: u64,
    /// Flows without a size: they last as long as the run.
    pub flows_endless: u64,
    /// Payload that arrived in order, over the simulated time.
    pub goodput_bits_per_second: f64,
    /// The same by workload.
    pub workloads: Vec<WorkloadSummary>,
    /// Every packet, counted.
    pub packets: Packets,
    /// What links did to packets, where the scenario says so.
    pub links: Vec<LinkSummary>,
    /// What switches did beside forwarding, where they do.
    #[serde(flatten)]
    pub fabric: FabricSummary,
    /// The link with the highest load; `None` if nothing was sent.
    pub hottest_link: Option<Hottest>,
    /// The queues that were written down.
    pub queues: Vec<QueueSummary>,
    /// Queue samples beyond the bound, not taken.
    pub queue_samples_lost: u64,
    /// Events processed.
    pub events: u64,
    /// The most connections open at once.
    pub most_connections: u64,
}

/// For serde.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(us: &f64) -> bool {
    *us <= 0.0
}

/// What a direction of a link did to packets.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LinkSummary {
    /// Its near end.
    pub from: String,
    /// Its far end.
    pub to: String,
    /// Packets lost, as the scenario says.
    pub lost: u64,
    /// Packets lost as the link was down, also those that were on it.
    pub cut: u64,
    /// Packets damaged: their host discards them.
    pub corrupted: u64,
    /// Packets that arrived twice.
    pub copied: u64,
    /// Packets that arrived after those behind them.
    pub late: u64,
}

/// A workload in numbers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WorkloadSummary {
    /// Its name.
    pub name: String,
    /// The class of its packets in switches.
    pub class: u8,
    /// Flows that began.
    pub flows: u64,
    /// Those that are done.
    pub flows_done: u64,
    /// Payload that arrived in order, over the simulated time.
    pub goodput_bits_per_second: f64,
    /// Flow completion times; `None` if no flow is done.
    pub fct: Option<Percentiles>,
    /// How far another seed would move their 99th percentiles.
    #[serde(flatten)]
    pub p99_spread: P99Spread,
    /// Over their ideal times, of flows that are not done too; `None` if they have none.
    pub slowdown: Option<Slowdowns>,
    /// The same by flow size; sizes without flows are left out.
    pub sizes: Vec<SizeSummary>,
    /// Queries that were asked.
    pub queries: u64,
    /// Those whose every flow is done.
    pub queries_done: u64,
    /// Query completion times; `None` if no query is done.
    pub qct: Option<Percentiles>,
    /// Packets that hosts sent, ACKs included.
    pub packets_sent: u64,
    /// Marks.
    pub packets_marked: u64,
    /// Packets dropped.
    pub packets_dropped: u64,
    /// Detours; a packet may take several.
    pub detours: u64,
    /// Packets that took one detour or more.
    pub packets_detoured: u64,
    /// Segments sent again.
    pub retransmissions: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Jain's index of what arrived of the flows that last as long as the run (Jain, Chiu,
    /// Hawe, DEC-TR-301, 1984): 1 if all had the same. `None` without such flows.
    pub fairness_index: Option<f64>,
}

/// Between which values the 99th percentile of another seed would probably lie; `None` of too few.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct P99Spread {
    /// Of flow completion times.
    #[serde(rename = "fct_p99_spread")]
    pub fct: Option<Spread>,
    /// Of query completion times.
    #[serde(rename = "qct_p99_spread")]
    pub qct: Option<Spread>,
}

/// Flows of about one size.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SizeSummary {
    /// Larger than this, bytes.
    pub above_bytes: u64,
    /// The largest size, bytes; `None`: any.
    pub up_to_bytes: Option<u64>,
    /// Flows that began after the warm-up.
    pub flows: u64,
    /// Their completion times, as far as they are done.
    pub fct: Option<Percentiles>,
    /// Over their ideal times, all of them; `None` if they have none.
    pub slowdown: Option<Slowdowns>,
}

/// Packets counted at both ends of everything.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Packets {
    /// Left hosts, or are copies that links made.
    pub sent: u64,
    /// Of those, copies.
    pub copied_on_links: u64,
    /// Arrived at hosts.
    pub delivered: u64,
    /// Dropped by switches, or lost on links.
    pub dropped: u64,
    /// Of those, on links.
    pub dropped_on_links: u64,
    /// Of those, for want of room.
    pub dropped_buffer_full: u64,
    /// Of those, as their time to live was over.
    pub dropped_ttl_expired: u64,
    /// Of those, for want of a route.
    pub dropped_no_route: u64,
    /// By the management of queues (RED, CoDel, PIE), before they were full.
    pub dropped_early: u64,
    /// In the network at the end.
    pub in_network: u64,
    /// Marks.
    pub marked: u64,
    /// Detours.
    pub detours: u64,
    /// Packets that took one detour or more.
    pub detoured: u64,
    /// Packets that left a link.
    pub hops: u64,
    /// The lengths of their ways, by their times to live.
    pub path_lengths: u64,
    /// Whether sent = delivered + dropped + in_network and hops = path_lengths. A run in
    /// which they are not gives no result.
    pub conserved: bool,
    /// Segments sent again.
    pub retransmissions: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
}

/// A link in one direction.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Hottest {
    /// From.
    pub from: String,
    /// To.
    pub to: String,
    /// What it carried over what it could have carried, 0 to 1.
    pub load_share: f64,
}

/// A queue in numbers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct QueueSummary {
    /// Its switch.
    pub switch: String,
    /// What is at the end of its link.
    pub neighbour: String,
    /// The mean over time.
    pub mean_packets: f64,
    /// Not exceeded for half of the time.
    pub p50_packets: u32,
    /// Not exceeded for 95 % of the time.
    pub p95_packets: u32,
    /// Not exceeded for 99 % of the time.
    pub p99_packets: u32,
    /// The most.
    pub max_packets: u32,
}

/// A link in one direction, and what its queue did.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkUse {
    /// From.
    pub from: Node,
    /// To.
    pub to: Node,
    /// The number of the switch's port; `None` at a host.
    pub port: Option<u16>,
    /// What it carries, bits a second.
    pub rate: u64,
    /// Packets that it carried.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Marks at its queue.
    pub marked: u64,
    /// Drops at its queue.
    pub dropped: u64,
    /// Their bytes.
    pub dropped_bytes: u64,
    /// Packets that should have gone there and went elsewhere.
    pub detoured: u64,
    /// The most packets that waited, if the run looked.
    pub most_packets: Option<u32>,
    /// What flow control did, if there was any.
    pub pauses: Option<PauseCounts>,
}

impl LinkUse {
    /// What it carried over what it could have carried.
    pub fn load(&self, simulated_ps: u64) -> f64 {
        let could = self.rate as f64 * (simulated_ps as f64 / 1e12);
        if could > 0.0 {
            self.bytes as f64 * 8.0 / could
        } else {
            0.0
        }
    }
}

/// All links: those of hosts, then those of switches' ports.
pub fn links(topology: &Topology, results: &Results) -> Vec<LinkUse> {
    let pauses = results.pauses.as_ref();
    let at = |of: fn(&PauseRecord) -> &[PauseCounts], number: usize| {
        pauses.and_then(|record| of(record).get(number).copied())
    };
    let hosts = (0..).zip(&results.hosts).map(|(number, host)| LinkUse {
        from: Node::Host(host.host.0),
        to: topology.hosts()[host.host.0 as usize].port.peer,
        port: None,
        rate: host.rate.bits_per_second(),
        packets: host.packets,
        bytes: host.bytes,
        marked: 0,
        dropped: 0,
        dropped_bytes: 0,
        detoured: 0,
        most_packets: None,
        pauses: at(|record| &record.hosts, number),
    });
    let ports = (0..).zip(&results.ports).map(|(number, port)| LinkUse {
        from: Node::Switch(port.switch.0),
        to: topology.switches()[port.switch.0 as usize].ports[usize::from(port.port.0)].peer,
        port: Some(port.port.0),
        rate: port.rate.bits_per_second(),
        packets: port.counters.dequeued,
        bytes: port.counters.dequeued_bytes,
        marked: port.counters.marked,
        dropped: port.counters.dropped,
        dropped_bytes: port.counters.dropped_bytes,
        detoured: port.counters.detoured,
        most_packets: port.most_packets,
        pauses: at(|record| &record.ports, number),
    });
    hosts.chain(ports).collect()
}

/// Bits a second of `bytes` in `ps` picoseconds.
fn bit_rate(bytes: u64, ps: u64) -> f64 {
    if ps == 0 {
        return 0.0;
    }
    bytes as f64 * 8.0 / (ps as f64 / 1e12)
}

/// The number of the workload that a query belongs to: `Scenario::flows` puts it above the
/// query's own.
pub const fn workload_of_query(id: u64) -> usize {
    (id >> 32) as usize
}

/// Which of [`SIZES`], or beyond.
pub(crate) fn size_bin(bytes: u64) -> usize {
    SIZES
        .iter()
        .position(|most| bytes <= *most)
        .unwrap_or(SIZES.len())
}

fn completions<'a>(flows: impl IntoIterator<Item = &'a &'a FlowRecord>) -> Option<Percentiles> {
    let times: Times = (flows.into_iter())
        .filter_map(|flow| flow.completion().map(|time| time.0))
        .collect();
    times.percentiles()
}

fn impaired(topology: &Topology, results: &Results) -> Vec<LinkSummary> {
    let name = |node| topology.name(node).to_owned();
    (results.impairments.iter())
        .filter_map(|(line, counts)| {
            let link = topology.links().get(*line as usize / 2)?;
            let [near, far] = [line % 2, 1 - line % 2].map(|end| link.ends[end as usize].0);
            Some(LinkSummary {
                from: name(near),
                to: name(far),
                lost: counts.lost,
                cut: counts.cut,
                corrupted: counts.corrupted,
                copied: counts.copied,
                late: counts.late,
            })
        })
        .collect()
}

/// The numbers of a run of the scenario in the file of that name.
pub fn summary(name: &str, scenario: &Scenario, results: &Results, queues: &[Series]) -> Summary {
    let end = results.end.0;
    let all = || results.flows.iter();
    let topology = &scenario.topology;
    let links = links(topology, results);
    let hottest = links.iter().filter(|link| link.bytes > 0);
    // The first of those with equal load.
    let hottest = hottest
        .rev()
        .max_by(|a, b| a.load(end).total_cmp(&b.load(end)));
    let of_labels = |of: fn(&slowpath_netsim::results::LabelRecord) -> u64| -> u64 {
        results.labels.iter().map(of).sum()
    };
    let dropped = |reason: DropReason| -> u64 {
        let labels = results.labels.iter();
        labels.map(|label| label.dropped[reason as usize]).sum()
    };
    let counts = &results.conservation;
    let all_dropped = counts.dropped + counts.lost;
    let by_switches: u64 = DropReason::ALL.into_iter().map(dropped).sum();
    Summary {
        scenario: name.to_owned(),
        description: scenario.description.clone(),
        seed: scenario.seed,
        simulated_us: micros(end),
        warm_up_us: micros(scenario.warm_up.0),
        hosts: topology.hosts().len(),
        switches: topology.switches().len(),
        flows: results.flows.len() as u64,
        flows_done: all().filter(|flow| flow.finish.is_some()).count() as u64,
        flows_endless: all().filter(|flow| flow.bytes >= ENDLESS).count() as u64,
        goodput_bits_per_second: bit_rate(all().map(|flow| flow.arrived).sum(), end),
        workloads: workloads(scenario, results),
        packets: Packets {
            sent: counts.sent + counts.copies,
            copied_on_links: counts.copies,
            delivered: counts.delivered,
            dropped: all_dropped,
            dropped_on_links: all_dropped - by_switches,
            dropped_buffer_full: dropped(DropReason::BufferFull),
            dropped_ttl_expired: dropped(DropReason::TtlExpired),
            dropped_no_route: dropped(DropReason::NoRoute),
            dropped_early: dropped(DropReason::Early),
            in_network: counts.in_network,
            marked: of_labels(|label| label.marked),
            detours: of_labels(|label| label.detours),
            detoured: of_labels(|label| label.detoured_packets),
            hops: counts.hops,
            path_lengths: counts.path_lengths,
            conserved: counts.holds(),
            retransmissions: all().map(|flow| u64::from(flow.retransmissions)).sum(),
            timeouts: all().map(|flow| u64::from(flow.timeouts)).sum(),
        },
        links: impaired(topology, results),
        fabric: FabricSummary::new(topology, results),
        hottest_link: hottest.map(|link| Hottest {
            from: topology.name(link.from).to_owned(),
            to: topology.name(link.to).to_owned(),
            load_share: link.load(end),
        }),
        queues: queues
            .iter()
            .map(|queue| of_queue(topology, queue))
            .collect(),
        queue_samples_lost: results.queue_samples_lost,
        events: results.events,
        most_connections: results.most_connections,
    }
}

/// What is at the end of a queue's link.
pub fn neighbour(topology: &Topology, queue: &Series) -> Node {
    topology.switches()[queue.switch.0 as usize].ports[usize::from(queue.port.0)].peer
}

fn of_queue(topology: &Topology, queue: &Series) -> QueueSummary {
    let [p50_packets, p95_packets, p99_packets] = queue.percentiles([50, 95, 99]);
    QueueSummary {
        switch: topology.name(Node::Switch(queue.switch.0)).to_owned(),
        neighbour: topology.name(neighbour(topology, queue)).to_owned(),
        mean_packets: queue.mean(),
        p50_packets,
        p95_packets,
        p99_packets,
        max_packets: queue.most(),
    }
}

fn workloads(scenario: &Scenario, results: &Results) -> Vec<WorkloadSummary> {
    let mut flows: Vec<Vec<&FlowRecord>> = vec![Vec::new(); scenario.workloads.len()];
    for flow in &results.flows {
        flows[usize::from(flow.label)].push(flow);
    }
    let mut ideals = Ideals::new(scenario);
    let warm_up = scenario.warm_up.0;
    (scenario.workloads.iter().zip(&flows).enumerate())
        .map(|(number, (workload, flows))| {
            let queries = results.queries.iter();
            let queries: Vec<_> = queries
                .filter(|query| workload_of_query(query.id) == number)
                .collect();
            let label = &results.labels[number];
            let queries_done = queries.iter().filter(|it| it.completion().is_some());
            let warm = queries.iter().filter(|it| it.start.0 >= warm_up);
            let done = warm.filter_map(|query| query.completion());
            let asked: Vec<u64> = done.map(|time| time.0).collect();
            let qct = asked.iter().copied().collect::<Times>().percentiles();
            let warm = flows.iter().filter(|it| it.start.0 >= warm_up);
            let warm: Vec<&FlowRecord> = warm.copied().collect();
            let began = warm.iter().filter_map(|flow| flow.completion());
            let began: Vec<u64> = began.map(|time| time.0).collect();
            WorkloadSummary {
                name: workload.name.clone(),
                class: workload.class,
                flows: flows.len() as u64,
                flows_done: flows.iter().filter(|flow| flow.finish.is_some()).count() as u64,
                goodput_bits_per_second: bit_rate(
                    flows.iter().map(|flow| flow.arrived).sum(),
                    results.end.0,
                ),
                fct: completions(&warm),
                p99_spread: P99Spread {
                    fct: p99_spread(&began),
                    qct: p99_spread(&asked),
                },
                slowdown: ideals.slowdowns(warm.iter().copied(), results.end),
                sizes: sizes(&warm, &mut ideals, results.end),
                queries: queries.len() as u64,
                queries_done: queries_done.count() as u64,
                qct,
                packets_sent: label.sent,
                packets_marked: label.marked,
                packets_dropped: label.dropped.iter().sum(),
                detours: label.detours,
                packets_detoured: label.detoured_packets,
                retransmissions: flows.iter().map(|f| u64::from(f.retransmissions)).sum(),
                timeouts: flows.iter().map(|f| u64::from(f.timeouts)).sum(),
                fairness_index: fairness(flows),
            }
        })
        .collect()
}

/// The square of the sum over the number times the sum of the squares.
fn fairness(flows: &[&FlowRecord]) -> Option<f64> {
    let endless = flows.iter().filter(|flow| flow.bytes >= ENDLESS);
    let arrived: Vec<u128> = endless.map(|flow| u128::from(flow.arrived)).collect();
    let sum: u128 = arrived.iter().sum();
    let squares: u128 = arrived.iter().map(|bytes| bytes * bytes).sum();
    let all = squares.checked_mul(arrived.len() as u128)?;
    (all > 0).then(|| sum as f64 * sum as f64 / all as f64)
}

fn sizes(flows: &[&FlowRecord], ideals: &mut Ideals<'_>, end: Time) -> Vec<SizeSummary> {
    let mut bins: BTreeMap<usize, Vec<&FlowRecord>> = BTreeMap::new();
    for flow in flows {
        bins.entry(size_bin(flow.bytes)).or_default().push(flow);
    }
    bins.into_iter()
        .map(|(bin, flows)| SizeSummary {
            above_bytes: bin.checked_sub(1).map_or(0, |below| SIZES[below]),
            up_to_bytes: SIZES.get(bin).copied(),
            flows: flows.len() as u64,
            fct: completions(&flows),
            slowdown: ideals.slowdowns(flows.iter().copied(), end),
        })
        .collect()
}
