// SPDX-License-Identifier: Apache-2.0
//! Runs one scenario by Linux and by the simulator and compares.

use slowpath_lab::virtual_time::{Kernel, Options, run};
use slowpath_netsim::engine::{Simulation, Transport};
use slowpath_netsim::results::FlowRecord;
use slowpath_netsim::scenario::{Scenario, Substrate};
use slowpath_netsim::topology::IdealTimes;
use slowpath_switch::{Span, Time};
use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;

/// A scenario of `scenarios/lab/judge`.
#[derive(Clone, Copy, Debug)]
pub struct Judged {
    pub name: &'static str,
    /// The round trip with queues as they usually are: the windows are compared so often.
    pub round_trip: Span,
    /// How many seeds: as many as give about 10,000 flows, so that a hundred are above the
    /// 99th percentile; or three, where there is one flow and the seed changes nothing.
    pub seeds: u64,
    /// Whether windows are compared as means over the seeds, host by host, though there are few
    /// flows.
    pub mean: bool,
}

const fn judged(name: &'static str, micros: u64, seeds: u64) -> Judged {
    Judged {
        name,
        round_trip: Span::from_micros(micros),
        seeds,
        mean: false,
    }
}

pub const SCENARIOS: [Judged; 13] = [
    judged("newreno", 10_000, 3),
    judged("cubic", 30_000, 3),
    judged("dctcp", 2_000, 3),
    judged("bbr", 30_000, 3),
    judged("bbr-recovery", 20_000, 80),
    judged("recovery", 20_000, 80),
    Judged {
        mean: true,
        ..judged("two-round-trips", 20_000, 200)
    },
    judged("incast", 500, 7),
    judged("fat-tree", 200, 9),
    judged("shared-buffer", 300, 9),
    judged("web-search", 300, 30),
    judged("fat-tree-web-search", 300, 30),
    judged("short-flows", 100, 3),
];
/// Up to so many flows each is compared with itself; more are averaged by their age.
const FEW: usize = 8;
/// An age counts as long as this share of all flows reach it in both.
const REACH: f64 = 0.05;
/// `tcpi_snd_cwnd` of `struct tcp_info` (include/uapi/linux/tcp.h).
const CWND: std::ops::Range<usize> = 80..84;

/// What came of a comparison; ratios are the simulator's over Linux's.
#[derive(Clone, Copy, Debug)]
pub struct Verdict {
    pub flows: usize,
    pub p50: f64,
    pub p99: f64,
    /// Of slowdowns, completion times over those of flows with the network to themselves: percentiles 50, 95 and 99.
    pub slowdown: [f64; 3],
    /// Root mean square of the difference of windows over the mean of Linux's.
    pub window_error: f64,
}

impl Verdict {
    pub fn is_within(&self) -> bool {
        let [p50, p95, p99] = self.slowdown;
        let ratios = [self.p50, self.p99, p50, p95, p99];
        ratios.iter().all(|ratio| (ratio - 1.0).abs() <= 0.05) && self.window_error <= 0.1
    }
}

/// Windows: by seed, flow and time where there are few, otherwise by host or not, and age. Sum and
/// number.
type Windows = BTreeMap<(u64, u64, u64), (f64, u32)>;

#[derive(Default)]
struct Side {
    completions: Vec<f64>,
    slowdowns: Vec<f64>,
    windows: Windows,
}

impl Side {
    fn flows(&mut self, flows: &[FlowRecord], scenario: &Scenario, ideal: &mut IdealTimes<'_>) {
        for flow in flows {
            // One that is not done takes longer than all others.
            let time = flow.completion();
            let time = time.map_or(f64::INFINITY, |time| time.0 as f64);
            self.completions.push(time);
            let [from, to] = [flow.source.0, flow.destination.0];
            let workload = &scenario.workloads[usize::from(flow.label)];
            let Transport::Tcp(kind) = workload.transport else {
                continue;
            };
            let tcp = &scenario.tcp[usize::from(kind)];
            let ideal = ideal.of(from, to, flow.bytes, tcp.mss, tcp.header);
            self.slowdowns.push(time / ideal.0 as f64);
        }
    }

    fn window(&mut self, key: (u64, u64, u64), segments: u32) {
        let (sum, count) = self.windows.entry(key).or_default();
        *sum += f64::from(segments);
        *count += 1;
    }
}

fn percentile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted[rank.clamp(1, sorted.len()) - 1]
}

/// Runs a scenario with its seeds, the first so many at most.
pub fn judge(kernel: &Kernel, judged: &Judged, most_seeds: u64) -> Result<Verdict, Box<dyn Error>> {
    let Judged {
        name, round_trip, ..
    } = *judged;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/lab/judge");
    let path = folder.join(format!("{name}.toml"));
    let mut scenario = Scenario::load_for(&path, Substrate::VirtualTime)?;
    let (mut linux, mut simulator) = (Side::default(), Side::default());
    for seed in 1..=judged.seeds.min(most_seeds) {
        scenario.seed = seed;
        let options = Options {
            capture: None,
            info_every: Some(round_trip),
            ..Options::default()
        };
        let folder = tempfile::tempdir()?;
        let real = run(kernel, &scenario, &options, folder.path(), &mut |_| {})?;
        let mut settings = scenario.settings();
        settings.windows_every = Some(round_trip);
        let model = Simulation::new(&scenario.network(), settings)?;
        let model = model.run(scenario.flows(), |_| {})?;
        let flows = &real.results.flows;
        let few = flows.len() <= FEW;
        let key = |flow: u64, at: Time| {
            let age = at.since(flows[flow as usize].start).0 / round_trip.0;
            if judged.mean {
                let host = flows[flow as usize].source.0;
                (0, u64::from(host), age)
            } else if few {
                (seed, flow, age)
            } else {
                (0, 0, age)
            }
        };
        // Each connection of these scenarios carries one flow.
        let of_connection: BTreeMap<u32, u64> =
            (real.carried_by.iter().copied()).zip(0..).collect();
        for series in &real.series {
            let flow = of_connection.get(&series.connection);
            let window = series
                .info
                .get(CWND)
                .and_then(|bytes| bytes.try_into().ok());
            if let (Some(flow), Some(window)) = (flow, window) {
                linux.window(key(*flow, series.at), u32::from_le_bytes(window));
            }
        }
        for sample in &model.windows {
            simulator.window(key(sample.flow, sample.at), sample.segments);
        }
        let mut ideal = IdealTimes::new(&scenario.topology);
        linux.flows(flows, &scenario, &mut ideal);
        simulator.flows(&model.flows, &scenario, &mut ideal);
    }
    let ratio = |values: fn(&Side) -> &[f64], share| {
        percentile(values(&simulator), share) / percentile(values(&linux), share)
    };
    Ok(Verdict {
        flows: linux.completions.len(),
        p50: ratio(|side| &side.completions, 0.5),
        p99: ratio(|side| &side.completions, 0.99),
        slowdown: [0.5, 0.95, 0.99].map(|share| ratio(|side| &side.slowdowns, share)),
        window_error: error(&linux, &simulator),
    })
}

fn error(linux: &Side, simulator: &Side) -> f64 {
    let least = (REACH * linux.completions.len() as f64).max(1.0);
    let few = linux.windows.keys().any(|key| key.0 > 0);
    let counts = |count: u32| few || f64::from(count) >= least;
    let (mut squares, mut sum, mut number) = (0.0, 0.0, 0.0);
    for (key, (a, of_a)) in &linux.windows {
        let Some((b, of_b)) = simulator.windows.get(key) else {
            continue;
        };
        if !counts(*of_a) || !counts(*of_b) {
            continue;
        }
        let (a, b) = (a / f64::from(*of_a), b / f64::from(*of_b));
        squares += (a - b) * (a - b);
        sum += a;
        number += 1.0;
    }
    (squares / number).sqrt() / (sum / number)
}
