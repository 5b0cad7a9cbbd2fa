// SPDX-License-Identifier: Apache-2.0
//! Switches whose queues are managed lose and make no packets, and hold what they promise.

use proptest::prelude::*;
use slowpath_switch::aqm::{Aqm, AqmError, CoDel, Pie, Red};
use slowpath_switch::{
    DropReason, Header, Limit, Outcome, Passed, PortConfig, PortId, PortKind, Rate, Span, Switch,
    SwitchConfig, Threshold, Time,
};

const PORT: PortId = PortId(0);

fn switch(aqm: Aqm, packets: u32) -> Switch<Header> {
    let port = PortConfig {
        kind: PortKind::Host,
        // 1,000 bytes take a millisecond.
        rate: Rate::from_bits_per_second(8_000_000).unwrap(),
        propagation: Span::ZERO,
        limit: Limit::packets(packets),
        marking: None,
    };
    let mut switch = Switch::new(&SwitchConfig::new(vec![port], 1, 0)).unwrap();
    switch.set_aqm(PORT, aqm).unwrap();
    switch
}

fn packet(handle: u64, ecn_capable: bool) -> Header {
    Header {
        handle,
        bytes: 1_000,
        ttl: 64,
        ecn: u8::from(ecn_capable) * 2,
        ..Header::default()
    }
}

fn red() -> Aqm {
    Aqm::Red(Red {
        weight: 3,
        ..Red::new(Threshold::Packets(5), Threshold::Packets(15))
    })
}

/// What became of packets.
#[derive(Debug, Default, PartialEq)]
struct Fates {
    left: Vec<u64>,
    marked: u64,
    early: Vec<u64>,
    full: Vec<u64>,
}

/// Sends a packet at each of those microseconds, and serves them all; whether those that come to an
/// idle line pass it at once is all the same.
fn serve(switch: &mut Switch<Header>, times: &[u64], capable: bool, passing: bool) -> Fates {
    let mut fates = Fates::default();
    let transmit = |switch: &mut Switch<Header>, now: Time, fates: &mut Fates| {
        while let Some(departure) = switch.transmit(now, PORT, &mut ()) {
            fates.left.push(departure.packet.handle);
            fates.marked += u64::from(departure.packet.ecn == 3);
        }
        while let Some(dropped) = switch.take_dropped() {
            fates.early.push(dropped.handle);
        }
    };
    for (number, at) in times.iter().enumerate() {
        let now = Time::ZERO + Span::from_micros(*at);
        transmit(switch, now, &mut fates);
        let packet = packet(number as u64, capable);
        let dropped = match passing {
            false => match switch.send(now, PORT, packet, &mut ()) {
                Outcome::Dropped { packet, reason } => Some((packet, reason)),
                Outcome::Queued(_) => None,
            },
            true => match switch.pass(now, PORT, packet, &mut ()) {
                Passed::Dropped { packet, reason } => Some((packet, reason)),
                Passed::Left { .. } => unreachable!("a managed queue is asked first"),
                Passed::Queued(_) => None,
            },
        };
        match dropped {
            Some((packet, DropReason::Early)) => fates.early.push(packet.handle),
            Some((packet, _)) => fates.full.push(packet.handle),
            None => {}
        }
        transmit(switch, now, &mut fates);
    }
    while let Some(due) = switch.due(PORT) {
        transmit(switch, due, &mut fates);
    }
    fates
}

proptest! {
    #[test]
    fn packets_are_neither_lost_nor_made(
        gaps in prop::collection::vec(0u64..2_000, 1..600),
        kind in 0..3,
        capable: bool,
        room in 5u32..200,
    ) {
        let aqm = [red(), Aqm::CoDel(CoDel::default()), Aqm::Pie(Pie::default())][kind as usize];
        let mut at = 0;
        let times: Vec<u64> = gaps.iter().map(|gap| { at += gap; at }).collect();
        let mut switch = switch(aqm, room);
        let fates = serve(&mut switch, &times, capable, false);
        let mut all = [&fates.left[..], &fates.early, &fates.full].concat();
        all.sort_unstable();
        prop_assert!(all.into_iter().eq(0..times.len() as u64));
        // First in, first out.
        prop_assert!(fates.left.is_sorted());
        let counters = switch.counters(PORT);
        prop_assert_eq!(counters.dequeued, fates.left.len() as u64);
        prop_assert_eq!(counters.enqueued, counters.dequeued);
        prop_assert_eq!(counters.dropped, (fates.early.len() + fates.full.len()) as u64);
        prop_assert_eq!(counters.marked, fates.marked);
        prop_assert_eq!(switch.dropped(DropReason::Early), fates.early.len() as u64);
        prop_assert_eq!(switch.total_depth().packets, 0);
    }
}

/// A line that gets a fifth more than it carries: each management keeps the queue from filling, drops
/// what is too much, and marks instead where packets can be marked.
#[test]
fn a_standing_queue_is_prevented() {
    let times: Vec<u64> = (0..60_000).map(|number| number * 833).collect();
    for aqm in [
        red(),
        Aqm::CoDel(CoDel::default()),
        Aqm::Pie(Pie::default()),
    ] {
        let fates = serve(&mut switch(aqm, 1_000_000), &times, false, false);
        assert_eq!(fates.full, [], "{aqm:?}");
        assert_eq!(fates.marked, 0, "{aqm:?}");
        let marked = serve(&mut switch(aqm, 100), &times, true, false);
        let signals = match aqm {
            // It marks up to a probability of 1/10 only, and here needs more.
            Aqm::Pie(_) => marked.early.len() as u64,
            _ => marked.marked,
        };
        assert!(signals > 1_000, "{aqm:?}: {signals}");
        if !matches!(aqm, Aqm::CoDel(_)) {
            // CoDel is made for senders that slow down.
            let early = fates.early.len();
            assert!((9_000..11_000).contains(&early), "{aqm:?}: {early}");
        }
    }
}

#[test]
fn only_ports_that_are_there_are_managed() {
    let mut switch = switch(red(), 10);
    assert_eq!(switch.set_aqm(PortId(1), red()), Err(AqmError::NoSuchPort));
    let wrong = Aqm::CoDel(CoDel {
        interval: Span::ZERO,
        ..CoDel::default()
    });
    assert_eq!(switch.set_aqm(PORT, wrong), Err(AqmError::Time));
}

/// A packet that comes to a free port goes past the queue only where nothing manages it.
#[test]
fn passing_is_the_same_as_queueing() {
    let times: Vec<u64> = (0..5_000)
        .map(|number| number * 700 + number % 7 * 90)
        .collect();
    let mut routed = switch(red(), 50);
    routed
        .set_route(slowpath_switch::Destination(0), &[PORT])
        .unwrap();
    let passed = serve(&mut routed, &times, false, true);
    assert_eq!(passed, serve(&mut switch(red(), 50), &times, false, false));
}
