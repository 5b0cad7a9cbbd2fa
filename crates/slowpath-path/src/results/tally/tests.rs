// SPDX-License-Identifier: Apache-2.0

use super::*;
use crate::time::{ErrorEstimate, Timestamp};
use proptest::prelude::*;

const SECOND: i64 = 1_000_000_000;

fn plan() -> Plan {
    Plan {
        timeout: 10 * SECOND,
        percents: vec![95.0],
    }
}

fn record(sequence: u32, delay: i64, ttl: u8) -> Record {
    let sent =
        Timestamp::from_unix_nanos(1_700_000_000 * SECOND + i64::from(sequence) * 100_000_000);
    Record {
        sequence,
        sent,
        sent_error: ErrorEstimate::UNKNOWN,
        received: sent.moved(delay),
        received_error: ErrorEstimate::UNKNOWN,
        ttl,
    }
}

/// The paper's Table 4, forward path: 10,000 packets, 20 lost, 14 hops and for a while 18.
#[test]
fn table_4_there_is_counted_to_the_digit() {
    let lost: Vec<u32> = (0..20).map(|i| 37 + i * 499).collect();
    let records: Vec<Record> = (0..10_000)
        .filter(|sequence| !lost.contains(sequence))
        .map(|sequence| {
            let hops = if (6_000..6_040).contains(&sequence) {
                18
            } else {
                14
            };
            record(sequence, 80_600_000, 255 - hops)
        })
        .collect();
    let summary = Tally::of(plan(), 10_000, &records, &[])
        .close(10_000, 0)
        .expect("a row");
    assert_eq!(
        (summary.sent, summary.lost, summary.duplicates),
        (10_000, 20, 0)
    );
    assert_eq!(
        (summary.lost_here, summary.late, summary.skipped),
        (0, 0, 0)
    );
    assert_eq!(format!("{:.3}", summary.lost_percent()), "0.200");
    assert_eq!(
        (summary.hops.least, summary.hops.most, summary.hops.values),
        (Some(14), Some(18), 2)
    );
    let changes: Vec<_> = summary
        .hops
        .first_changes
        .iter()
        .map(|c| (c.sequence, c.from, c.to))
        .collect();
    assert_eq!(changes, [(6_000, 14, 18), (6_040, 18, 14)]);
    assert_eq!(summary.reordering, []);
    assert_eq!(
        (
            summary.loss_pattern.periods,
            summary.loss_pattern.longest_period
        ),
        (20, 1)
    );
}

/// The reverse path: 10 lost, 12 hops, one packet six places late.
#[test]
fn table_4_back_is_counted_to_the_digit() {
    let lost: Vec<u32> = (0..10).map(|i| 11 + i * 997).collect();
    let mut order: Vec<u32> = (0..10_000)
        .filter(|sequence| !lost.contains(sequence))
        .collect();
    let at = order
        .iter()
        .position(|&sequence| sequence == 5_000)
        .expect("it came");
    let late = order.remove(at);
    order.insert(at + 6, late);
    let records: Vec<Record> = order
        .iter()
        .map(|&sequence| record(sequence, 152_000_000, 243))
        .collect();
    let summary = Tally::of(plan(), 10_000, &records, &[])
        .close(10_000, 0)
        .expect("a row");
    assert_eq!(
        (summary.sent, summary.lost, summary.duplicates),
        (10_000, 10, 0)
    );
    assert_eq!(format!("{:.3}", summary.lost_percent()), "0.100");
    assert_eq!(
        (summary.hops.least, summary.hops.most, summary.hops.changes),
        (Some(12), Some(12), 0)
    );
    let printed: Vec<String> = summary
        .reordering
        .iter()
        .map(|r| format!("{}-reordering = {:.6}%", r.n, r.percent))
        .collect();
    assert_eq!(
        printed,
        [
            "1-reordering = 0.010011%",
            "2-reordering = 0.010012%",
            "3-reordering = 0.010013%",
            "4-reordering = 0.010014%",
            "5-reordering = 0.010015%",
            "6-reordering = 0.010016%"
        ]
    );
    assert!(
        summary
            .reordering
            .iter()
            .all(|r| r.packets == 1 && r.received == 9_990)
    );
}

#[test]
fn packets_that_the_sender_skipped_or_this_host_dropped_are_no_loss_of_the_path() {
    let records: Vec<Record> = (0..80)
        .map(|sequence| record(sequence, 1_000, 255))
        .collect();
    let skips = [SkipRange {
        first: 80,
        last: 84,
    }];
    let summary = Tally::of(plan(), 100, &records, &skips)
        .close(100, 12)
        .expect("a row");
    assert_eq!((summary.sent, summary.skipped), (95, 5));
    assert_eq!((summary.lost, summary.lost_here), (3, 12));
}

#[test]
fn a_sender_that_ended_early_lost_nothing_that_it_did_not_send() {
    let records: Vec<Record> = (0..50)
        .map(|sequence| record(sequence, 1_000, 255))
        .collect();
    let summary = Tally::of(plan(), 100, &records, &[])
        .close(51, 0)
        .expect("a row");
    assert_eq!((summary.sent, summary.lost), (51, 1));
}

#[test]
fn packets_without_a_ttl_have_no_hops() {
    let ttl = |sequence| if sequence == 3 { 250 } else { 0 };
    let records: Vec<Record> = (0..5).map(|n| record(n, 5_000, ttl(n))).collect();
    let summary = Tally::of(plan(), 5, &records, &[])
        .close(5, 0)
        .expect("a row");
    assert_eq!((summary.lost, summary.hops.changes), (0, 0));
    assert_eq!((summary.hops.least, summary.hops.most), (Some(5), Some(5)));
}

#[test]
fn clocks_a_minute_from_each_other_lose_nothing() {
    let records: Vec<Record> = (0..50)
        .map(|sequence| record(sequence, 60 * SECOND, 255))
        .collect();
    let summary = Tally::of(plan(), 50, &records, &[])
        .close(50, 0)
        .expect("a row");
    assert_eq!((summary.lost, summary.late), (0, 0));
}

proptest! {
    /// Whatever happens to packets on their way, each is in exactly one row, there received or lost.
    #[test]
    fn every_packet_is_in_one_row(
        fates in proptest::collection::vec((0u8..10, 0usize..5), 1..400),
        row in 1u32..90,
    ) {
        let packets = fates.len() as u32;
        let mut arrivals: Vec<(usize, Record)> = Vec::new();
        for (index, (fate, displacement)) in fates.iter().enumerate() {
            let copies = match fate { 0 => 0, 1 => 2, _ => 1 };
            for _ in 0..copies {
                arrivals.push((index + displacement, record(index as u32, 5_000, 250)));
            }
        }
        arrivals.sort_by_key(|(at, _)| *at);
        let mut tally = Tally::new(plan());
        let mut first = 0;
        while first < packets {
            tally.open(first, row.min(packets - first));
            first += row.min(packets - first);
        }
        for (_, record) in &arrivals {
            tally.arrive(record);
        }
        let rows: Vec<Summary> = std::iter::from_fn(|| tally.close(packets, 0)).collect();
        let lost = fates.iter().filter(|(fate, _)| *fate == 0).count() as u64;
        let twice = fates.iter().filter(|(fate, _)| *fate == 1).count() as u64;
        prop_assert_eq!(rows.iter().map(|r| r.sent).sum::<u64>(), u64::from(packets));
        prop_assert_eq!(rows.iter().map(|r| r.lost).sum::<u64>(), lost);
        prop_assert_eq!(rows.iter().map(|r| r.duplicates).sum::<u64>(), twice);
        prop_assert_eq!(tally.strays(), 0);
    }
}
