// SPDX-License-Identifier: Apache-2.0
//! Networks for tests.

use slowpath_netsim::engine::{
    FlowSpec, HostId, Network, QueueSeries, Settings, Simulation, SwitchId,
};
use slowpath_netsim::results::{QueueSample, Results};
use slowpath_netsim::tcp::{DelayedAck, TcpConfig};
use slowpath_netsim::topology::{LinkOptions, Links, QueueOverride, dumbbell};
use slowpath_switch::{Limit, PortId, Rate, Span, Threshold, Time};

pub const GBIT: u64 = 1_000_000_000;

pub fn rate(bits: u64) -> Rate {
    Rate::from_bits_per_second(bits).expect("in range")
}

pub fn link(bits: u64, delay_us: u64) -> LinkOptions {
    LinkOptions {
        rate: rate(bits),
        delay: Span::from_micros(delay_us),
        queue: QueueOverride::default(),
    }
}

/// A dumbbell, and where its bottleneck is.
pub struct Dumbbell {
    pub senders: u32,
    pub access: u64,
    pub bottleneck: u64,
    pub delay_us: u64,
    pub buffer: u32,
    pub mark: Option<u32>,
}

impl Dumbbell {
    pub fn network(&self) -> Network {
        let links = Links {
            host: link(self.access, self.delay_us),
            fabric: link(self.bottleneck, self.delay_us),
        };
        let topology = dumbbell(self.senders, self.senders, links).expect("a dumbbell");
        Network::new(
            topology,
            Limit::packets(self.buffer),
            self.mark.map(Threshold::Packets),
            1,
        )
    }

    pub fn port(&self) -> (SwitchId, PortId) {
        (SwitchId(0), PortId(self.senders as u16))
    }

    /// A flow without end from each sender, one each millisecond, with the bottleneck's queue sampled.
    pub fn long_flows(&self, tcp: TcpConfig, seconds: u64) -> Results {
        let mut settings = Settings::new(tcp, Time::ZERO + Span::from_secs(seconds));
        settings.queues = QueueSeries::Sampled {
            every: Span::from_micros(200),
            ports: vec![self.port()],
        };
        let flows = (0..self.senders).map(|n| {
            let start = Time::ZERO + Span::from_millis(u64::from(n));
            FlowSpec::tcp(
                u64::from(n),
                HostId(n),
                HostId(self.senders + n),
                FlowSpec::ENDLESS,
                start,
            )
        });
        run(&self.network(), settings, flows)
    }
}

/// A run that must work.
pub fn run(
    network: &Network,
    settings: Settings,
    flows: impl IntoIterator<Item = FlowSpec>,
) -> Results {
    let simulation = Simulation::new(network, settings).expect("possible");
    let results = simulation
        .run(flows, |_| ())
        .expect("all packets accounted for");
    assert!(results.conservation.holds());
    results
}

/// NewReno after the RFCs, with an ACK for each segment and short timeouts.
pub fn newreno() -> TcpConfig {
    TcpConfig {
        rto_min: Span::from_millis(200),
        delayed_ack: DelayedAck::Off,
        ..TcpConfig::rfc_newreno()
    }
}

/// Queue lengths after a warm-up, ascending.
pub fn lengths(samples: &[QueueSample], after: Span) -> Vec<u32> {
    let after = Time::ZERO + after;
    let mut lengths: Vec<u32> = samples
        .iter()
        .filter(|s| s.at >= after)
        .map(|s| s.packets)
        .collect();
    lengths.sort_unstable();
    lengths
}

/// The value that such a share is not above.
pub fn quantile(sorted: &[u32], share: f64) -> u32 {
    sorted[((sorted.len() - 1) as f64 * share) as usize]
}

/// Jain's index of what arrived.
pub fn jain(results: &Results) -> f64 {
    let arrived: Vec<f64> = results
        .flows
        .iter()
        .map(|flow| flow.arrived as f64)
        .collect();
    let sum: f64 = arrived.iter().sum();
    let squares: f64 = arrived.iter().map(|a| a * a).sum();
    sum * sum / (squares * arrived.len() as f64)
}
