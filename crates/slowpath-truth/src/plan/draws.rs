// SPDX-License-Identifier: Apache-2.0
//! Parameters that every run has, and the runs without an injection.

use super::injections::{healthy, inject};
use super::{Group, Pace, PathSettings, Plan, Tcp, Traffic};
use crate::random::RandomStream;

/// RTT without queues, milliseconds.
pub(super) const RTT_MS: (f64, f64) = (0.1, 200.0);

/// The most packets with data a second that a run may make: 16 of them share two processors.
const MOST_PACKETS: f64 = 3_000.0;

/// Rates, Mbit/s.
const RATE: (f64, f64) = (1.0, 40.0);

/// The `number`-th run of a group.
pub fn draw(seed: u64, group: Group, number: u32) -> Plan {
    match group {
        Group::Problem(_) | Group::Pair(..) | Group::Interaction(_) => {
            let mut random = RandomStream::new(seed, &group.to_string(), number);
            inject(group, &mut random)
        }
        Group::Control(problem) => {
            let group = Group::Problem(problem);
            healthy(&draw(seed, group, number))
        }
        Group::Without(kind) => healthy(&draw(seed, Group::Interaction(kind), number)),
        Group::Idle | Group::Streaming | Group::Short => {
            let mut random = RandomStream::new(seed, &group.to_string(), number);
            let mut plan = any(&mut random);
            uninjected(group, &mut plan, &mut random);
            plan
        }
    }
}

/// The highest rate at which a connection of that MSS stays below [`MOST_PACKETS`], Mbit/s.
pub(super) fn most_rate(mss: u32) -> f64 {
    RATE.1.min(MOST_PACKETS * 8.0 * f64::from(mss + 52) / 1e6)
}

/// What every run draws: family, MSS, congestion control, RTT, rate, queue. An exchange
/// without pauses stands for the traffic.
pub(super) fn any(random: &mut RandomStream) -> Plan {
    let v6 = random.chance(0.5);
    // IPv6's header is 20 bytes longer than IPv4's; 12 are for timestamps.
    let mss = random.integer(536, if v6 { 1428 } else { 1448 });
    let rtt_ms = random.log_uniform(RTT_MS.0, RTT_MS.1);
    let rate = random.log_uniform(RATE.0, most_rate(mss));
    let mut plan = Plan {
        path: PathSettings {
            rtt_us: (rtt_ms * 1000.0) as u64,
            rate_kbit: (rate * 1000.0) as u64,
            queue_bytes: 0,
            v6,
            single: random.chance(0.5),
            loss: None,
            cuts_ms: Vec::new(),
            closed_ms: 0,
            marking: None,
            late: None,
            keep_window: false,
        },
        tcp: Tcp {
            control: random.pick(&["cubic", "reno", "bbr"]),
            mss: mss + 12,
            send_buffer: None,
            receive_buffer: None,
            nodelay: random.chance(0.5),
            delay_acks: false,
        },
        traffic: Traffic::Exchange {
            parts: vec![100],
            response: 100,
            think_us: 0,
            pause_us: 0,
        },
        pace: Pace::Quick,
        length_ms: 0,
        connections: 1,
        listener_load: None,
        relay: None,
    };
    let factor = random.uniform(1.0, 2.5);
    settle(&mut plan, factor);
    plan
}

/// What follows from RTT, rate and MSS: the queue (a factor times the bandwidth-delay product,
/// at least 20 segments, at most 150 ms) and the length.
pub(super) fn settle(plan: &mut Plan, factor: f64) {
    let path = &mut plan.path;
    let segment = u64::from(plan.tcp.mss + 40);
    let longest = path.rate_kbit * 150 / 8;
    path.queue_bytes = ((path.bdp() as f64 * factor) as u64)
        .min(longest)
        .max(20 * segment);
    plan.length_ms = 4_000 + 20 * path.rtt_us / 1000;
}

fn uninjected(group: Group, plan: &mut Plan, random: &mut RandomStream) {
    let rtt_us = plan.path.rtt_us;
    let mss = plan.tcp.mss;
    match group {
        Group::Streaming => {
            plan.traffic = Traffic::Messages {
                bytes: random.integer(100, 6 * mss),
                pause_us: 2 * rtt_us + (random.log_uniform(5.0, 300.0) * 1000.0) as u64,
            };
        }
        Group::Short => {
            plan.connections = random.integer(3, 8);
            plan.length_ms = (plan.length_ms / u64::from(plan.connections)).max(rtt_us / 200);
            plan.traffic = exchange(random, mss, (0.0, 30.0));
        }
        _ => plan.traffic = exchange(random, mss, (800.0, 2500.0)),
    }
}

/// A request in one write, its answer, a pause between these (milliseconds).
pub(super) fn exchange(random: &mut RandomStream, mss: u32, pause_ms: (f64, f64)) -> Traffic {
    Traffic::Exchange {
        parts: vec![random.log_uniform(20.0, 6.0 * f64::from(mss)) as u32],
        response: random.log_uniform(20.0, 6.0 * f64::from(mss)) as u32,
        think_us: random.pick(&[0, 0, 1_000, 30_000, 100_000]),
        pause_us: (random.uniform(pause_ms.0, pause_ms.1) * 1000.0) as u64,
    }
}
