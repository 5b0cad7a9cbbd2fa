// SPDX-License-Identifier: Apache-2.0
//! What a recording of every host would hold of a run: the times of its packets, sampled
//! with clocks that differ, and which of them were lost.

use super::engine::Offered;
use slowpath_netsim::engine::Network;
use slowpath_netsim::results::PacketLog;
use slowpath_recording::sampling::Sampler;
use slowpath_switch::{Line, Random, Rate, Span, Time};
use std::collections::HashMap;

const PICOS: u64 = 1_000;

/// What was kept of a run.
#[derive(Clone, Debug)]
pub struct Sampled {
    /// Every packet by the clock of its host; [`Offered::number`] is its place here and in
    /// the run's log.
    pub packets: Vec<Offered>,
    /// Samples that were taken.
    pub samples: u64,
}

/// Samples each connection's packets at each host with that threshold (nanoseconds), by
/// clocks that are up to `clocks` nanoseconds ahead, each as likely as another.
///
/// What is inferred then is made to fit the hosts' lines, on which one packet follows the
/// other.
pub fn sampled(
    network: &Network,
    log: &PacketLog,
    threshold: u32,
    clocks: u64,
    seed: u64,
) -> Sampled {
    let mut lost = vec![false; log.sent.len()];
    for dropped in &log.dropped {
        lost[dropped.packet as usize] = true;
    }
    // The connections of each host, one after the other: packets of one stay in order.
    let mut streams: HashMap<(u32, u32), Vec<u32>> = HashMap::new();
    for (number, packet) in log.sent.iter().enumerate() {
        let key = (packet.source.0, packet.key);
        streams.entry(key).or_default().push(number as u32);
    }
    let threshold_span = Span::from_nanos(threshold.into());
    let mut packets: Vec<Option<Offered>> = vec![None; log.sent.len()];
    let mut samples = 0;
    for ((host, _), numbers) in streams {
        let ahead = match clocks {
            0 => 0,
            most => Random::stream(seed, host.into()).next_u64() % (most + 1),
        };
        let mut sampler = Sampler::new(threshold);
        let time = |number: u32| log.sent[number as usize].at.0 / PICOS + ahead;
        let mut kept: Vec<_> = (numbers.iter())
            .filter_map(|number| sampler.push(time(*number)))
            .collect();
        kept.extend(sampler.finish());
        samples += kept.len() as u64;
        let mut current = 0;
        for (index, number) in (0..).zip(numbers) {
            if kept.get(current + 1).is_some_and(|s| s.index <= index) {
                current += 1;
            }
            let sent = &log.sent[number as usize];
            let at = Time(kept[current].infer(index).saturating_mul(PICOS));
            let unknown = match kept[current].index == index {
                true => Span::ZERO,
                false => threshold_span,
            };
            packets[number as usize] = Some(Offered {
                number,
                at,
                earliest: Time(at.0.saturating_sub(unknown.0)),
                latest: at + unknown,
                after: sent.after,
                source: sent.source,
                destination: sent.destination,
                key: sent.key,
                bytes: sent.bytes,
                lost: lost[number as usize],
            });
        }
    }
    let mut packets: Vec<Offered> = packets.into_iter().flatten().collect();
    packets.sort_unstable_by_key(|packet| (packet.source, packet.at, packet.number));
    for host in packets.chunk_by_mut(|a, b| a.source == b.source) {
        let rate = network.topology.hosts()[host[0].source.0 as usize]
            .port
            .options
            .rate;
        centre(host, rate);
    }
    packets.sort_unstable_by_key(|packet| packet.number);
    Sampled { packets, samples }
}

/// Moves the packets of one host, in the order of their inferred moments, to the middle of
/// what is possible: each was sent within its bounds, none before the one
/// before it had left. The earliest moments that keep both follow from the first packet on,
/// the latest from the last one back; the true one lies between them, if the order is right.
fn centre(packets: &mut [Offered], rate: Rate) {
    let mut line = Line::new(rate, Span::ZERO);
    let mut takes = Vec::with_capacity(packets.len());
    let mut earliest = Vec::with_capacity(packets.len());
    for packet in packets.iter() {
        let start = packet.earliest.max(line.free_at());
        takes.push(line.send(start, packet.bytes.into()) - start);
        earliest.push(start);
    }
    let mut next = Time::MAX;
    for ((packet, takes), earliest) in packets.iter_mut().zip(takes).zip(earliest).rev() {
        let before_next = Time(next.0.saturating_sub(takes.0));
        let latest = packet.latest.min(before_next);
        next = latest;
        let middle = Time(earliest.0.midpoint(latest.0));
        packet.at = middle.max(packet.earliest).min(packet.latest);
    }
}
