// SPDX-License-Identifier: Apache-2.0
//! What the report draws: curves, points and cells, as numbers with units in their names.

use super::distribution::{Times, micros};
use super::queues::Series;
use super::series::SeriesChart;
use super::slowdown::ENDLESS;
use super::summary::{LinkUse, links, neighbour, workload_of_query};
use serde::Serialize;
use slowpath_netsim::results::{FlowRecord, LABELS, Results, StretchRecord};
use slowpath_netsim::scenario::Scenario;
use slowpath_netsim::topology::{Node, Topology};
use slowpath_switch::Threshold;
use std::collections::BTreeMap;

/// Stretches of time of a queue's chart.
const STRETCHES: usize = 600;
/// Queues with a chart of their own: those with the highest mean.
const MAX_QUEUES: usize = 12;
/// Flows of a workload that are points of the chart by size.
const MAX_POINTS: usize = 1_500;

/// Everything the report draws.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Charts {
    /// How long the network was simulated.
    pub end_us: f64,
    /// How much of that is the warm-up.
    pub warm_up_us: f64,
    /// Completion times of flows, by workload.
    pub fct: Vec<Curve>,
    /// Completion times of queries, by workload.
    pub qct: Vec<Curve>,
    /// Completion times of flows by their size, by workload.
    pub sizes: Vec<BySize>,
    /// Length of a stretch of time in which events are counted.
    pub stretch_us: f64,
    /// Events over time, by kind.
    pub events: Vec<EventChart>,
    /// Queues over time.
    pub queues: Vec<QueueChart>,
    /// Queues that were written down and have no chart.
    pub queues_left_out: usize,
    /// Chosen flows and links over time.
    pub series: Vec<SeriesChart>,
    /// Links, grouped by the kind of node that sends into them.
    pub links: Vec<Group>,
}

/// A distribution.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Curve {
    /// Of which workload.
    pub workload: usize,
    /// Time in microseconds, and the share of all that is not above it.
    pub points: Vec<(f64, f64)>,
}

/// Completion times by size.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BySize {
    /// Of which workload.
    pub workload: usize,
    /// Some flows, evenly chosen: bytes, microseconds.
    pub points: Vec<(u64, f64)>,
    /// Flows whose sizes lie between the same two powers of two: median size in bytes, how
    /// many, median and 99th percentile in microseconds.
    pub bins: Vec<(u64, usize, f64, f64)>,
}

/// Events of one kind over time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EventChart {
    /// Which kind.
    pub kind: &'static str,
    /// How many in each stretch, for each workload.
    pub workloads: Vec<Vec<u64>>,
}

/// A queue over time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct QueueChart {
    /// Its switch.
    pub switch: String,
    /// What is at the end of its link.
    pub neighbour: String,
    /// The most packets that it may hold, if that is bounded.
    pub limit_packets: Option<u32>,
    /// From how many packets on it marks.
    pub marking_packets: Option<u32>,
    /// Mean over the whole time.
    pub mean_packets: f64,
    /// Length of a stretch.
    pub stretch_us: f64,
    /// Of each stretch the least, the mean and the most packets.
    pub stretches: Vec<(u32, f64, u32)>,
}

/// Nodes of one kind.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Group {
    /// Their kind.
    pub name: String,
    /// A node, or hosts at one switch.
    pub rows: Vec<Row>,
}

/// Links that start at the same node.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Their node, or the switch of their hosts.
    pub name: String,
    /// The links.
    pub cells: Vec<LinkCell>,
}

/// A link in one direction.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LinkCell {
    /// From, if it is not the row's node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// To.
    pub to: String,
    /// What it carried over what it could have carried, 0 to 1.
    pub load: f64,
    /// Packets dropped there.
    pub drops: u64,
    /// Packets that should have gone there and went elsewhere.
    pub detours: u64,
    /// Packets marked there.
    pub marks: u64,
}

/// What the report of a run draws.
pub fn charts(scenario: &Scenario, results: &Results, queues: &[Series]) -> Charts {
    let mut flows: Vec<Vec<&FlowRecord>> = vec![Vec::new(); scenario.workloads.len()];
    let warm_up = scenario.warm_up.0;
    for flow in results.flows.iter().filter(|it| it.start.0 >= warm_up) {
        flows[usize::from(flow.label)].push(flow);
    }
    let fct = flows.iter().map(|flows| {
        let done = flows.iter().filter_map(|flow| flow.completion());
        done.map(|time| time.0).collect::<Times>()
    });
    let qct = (0..scenario.workloads.len()).map(|number| {
        let queries = results.queries.iter();
        let mine = queries.filter(|it| workload_of_query(it.id) == number);
        let mine = mine.filter(|it| it.start.0 >= warm_up);
        let done = mine.filter_map(|query| query.completion());
        done.map(|time| time.0).collect::<Times>()
    });
    // Those with the highest mean, in the order of their ports.
    let mut chosen: Vec<(usize, f64)> = queues.iter().map(Series::mean).enumerate().collect();
    chosen.sort_by(|a, b| b.1.total_cmp(&a.1));
    chosen.truncate(MAX_QUEUES);
    chosen.sort_by_key(|queue| queue.0);
    Charts {
        end_us: micros(results.end.0),
        warm_up_us: micros(warm_up),
        fct: curves(fct),
        qct: curves(qct),
        sizes: (flows.iter().enumerate())
            .filter_map(|(workload, flows)| by_size(workload, flows))
            .collect(),
        stretch_us: micros(results.stretch.0),
        events: events(scenario, results),
        queues: (chosen.iter())
            .map(|(at, mean)| queue_chart(scenario, &queues[*at], *mean))
            .collect(),
        queues_left_out: queues.len() - chosen.len(),
        series: super::series::charts(scenario, results),
        links: groups(&scenario.topology, results),
    }
}

/// The curves of those that have one.
fn curves(times: impl Iterator<Item = Times>) -> Vec<Curve> {
    let curves = times.enumerate().map(|(workload, times)| Curve {
        workload,
        points: times.curve(),
    });
    curves.filter(|curve| !curve.points.is_empty()).collect()
}

fn by_size(workload: usize, flows: &[&FlowRecord]) -> Option<BySize> {
    let done: Vec<(u64, u64)> = (flows.iter())
        .filter(|flow| flow.bytes < ENDLESS)
        .filter_map(|flow| Some((flow.bytes, flow.completion()?.0)))
        .collect();
    let stride = done.len().div_ceil(MAX_POINTS).max(1);
    let points = done.iter().step_by(stride);
    let mut bins: BTreeMap<u32, Vec<(u64, u64)>> = BTreeMap::new();
    for flow in &done {
        bins.entry(flow.0.max(1).ilog2()).or_default().push(*flow);
    }
    let bins = bins.into_values().filter_map(|flows| {
        let bytes: Times = flows.iter().map(|flow| flow.0).collect();
        let times: Times = flows.iter().map(|flow| flow.1).collect();
        let (median, slow) = (times.at(50)?, times.at(99)?);
        Some((bytes.at(50)?, flows.len(), micros(median), micros(slow)))
    });
    (!done.is_empty()).then(|| BySize {
        workload,
        points: points
            .map(|(bytes, time)| (*bytes, micros(*time)))
            .collect(),
        bins: bins.collect(),
    })
}

/// The kinds of events that there were.
fn events(scenario: &Scenario, results: &Results) -> Vec<EventChart> {
    type Of = fn(&StretchRecord) -> [u64; LABELS];
    let kinds: [(&str, Of); 3] = [
        ("drops", |stretch| stretch.dropped),
        ("detours", |stretch| stretch.detours),
        ("marks", |stretch| stretch.marked),
    ];
    let charts = kinds.map(|(kind, of)| EventChart {
        kind,
        workloads: (0..scenario.workloads.len())
            .map(|label| results.stretches.iter().map(|s| of(s)[label]).collect())
            .collect(),
    });
    let some = |chart: &EventChart| chart.workloads.iter().flatten().any(|count| *count > 0);
    charts.into_iter().filter(some).collect()
}

fn queue_chart(scenario: &Scenario, queue: &Series, mean_packets: f64) -> QueueChart {
    let topology = &scenario.topology;
    let config = scenario.switch_config(queue.switch.0);
    let port = &config.ports[usize::from(queue.port.0)];
    let stretches = queue.stretches(STRETCHES);
    QueueChart {
        switch: topology.name(Node::Switch(queue.switch.0)).to_owned(),
        neighbour: topology.name(neighbour(topology, queue)).to_owned(),
        limit_packets: port.limit.packets,
        marking_packets: match port.marking {
            Some(Threshold::Packets(packets)) => Some(packets),
            _ => None,
        },
        mean_packets,
        stretch_us: micros(queue.stretch_length(STRETCHES)),
        stretches: (stretches.iter())
            .map(|s| (s.least, (s.mean * 100.0).round() / 100.0, s.most))
            .collect(),
    }
}

/// The kind of a switch: its name up to the first number.
fn kind(name: &str) -> &str {
    let end = name
        .find(|c: char| c.is_ascii_digit())
        .unwrap_or(name.len());
    name[..end].trim_end_matches(['-', '_', '.'])
}

fn groups(topology: &Topology, results: &Results) -> Vec<Group> {
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    for switch in topology.switches() {
        *kinds.entry(kind(&switch.name)).or_default() += 1;
    }
    // A kind of one is no kind.
    let group_of = |name| match kinds.get(kind(name)) {
        Some(count) if *count > 1 && !kind(name).is_empty() => kind(name).to_owned(),
        _ => "switches".to_owned(),
    };
    let mut groups: Vec<Group> = vec![Group {
        name: "hosts".to_owned(),
        rows: Vec::new(),
    }];
    for link in links(topology, results) {
        let (group, row) = match link.from {
            Node::Host(_) => ("hosts".to_owned(), topology.name(link.to)),
            Node::Switch(_) => (group_of(topology.name(link.from)), topology.name(link.from)),
        };
        let at = groups.iter().position(|known| known.name == group);
        let at = at.unwrap_or_else(|| {
            let rows = Vec::new();
            groups.push(Group { name: group, rows });
            groups.len() - 1
        });
        let rows = &mut groups[at].rows;
        // The links of a row follow each other, but for hosts that are not in the order of
        // their switches.
        let known = rows.iter().rposition(|known| known.name == row);
        let row = known.unwrap_or_else(|| {
            rows.push(Row {
                name: row.to_owned(),
                cells: Vec::new(),
            });
            rows.len() - 1
        });
        rows[row].cells.push(cell(topology, &link, results.end.0));
    }
    groups
}

fn cell(topology: &Topology, link: &LinkUse, end: u64) -> LinkCell {
    let is_host = matches!(link.from, Node::Host(_));
    LinkCell {
        from: is_host.then(|| topology.name(link.from).to_owned()),
        to: topology.name(link.to).to_owned(),
        load: link.load(end),
        drops: link.dropped,
        detours: link.detoured,
        marks: link.marked,
    }
}

#[cfg(test)]
mod tests {
    use super::kind;

    #[test]
    fn a_switch_is_of_the_kind_that_its_name_begins_with() {
        for (name, of) in [
            ("edge-0-1", "edge"),
            ("left", "left"),
            ("s1", "s"),
            ("tor_12", "tor"),
            ("7", ""),
        ] {
            assert_eq!(kind(name), of);
        }
    }
}
