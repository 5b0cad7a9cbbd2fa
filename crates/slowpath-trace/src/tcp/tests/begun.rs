// SPDX-License-Identifier: Apache-2.0
//! Captures that begin within a connection: what is said of data that was sent before.

use super::*;

/// The client's segment at 5,001 and then, so much later, the one at 1, with these timestamp values.
fn below_the_first(later: i64, values: Option<(u32, u32)>) -> (Kind, Order) {
    let mut line = Line::begun();
    let (first, second) = values.unwrap_or_default();
    let options = |value| values.map_or(Vec::new(), |_| timestamps(value, 5));
    for (time, sequence, value) in [(0, 5001, first), (later, 1, second)] {
        let options = options(value);
        let payload = Payload::new(sequence, MSS).options(&options);
        line.send(Side::Client, time, payload);
    }
    (line.last(), line.finish().from_client.order)
}

/// RFC 7323: what has the earlier value was sent before.
#[test]
fn timestamps_decide() {
    let (kind, order) = below_the_first(MS, Some((100, 99)));
    assert_eq!(kind, Kind::OutOfOrder);
    assert_eq!((order.out_of_order, order.ambiguous), (1, 0));
    let (kind, order) = below_the_first(MS, Some((100, 101)));
    assert!(matches!(kind, Kind::Retransmission(_)), "{kind:?}");
    assert_eq!((order.out_of_order, order.ambiguous), (0, 0));
}

/// Within 3 ms (Wireshark's threshold) it may be either: counted, and called neither.
#[test]
fn the_clock_by_itself_claims_no_reordering() {
    for values in [None, Some((100, 100))] {
        let (kind, order) = below_the_first(MS, values);
        assert_eq!(kind, Kind::OutOfOrder);
        assert_eq!((order.out_of_order, order.ambiguous), (0, 1));
        let (kind, order) = below_the_first(4 * MS, values);
        assert!(matches!(kind, Kind::Retransmission(_)), "{kind:?}");
        assert_eq!((order.out_of_order, order.ambiguous), (0, 1));
    }
}

/// The server acknowledges up to 5,001; so much later the client's first segment is the one at 1.
fn acknowledged_before(later: i64) -> (Kind, Retransmitted) {
    let mut line = Line::begun();
    line.ack(Side::Server, 0, 5001, &[]);
    line.data(later, 1, MSS);
    (line.last(), line.finish().from_client.retransmitted)
}

/// The receiver had it: it is another copy. How long the sender had been silent is known only from
/// where the capture begins: 5 ms are no timer's (10 ms at least).
#[test]
fn what_was_acknowledged_was_sent_before() {
    assert_eq!(acknowledged_before(MS).0, Kind::OutOfOrder);
    let (kind, resent) = acknowledged_before(5 * MS);
    assert_eq!(kind, Kind::Retransmission(Cause::Unexplained));
    assert_eq!((resent.lost_before_here, resent.timeouts), (1, 0));
    let (kind, _) = acknowledged_before(15 * MS);
    assert_eq!(kind, Kind::Retransmission(Cause::Timeout));
}

/// The first ACK is of less than what was sent before the capture began: its SACK blocks ask for
/// the segment at 1 (RFC 6675 section 4: three segments' worth).
#[test]
fn acks_of_what_was_under_way_count() {
    let mut line = Line::begun();
    line.data(0, 5001, MSS);
    line.ack(Side::Server, MS, 1, &sack(&[(1001, 5001)]));
    line.data(2 * MS, 1, MSS);
    assert_eq!(line.last(), Kind::Retransmission(Cause::Fast));
    let d = line.finish().from_client;
    assert_eq!((d.order.out_of_order, d.order.ambiguous), (0, 0));
    assert_eq!(d.flight.most, 6000);
}
