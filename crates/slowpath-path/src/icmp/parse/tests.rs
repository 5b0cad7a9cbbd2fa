// SPDX-License-Identifier: Apache-2.0
//! Messages written out by hand from the RFCs' figures.

use super::*;
use proptest::prelude::*;

/// RFC 791's figure: DSCP 46 with ECT(0), 60 octets, identification 0x1234, don't fragment, TTL 1, UDP.
fn v4_packet(quoted_payload: usize) -> Vec<u8> {
    let mut packet = vec![
        0x45, 0xba, 0, 60, 0x12, 0x34, 0x40, 0, 1, 17, 0, 0, 192, 0, 2, 1, 198, 51, 100, 9,
    ];
    // RFC 768: ports 33000 and 862, length 40, checksum.
    packet.extend([0x80, 0xe8, 0x03, 0x5e, 0, 40, 0xab, 0xcd]);
    packet.extend((0..32).take(quoted_payload));
    packet
}

fn v6_packet(next: u8, after: &[u8]) -> Vec<u8> {
    let length = after.len() as u16;
    let mut packet = vec![0x6b, 0xa0, 0, 7];
    packet.extend(length.to_be_bytes());
    packet.extend([next, 1]);
    packet.extend(
        "2001:db8::1"
            .parse::<Ipv6Addr>()
            .expect("an address")
            .octets(),
    );
    packet.extend(
        "2001:db8::9"
            .parse::<Ipv6Addr>()
            .expect("an address")
            .octets(),
    );
    packet.extend(after);
    packet
}

fn message4(kind: u8, code: u8, word: [u8; 4], quoted: &[u8]) -> Vec<u8> {
    let mut message = vec![kind, code, 0, 0];
    message.extend(word);
    message.extend(quoted);
    let sum = checksum(&message, 0);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    message
}

fn message6(kind: u8, code: u8, word: [u8; 4], quoted: &[u8]) -> Vec<u8> {
    let mut message = vec![kind, code, 0, 0];
    message.extend(word);
    message.extend(quoted);
    message
}

fn error(message: Option<IcmpMessage<'_>>) -> IcmpError<'_> {
    match message {
        Some(IcmpMessage::Error(error)) => error,
        other => panic!("{other:?}"),
    }
}

const UDP_HEADER: [u8; 8] = [0x80, 0xe8, 0x03, 0x5e, 0, 40, 0xab, 0xcd];

#[test]
fn the_checksum_is_that_of_the_rfcs_example() {
    // RFC 1071 section 3: 0001 f203 f4f5 f6f7 sum to ddf2.
    let octets = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
    assert_eq!(checksum(&octets, 0), !0xddf2);
    // Where the sum is split makes no difference.
    assert_eq!(checksum(&octets[2..], 1), !0xddf2);
}

#[test]
fn a_time_exceeded_gives_every_field_of_the_quoted_packet() {
    let message = message4(11, 0, [0; 4], &v4_packet(32));
    let error = error(icmp4(&message));
    assert_eq!(error.kind, ErrorKind::TimeExceeded);
    let quoted = error.quoted;
    assert_eq!(quoted.source, IpAddr::from([192, 0, 2, 1]));
    assert_eq!(quoted.destination, IpAddr::from([198, 51, 100, 9]));
    assert_eq!((quoted.protocol, quoted.ttl, quoted.length), (17, 1, 60));
    assert_eq!(
        (quoted.traffic_class >> 2, quoted.traffic_class & 3),
        (46, 2)
    );
    assert_eq!(quoted.identification, Some(0x1234));
    assert!(quoted.dont_fragment);
    assert_eq!(quoted.ports(), Some((33_000, 862)));
    let udp = quoted.udp().expect("UDP");
    assert_eq!((udp.length, udp.checksum), (40, 0xabcd));
    assert_eq!(udp.payload, (0..32).collect::<Vec<u8>>());
}

#[test]
fn routers_that_quote_eight_octets_only_give_ports_and_checksum() {
    let message = message4(11, 0, [0; 4], &v4_packet(0));
    let udp = error(icmp4(&message)).quoted.udp().expect("UDP");
    assert_eq!(udp.checksum, 0xabcd);
    assert!(udp.payload.is_empty());
}

#[test]
fn extensions_after_the_quoted_packet_are_not_its_payload() {
    // 60 octets of packet and 68 of padding are 32 words; MPLS labels follow (RFC 4950).
    let mut quoted = v4_packet(32);
    quoted.resize(128, 0);
    quoted.extend([0x20, 0, 0, 0, 0, 8, 1, 1, 1, 2, 3, 4]);
    let message = message4(11, 0, [0, 32, 0, 0], &quoted);
    let udp = error(icmp4(&message)).quoted.udp().expect("UDP");
    assert_eq!(udp.payload.len(), 32);
}

#[test]
fn unreachables_and_too_big_are_distinguished() {
    let packet = v4_packet(32);
    for (code, kind) in [
        (0, ErrorKind::Unreachable { code: 0 }),
        (1, ErrorKind::Unreachable { code: 1 }),
        (3, ErrorKind::PortUnreachable),
        (4, ErrorKind::TooBig { mtu: Some(1_400) }),
        (13, ErrorKind::Prohibited { code: 13 }),
    ] {
        let message = message4(3, code, [0, 0, 5, 120], &packet);
        assert_eq!(error(icmp4(&message)).kind, kind);
    }
    let message = message4(3, 4, [0; 4], &packet);
    assert_eq!(error(icmp4(&message)).kind, ErrorKind::TooBig { mtu: None });
    let packet = v6_packet(17, &UDP_HEADER);
    for (kind, code, expected) in [
        (1, 0, ErrorKind::Unreachable { code: 0 }),
        (1, 1, ErrorKind::Prohibited { code: 1 }),
        (1, 4, ErrorKind::PortUnreachable),
        (3, 0, ErrorKind::TimeExceeded),
    ] {
        let message = message6(kind, code, [0; 4], &packet);
        assert_eq!(error(icmp6(&message)).kind, expected);
    }
    let message = message6(2, 0, 1_280u32.to_be_bytes(), &packet);
    let too_big = ErrorKind::TooBig { mtu: Some(1_280) };
    assert_eq!(error(icmp6(&message)).kind, too_big);
}

#[test]
fn a_quoted_ipv6_packet_is_read_through_its_extension_headers() {
    let plain = message6(3, 0, [0; 4], &v6_packet(17, &UDP_HEADER));
    // Hop-by-hop options of 16 octets, then a first fragment, then UDP.
    let mut after = vec![44, 1];
    after.extend([0; 14]);
    after.extend([17, 0, 0, 1, 0, 0, 0, 9]);
    after.extend(UDP_HEADER);
    let extended = message6(3, 0, [0; 4], &v6_packet(0, &after));
    for message in [plain, extended] {
        let quoted = error(icmp6(&message)).quoted;
        assert_eq!((quoted.protocol, quoted.ttl), (17, 1));
        assert_eq!(quoted.traffic_class, 0xba);
        assert_eq!(quoted.ports(), Some((33_000, 862)));
        assert_eq!(quoted.udp().expect("UDP").checksum, 0xabcd);
    }
    // A later fragment has no ports.
    after[18..20].copy_from_slice(&[0, 8]);
    let message = message6(3, 0, [0; 4], &v6_packet(0, &after));
    assert_eq!(error(icmp6(&message)).quoted.ports(), None);
}

#[test]
fn echo_replies_and_quoted_echo_requests_give_identifier_and_number() {
    let reply = message4(0, 0, [0x11, 0x22, 0x33, 0x44], b"payload");
    let expected = IcmpMessage::EchoReply(EchoReply {
        identifier: 0x1122,
        sequence: 0x3344,
    });
    assert_eq!(icmp4(&reply), Some(expected));
    let reply = message6(129, 0, [0x11, 0x22, 0x33, 0x44], b"");
    assert_eq!(icmp6(&reply), Some(expected));
    let mut packet = v4_packet(0);
    packet[9] = 1;
    packet[20..28].copy_from_slice(&[8, 0, 0, 0, 0x11, 0x22, 0x33, 0x44]);
    let message = message4(11, 0, [0; 4], &packet);
    let quoted = error(icmp4(&message)).quoted;
    assert_eq!(quoted.echo_request(), Some((0x1122, 0x3344)));
    assert_eq!(quoted.ports(), None);
}

#[test]
fn damaged_and_other_messages_are_nothing() {
    let mut message = message4(11, 0, [0; 4], &v4_packet(32));
    message[40] ^= 1;
    assert_eq!(icmp4(&message), None);
    // An echo request; fragment reassembly time exceeded.
    assert_eq!(icmp4(&message4(8, 0, [0; 4], b"")), None);
    assert_eq!(icmp4(&message4(11, 1, [0; 4], &v4_packet(32))), None);
    // An IPv6 packet in an IPv4 message.
    let message = message4(11, 0, [0; 4], &v6_packet(17, &UDP_HEADER));
    assert_eq!(icmp4(&message), None);
}

proptest! {
    #[test]
    fn any_octets_are_read_without_a_panic(mut octets in prop::collection::vec(any::<u8>(), 0..200), kind in 0u8..12) {
        if let Some(first) = octets.first_mut() {
            *first = kind;
        }
        let _ = icmp6(&octets);
        if octets.len() >= 8 {
            octets[2..4].fill(0);
            let sum = checksum(&octets, 0);
            octets[2..4].copy_from_slice(&sum.to_be_bytes());
        }
        for message in [icmp4(&octets), icmp6(&octets)].into_iter().flatten() {
            if let IcmpMessage::Error(error) = message {
                let _ = (error.quoted.udp(), error.quoted.tcp_sequence(), error.quoted.echo_request());
            }
        }
        let _ = v4_payload(&octets);
    }

    #[test]
    fn a_cut_quotation_never_has_other_ports(cut in 0usize..60) {
        let packet = v4_packet(32);
        let message = message4(11, 0, [0; 4], &packet[..cut]);
        if let Some(IcmpMessage::Error(error)) = icmp4(&message) {
            prop_assert!(error.quoted.ports().is_none_or(|ports| ports == (33_000, 862)));
            prop_assert_eq!(error.quoted.udp().is_some(), cut >= 28);
        }
    }
}
