// SPDX-License-Identifier: Apache-2.0
//! Timelines: segments as they pass the place of capture, and what they mean. Times and
//! expectations follow from the RFCs named and from the time line itself.

mod any;
mod begun;
mod copies;
mod line;

use super::*;
use crate::segment::{Flags, Segment, Timestamp};
use line::*;
use std::time::Duration;

#[test]
fn handshake_gives_one_rtt_of_the_path_and_one_of_each_part() {
    let report = Line::open().finish();
    assert_eq!(report.handshake.rtt(), Some(Duration::from_millis(10)));
    assert_eq!(
        report.from_client.rtt.handshake,
        Some(Duration::from_millis(8))
    );
    assert_eq!(
        report.from_server.rtt.handshake,
        Some(Duration::from_millis(2))
    );
    assert_eq!(report.handshake.window_scaling, Scaling::Off);
    assert_eq!(report.handshake.sack, Some(true));
    assert_eq!(report.ending, Ending::Open);
}

/// Four segments over the wrap of the sequence numbers, acknowledged two by two.
#[test]
fn sequence_numbers_wrap() {
    let mut line = Line::open();
    for n in 0..8 {
        line.data(i64::from(20 + n) * MS, 1 + n * MSS, MSS);
    }
    line.ack(Side::Server, 40 * MS, 1 + 8 * MSS, &[]);
    let report = line.finish();
    let d = &report.from_client;
    assert_eq!((d.data.packets, d.data.unique_bytes), (8, 8000));
    assert_eq!(d.data.acked_bytes, 8000);
    assert_eq!(d.retransmitted, Retransmitted::default());
    assert_eq!(d.order, Order::default());
    assert_eq!(d.flight.most, 8000);
    // The ACK is of exactly the last segment's end, 13 ms after it; the SYN gave 8 ms.
    assert_eq!(d.rtt.acked.count(), 2);
    assert_eq!(d.rtt.acked.longest(), Some(Duration::from_millis(13)));
    assert_eq!(d.rtt.cumulative, 7);
    assert_eq!(d.acks.stretch, 1);
}

/// RFC 5681 section 3.2: the third duplicate ACK makes the sender send the segment again.
#[test]
fn three_duplicate_acks_ask_for_a_fast_retransmission() {
    let mut line = Line::open();
    for n in 0..5 {
        line.data(20 * MS, 1 + n * MSS, MSS);
    }
    for n in 0..3 {
        line.ack(Side::Server, (28 + n) * MS, 1, &[]);
        assert_eq!(line.last(), Kind::DuplicateAck);
    }
    line.data(31 * MS, 1, MSS);
    assert_eq!(line.last(), Kind::Retransmission(Cause::Fast));
    // NewReno: a partial ACK asks for the next (RFC 6582).
    line.ack(Side::Server, 39 * MS, 1 + MSS, &[]);
    line.data(40 * MS, 1 + MSS, MSS);
    assert_eq!(line.last(), Kind::Retransmission(Cause::Fast));
    let report = line.finish();
    let d = &report.from_client;
    assert_eq!((d.retransmitted.fast, d.retransmitted.packets), (2, 2));
    assert_eq!(d.retransmitted.bytes, 2000);
    assert_eq!(d.acks.duplicate, 3);
    assert_eq!(d.rtt.ambiguous.count(), 1, "Karn: sent twice");
}

/// RFC 6298: nothing comes back, the timer runs out and backs off; after it the rest goes out
/// again with the ACKs.
#[test]
fn silence_is_a_timeout() {
    let mut line = Line::open();
    line.data(20 * MS, 1, MSS);
    line.data(20 * MS, 1 + MSS, MSS);
    line.data(230 * MS, 1, MSS);
    assert_eq!(line.last(), Kind::Retransmission(Cause::Timeout));
    line.data(650 * MS, 1, MSS);
    assert_eq!(line.last(), Kind::Retransmission(Cause::Timeout));
    line.ack(Side::Server, 658 * MS, 1 + MSS, &[]);
    line.data(659 * MS, 1 + MSS, MSS);
    assert_eq!(line.last(), Kind::Retransmission(Cause::AfterTimeout));
    let d = line.finish().from_client;
    assert_eq!(
        (d.retransmitted.timeouts, d.retransmitted.after_timeout),
        (2, 1)
    );
    assert_eq!(d.retransmitted.most, 2);
    assert_eq!(
        d.retransmitted.timeout_wait.shortest(),
        Some(Duration::from_millis(210))
    );
}

/// RFC 8985 section 7.2: the last segment again after two RTTs, before an RTO can be.
/// Round trip 10 ms: 8 ms to the server and back, 2 ms to the client. Three segments are sent,
/// the ACK of only the third comes 8 ms later, and some milliseconds after that the
/// first is sent again.
fn sent_again_after_one_sack(later: i64) -> Kind {
    let mut line = Line::open();
    for (at, sequence) in [(20, 1), (20, 1001), (20, 2001)] {
        line.data(at * MS, sequence, 1000);
    }
    line.ack(Side::Server, 28 * MS, 1, &sack(&[(2001, 3001)]));
    line.data((28 + later) * MS, 1, 1000);
    line.last()
}

#[test]
fn racks_timer_is_no_timeout() {
    // A quarter of the RTT after the SACK has arrived, in ticks of 4 ms, two late.
    let fast = Kind::Retransmission(Cause::Fast);
    assert_eq!(sent_again_after_one_sack(2 + 12), fast);
    // The timer of RFC 6298: 200 ms after the RTT.
    let timeout = Kind::Retransmission(Cause::Timeout);
    assert_eq!(sent_again_after_one_sack(2 + 210), timeout);
}

#[test]
fn last_segment_after_two_rtts_is_a_tail_loss_probe() {
    let mut line = Line::open();
    line.data(20 * MS, 1, MSS);
    line.data(20 * MS, 1 + MSS, MSS);
    line.data(45 * MS, 1 + MSS, MSS);
    assert_eq!(line.last(), Kind::Retransmission(Cause::TailLossProbe));
}

/// At the receiver's end: the first copy never comes here, the ACKs ask, a turnaround later
/// it comes.
#[test]
fn retransmission_of_what_was_lost_before_here() {
    let mut line = Line::open();
    line.data(20 * MS, 1, MSS);
    for n in 2..5 {
        line.data(21 * MS, 1 + n * MSS, MSS);
        line.ack(Side::Server, 21 * MS, 1 + MSS, &[]);
    }
    line.ack(Side::Server, 21 * MS, 1 + MSS, &[]);
    line.data(24 * MS, 1 + MSS, MSS);
    assert_eq!(line.last(), Kind::Retransmission(Cause::Fast));
    assert!(line.last_marks().any(Marks::LOST_BEFORE_HERE));
    let d = line.finish().from_client;
    assert_eq!((d.order.gaps, d.order.gap_bytes), (1, 1000));
    assert_eq!((d.order.before_observed, d.order.out_of_order), (1, 0));
    assert_eq!(
        (d.retransmitted.observed_before, d.retransmitted.packets),
        (0, 1)
    );
}

/// Sooner than the sender can know (its turnaround is 2 ms): the network reordered.
#[test]
fn too_soon_for_a_retransmission_is_reordering() {
    let mut line = Line::open();
    line.data(20 * MS, 1 + MSS, MSS);
    line.data(21 * MS, 1 + 2 * MSS, MSS);
    line.data(22 * MS, 1, MSS);
    let d = line.finish().from_client;
    assert_eq!(d.order.gaps, 1);
    assert_eq!((d.order.out_of_order, d.retransmitted.packets), (1, 0));
    assert_eq!(d.order.ambiguous, 1, "by the clock only");
}

/// RFC 7323 timestamps show which was sent first.
#[test]
fn timestamps_report_late_from_again() {
    for (value, late) in [(99, true), (101, false)] {
        let mut line = Line::open();
        let mut send = |time, sequence, value| {
            let options = timestamps(value, 5);
            line.send(
                Side::Client,
                time,
                Payload::new(sequence, MSS).options(&options),
            );
        };
        send(20 * MS, 1, 99);
        send(21 * MS, 1 + 2 * MSS, 100);
        send(40 * MS, 1 + MSS, value);
        assert_eq!(line.last() == Kind::OutOfOrder, late);
        let order = line.finish().from_client.order;
        assert_eq!((order.out_of_order, order.ambiguous), (u64::from(late), 0));
    }
}

/// Of 257 gaps the first is forgotten: what fills it 1 ms after the last gap opened was sent again if its
/// TSval is later than that of the segment that opened it.
#[test]
fn timestamps_report_late_from_again_in_a_forgotten_gap() {
    for (value, late) in [(100, true), (101, false)] {
        let mut line = Line::open();
        let mut send = |time, sequence, value| {
            let options = timestamps(value, 5);
            line.send(
                Side::Client,
                time,
                Payload::new(sequence, 10).options(&options),
            );
        };
        for gap in 0..257 {
            send(20 * MS, 11 + 20 * gap, 100 + u32::from(gap > 0));
        }
        send(21 * MS, 1, value);
        assert_eq!(line.last() == Kind::OutOfOrder, late);
        let report = line.finish();
        assert_eq!(report.dropped.ranges, 1);
        assert_eq!(report.from_client.order.out_of_order, u64::from(late));
    }
}

/// The same IP identification and sequence number: the frame was captured twice.
#[test]
fn same_frame_twice_is_no_retransmission() {
    let mut line = Line::open();
    line.send(Side::Client, 20 * MS, Payload::new(1, MSS).ip_id(7));
    line.send(Side::Client, 21 * MS, Payload::new(1, MSS).ip_id(7));
    assert_eq!(line.last(), Kind::HardwareDuplicate);
    let d = line.finish().from_client;
    assert_eq!(d.order.hardware_duplicates, 1);
    assert_eq!(
        (d.retransmitted.packets, d.retransmitted.observed_before),
        (0, 1)
    );
}

/// A mirror port on a path with IPv6, or with identifications of 0 (RFC 6864): everything
/// comes twice, the copy a millisecond later. The RTT is from the first copy.
#[test]
fn copies_without_identification_are_known_by_content() {
    for id in [None, Some(0)] {
        let mut line = Line::open();
        let send = |line: &mut Line, time, sequence| {
            let payload = Payload::new(sequence, MSS);
            line.send(
                Side::Client,
                time,
                match id {
                    Some(id) => payload.ip_id(id),
                    None => payload,
                },
            );
            line.last()
        };
        assert_eq!(send(&mut line, 20 * MS, 1), Kind::Data);
        assert_eq!(send(&mut line, 21 * MS, 1), Kind::HardwareDuplicate);
        let with_sack = sack(&[(1 + 2 * MSS, 1 + 3 * MSS)]);
        line.ack(Side::Server, 30 * MS, 1 + MSS, &[]);
        assert_eq!(send(&mut line, 31 * MS, 1 + MSS), Kind::Data);
        assert_eq!(send(&mut line, 31 * MS, 1 + 2 * MSS), Kind::Data);
        line.ack(Side::Server, 40 * MS, 1 + MSS, &with_sack);
        assert_eq!(line.last(), Kind::DuplicateAck);
        line.ack(Side::Server, 41 * MS, 1 + MSS, &with_sack);
        assert_eq!(line.last(), Kind::HardwareDuplicate);
        let report = line.finish();
        let d = &report.from_client;
        assert_eq!(d.retransmitted.packets, 0);
        assert_eq!(
            (d.order.captured_twice, d.order.hardware_duplicates),
            (1, 0)
        );
        assert_eq!(report.from_server.order.captured_twice, 1);
    }
}

/// Sent again: after a timer (1 s for a SYN, RFC 6298 section 2.1), with another timestamp
/// (RFC 7323), or when the sender can have heard of a loss.
#[test]
fn what_was_sent_again_was_not_captured_twice() {
    let again = |elapsed: i64, values: [u32; 2], signalled: bool| {
        let mut line = Line::open();
        let send = |line: &mut Line, time, value| {
            let options = timestamps(value, 5);
            let data = Payload::new(1, MSS);
            let options: &[u8] = if value == 0 { &[] } else { &options };
            line.send(Side::Client, time, data.options(options));
            line.last() != Kind::HardwareDuplicate
        };
        send(&mut line, 20 * MS, values[0]);
        line.data(20 * MS + 1, 1 + MSS, MSS);
        if signalled {
            let block = sack(&[(1 + MSS, 1 + 2 * MSS)]);
            line.ack(Side::Server, 20 * MS + MS / 2, 1, &block);
        }
        send(&mut line, 20 * MS + elapsed, values[1])
    };
    assert!(
        again(3 * MS, [0, 0], false),
        "no timestamps, no mirror is so late"
    );
    assert!(!again(MS, [0, 0], false));
    assert!(again(MS, [0, 0], true), "the loss was signalled");
    assert!(again(100 * MS, [7, 107], false), "another timestamp");
    assert!(!again(100 * MS, [7, 7], false), "the same");
    assert!(
        again(300 * MS, [7, 7], false),
        "a coarse clock, and a timer"
    );
}

/// A router that passes a frame on leaves its identification and numbers; a SYN after a second is
/// another one, whatever its identification.
#[test]
fn identification_counts_before_a_timer_only() {
    for (later, twice) in [(85, true), (1000, false)] {
        let mut line = Line::open();
        line.send(Side::Client, 20 * MS, Payload::new(1, MSS).ip_id(7));
        let copy = Payload::new(1, MSS).ip_id(7);
        line.send(Side::Client, (20 + later) * MS, copy);
        assert_eq!(line.last() == Kind::HardwareDuplicate, twice);
        let order = line.finish().from_client.order;
        assert_eq!(order.captured_twice, u64::from(twice));
        assert_eq!(order.hardware_duplicates, 1, "tcptrace's count");
    }
}

/// Without SACK a duplicate ACK repeats the one before: nothing but the identification distinguishes them.
#[test]
fn duplicate_acks_without_sack_are_no_copies() {
    let mut line = Line::open_with(&[2, 4, 3, 232]);
    for n in 0..4 {
        line.data(20 * MS, 1 + n * MSS, MSS);
    }
    line.ack(Side::Server, 28 * MS, 1 + MSS, &[]);
    line.ack(Side::Server, 28 * MS + 1, 1 + MSS, &[]);
    assert_eq!(line.last(), Kind::DuplicateAck);
}

/// Everything twice: each copy 0.1 ms after its first. An ACK gives the RTT of what was sent once.
#[test]
fn round_trips_are_known_where_every_frame_was_captured_twice() {
    let mut line = Line::open();
    for n in 0..10 {
        let (time, sequence) = (i64::from(20 + 10 * n) * MS, 1 + n * MSS);
        for later in [0, MS / 10] {
            line.data(time + later, sequence, MSS);
        }
        for later in [8 * MS, 8 * MS + MS / 10] {
            line.ack(Side::Server, time + later, sequence + MSS, &[]);
        }
    }
    assert_eq!(line.events.rtts, vec![8 * MS; 10]);
}

/// A sender whose identification does not count: the FIN, and data sent again, are no duplicates.
#[test]
fn constant_identification_decides_nothing() {
    let mut line = Line::open();
    let client = |time, flags| segment(Side::Client, time, Flags::ACK | flags, &[]);
    let ack = SERVER_ISN + 1;
    line.pass(Segment {
        sequence: CLIENT_ISN.wrapping_add(1),
        acknowledgement: ack,
        ip_id: Some(7),
        ..client(20 * MS, 0)
    });
    line.send(Side::Client, 21 * MS, Payload::new(1, MSS).ip_id(7));
    line.send(Side::Client, 900 * MS, Payload::new(1, MSS).ip_id(7));
    assert!(matches!(line.last(), Kind::Retransmission(_)));
    line.ack(Side::Server, 910 * MS, 1 + MSS, &[]);
    for (time, flags) in [(920, 0), (921, Flags::FIN)] {
        line.pass(Segment {
            sequence: CLIENT_ISN.wrapping_add(1 + MSS),
            acknowledgement: ack,
            ip_id: Some(7),
            ..client(time * MS, flags)
        });
    }
    assert_eq!(line.last(), Kind::Fin);
    let d = line.finish().from_client;
    assert_eq!(d.order.hardware_duplicates, 0);
    assert_eq!(d.data.stream_length, Some(u64::from(MSS)));
}

/// RFC 9293 section 3.5.1: the server answers a SYN with the ACK of an earlier connection, the
/// client resets that one, and the SYN is sent again and answered.
#[test]
fn reset_of_an_earlier_connection_does_not_end_this_one() {
    let offer = [&OFFER[..], &[3, 3, 7, 1]].concat();
    let syn = |time| Segment {
        sequence: CLIENT_ISN,
        ..segment(Side::Client, time, Flags::SYN, &offer)
    };
    let mut line = Line {
        connection: Connection::new(&syn(0), &Options::default()),
        events: EventLog::default(),
        frame: 0,
    };
    line.pass(syn(0));
    let earlier = 1_185_719_655;
    line.pass(Segment {
        sequence: earlier,
        acknowledgement: 99,
        ..segment(Side::Server, 8 * MS, Flags::ACK, &[])
    });
    line.pass(Segment {
        sequence: 99,
        ..segment(Side::Client, 9 * MS, Flags::RST, &[])
    });
    line.pass(syn(1000 * MS));
    line.pass(Segment {
        sequence: SERVER_ISN,
        acknowledgement: CLIENT_ISN.wrapping_add(1),
        ..segment(Side::Server, 1008 * MS, Flags::SYN | Flags::ACK, &offer)
    });
    line.ack(Side::Client, 1010 * MS, 1, &[]);
    let report = line.finish();
    assert_eq!(report.ending, Ending::Open);
    // 60,000 units of 128 bytes.
    assert_eq!(report.from_client.window.largest, 60_000 << 7);
}

/// RFC 2883: the first block reports what came twice.
#[test]
fn dsack_proves_a_retransmission_needless() {
    let mut line = Line::open();
    line.data(20 * MS, 1, MSS);
    line.data(250 * MS, 1, MSS);
    line.ack(Side::Server, 251 * MS, 1 + MSS, &[]);
    line.ack(Side::Server, 258 * MS, 1 + MSS, &sack(&[(1, 1 + MSS)]));
    assert!(line.last_marks().any(Marks::DSACK));
    assert_eq!(line.events.spurious[0].frame, 5);
    assert_eq!(line.events.spurious[0].by, Proof::Dsack);
    let report = line.finish();
    assert_eq!(report.from_client.retransmitted.spurious, 1);
    assert_eq!(report.from_server.control.dsacks, 1);
}

/// RFC 3522: the ACK echoes the first copy's timestamp.
#[test]
fn echo_of_the_first_copy_proves_a_retransmission_needless() {
    let mut line = Line::open();
    line.send(
        Side::Client,
        20 * MS,
        Payload::new(1, MSS).options(&timestamps(10, 1)),
    );
    line.send(
        Side::Client,
        250 * MS,
        Payload::new(1, MSS).options(&timestamps(240, 1)),
    );
    line.ack(Side::Server, 251 * MS, 1 + MSS, &timestamps(2, 10));
    assert_eq!(line.events.spurious[0].by, Proof::Eifel);
    assert_eq!(line.finish().from_client.retransmitted.spurious_eifel, 1);
}

#[test]
fn closed_window_probes_and_opening() {
    let mut line = Line::open();
    line.data(20 * MS, 1, MSS);
    line.window(Side::Server, 30 * MS, 1 + MSS, 0, &[]);
    line.data(300 * MS, 1 + MSS, 1);
    assert_eq!(line.last(), Kind::ZeroWindowProbe);
    line.window(Side::Server, 308 * MS, 1 + MSS, 0, &[]);
    assert_eq!(line.last(), Kind::ZeroWindowProbeAck);
    line.window(Side::Server, 500 * MS, 1 + MSS, 2000, &[]);
    assert_eq!(line.last(), Kind::WindowUpdate);
    let report = line.finish();
    let w = report.from_server.window;
    assert_eq!((w.closed, w.zero, w.updates), (1, 2, 1));
    assert_eq!(w.closed_time.total(), Duration::from_millis(470));
    assert_eq!(report.from_client.window.probes, 1);
    assert_eq!(report.from_client.retransmitted.packets, 0);
}

#[test]
fn filled_window_is_timed_until_it_moves() {
    let mut line = Line::open();
    line.window(Side::Server, 15 * MS, 1, 2000, &[]);
    line.data(20 * MS, 1, MSS);
    line.data(20 * MS, 1 + MSS, MSS);
    assert!(line.last_marks().any(Marks::WINDOW_FULL));
    line.window(Side::Server, 120 * MS, 1 + 2 * MSS, 2000, &[]);
    let w = line.finish().from_client.window;
    assert_eq!((w.filled, w.exceeded), (1, 0));
    assert_eq!(w.filled_time.total(), Duration::from_millis(100));
}

#[test]
fn keep_alive_and_its_ack() {
    let mut line = Line::open();
    line.data(20 * MS, 1, MSS);
    line.ack(Side::Server, 28 * MS, 1 + MSS, &[]);
    line.send(Side::Client, 9000 * MS, Payload::new(MSS, 0));
    assert_eq!(line.last(), Kind::KeepAlive);
    line.ack(Side::Server, 9008 * MS, 1 + MSS, &[]);
    assert_eq!(line.last(), Kind::KeepAliveAck);
}

/// RFC 1122 section 4.2.3.2: one segment's ACK may wait, here 40 ms more than the path needs.
#[test]
fn lone_segments_ack_that_waits_is_delayed() {
    let mut line = Line::open();
    line.data(20 * MS, 1, MSS);
    line.ack(Side::Server, 28 * MS, 1 + MSS, &[]);
    line.data(100 * MS, 1 + MSS, 100);
    line.ack(Side::Server, 148 * MS, 1 + MSS + 100, &[]);
    assert!(line.last_marks().any(Marks::DELAYED_ACK));
    // RFC 9293 section 3.7.4: the next small segment had to wait for that ACK.
    line.data(149 * MS, 1 + MSS + 100, 100);
    assert!(line.last_marks().any(Marks::NAGLE));
    let d = line.finish().from_client;
    assert_eq!((d.acks.immediate, d.acks.delayed), (1, 1));
    assert_eq!(d.acks.delay.total(), Duration::from_millis(40));
    assert_eq!(d.flight.nagle_stalls, 1);
    assert_eq!(d.flight.nagle_time.total(), Duration::from_millis(48));
}

/// The receiver has what was never observed here: the capture lost it, not the network.
#[test]
fn acked_and_never_observed_is_the_captures_loss() {
    let mut line = Line::open();
    line.data(20 * MS, 1, MSS);
    line.data(21 * MS, 1 + 2 * MSS, MSS);
    line.ack(Side::Server, 29 * MS, 1 + 3 * MSS, &[]);
    assert!(line.last_marks().any(Marks::ACKED_UNCAPTURED));
    line.ack(Side::Server, 30 * MS, 1 + 5 * MSS, &[]);
    let d = line.finish().from_client;
    assert_eq!(d.order.capture_lost_bytes, 3000);
    assert_eq!(d.order.unexplained_gap_bytes, 0);
    assert_eq!(d.data.acked_bytes, 2000);
}

#[test]
fn requests_and_responses_take_turns() {
    let mut line = Line::open();
    line.data(20 * MS, 1, 100);
    line.send(Side::Server, 70 * MS, Payload::new(1, MSS).ack(101));
    line.send(Side::Server, 71 * MS, Payload::new(1 + MSS, 500).ack(101));
    line.send(Side::Client, 371 * MS, Payload::new(101, 100).ack(1501));
    let turns = line.finish().turns;
    assert_eq!((turns.from_client, turns.from_server), (2, 1));
    assert_eq!(turns.server_think.total(), Duration::from_millis(50));
    assert_eq!(turns.client_think.total(), Duration::from_millis(300));
    assert_eq!((turns.largest_request, turns.largest_response), (100, 1500));
}

#[test]
fn window_scale_counts_only_if_both_offer_it() {
    let both = [2, 4, 3, 232, 3, 3, 7, 1];
    let mut line = Line::open_with(&both);
    line.window(Side::Server, 20 * MS, 1, 100, &[]);
    let report = line.finish();
    assert_eq!(
        report.handshake.window_scaling,
        Scaling::On {
            client: 7,
            server: 7
        }
    );
    assert_eq!(report.from_server.window.largest, 12800);
}

#[test]
fn super_segments_are_recognised() {
    let mut line = Line::open();
    line.data(20 * MS, 1, 70_000);
    let d = line.finish().from_client;
    assert_eq!((d.data.super_segments, d.data.unique_bytes), (1, 70_000));
}
