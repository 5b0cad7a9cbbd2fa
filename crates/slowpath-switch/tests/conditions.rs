// SPDX-License-Identifier: Apache-2.0
//! What lines do by length, rate and marks: token buckets without rounding, policers, MTUs and
//! fragments, ECN and DSCP.

mod network;

use network::{Fate, Log, gbit, line_of_switches, packet};
use proptest::prelude::*;
use slowpath_switch::fabric::{
    Action, Change, Condition, DropCause, Fabric, Mtu, Node, Plan, PlanError, Police, Remark,
};
use slowpath_switch::{Header, Rate, Threshold, Time, TokenBucket};

const SECOND: u128 = 1_000_000_000_000;

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    /// A request is granted if and only if no time that ends with it, and begins with an earlier
    /// request or the beginning, has more than the size and what came in that time.
    #[test]
    fn a_bucket_grants_all_that_its_size_and_rate_allow_and_no_more(
        rate in 1u64..5_000_000,
        size in 1u64..20_000,
        requests in proptest::collection::vec((0u64..20_000_000_000, 0u64..9_000), 1..60),
    ) {
        let mut bucket = TokenBucket::new(rate, size, Time::ZERO);
        let mut now = 0;
        let mut taken: Vec<(u64, u64)> = vec![(0, 0)];
        for (gap, tokens) in requests {
            now += gap;
            let allows = |first: usize| {
                let since = taken[first].0;
                let before: u64 = taken[first..].iter().map(|(_, tokens)| tokens).sum();
                let came = u128::from(rate) * u128::from(now - since);
                u128::from(before + tokens) * SECOND <= u128::from(size) * SECOND + came
            };
            let expected = tokens <= size && (0..taken.len()).all(allows);
            prop_assert_eq!(bucket.take(Time(now), tokens), expected);
            taken.push((now, if expected { tokens } else { 0 }));
        }
    }
}

#[test]
fn no_part_of_a_token_is_rounded_away() {
    // Three a second: one after a third of a second, which is no whole number of picoseconds.
    let mut bucket = TokenBucket::new(3, 2, Time::ZERO);
    assert!(bucket.take(Time(0), 2));
    assert!(!bucket.take(Time(333_333_333_333), 1));
    assert!(bucket.take(Time(333_333_333_334), 1));
    // Two parts of 10^12 are over; the second token comes as much earlier.
    assert!(!bucket.take(Time(666_666_666_666), 1));
    assert!(bucket.take(Time(666_666_666_667), 1));
    // Time that goes back brings nothing, and takes nothing.
    assert!(!bucket.take(Time(5), 1));
    assert!(bucket.take(Time(1_000_000_000_000), 1));
    // The largest numbers there are.
    let mut bucket = TokenBucket::new(u64::MAX, u64::MAX, Time::ZERO);
    assert!(bucket.take(Time::MAX, u64::MAX));
    assert!(!bucket.take(Time::MAX, 1));
}

fn at(us: u64, action: Action) -> Change {
    Change {
        at: Time::from_nanos(us * 1_000),
        action,
    }
}

/// Host 0, two switches, host 1. Lines: 0 into the first switch, 2 between them, 4 out.
fn plan(conditions: &[(u32, Condition)]) -> Plan {
    let mut plan = line_of_switches(2);
    let change = |(line, condition): &(u32, Condition)| at(0, Action::Condition(*line, *condition));
    plan.changes = conditions.iter().map(change).collect();
    plan
}

fn mtu(bytes: u32) -> Condition {
    Condition::Mtu(Some(Mtu {
        bytes,
        reported: true,
    }))
}

fn run(plan: &Plan, packets: &[Header]) -> (Fabric, Log) {
    let mut fabric = Fabric::new(plan).expect("possible");
    let mut log = Log::default();
    for packet in packets {
        fabric.send(Time::ZERO, 0, *packet, &mut log);
    }
    log.run_out(&mut fabric);
    let counts = fabric.counts();
    assert_eq!(
        counts.sent + counts.copies + counts.fragments,
        counts.delivered + counts.dropped + counts.inside + counts.fragmented
    );
    (fabric, log)
}

fn sized(handle: u64, bytes: u32) -> Header {
    Header {
        bytes,
        ..packet(handle, 1)
    }
}

#[test]
fn what_is_longer_than_the_mtu_is_dropped_before_the_line() {
    let plan = plan(&[(2, mtu(1000)), (0, mtu(100))]);
    let short_lived = Header {
        ttl: 1,
        ..sized(3, 1001)
    };
    // A host's own line takes anything: the host knows its MTU.
    let (fabric, log) = run(&plan, &[sized(1, 1000), sized(2, 1001), short_lived]);
    let ends: Vec<(u64, Fate)> = log
        .all
        .iter()
        .map(|(_, handle, fate)| (*handle, *fate))
        .collect();
    let dropped = |cause| Fate::Dropped(Node::Switch(0), cause);
    assert_eq!(
        ends,
        [
            (2, dropped(DropCause::TooLong)),
            (3, dropped(DropCause::TtlExpired)),
            (1, Fate::Delivered(Node::Host(1), 2, 62)),
        ]
    );
    assert_eq!(fabric.condition_counters(2).too_long, 1);
    assert_eq!(fabric.line_counters(2).packets, 1);
    assert_eq!(fabric.condition_counters(0).too_long, 0);
}

#[test]
fn a_router_drops_its_own_packets_too() {
    let plan = plan(&[(2, mtu(1000))]);
    let mut fabric = Fabric::new(&plan).expect("possible");
    let mut log = Log::default();
    fabric.send_from(Time::ZERO, 0, sized(1, 1001), &mut log);
    fabric.send_from(Time::ZERO, 0, sized(2, 1000), &mut log);
    log.run_out(&mut fabric);
    assert_eq!(log.delivered().collect::<Vec<_>>(), [2]);
    assert_eq!(fabric.condition_counters(2).too_long, 1);
}

#[test]
fn fragments_go_on_in_the_place_of_their_packet() {
    let plan = plan(&[(2, mtu(1000))]);
    let mut fabric = Fabric::new(&plan).expect("possible");
    let mut log = Log::halving(true);
    fabric.send(Time::ZERO, 0, sized(1, 1500), &mut log);
    fabric.send(Time::ZERO, 0, sized(2, 500), &mut log);
    log.run_out(&mut fabric);
    // 12 us for 1,500 bytes at 1 Gbit/s and 5 us of line; then 6 us each, one after the other
    // over two lines: 17 + 6 + 5 + 6 + 5, and 6 us later. The third, 4 us long, is there at
    // 21 us, waits on the second line until 29 and on the last until 40.
    let arrivals: Vec<(u64, u64)> = log
        .all
        .iter()
        .map(|(at, handle, _)| (at.as_nanos(), *handle))
        .collect();
    assert_eq!(arrivals, [(39_000, 1), (45_000, 1), (49_000, 2)]);
    let counts = fabric.counts();
    assert_eq!(
        (counts.sent, counts.fragmented, counts.fragments),
        (2, 1, 2)
    );
    assert_eq!((counts.delivered, counts.dropped, counts.inside), (3, 0, 0));
    let line = fabric.condition_counters(2);
    assert_eq!((line.fragmented, line.fragments, line.too_long), (1, 2, 0));
}

#[test]
fn fragments_beyond_the_most_packets_inside_are_dropped() {
    let mut plan = plan(&[(2, mtu(1000))]);
    plan.most_packets = 1;
    let mut fabric = Fabric::new(&plan).expect("possible");
    let mut log = Log::halving(true);
    fabric.send(Time::ZERO, 0, sized(1, 1500), &mut log);
    log.run_out(&mut fabric);
    let counts = fabric.counts();
    assert_eq!((counts.delivered, counts.dropped, counts.inside), (1, 1, 0));
    assert_eq!(
        log.all[0].2,
        Fate::Dropped(Node::Switch(0), DropCause::TooMany)
    );
}

#[test]
fn a_policer_drops_what_its_bucket_does_not_hold() {
    // 1,250 bytes take 10 us. The policer has room for two and gets half of one in that time,
    // from 100 us on nothing more than 1 kbit/s, and from 160 us on lets everything pass.
    let police = |bits, burst| {
        let rate = Rate::from_bits_per_second(bits).expect("in bounds");
        Condition::Police(Some(Police { rate, burst }))
    };
    let mut plan = plan(&[(0, police(500_000_000, 2500))]);
    plan.changes
        .push(at(100, Action::Condition(0, police(1_000, 1250))));
    plan.changes
        .push(at(160, Action::Condition(0, Condition::Police(None))));
    let packets: Vec<Header> = (0..20).map(|handle| packet(handle, 1)).collect();
    let (fabric, log) = run(&plan, &packets);
    // In halves: 4 at the beginning, one more each time, two for each that passes. The one at
    // 100 us finds a new bucket, which is full.
    let expected = [0, 1, 2, 4, 6, 8, 10, 16, 17, 18, 19];
    assert_eq!(log.delivered().collect::<Vec<_>>(), expected);
    assert_eq!(fabric.condition_counters(0).policed, 9);
    // They had their time on the line, and were dropped at its beginning.
    assert_eq!(fabric.line_counters(0).packets, 20);
    let dropped = Fate::Dropped(Node::Host(0), DropCause::Policed);
    assert_eq!(
        log.all.iter().filter(|(.., fate)| *fate == dropped).count(),
        9
    );
}

#[test]
fn a_policer_of_a_link_that_is_down_holds_what_it_held() {
    let rate = Rate::MIN;
    let police = Condition::Police(Some(Police { rate, burst: 1250 }));
    let mut plan = plan(&[(0, police)]);
    plan.changes.push(at(0, Action::Up(0, false)));
    plan.changes.push(at(5, Action::Up(0, true)));
    let packets: Vec<Header> = (0..3).map(|handle| packet(handle, 1)).collect();
    let (_, log) = run(&plan, &packets);
    assert_eq!(log.delivered().collect::<Vec<_>>(), [1]);
}

#[test]
fn marks_are_cleared_and_classes_follow_the_dscp() {
    let remark = Remark { dscp: 8, class: 1 };
    let mut plan = plan(&[
        (2, Condition::ClearEcn(true)),
        (2, Condition::Dscp(Some(remark))),
    ]);
    // The first switch marks all, the second none that is not ECN-capable.
    for switch in &mut plan.switches {
        switch.classes = 2;
        switch.ports[1].marking = Some(Threshold::Packets(0));
        switch.ports[1].rate = gbit(1);
    }
    plan.switches[0].ports[1].rate = Rate::from_bits_per_second(100_000_000).expect("in bounds");
    let ecn = |handle, ecn| Header {
        ecn,
        ..packet(handle, 1)
    };
    let (fabric, log) = run(&plan, &[ecn(1, 2), ecn(2, 1), ecn(3, 0), ecn(4, 3)]);
    assert_eq!(log.delivered().count(), 4);
    assert!(log.marked.is_empty());
    assert_eq!(log.codepoints, [(0, Some(8), 1); 4]);
    let counters = fabric.condition_counters(2);
    assert_eq!((counters.ecn_cleared, counters.dscp_set), (3, 4));
}

#[test]
fn a_condition_of_a_line_that_is_not_there_is_refused() {
    let plan = plan(&[(6, mtu(1000))]);
    assert_eq!(Fabric::new(&plan).err(), Some(PlanError::NoSuchLine(6)));
}

#[test]
fn conditions_survive_their_bytes() {
    let police = Police {
        rate: gbit(1),
        burst: 30_000,
    };
    let remark = Remark { dscp: 46, class: 2 };
    let plan = plan(&[
        (0, mtu(1400)),
        (1, Condition::Mtu(None)),
        (1, Condition::Police(Some(police))),
        (1, Condition::Police(None)),
        (2, Condition::ClearEcn(true)),
        (3, Condition::Dscp(Some(remark))),
        (3, Condition::Dscp(None)),
    ]);
    assert_eq!(Plan::decode(&plan.encode()), Ok(plan));
}
