// SPDX-License-Identifier: Apache-2.0
//! What replayed queues say: who shared them, and why they dropped.

use super::engine::{Level, Offered, Outcome, QueueAtDrop};
use slowpath_netsim::engine::{HostId, Network, SwitchId};
use slowpath_netsim::results::Joined;
use slowpath_switch::{PortId, Rate, Shared, Span, Time};
use std::collections::BTreeMap;

/// Drops of one queue that follow each other within this time are one finding.
const JOINED: Span = Span::from_millis(1);
/// A threshold fell if it lost more than this part of one.
const FELL: u64 = 8;
/// What a queue was like before is looked for this long before its first drop, if it does not
/// take longer to drain it.
const BEFORE: Span = Span::from_micros(500);
const PICOS_TIMES_BITS: u128 = 8_000_000_000_000;

/// Who sends: the host and what switches hash for that end of the connection.
pub type Sender = (HostId, u32);

/// A queue over the whole replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueReport {
    /// Its number, as in [`Outcome::queues`].
    pub queue: u32,
    /// Its switch.
    pub switch: SwitchId,
    /// Its port.
    pub port: PortId,
    /// Packets that joined it.
    pub joined: u64,
    /// Packets that it dropped.
    pub dropped: u64,
    /// The most bytes that waited, and when that was first so.
    pub most: (u64, Time),
    /// Bytes of each sender then, the most first.
    pub at_most: Vec<(Sender, u64)>,
    /// Bytes of each sender that dropped packets found, summed over the drops.
    pub at_drops: Vec<(Sender, u64)>,
    /// Dropped packets of each sender, the most first.
    pub lost: Vec<(Sender, u64)>,
}

/// Why a queue dropped, where that is more than that it was full.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The dynamic threshold of a queue fell under its length because another queue of the
    /// switch filled: the queue dropped while it became shorter (DETER section 5.6).
    ///
    /// 1. Drops that follow each other within a millisecond are looked at as one.
    /// 2. The threshold fell, by more than an eighth, from its highest before the first of
    ///    them (within the time that the queue takes to drain) to its lowest during them;
    /// 3. meanwhile the queue itself became shorter;
    /// 4. and the other queues of the switch longer in all. The one that grew most is named.
    /// 5. Counted are those drops that the threshold of before would have had room for.
    ThresholdFell {
        /// The queue that dropped.
        queue: u32,
        /// The queue that filled.
        filled: u32,
        /// From the threshold's highest moment to its lowest.
        span: (Time, Time),
        /// The threshold then, in bytes.
        threshold: (u64, u64),
        /// The queue's own bytes then.
        own: (u64, u64),
        /// The other's bytes then.
        other: (u64, u64),
        /// Drops that the threshold of before would have had room for.
        drops: u64,
        /// How many of these were of each sender, the most first.
        lost: Vec<(Sender, u64)>,
    },
}

/// A packet that a queue dropped.
struct Drop {
    at: Time,
    bytes: u64,
    sender: Sender,
    found: QueueAtDrop,
}

/// A queue's dynamic threshold while the switch holds `used` bytes; `None` if the buffer is
/// not one of bytes.
pub fn threshold(shared: Shared, used: u64) -> Option<u64> {
    let free = shared.total.bytes?.saturating_sub(used);
    let alpha = (
        u128::from(shared.alpha.numerator.get()),
        u128::from(shared.alpha.denominator.get()),
    );
    Some(u64::try_from(u128::from(free) * alpha.0 / alpha.1).unwrap_or(u64::MAX))
}

/// The switch and port of every queue.
fn places(network: &Network) -> Vec<(SwitchId, PortId, Rate)> {
    let switches = (0..).zip(network.topology.switches());
    let of = |(number, switch): (u32, &slowpath_netsim::topology::SwitchNode)| {
        let ports = (0..).zip(&switch.ports);
        let place = |(port, linked): (u16, &slowpath_netsim::topology::Port)| {
            (SwitchId(number), PortId(port), linked.options.rate)
        };
        ports.map(place).collect::<Vec<_>>()
    };
    switches.flat_map(of).collect()
}

fn by_most(bytes: BTreeMap<Sender, u64>) -> Vec<(Sender, u64)> {
    let mut all: Vec<_> = bytes.into_iter().collect();
    all.sort_by_key(|(sender, bytes)| (u64::MAX - bytes, *sender));
    all
}

fn add(window: &[Joined], packets: &[Offered], to: &mut BTreeMap<Sender, u64>) {
    for joined in window {
        let packet = &packets[joined.packet as usize];
        *to.entry((packet.source, packet.key)).or_default() += u64::from(packet.bytes);
    }
}

/// Reports of all queues that a packet joined or was dropped at, by number. Needs
/// [`Outcome::levels`].
pub fn reports(network: &Network, packets: &[Offered], outcome: &Outcome) -> Vec<QueueReport> {
    let mut most = vec![(0, Time::ZERO, 0u32); outcome.queues.len()];
    let mut joined = vec![0u32; outcome.queues.len()];
    let mut last = vec![0u32; outcome.queues.len()];
    for level in &outcome.levels {
        let queue = level.queue as usize;
        // One that grew was joined.
        joined[queue] += u32::from(level.packets > last[queue]);
        last[queue] = level.packets;
        if level.bytes > most[queue].0 {
            most[queue] = (level.bytes, level.at, joined[queue]);
        }
    }
    let mut drops: BTreeMap<u32, Vec<(u32, QueueAtDrop)>> = BTreeMap::new();
    for (drop, found) in outcome.dropped.iter().zip(&outcome.found) {
        if drop.port.is_some() {
            let own = drops.entry(found.queue).or_default();
            own.push((drop.packet, *found));
        }
    }
    let mut reports = Vec::new();
    for (queue, (switch, port, _)) in (0u32..).zip(places(network)) {
        let all = &outcome.queues[queue as usize];
        let dropped = drops.remove(&queue).unwrap_or_default();
        if all.is_empty() && dropped.is_empty() {
            continue;
        }
        let (bytes, at, place) = most[queue as usize];
        let mut at_most = BTreeMap::new();
        if let Some(newest) = (place as usize).checked_sub(1)
            && let Some(first) = all.get(newest)
        {
            add(&all[first.left as usize..=newest], packets, &mut at_most);
        }
        let (mut at_drops, mut lost) = (BTreeMap::new(), BTreeMap::new());
        for (packet, found) in &dropped {
            let window = &all[found.left as usize..found.joined as usize];
            add(window, packets, &mut at_drops);
            let packet = &packets[*packet as usize];
            *lost.entry((packet.source, packet.key)).or_default() += 1;
        }
        reports.push(QueueReport {
            queue,
            switch,
            port,
            joined: all.len() as u64,
            dropped: dropped.len() as u64,
            most: (bytes, at),
            at_most: by_most(at_most),
            at_drops: by_most(at_drops),
            lost: by_most(lost),
        });
    }
    reports
}

/// What is found at all queues, in the order of time. Needs [`Outcome::levels`].
pub fn findings(network: &Network, packets: &[Offered], outcome: &Outcome) -> Vec<Finding> {
    let places = places(network);
    let mut drops: BTreeMap<u32, Vec<Drop>> = BTreeMap::new();
    for (drop, found) in outcome.dropped.iter().zip(&outcome.found) {
        if drop.port.is_some() {
            let packet = &packets[drop.packet as usize];
            drops.entry(found.queue).or_default().push(Drop {
                at: drop.at,
                bytes: u64::from(packet.bytes),
                sender: (packet.source, packet.key),
                found: *found,
            });
        }
    }
    let mut by_switch: BTreeMap<SwitchId, Vec<Level>> = BTreeMap::new();
    for level in &outcome.levels {
        let (switch, ..) = places[level.queue as usize];
        by_switch.entry(switch).or_default().push(*level);
    }
    let mut findings = Vec::new();
    for (queue, drops) in &drops {
        let (switch, _, rate) = places[*queue as usize];
        let Some(shared) = network.switches[switch.0 as usize].shared else {
            continue;
        };
        let Some(levels) = by_switch.get(&switch) else {
            continue;
        };
        for episode in drops.chunk_by(|a, b| b.at.since(a.at) <= JOINED) {
            findings.extend(fell(*queue, rate, shared, levels, episode));
        }
    }
    let start = |finding: &Finding| match finding {
        Finding::ThresholdFell { span, queue, .. } => (span.0, *queue),
    };
    findings.sort_by_key(start);
    findings
}

/// The rule of [`Finding::ThresholdFell`] on one episode of a queue's drops.
fn fell(
    queue: u32,
    rate: Rate,
    shared: Shared,
    levels: &[Level],
    episode: &[Drop],
) -> Option<Finding> {
    let (first, last) = (episode.first()?, episode.last()?);
    let drains =
        u128::from(first.found.bytes) * PICOS_TIMES_BITS / u128::from(rate.bits_per_second());
    let before = BEFORE.max(Span(u64::try_from(drains).unwrap_or(u64::MAX)));
    let from = Time(first.at.0.saturating_sub(before.0));
    // The queues of the switch as they go on.
    let mut now: BTreeMap<u32, u64> = BTreeMap::new();
    let mut highest: Option<(u64, Time, BTreeMap<u32, u64>)> = None;
    let mut lowest: Option<(u64, Time, BTreeMap<u32, u64>)> = None;
    for level in levels {
        if level.at > last.at {
            break;
        }
        now.insert(level.queue, level.bytes);
        if level.at < from {
            continue;
        }
        let limit = threshold(shared, level.used)?;
        if level.at <= first.at && highest.as_ref().is_none_or(|(most, ..)| limit > *most) {
            highest = Some((limit, level.at, now.clone()));
        }
        if level.at >= first.at && lowest.as_ref().is_none_or(|(least, ..)| limit < *least) {
            lowest = Some((limit, level.at, now.clone()));
        }
    }
    let ((high, begin, then), (low, end, later)) = (highest?, lowest?);
    let of = |queues: &BTreeMap<u32, u64>, queue: u32| queues.get(&queue).copied().unwrap_or(0);
    let own = (of(&then, queue), of(&later, queue));
    let grown = |other: u32| i128::from(of(&later, other)) - i128::from(of(&then, other));
    let others = || later.keys().copied().filter(|other| *other != queue);
    let filled = others().max_by_key(|other| (grown(*other), u32::MAX - other))?;
    let joined: i128 = others().map(grown).sum();
    if low >= high - high / FELL || own.1 >= own.0 || joined <= 0 || grown(filled) <= 0 {
        return None;
    }
    let had_room = |drop: &&Drop| drop.found.bytes + drop.bytes <= high;
    let mut lost = BTreeMap::new();
    for drop in episode.iter().filter(had_room) {
        *lost.entry(drop.sender).or_default() += 1;
    }
    let drops = lost.values().sum();
    (drops > 0).then(|| Finding::ThresholdFell {
        queue,
        filled,
        span: (begin, end),
        threshold: (high, low),
        own,
        other: (of(&then, filled), of(&later, filled)),
        drops,
        lost: by_most(lost),
    })
}
