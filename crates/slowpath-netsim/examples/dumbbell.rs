// SPDX-License-Identifier: Apache-2.0
//! Long flows through one bottleneck, as `tools/ns3/dumbbell.cc` runs them in ns-3.
//!
//! `dumbbell newreno|cubic|dctcp|bbr[/red|/codel|/pie] FLOWS MBIT ACCESS_MBIT DELAY_US BUFFER K SECONDS WARMUP_SECONDS`:
//! FLOWS senders and receivers, each on a link of its own; every link, and the bottleneck,
//! delays by DELAY_US. The last line is JSON: throughput from the start, and the queue of
//! the bottleneck, sampled every 100 us after the warm-up.

use slowpath_netsim::engine::{
    FlowSpec, HostId, Network, QueueSeries, Settings, Simulation, SwitchId,
};
use slowpath_netsim::tcp::{Algorithm, DelayedAck, Ecn, LossDetection, TcpConfig};
use slowpath_netsim::topology::{LinkOptions, Links, QueueOverride, dumbbell};
use slowpath_switch::aqm::{Aqm, CoDel, Pie, Red};
use slowpath_switch::{Limit, PortId, Rate, Span, Threshold, Time};
use std::error::Error;

/// The TCP of that name as ns-3 has it.
fn tcp(kind: &str) -> Result<TcpConfig, Box<dyn Error>> {
    // ns-3: New Reno and CUBIC with SACK, three duplicate ACKs, PRR, delayed ACKs of 200 ms
    // and a least timeout of 1 s; no RACK, no probes.
    let mut tcp = TcpConfig {
        proportional_rate_reduction: true,
        rto_min: Span::from_millis(1000),
        delayed_ack: DelayedAck::Fixed(Span::from_millis(200)),
        loss_detection: LossDetection::DuplicateAcks(3),
        mss: 1448,
        header: 54,
        ..TcpConfig::rfc_newreno()
    };
    match kind {
        "newreno" => {}
        "cubic" => tcp.algorithm = Algorithm::Cubic { hystart: false },
        "bbr" => tcp.algorithm = Algorithm::Bbr,
        "dctcp" => {
            tcp.algorithm = Algorithm::Dctcp;
            tcp.ecn = Ecn::Dctcp;
        }
        other => return Err(format!("no congestion control {other}").into()),
    }
    Ok(tcp)
}

/// Management of the bottleneck's queue; RED from K packets on, and everything from three times as
/// many.
fn aqm(name: &str, k: u32) -> Result<Option<Aqm>, Box<dyn Error>> {
    Ok(Some(match name {
        "" => return Ok(None),
        "red" => {
            let red = Red::new(Threshold::Packets(k), Threshold::Packets(3 * k));
            Aqm::Red(Red {
                mean_packet: 1_500,
                ..red
            })
        }
        "codel" => Aqm::CoDel(CoDel::default()),
        "pie" => Aqm::Pie(Pie::default()),
        other => return Err(format!("no queue management {other}").into()),
    }))
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let kind = arguments.next().ok_or("which congestion control?")?;
    let numbers: Vec<f64> = arguments.map(|a| a.parse()).collect::<Result<_, _>>()?;
    let &[flows, mbit, access, delay, buffer, k, seconds, warmup] = numbers.as_slice() else {
        return Err("eight numbers: see the source".into());
    };
    let (kind, name) = kind.split_once('/').unwrap_or((&kind, ""));
    let aqm = aqm(name, k as u32)?;
    let tcp = tcp(kind)?;
    let link = |mbit: f64| -> Result<LinkOptions, Box<dyn Error>> {
        Ok(LinkOptions {
            rate: Rate::from_bits_per_second((mbit * 1e6) as u64).ok_or("rate")?,
            delay: Span::from_nanos((delay * 1e3) as u64),
            queue: QueueOverride::default(),
        })
    };
    let count = flows as u32;
    let links = Links {
        host: link(access)?,
        fabric: link(mbit)?,
    };
    let topology = dumbbell(count, count, links)?;
    let bottleneck = (SwitchId(0), PortId(count as u16));
    let marking = (kind == "dctcp").then_some(Threshold::Packets(k as u32));
    let mut network = Network::new(topology, Limit::packets(buffer as u32), marking, 1);
    network
        .managed
        .extend(aqm.map(|aqm| (bottleneck.0, bottleneck.1, aqm)));
    let until = Time::ZERO + Span::from_nanos((seconds * 1e9) as u64);
    let mut settings = Settings::new(tcp, until);
    settings.queues = QueueSeries::Sampled {
        every: Span::from_micros(100),
        ports: vec![bottleneck],
    };
    // One each millisecond, as in the other simulator.
    let specs = (0..count).map(|n| {
        let start = Time::ZERO + Span::from_millis(u64::from(n));
        FlowSpec::tcp(
            u64::from(n),
            HostId(n),
            HostId(count + n),
            FlowSpec::ENDLESS,
            start,
        )
    });
    let results = Simulation::new(&network, settings)?.run(specs, |_| ())?;

    let rates: Vec<f64> = results
        .flows
        .iter()
        .map(|f| f.arrived as f64 * 8.0 / seconds / 1e6)
        .collect();
    let total: f64 = rates.iter().sum();
    let squares: f64 = rates.iter().map(|rate| rate * rate).sum();
    let after = Time::ZERO + Span::from_nanos((warmup * 1e9) as u64);
    let samples = results.queues.iter().filter(|sample| sample.at >= after);
    let mut queue: Vec<u32> = samples.map(|sample| sample.packets).collect();
    queue.sort_unstable();
    let at = |share: f64| queue[((queue.len() - 1) as f64 * share) as usize];
    let mean = queue.iter().map(|packets| f64::from(*packets)).sum::<f64>() / queue.len() as f64;
    let port = &results.ports[usize::from(bottleneck.1.0)];
    println!(
        "{}",
        serde_json::json!({
            "kind": kind,
            "throughput_mbit": total,
            "jain": total * total / (squares * rates.len() as f64),
            "queue_mean": mean,
            "queue_median": at(0.5),
            "queue_p95": at(0.95),
            "queue_max": at(1.0),
            "drops": port.counters.dropped,
            "marks": port.counters.marked,
            "retransmissions": results.flows.iter().map(|f| f.retransmissions).sum::<u32>(),
            "timeouts": results.flows.iter().map(|f| f.timeouts).sum::<u32>(),
        })
    );
    Ok(())
}
