// SPDX-License-Identifier: Apache-2.0
//! How fast the simulator is: DCTCP with web-search flows on a fat-tree.
//!
//! `bench-sim CDF [K [MICROSECONDS [RUNS [TICK_SHIFT]]]]`: the flow sizes, the fat-tree (16),
//! the virtual time (20,000) and how many runs the medians are of (3). The last line is
//! JSON. Every run must give the same results. With `BENCH_SIM_FLOWS=FILE` the flows go
//! there too: start in ns, from, to, bytes; for the same run in another simulator.

#[path = "scene/mod.rs"]
mod scene;

use slowpath_netsim::engine::{Network, Settings, Simulation};
use slowpath_netsim::results::Results;
use slowpath_netsim::workload::{FlowStream, SizeDistribution, Workload};
use slowpath_switch::{Span, Time};
use std::error::Error;
use std::time::{Duration, Instant};

const SEED: u64 = 1;
/// Packets at a port.
const BUFFER: u32 = 250;

struct Measured {
    results: Results,
    elapsed: Duration,
}

impl Measured {
    fn print(&self, number: u64) {
        let seconds = self.elapsed.as_secs_f64();
        let c = self.results.conservation;
        println!(
            "run {number}: {seconds:.3} s, {:.2} million packet-hops/s, {:.2} million events/s, {} flows, {} finished, \
             at most {} connections and {} packets",
            c.hops as f64 / seconds / 1e6,
            self.results.events as f64 / seconds / 1e6,
            self.results.flows.len(),
            self.results
                .flows
                .iter()
                .filter(|flow| flow.finish.is_some())
                .count(),
            self.results.most_connections,
            self.results.most_packets,
        );
        println!("       {c}");
    }
}

fn run(
    network: &Network,
    workloads: &[Workload],
    until: Time,
    shift: u32,
) -> Result<Measured, Box<dyn Error>> {
    let mut settings = Settings::new(scene::tcp(), until);
    settings.seed = SEED;
    settings.tick_shift = shift;
    let simulation = Simulation::new(network, settings)?;
    let start = Instant::now();
    let results = simulation.run(scene::flows(workloads, SEED), |_| ())?;
    let elapsed = start.elapsed();
    Ok(Measured { results, elapsed })
}

fn rss_mib() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM"))?;
    let kib: f64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib / 1024.0)
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let cdf = arguments
        .next()
        .ok_or("usage: bench-sim CDF [K [MICROSECONDS [RUNS [TICK_SHIFT]]]]")?;
    let sizes = SizeDistribution::parse(&std::fs::read_to_string(&cdf)?)?;
    let numbers: Vec<u64> = arguments.map(|a| a.parse()).collect::<Result<_, _>>()?;
    let number = |at: usize, default| numbers.get(at).copied().unwrap_or(default);
    let k = u32::try_from(number(0, 16))?;
    let until = Time::ZERO + Span::from_micros(number(1, 20_000));
    let runs = number(2, 3).max(1);
    let shift = u32::try_from(number(3, 12))?;

    let (network, workloads) = scene::scene(k, BUFFER, sizes, until, SEED)?;
    let hosts = network.topology.hosts().len();
    if let Some(file) = std::env::var_os("BENCH_SIM_FLOWS") {
        std::fs::write(file, text(&workloads, SEED))?;
    }
    let mut measured = Vec::new();
    for number in 0..runs {
        let run = run(&network, &workloads, until, shift)?;
        run.print(number);
        measured.push(run);
    }
    let first = &measured[0].results;
    if measured.iter().any(|run| {
        run.results.flows != first.flows || run.results.conservation != first.conservation
    }) {
        return Err("two runs with one seed gave different results".into());
    }
    measured.sort_by_key(|run| run.elapsed);
    let median = &measured[measured.len() / 2];
    let seconds = median.elapsed.as_secs_f64();
    let hops = median.results.conservation.hops;
    println!(
        "{}",
        serde_json::json!({
            "hosts": hosts,
            "virtual_ms": until.as_nanos() as f64 / 1e6,
            "packet_hops": hops,
            "packet_hops_per_second": hops as f64 / seconds,
            "events_per_second": median.results.events as f64 / seconds,
            "rss_mib": rss_mib(),
        })
    );
    Ok(())
}

/// The flows for another simulator: a line each, start in nanoseconds, from, to, bytes.
fn text(workloads: &[Workload], seed: u64) -> String {
    FlowStream::new(workloads, seed)
        .map(|flow| {
            let (start, bytes) = (flow.start.as_nanos(), flow.bytes.unwrap_or(0));
            format!("{start} {} {} {bytes}\n", flow.from, flow.to)
        })
        .collect()
}
