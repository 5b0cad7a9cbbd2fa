// SPDX-License-Identifier: Apache-2.0
//! Segments as they may come from anywhere, of one side only, and what holds for all of them.

use super::*;
use proptest::prelude::*;

#[test]
fn one_direction_only() {
    let mut line = Line::open();
    let mut single = Connection::new(
        &segment(Side::Client, 0, Flags::ACK, &[]),
        &Options::default(),
    );
    for n in 0..1000 {
        line.frame = n;
        single.segment(&Segment {
            sequence: (n as u32) * MSS,
            length: MSS,
            ..segment(Side::Client, n as i64 * MS, Flags::ACK, &[])
        });
    }
    let report = single.finish();
    assert!(report.is_one_sided());
    assert_eq!(report.from_client.data.unique_bytes, 1_000_000);
    assert_eq!(report.from_server.order, Order::default());
    assert!(report.dropped.segments > 0, "kept few, and said so");
}

/// Small numbers, so that segments meet; times that go back; any flags and options.
fn arbitrary() -> impl Strategy<Value = (bool, i64, u32, u32, u16, u16, u32, Vec<u8>, Option<u16>)>
{
    let number = prop_oneof![
        0..40u32,
        (0..40u32).prop_map(|n| u32::MAX - n),
        any::<u32>()
    ];
    (
        any::<bool>(),
        prop_oneof![0..1000i64, any::<i64>()],
        number.clone(),
        number,
        any::<u16>(),
        prop_oneof![Just(0u16), 0..20u16, any::<u16>()],
        prop_oneof![0..20u32, any::<u32>()],
        prop::collection::vec(prop_oneof![0..12u8, any::<u8>()], 0..40),
        prop::option::of(0..4u16),
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn anything_is_accepted(segments in prop::collection::vec(arbitrary(), 1..60)) {
        let mut connection = None;
        let (mut packets, mut bytes) = (0, 0u64);
        for (from_client, time, sequence, ack, flags, window, length, options, ip_id) in &segments {
            let side = if *from_client { Side::Client } else { Side::Server };
            let s = Segment {
                time: Timestamp(*time),
                sequence: *sequence,
                acknowledgement: *ack,
                window: *window,
                length: *length,
                ip_id: *ip_id,
                ..segment(side, 0, *flags, options)
            };
            let options = Options { outstanding: 8, ..Options::default() };
            let connection = connection.get_or_insert_with(|| Connection::new(&s, &options));
            let mut events = 0;
            connection.segment_with(&s, &mut |_: &Event<'_>| events += 1);
            prop_assert_eq!(events, 1);
            packets += 1;
            bytes += u64::from(*length);
        }
        let report = connection.expect("there is a segment").finish();
        let (a, b) = (&report.from_client, &report.from_server);
        prop_assert_eq!(report.packets(), packets);
        prop_assert_eq!(a.data.bytes + b.data.bytes, bytes);
        for d in [a, b] {
            prop_assert!(d.data.unique_bytes <= d.data.bytes);
            prop_assert!(d.data.acked_bytes <= d.data.unique_bytes);
            prop_assert!(d.data.packets + d.control.pure_acks <= d.packets);
            let r = d.retransmitted;
            let causes = r.fast + r.timeouts + r.after_timeout + r.tail_loss_probes
                + r.syns + r.fins + r.unexplained;
            prop_assert_eq!(causes, r.packets);
            prop_assert!(r.packets + d.order.out_of_order <= d.packets);
            prop_assert!(r.spurious <= r.packets);
        }
    }

    /// Whatever the losses, repetitions and order: the ledger agrees with a set of numbers.
    #[test]
    fn ledger_counts_as_a_set_does(
        operations in prop::collection::vec((0..200u64, 1..30u64, any::<bool>()), 1..200),
    ) {
        let mut ledger = crate::tcp::ledger::Ledger::default();
        let mut observed = std::collections::HashSet::new();
        let mut forgotten = 0;
        for (now, (start, length, is_ack)) in operations.into_iter().enumerate() {
            let start = start + 1000;
            if is_ack {
                ledger.acknowledge(start, &mut forgotten);
                continue;
            }
            let recorded =
                ledger.record(start, start + length, now as i64, 1 << 16, &mut forgotten);
            let known = (start..start + length).filter(|n| observed.contains(n)).count();
            prop_assert_eq!(recorded.observed, known as u64);
            observed.extend(start..start + length);
        }
    }
}
