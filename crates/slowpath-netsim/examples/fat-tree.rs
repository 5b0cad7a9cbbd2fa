// SPDX-License-Identifier: Apache-2.0
//! Completion times of DCTCP's web-search flows on a fat-tree, for another simulator beside it.
//!
//! `fat-tree CDF K MICROSECONDS DRAIN SEED FLOWS`: flow sizes; the fat-tree; in which time flows begin, and how much longer the run goes on; the
//! file that the flows go to: start in ns, from, to, bytes, then the numbers of the ports upwards at the edge and at the aggregation
//! switch, of data and of acknowledgements. Prints for each flow its bytes, its completion time and the ideal one in nanoseconds; 0:
//! not done.

#[path = "scene/mod.rs"]
mod scene;

use slowpath_netsim::engine::{Network, Settings, Simulation, SwitchId};
use slowpath_netsim::results::FlowRecord;
use slowpath_netsim::tcp::{DelayedAck, ReceiveWindow, TcpConfig};
use slowpath_netsim::topology::{IdealTimes, Node};
use slowpath_netsim::workload::SizeDistribution;
use slowpath_switch::{Destination, Header, PortId, Random, Span, Switch, Time};
use std::error::Error;
use std::io::Write;

/// Packets at a port.
const BUFFER: u32 = 250;
/// Bytes; two windows of a path that is full. In ns-3 what a window holds beyond its path piles up at the sending host, and a flow
/// through it then takes a hundred round trips to react to marks; here hosts keep that small, as Linux does.
const RECEIVE_WINDOW: u32 = 1 << 18;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [cdf, k, begin, drain, seed, file] = arguments.as_slice() else {
        return Err("usage: fat-tree CDF K MICROSECONDS DRAIN SEED FLOWS".into());
    };
    let sizes = SizeDistribution::parse(&std::fs::read_to_string(cdf)?)?;
    let seed = seed.parse()?;
    let until = Time::ZERO + Span::from_micros(begin.parse()?);
    let (network, workloads) = scene::scene(k.parse()?, BUFFER, sizes, until, seed)?;
    let tcp = TcpConfig {
        handshake: true,
        delayed_ack: DelayedAck::Off,
        receive_window: ReceiveWindow::Fixed(RECEIVE_WINDOW),
        ..scene::tcp()
    };
    let (mss, header) = (tcp.mss, tcp.header);
    let mut settings = Settings::new(tcp, until + Span::from_micros(drain.parse()?));
    settings.seed = seed;
    settings.paths = true;
    let simulation = Simulation::new(&network, settings)?;
    let results = simulation.run(scene::flows(&workloads, seed), |_| ())?;
    std::fs::write(file, with_ways(&network, &results.flows, seed)?)?;
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

/// The flows with their ways up.
fn with_ways(network: &Network, flows: &[FlowRecord], seed: u64) -> Result<String, Box<dyn Error>> {
    let switches = network.build::<Header>()?;
    // What the engine draws for each connection; acknowledgements have the next number.
    let mut random = Random::stream(seed, u64::from(u32::MAX));
    let mut text = String::new();
    for flow in flows {
        let key = random.next_u64() as u32;
        let [from, to] = [flow.source.0, flow.destination.0];
        let way = way(network, &switches, from, to, key);
        if way != flow.path {
            return Err(format!("flow {} took another way than its key says", flow.id).into());
        }
        let back = self::way(network, &switches, to, from, key.wrapping_add(1));
        let [a, b, c, d] = [upwards(network, &way), upwards(network, &back)].concat()[..] else {
            return Err("four numbers".into());
        };
        let (start, bytes) = (flow.start.as_nanos(), flow.bytes);
        text += &format!("{start} {from} {to} {bytes} {a} {b} {c} {d}\n");
    }
    Ok(text)
}

/// The ports by which packets with that key leave switches.
fn way(
    network: &Network,
    switches: &[Switch<Header>],
    from: u32,
    to: u32,
    key: u32,
) -> Vec<(SwitchId, PortId)> {
    let topology = &network.topology;
    let mut way = Vec::new();
    let mut next = topology.hosts()[from as usize].port.peer;
    while let Node::Switch(node) = next
        && let Some(port) = switches[node as usize].next_port(Destination(to), key.into())
    {
        way.push((SwitchId(node), port));
        next = topology.switches()[node as usize].ports[usize::from(port.0)].peer;
    }
    way
}

/// Which of its ports upwards the edge switch takes, and the aggregation switch; 0 where the way does not lead up.
fn upwards(network: &Network, way: &[(SwitchId, PortId)]) -> [usize; 2] {
    let topology = &network.topology;
    let mut numbers = [0; 2];
    for (number, above) in numbers.iter_mut().zip(["aggregation-", "core-"]) {
        let is_up = |node: Node| topology.name(node).starts_with(above);
        for (switch, port) in way {
            let ports = &topology.switches()[switch.0 as usize].ports;
            let name = topology.name(Node::Switch(switch.0));
            // A core switch has ports to aggregation switches, too.
            if is_up(ports[usize::from(port.0)].peer) && !name.starts_with("core-") {
                let before = ports[..usize::from(port.0)].iter();
                *number = before.filter(|port| is_up(port.peer)).count();
            }
        }
    }
    numbers
}
