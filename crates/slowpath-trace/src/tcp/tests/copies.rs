// SPDX-License-Identifier: Apache-2.0
//! Frames captured twice: after bursts, and with other sequence numbers.

use super::*;

/// `count` segments from the one after `first` on, with identifications that count.
fn burst(line: &mut Line, at: i64, first: u16, count: u16) {
    for n in first + 1..=first + count {
        let payload = Payload::new(1 + u32::from(n) * MSS, MSS).ip_id(100 + n);
        line.send(Side::Client, at, payload);
    }
}

/// A frame and its copy at once, then twenty frames and their copies 2 ms later.
#[test]
fn copies_after_a_burst_are_recognised_once_one_was() {
    let mut line = Line::open();
    burst(&mut line, 20 * MS, 0, 1);
    burst(&mut line, 20 * MS, 0, 1);
    assert_eq!(line.last(), Kind::HardwareDuplicate);
    burst(&mut line, 30 * MS, 1, 20);
    burst(&mut line, 32 * MS, 1, 20);
    assert_eq!(line.last(), Kind::HardwareDuplicate);
    let d = line.finish().from_client;
    assert_eq!(d.order.captured_twice, 21);
    assert_eq!(d.retransmitted.packets, 0);
    // tcptrace remembers eight: of the burst the first of each copy has been forgotten.
    assert_eq!(d.order.hardware_duplicates, 1);
}

/// Nothing else was captured twice: then the same is data sent again.
#[test]
fn a_repeated_burst_is_no_copy() {
    let mut line = Line::open();
    burst(&mut line, 20 * MS, 0, 20);
    burst(&mut line, 22 * MS, 0, 20);
    let d = line.finish().from_client;
    assert_eq!((d.order.captured_twice, d.retransmitted.packets), (0, 20));
}

const AHEAD: [u32; 2] = [0x9000_0000, 0x1234_5678];

/// A handshake inside a firewall and outside of it, then a segment of each side and its ACK; `later`: the
/// timestamp value of the SYN's copy less its own.
fn through_a_firewall(later: u32) -> ConnectionReport {
    let mut line = Line::begun();
    let both = |line: &mut Line, s: Segment<'_>| {
        let (side, peer) = match s.source.port {
            80 => (Side::Server, Side::Client),
            _ => (Side::Client, Side::Server),
        };
        let [own, other] = [side, peer].map(|s| AHEAD[s as usize]);
        let acks = s.flags.any(Flags::ACK);
        let first = s.acknowledgement.wrapping_add(u32::from(acks) * other);
        line.pass(Segment {
            acknowledgement: first,
            ..s
        });
        let mut options = s.options.to_vec();
        if s.flags.0 == Flags::SYN {
            options[7] = options[7].wrapping_add(later as u8);
        }
        line.pass(Segment {
            sequence: s.sequence.wrapping_add(own),
            options: &options,
            ..s
        });
    };
    let number = Line::number;
    let offer = |value| {
        let mut options = timestamps(value, 0);
        options.extend([4, 2, 1, 1]);
        options
    };
    for (side, ms, sequence, ack, length, flags) in [
        (Side::Client, 0, 0, 0, 0, Flags::SYN),
        (Side::Server, 8, 0, 1, 0, Flags::SYN | Flags::ACK),
        (Side::Client, 10, 1, 1, 0, Flags::ACK),
        (Side::Client, 11, 1, 1, 100, Flags::ACK),
        (Side::Server, 20, 1, 101, 500, Flags::ACK),
        (Side::Client, 22, 101, 501, 0, Flags::ACK),
    ] {
        let options = match flags & Flags::SYN {
            0 => timestamps(1000 + ms as u32, 7),
            _ => offer(1000 + ms as u32),
        };
        both(
            &mut line,
            Segment {
                sequence: number(side, sequence),
                acknowledgement: number(side.peer(), ack),
                length,
                ..segment(side, ms * MS, flags, &options)
            },
        );
    }
    line.finish()
}

#[test]
fn both_sides_of_a_firewall_that_renumbers_are_one_connection() {
    let report = through_a_firewall(0);
    assert!(report.renumbered);
    for (side, bytes) in [(&report.from_client, 100), (&report.from_server, 500)] {
        assert_eq!(
            (side.data.unique_bytes, side.data.acked_bytes),
            (bytes, bytes)
        );
        assert_eq!(side.retransmitted.packets, 0);
        assert_eq!(side.order.capture_losses, 0);
    }
    assert_eq!(report.handshake.rtt(), Some(Duration::from_millis(10)));
}

/// RFC 7323: another value, another SYN.
#[test]
fn a_syn_of_another_time_is_another() {
    assert!(!through_a_firewall(1).renumbered);
}
