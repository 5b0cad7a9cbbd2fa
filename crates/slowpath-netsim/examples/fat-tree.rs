// SPDX-License-Identifier: Apache-2.0
//! Completion times of DCTCP's web-search flows on a fat-tree, for another simulator beside it.
//!
//! `fat-tree CDF K MICROSECONDS DRAIN SEED FLOWS`: flow sizes; the fat-tree; in which time flows begin, and how much longer the run goes on; the
//! file that the flows go to (start in ns, from, to, bytes). Prints for each flow its bytes, its completion time and the ideal one in
//! nanoseconds; 0: not done.

#[path = "scene/mod.rs"]
mod scene;

use slowpath_netsim::engine::{Settings, Simulation};
use slowpath_netsim::tcp::TcpConfig;
use slowpath_netsim::topology::IdealTimes;
use slowpath_netsim::workload::SizeDistribution;
use slowpath_switch::{Span, Time};
use std::error::Error;
use std::io::Write;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [cdf, k, begin, drain, seed, file] = arguments.as_slice() else {
        return Err("usage: fat-tree CDF K MICROSECONDS DRAIN SEED FLOWS".into());
    };
    let sizes = SizeDistribution::parse(&std::fs::read_to_string(cdf)?)?;
    let seed = seed.parse()?;
    let until = Time::ZERO + Span::from_micros(begin.parse()?);
    let (network, workloads) = scene::scene(k.parse()?, sizes, until, seed)?;
    std::fs::write(file, scene::text(&workloads, seed))?;
    let tcp = TcpConfig {
        handshake: true,
        ..scene::tcp()
    };
    let (mss, header) = (tcp.mss, tcp.header);
    let mut settings = Settings::new(tcp, until + Span::from_micros(drain.parse()?));
    settings.seed = seed;
    let simulation = Simulation::new(&network, settings)?;
    let results = simulation.run(scene::flows(&workloads, seed), |_| ())?;
    let mut ideal = IdealTimes::new(&network.topology);
    let mut out = std::io::stdout().lock();
    for flow in &results.flows {
        let took = flow.completion().map_or(0, |took| took.0 / 1000);
        let [from, to] = [flow.source.0, flow.destination.0];
        let ideal = ideal.of(from, to, flow.bytes, mss, header);
        writeln!(out, "{} {took} {}", flow.bytes, ideal.0 / 1000)?;
    }
    Ok(())
}
