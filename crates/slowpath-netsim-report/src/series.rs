// SPDX-License-Identifier: Apache-2.0
//! Chosen flows and links over time, as lines of charts.

use super::distribution::micros;
use serde::Serialize;
use slowpath_netsim::results::{LineSample, Results, WindowSample};
use slowpath_netsim::scenario::Scenario;
use slowpath_netsim::topology::{Node, Topology};
use std::collections::BTreeMap;

/// Lines of a chart, at most.
const MAX_LINES: usize = 8;
/// Points of a line, at most about.
const MAX_POINTS: usize = 600;
/// Picoseconds a second.
const SECOND: f64 = 1e12;

/// What the values of a chart are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Quantity {
    /// Bits a second.
    Rate,
    /// Packets.
    Packets,
    /// A share, 0 to 1.
    Share,
}

/// Lines over time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SeriesChart {
    /// What it shows.
    pub title: &'static str,
    /// What its values are.
    pub quantity: Quantity,
    /// The lines.
    pub lines: Vec<Line>,
    /// Flows or links that were written down and have no line.
    pub left_out: usize,
}

/// One flow or link over time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Line {
    /// Its name.
    pub name: String,
    /// Microseconds, and the value.
    pub points: Vec<(f64, f64)>,
}

/// The ends of a direction of a link: who sends into it, and to whom.
pub(crate) fn ends(topology: &Topology, line: u32) -> Option<[Node; 2]> {
    let link = topology.links().get(line as usize / 2)?;
    let [(a, _), (b, _)] = link.ends;
    Some(if line.is_multiple_of(2) {
        [a, b]
    } else {
        [b, a]
    })
}

/// The charts of what was written down.
pub fn charts(scenario: &Scenario, results: &Results) -> Vec<SeriesChart> {
    let mut flows: BTreeMap<u64, Vec<&WindowSample>> = BTreeMap::new();
    for sample in &results.windows {
        flows.entry(sample.flow).or_default().push(sample);
    }
    let mut lines: BTreeMap<u32, Vec<&LineSample>> = BTreeMap::new();
    for sample in &results.lines {
        lines.entry(sample.line).or_default().push(sample);
    }
    // Those that last longest, in their order.
    let longest = |flow: &(&u64, &Vec<&WindowSample>)| std::cmp::Reverse(flow.1.len());
    let mut chosen: Vec<_> = flows.iter().collect();
    chosen.sort_by_key(longest);
    chosen.truncate(MAX_LINES);
    chosen.sort_by_key(|flow| flow.0);
    let flow_lines = |of: fn(&[&WindowSample]) -> Vec<(f64, f64)>| {
        let line = |(flow, samples): &(&u64, &Vec<&WindowSample>)| Line {
            name: flow_name(scenario, results, **flow),
            points: of(samples),
        };
        chosen.iter().map(line).collect::<Vec<_>>()
    };
    let links = lines.iter().take(MAX_LINES).map(|(line, samples)| Line {
        name: line_name(&scenario.topology, *line),
        points: utilisation(samples, rate(scenario, *line)),
    });
    let flows_left_out = flows.len() - chosen.len();
    let charts = [
        SeriesChart {
            title: "Throughput of flows",
            quantity: Quantity::Rate,
            lines: flow_lines(throughput),
            left_out: flows_left_out,
        },
        SeriesChart {
            title: "Congestion windows",
            quantity: Quantity::Packets,
            lines: flow_lines(windows),
            left_out: flows_left_out,
        },
        SeriesChart {
            title: "Utilisation of links",
            quantity: Quantity::Share,
            lines: links.collect(),
            left_out: lines.len().saturating_sub(MAX_LINES),
        },
    ];
    let some = |chart: &SeriesChart| chart.lines.iter().any(|line| !line.points.is_empty());
    charts.into_iter().filter(some).collect()
}

fn flow_name(scenario: &Scenario, results: &Results, flow: u64) -> String {
    let found = results
        .flows
        .binary_search_by_key(&flow, |record| record.id);
    let Some(record) = found.ok().and_then(|at| results.flows.get(at)) else {
        return flow.to_string();
    };
    let host = |host: u32| scenario.topology.name(Node::Host(host));
    let (from, to) = (host(record.source.0), host(record.destination.0));
    format!("{flow}: {from} -> {to}")
}

fn line_name(topology: &Topology, line: u32) -> String {
    match ends(topology, line) {
        Some([from, to]) => format!("{} -> {}", topology.name(from), topology.name(to)),
        None => line.to_string(),
    }
}

fn rate(scenario: &Scenario, line: u32) -> u64 {
    let link = scenario.topology.links().get(line as usize / 2);
    link.map_or(0, |link| link.options.rate.bits_per_second())
}

/// Every so many samples, and the last.
fn thinned<T: Copy>(samples: &[T]) -> Vec<T> {
    let stride = samples.len().div_ceil(MAX_POINTS).max(1);
    let last = samples.len().saturating_sub(1);
    let places = (0..samples.len()).filter(|at| at % stride == 0 || *at == last);
    places.map(|at| samples[at]).collect()
}

fn windows(samples: &[&WindowSample]) -> Vec<(f64, f64)> {
    let samples = thinned(samples);
    let point = |sample: &&WindowSample| (micros(sample.at.0), f64::from(sample.segments));
    samples.iter().map(point).collect()
}

/// From one sample to the next.
fn throughput(samples: &[&WindowSample]) -> Vec<(f64, f64)> {
    let samples = thinned(samples);
    let bits = |pair: &[&WindowSample]| {
        let took = pair[1].at.since(pair[0].at).0.max(1);
        let bytes = pair[1].arrived.saturating_sub(pair[0].arrived);
        (
            micros(pair[1].at.0),
            bytes as f64 * 8.0 * SECOND / took as f64,
        )
    };
    samples.windows(2).map(bits).collect()
}

/// From one sample to the next, of that many bits a second.
fn utilisation(samples: &[&LineSample], rate: u64) -> Vec<(f64, f64)> {
    let samples = thinned(samples);
    let share = |pair: &[&LineSample]| {
        let took = pair[1].at.since(pair[0].at).0.max(1);
        let bits = pair[1].bytes.saturating_sub(pair[0].bytes) as f64 * 8.0;
        let most = rate.max(1) as f64 * took as f64 / SECOND;
        (micros(pair[1].at.0), bits / most)
    };
    samples.windows(2).map(share).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use slowpath_switch::Time;

    #[test]
    fn rates_are_differences_over_their_time() {
        let at = |ms: u64, arrived| WindowSample {
            at: Time(ms * 1_000_000_000),
            flow: 0,
            segments: 10,
            arrived,
        };
        let samples = [at(1, 1_000), at(2, 126_000), at(4, 126_000)];
        let samples: Vec<&WindowSample> = samples.iter().collect();
        // 125,000 bytes in a millisecond are 1 Gbit/s.
        assert_eq!(throughput(&samples), [(2_000.0, 1e9), (4_000.0, 0.0)]);
        let carried = |ms: u64, bytes| LineSample {
            at: Time(ms * 1_000_000_000),
            line: 0,
            packets: 0,
            bytes,
        };
        let samples = [carried(0, 0), carried(1, 62_500)];
        let samples: Vec<&LineSample> = samples.iter().collect();
        assert_eq!(utilisation(&samples, 1_000_000_000), [(1_000.0, 0.5)]);
    }

    #[test]
    fn many_samples_become_few_and_the_last_stays() {
        let numbers: Vec<u32> = (0..10_000).collect();
        let few = thinned(&numbers);
        assert!(few.len() <= MAX_POINTS + 1);
        assert_eq!((few[0], few[few.len() - 1]), (0, 9_999));
        assert_eq!(thinned::<u32>(&[]), [] as [u32; 0]);
    }
}
