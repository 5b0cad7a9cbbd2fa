// SPDX-License-Identifier: Apache-2.0
//! The packets of a trace as bytes: probes that are sent, and the routers' answers.
//!
//! A probe has the addresses and ports of a connection, so that routers that choose by a hash of them
//! (ECMP, RFC 2992) send it the connection's way, and a small TTL. Nothing takes it for the
//! connection's:
//!
//! - **Its TCP checksum is wrong**, as 007's is (NSDI 2018): a receiver that it reaches discards it
//!   before it looks for a connection, and answers nothing (RFC 9293 section 3.1;
//!   `tcp_v4_rcv`, `tcp_checksum_complete`).
//! - **Its sequence number is the one before the first unacknowledged**: should something on the way
//!   correct the checksum, the receiver has that byte already (`tcp_validate_incoming`); and of
//!   the answers that routers send, the sender's TCP takes no note, because they are about nothing that
//!   is under way (`tcp_v4_err` compares with `snd_una` and `snd_nxt`, and counts
//!   `OutOfWindowIcmps`).
//! - It has no payload and no flag but ACK.

use slowpath_model::FourTuple;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// An IPv4 and a TCP header without options (RFC 791 section 3.1, RFC 9293 section 3.1).
pub(super) const PROBE: usize = 40;
const IP: usize = 20;

/// Protocol numbers (IANA).
const TCP: u8 = 6;
const ICMP: u8 = 1;
/// The flag ACK.
const ACK: u8 = 0x10;

/// Both ends' addresses, if they are of IPv4: there a router hashes nothing else.
pub(super) fn v4(tuple: &FourTuple) -> Option<[(Ipv4Addr, u16); 2]> {
    let end = |end: SocketAddr| match end.ip() {
        IpAddr::V4(ip) => Some((ip, end.port())),
        IpAddr::V6(_) => None,
    };
    Some([end(tuple.local)?, end(tuple.remote)?])
}

/// What a probe says besides the connection's addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Probe {
    pub(super) ttl: u8,
    /// IP identification: the answer quotes it.
    pub(super) number: u16,
    /// The first sequence number that the peer has not acknowledged.
    pub(super) unacknowledged: u32,
}

impl Probe {
    /// The packet, IP header included.
    pub(super) fn packet(&self, [local, remote]: [(Ipv4Addr, u16); 2]) -> [u8; PROBE] {
        let mut packet = [0; PROBE];
        packet[0] = 0x45;
        packet[2..4].copy_from_slice(&(PROBE as u16).to_be_bytes());
        packet[4..6].copy_from_slice(&self.number.to_be_bytes());
        packet[8] = self.ttl;
        packet[9] = TCP;
        packet[12..16].copy_from_slice(&local.0.octets());
        packet[16..20].copy_from_slice(&remote.0.octets());
        let sum = checksum(0, &packet[..IP]);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        let tcp = &mut packet[IP..];
        tcp[0..2].copy_from_slice(&local.1.to_be_bytes());
        tcp[2..4].copy_from_slice(&remote.1.to_be_bytes());
        let sequence = self.unacknowledged.wrapping_sub(1);
        tcp[4..8].copy_from_slice(&sequence.to_be_bytes());
        tcp[12] = 5 << 4;
        tcp[13] = ACK;
        let mut pseudo = 0;
        for address in [local.0, remote.0] {
            pseudo += sum_of(&address.octets());
        }
        pseudo += u32::from(TCP) + (PROBE - IP) as u32;
        // One bit from the right one, so that it is not its other spelling (0 and 0xffff) either.
        let wrong = checksum(pseudo, tcp) ^ 0x8000;
        tcp[16..18].copy_from_slice(&wrong.to_be_bytes());
        packet
    }
}

/// The sum of 16-bit words, without carries taken in.
fn sum_of(bytes: &[u8]) -> u32 {
    let words = bytes.chunks(2);
    words
        .map(|word| u32::from(word[0]) << 8 | word.get(1).map_or(0, |low| u32::from(*low)))
        .sum()
}

/// The Internet checksum (RFC 1071) of `bytes` after what was summed before.
pub(super) fn checksum(before: u32, bytes: &[u8]) -> u16 {
    let mut sum = before + sum_of(bytes);
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    !(sum as u16)
}

/// A router's answer to a probe: which one, and of which connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    /// Who answers.
    pub(super) from: Ipv4Addr,
    pub(super) number: u16,
    /// The quoted ends, the sender first.
    pub(super) ends: [(Ipv4Addr, u16); 2],
}

/// ICMP types (RFC 792): a TTL ran out, or the packet goes no further.
const TIME_EXCEEDED: u8 = 11;
const UNREACHABLE: u8 = 3;

impl Answer {
    /// Reads an IP packet with an ICMP message that quotes a probe; `None` if it is none. Routers quote
    /// the IP header and eight bytes at least (RFC 792).
    pub(super) fn parse(packet: &[u8]) -> Option<Answer> {
        let (outer, icmp) = ip_header(packet, ICMP)?;
        if !matches!(icmp.first(), Some(&(TIME_EXCEEDED | UNREACHABLE))) {
            return None;
        }
        let (inner, tcp) = ip_header(icmp.get(8..)?, TCP)?;
        let port = |at: usize| Some(u16::from_be_bytes(*tcp.get(at..)?.first_chunk()?));
        Some(Answer {
            from: address(outer, 12)?,
            number: u16::from_be_bytes(*inner.get(4..)?.first_chunk()?),
            ends: [
                (address(inner, 12)?, port(0)?),
                (address(inner, 16)?, port(2)?),
            ],
        })
    }
}

fn address(header: &[u8], at: usize) -> Option<Ipv4Addr> {
    let octets: [u8; 4] = *header.get(at..)?.first_chunk()?;
    Some(octets.into())
}

/// The header of an IPv4 packet of that protocol, and what follows.
fn ip_header(packet: &[u8], protocol: u8) -> Option<(&[u8], &[u8])> {
    let first = *packet.first()?;
    let length = usize::from(first & 0xf) * 4;
    if first >> 4 != 4 || length < IP || *packet.get(9)? != protocol {
        return None;
    }
    packet.split_at_checked(length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ENDS: [(Ipv4Addr, u16); 2] = [
        (Ipv4Addr::new(10, 0, 0, 1), 40_000),
        (Ipv4Addr::new(10, 9, 0, 2), 443),
    ];

    fn probe(ttl: u8) -> Probe {
        Probe {
            ttl,
            number: 0x1234,
            unacknowledged: 0,
        }
    }

    /// What a router sends about a probe whose TTL ran out there.
    fn time_exceeded(from: Ipv4Addr, probe: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 60, ICMP, 0, 0];
        packet.extend(from.octets());
        packet.extend([10, 0, 0, 1]);
        packet.extend([TIME_EXCEEDED, 0, 0, 0, 0, 0, 0, 0]);
        packet.extend(&probe[..28]);
        packet
    }

    #[test]
    fn a_probe_has_the_connection_s_ports_and_nothing_that_a_receiver_takes() {
        let packet = probe(3).packet(ENDS);
        assert_eq!(checksum(0, &packet[..20]), 0, "the IP header's is right");
        assert_eq!((packet[8], packet[9]), (3, 6));
        assert_eq!(packet[12..20], [10, 0, 0, 1, 10, 9, 0, 2]);
        assert_eq!(packet[20..24], [0x9c, 0x40, 1, 187]);
        // Before the first unacknowledged one, 0.
        assert_eq!(packet[24..28], [0xff; 4]);
        assert_eq!(
            (packet[32], packet[33]),
            (0x50, 0x10),
            "no options, only ACK"
        );
        let pseudo = sum_of(&packet[12..20]) + 6 + 20;
        // Whatever its spelling, a right checksum makes a sum of 0.
        assert_ne!(checksum(pseudo, &packet[20..]), 0);
    }

    #[test]
    fn an_answer_names_router_probe_and_connection() {
        let router = Ipv4Addr::new(192, 0, 2, 7);
        let answer = Answer::parse(&time_exceeded(router, &probe(1).packet(ENDS)));
        let expected = Answer {
            from: router,
            number: 0x1234,
            ends: ENDS,
        };
        assert_eq!(answer, Some(expected));
    }

    #[test]
    fn what_is_cut_off_is_no_answer() {
        let whole = time_exceeded(Ipv4Addr::LOCALHOST, &probe(1).packet(ENDS));
        for length in 0..whole.len() {
            let answer = Answer::parse(&whole[..length]);
            // The ports are the first four of the eight bytes.
            assert_eq!(answer.is_some(), length >= whole.len() - 4, "{length}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes: Vec<u8>) {
            let _ = Answer::parse(&bytes);
        }

        #[test]
        fn every_probe_s_checksum_is_wrong(
            (ttl, number, unacknowledged) in any::<(u8, u16, u32)>(),
            ends in any::<[(u32, u16); 2]>(),
        ) {
            let probe = Probe { ttl, number, unacknowledged };
            let packet = probe.packet(ends.map(|(address, port)| (address.into(), port)));
            let pseudo = sum_of(&packet[12..20]) + 6 + 20;
            prop_assert_ne!(checksum(pseudo, &packet[20..]), 0);
        }
    }
}
