// SPDX-License-Identifier: Apache-2.0
//! Times that fit what caused them.
//!
//! The recorded times of packets that were not sampled are off by microseconds, but what each
//! waited for is known exactly: TCP sent it when the packet before it in [`Offered::after`]
//! arrived, and sent what it could send then back to back. A replay gives how long that one
//! took on its way. So
//!
//! 1. a first replay takes times as they were recorded, clocks corrected as far as bounds go;
//! 2. what packets took there corrects the clocks further;
//! 3. every packet is moved towards the moment at which its cause arrived, towards the
//!    moments that the packets it caused itself ask for, and next to those that were sent for the
//!    same cause; a little towards where the recording has it, and never out of its bounds;
//! 4. then packets of a host are moved so that its line carries one at a time: to the middle
//!    of what is possible not far from there.
//!
//! 3 and 4 are repeated [`TURNS`] times, and the whole [`ROUNDS`] times. A sampled packet is
//! not moved, but for its clock. Nothing is driven by arrivals only: a queue that runs empty
//! for a moment in the replay would delay all that follows, and nothing would bring it back.

use super::clocks;
use super::drops::passes;
use super::engine::{Offered, Outcome, ReplayError, check};
use super::free_space::Margin;
use slowpath_netsim::engine::Network;
use slowpath_switch::{Span, Time};
use std::collections::HashMap;

/// After four the differences do not become less (measured: `docs/decisions/0022-queues.md`).
const ROUNDS: usize = 4;
/// Passes over where lost packets were dropped; the last replay makes more.
const PASSES: usize = 2;
/// How often times are fitted and lines obeyed with the same replay.
const TURNS: usize = 3;
/// How often all packets are moved in a turn.
const SWEEPS: usize = 6;
/// What a recorded time weighs, where what a replay asks for weighs 1: it holds what nothing
/// else does.
const RECORDED: f64 = 0.002;
/// What the packets next to it weigh that were sent for the same cause.
const JOINED: f64 = 5.0;
/// Bytes whose time on its host's line is how far the line's order may move a packet from
/// where it fits best.
const FREE: f64 = 1250.0;
const PICOS_TIMES_BITS: f64 = 8e12;

/// Moves packets to the most likely moments. `clocks` is how far hosts' clocks are from each
/// other at most.
///
/// # Errors
/// The network or a packet is impossible.
pub fn settled(
    network: &Network,
    packets: Vec<Offered>,
    clocks: Span,
    margin: Margin,
) -> Result<Vec<Offered>, ReplayError> {
    let mut recorded = packets;
    check(network, &recorded)?;
    let offsets = clocks::offsets(network, &recorded, clocks.0)?;
    clocks::correct(&mut recorded, &offsets);
    let links = Links::new(network, &recorded);
    let mut now = recorded.clone();
    for _ in 0..ROUNDS {
        let replayed = passes(network, &now, margin, false, PASSES)?;
        let times = links.fitted(&recorded, &now, &replayed);
        for (packet, time) in now.iter_mut().zip(times) {
            packet.at = time;
        }
        let offsets = clocks::refine(network, &now, &replayed)?;
        clocks::correct(&mut now, &offsets);
        clocks::correct(&mut recorded, &offsets);
    }
    Ok(now)
}

/// No packet.
const NONE: u32 = u32::MAX;

/// Packets that one cause sent.
struct Links {
    /// Each packet's time on its host's line.
    takes: Vec<f64>,
    /// The packet before it in its connection, if it has the same cause: an arrival, or none
    /// and nothing in their times against it.
    before: Vec<u32>,
    after: Vec<u32>,
    /// The first packet that it caused.
    caused: Vec<u32>,
    /// By host: its packets, and how far they may be moved, in picoseconds.
    hosts: Vec<(Vec<u32>, f64)>,
}

impl Links {
    fn new(network: &Network, packets: &[Offered]) -> Self {
        let hosts = network.topology.hosts();
        let takes = |packet: &Offered| {
            let rate = hosts[packet.source.0 as usize].port.options.rate;
            PICOS_TIMES_BITS * f64::from(packet.bytes) / rate.bits_per_second() as f64
        };
        let mut links = Links {
            takes: packets.iter().map(takes).collect(),
            before: vec![NONE; packets.len()],
            after: vec![NONE; packets.len()],
            caused: vec![NONE; packets.len()],
            hosts: (hosts.iter())
                .map(|host| {
                    let rate = host.port.options.rate.bits_per_second() as f64;
                    (Vec::new(), FREE * PICOS_TIMES_BITS / rate)
                })
                .collect(),
        };
        let mut last: HashMap<(u32, u32), u32> = HashMap::new();
        for packet in packets {
            links.hosts[packet.source.0 as usize].0.push(packet.number);
            let before = last.insert((packet.source.0, packet.key), packet.number);
            let joined = |before: &u32| {
                let before = &packets[*before as usize];
                let takes = Span(links.takes[before.number as usize] as u64);
                before.after == packet.after
                    && (packet.after.is_some() || may_follow(before, takes, packet))
            };
            match (before.filter(joined), packet.after) {
                (Some(before), _) => {
                    links.before[packet.number as usize] = before;
                    links.after[before as usize] = packet.number;
                }
                (None, Some(cause)) => links.caused[cause as usize] = packet.number,
                (None, None) => {}
            }
        }
        links
    }

    /// Steps 3 and 4.
    fn fitted(&self, recorded: &[Offered], now: &[Offered], replayed: &Outcome) -> Vec<Time> {
        let way = |(sent, reached): (&Time, &Time)| {
            (*reached != Time::MAX).then(|| reached.since(*sent).0 as f64)
        };
        let ways: Vec<_> = replayed
            .sent
            .iter()
            .zip(&replayed.reached)
            .map(way)
            .collect();
        let mut times: Vec<f64> = now.iter().map(|packet| packet.at.0 as f64).collect();
        for _ in 0..TURNS {
            for _ in 0..SWEEPS {
                self.sweep(recorded, &ways, &mut times);
            }
            self.obey(recorded, &mut times);
        }
        times.into_iter().map(|time| Time(time as u64)).collect()
    }

    fn sweep(&self, recorded: &[Offered], ways: &[Option<f64>], times: &mut [f64]) {
        for (at, packet) in recorded.iter().enumerate() {
            if packet.earliest == packet.latest {
                times[at] = packet.at.0 as f64;
                continue;
            }
            let (mut sum, mut weights) = (RECORDED * packet.at.0 as f64, RECORDED);
            let mut ask = |time: f64, weight: f64| {
                sum += weight * time;
                weights += weight;
            };
            if let Some(before) = times.get(self.before[at] as usize) {
                ask(before + self.takes[self.before[at] as usize], JOINED);
            } else if let Some(cause) = packet.after
                && let Some(way) = ways[cause as usize]
            {
                ask(times[cause as usize] + way, 1.0);
            }
            if let Some(after) = times.get(self.after[at] as usize) {
                ask(after - self.takes[at], JOINED);
            }
            if let (Some(caused), Some(way)) = (times.get(self.caused[at] as usize), ways[at]) {
                ask(caused - way, 1.0);
            }
            times[at] = within(packet, sum / weights);
        }
    }

    /// One packet at a time on each host's line, a connection's in their order.
    fn obey(&self, recorded: &[Offered], times: &mut [f64]) {
        for (numbers, free_by) in &self.hosts {
            in_order(recorded, numbers, times);
            let mut order = numbers.clone();
            order.sort_by(|a, b| times[*a as usize].total_cmp(&times[*b as usize]));
            let mut free = 0.0f64;
            let mut earliest = Vec::with_capacity(order.len());
            for number in &order {
                let at = *number as usize;
                let bound = recorded[at].earliest.0 as f64;
                let start = (times[at] - free_by).max(bound).max(free);
                free = start + self.takes[at];
                earliest.push(start);
            }
            let mut next = f64::MAX;
            for (number, earliest) in order.iter().zip(earliest).rev() {
                let at = *number as usize;
                let bound = recorded[at].latest.0 as f64;
                let latest = (times[at] + free_by).min(bound).min(next - self.takes[at]);
                next = latest;
                times[at] = within(&recorded[at], f64::midpoint(earliest, latest));
            }
            in_order(recorded, numbers, times);
        }
    }
}

/// Whether a packet may have left right behind one that takes so long. The application or a
/// timer caused both: what it wrote at once, or if not, two things that their times
/// distinguish.
fn may_follow(before: &Offered, takes: Span, packet: &Offered) -> bool {
    packet.earliest <= before.latest + takes && packet.latest >= before.earliest + takes
}

fn within(packet: &Offered, time: f64) -> f64 {
    time.max(packet.earliest.0 as f64)
        .min(packet.latest.0 as f64)
}

/// No packet of a connection before the one before it.
fn in_order(recorded: &[Offered], numbers: &[u32], times: &mut [f64]) {
    let mut last: HashMap<u32, f64> = HashMap::new();
    for number in numbers {
        let time = &mut times[*number as usize];
        let last = last.entry(recorded[*number as usize].key).or_insert(0.0);
        *time = time.max(*last);
        *last = *time;
    }
}
