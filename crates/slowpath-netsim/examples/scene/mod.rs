// SPDX-License-Identifier: Apache-2.0
//! DCTCP with web-search flows on a fat-tree of 10 Gbit/s, as tools/ns3/fat-tree.cc has it.

use slowpath_netsim::engine::{Application, FlowSpec, HostId, Network, Transport};
use slowpath_netsim::tcp::TcpConfig;
use slowpath_netsim::topology::{LinkOptions, Links, QueueOverride, fat_tree};
use slowpath_netsim::workload::{
    Endpoints, FlowStream, Intensity, Kind, Locality, Poisson, SizeDistribution, Workload,
};
use slowpath_switch::{Limit, Rate, Span, Threshold, Time};
use std::error::Error;

/// 30 % of what the hosts' links carry.
const LOAD: f64 = 0.3;

/// What each host's TCP is.
pub fn tcp() -> TcpConfig {
    TcpConfig {
        rto_min: Span::from_millis(10),
        rto_initial: Span::from_millis(10),
        ..TcpConfig::dctcp()
    }
}

/// The flows of the workloads.
pub fn flows(workloads: &[Workload], seed: u64) -> impl Iterator<Item = FlowSpec> + '_ {
    FlowStream::new(workloads, seed)
        .enumerate()
        .map(|(id, flow)| {
            let bytes = flow.bytes.unwrap_or(u64::MAX);
            FlowSpec::tcp(
                id as u64,
                HostId(flow.from),
                HostId(flow.to),
                bytes,
                flow.start,
            )
        })
}

/// A fat-tree whose ports hold `buffer` packets and whose hosts send one another flows of these sizes.
pub fn scene(
    k: u32,
    buffer: u32,
    sizes: SizeDistribution,
    until: Time,
    seed: u64,
) -> Result<(Network, [Workload; 1]), Box<dyn Error>> {
    let link = LinkOptions {
        rate: Rate::from_bits_per_second(10_000_000_000).ok_or("rate")?,
        delay: Span::from_micros(1),
        queue: QueueOverride::default(),
    };
    let topology = fat_tree(
        k,
        Links {
            host: link,
            fabric: link,
        },
    )?;
    let all: Vec<u32> = (0..topology.hosts().len() as u32).collect();
    let workloads = [Workload {
        name: "web search".to_owned(),
        class: 0,
        transport: Transport::Tcp(0),
        application: Application::AtOnce,
        keep_connections: false,
        start: Time::ZERO,
        stop: until,
        kind: Kind::Poisson(Poisson {
            endpoints: Endpoints::new(&topology, all.clone(), all, Locality::Any)?,
            sizes,
            intensity: Intensity::Load(LOAD),
        }),
    }];
    let network = Network::new(
        topology,
        Limit::packets(buffer),
        Some(Threshold::Packets(65)),
        seed,
    );
    Ok((network, workloads))
}
