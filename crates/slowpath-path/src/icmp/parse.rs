// SPDX-License-Identifier: Apache-2.0
//! ICMP messages from octets: RFC 792, RFC 4443, and what RFC 4884 says of the length of a quoted packet.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Octets of an ICMP header (RFC 792, RFC 4443 section 2.1 and the word that follows).
const HEADER: usize = 8;
/// IPv4 without options (RFC 791 section 3.1), IPv6 (RFC 8200 section 3).
const V4_HEADER: usize = 20;
const V6_HEADER: usize = 40;
/// Extension headers of a quoted IPv6 packet that are looked through.
const MOST_EXTENSIONS: usize = 8;
/// IANA's protocol numbers.
const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP6: u8 = 58;

/// A message that measurements look for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IcmpMessage<'a> {
    /// An error about a packet.
    Error(IcmpError<'a>),
    /// The answer to an echo request.
    EchoReply(EchoReply),
}

/// What an echo reply repeats of its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EchoReply {
    /// The identifier: of the socket.
    pub identifier: u16,
    /// The sequence number.
    pub sequence: u16,
}

/// An error, and the packet that it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IcmpError<'a> {
    /// Which.
    pub kind: ErrorKind,
    /// The packet as the reporter had it before it.
    pub quoted: Quoted<'a>,
}

/// An error, the same for both families.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The TTL or hop limit came to an end at a router (type 11 code 0; 3 code 0).
    TimeExceeded,
    /// No socket of the destination has that port (3 code 3; 1 code 4).
    PortUnreachable,
    /// A filter forbids it (3 codes 9, 10, 13; 1 codes 1, 5, 6).
    Prohibited {
        /// The message's code.
        code: u8,
    },
    /// No way there, for another reason.
    Unreachable {
        /// The message's code.
        code: u8,
    },
    /// It is larger than the next link carries (3 code 4; type 2).
    TooBig {
        /// The largest that fits, octets; `None`: the router does not say (older than RFC 1191).
        mtu: Option<u32>,
    },
}

/// A packet as an ICMP error quotes it. What a router wrote there is a claim of that router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quoted<'a> {
    /// From where it came.
    pub source: IpAddr,
    /// Where it was to go.
    pub destination: IpAddr,
    /// The protocol above IP; of IPv6 after the extension headers.
    pub protocol: u8,
    /// TTL or hop limit as it arrived at the reporter.
    pub ttl: u8,
    /// TOS or traffic class: DSCP in the upper six bits, ECN in the lower two.
    pub traffic_class: u8,
    /// Its whole length by its IP header, octets.
    pub length: u32,
    /// IPv4's identification.
    pub identification: Option<u16>,
    /// IPv4's don't-fragment bit; of IPv6 always set.
    pub dont_fragment: bool,
    /// As much as was quoted of what follows the IP headers; empty in a later fragment.
    pub transport: &'a [u8],
}

/// A quoted UDP header, and as much of the payload as was quoted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotedUdp<'a> {
    /// Source port.
    pub source_port: u16,
    /// Destination port.
    pub destination_port: u16,
    /// UDP's length: header and payload, octets.
    pub length: u16,
    /// The checksum as it arrived at the reporter.
    pub checksum: u16,
    /// The payload, as far as it was quoted.
    pub payload: &'a [u8],
}

impl<'a> Quoted<'a> {
    /// Source and destination port of UDP and TCP, whose first eight octets every router quotes.
    #[must_use]
    pub fn ports(&self) -> Option<(u16, u16)> {
        let has_ports = matches!(self.protocol, UDP | TCP);
        let ports = (word(self.transport, 0)?, word(self.transport, 2)?);
        has_ports.then_some(ports)
    }

    /// The UDP header.
    #[must_use]
    pub fn udp(&self) -> Option<QuotedUdp<'a>> {
        let (source_port, destination_port) = self.ports().filter(|_| self.protocol == UDP)?;
        Some(QuotedUdp {
            source_port,
            destination_port,
            length: word(self.transport, 4)?,
            checksum: word(self.transport, 6)?,
            payload: self.transport.get(8..)?,
        })
    }

    /// TCP's sequence number.
    #[must_use]
    pub fn tcp_sequence(&self) -> Option<u32> {
        let octets = self.transport.get(4..8)?.try_into().ok()?;
        (self.protocol == TCP).then(|| u32::from_be_bytes(octets))
    }

    /// Identifier and sequence number of an echo request.
    #[must_use]
    pub fn echo_request(&self) -> Option<(u16, u16)> {
        let kind = *self.transport.first()?;
        let is_request = matches!((self.protocol, kind), (ICMP, 8) | (ICMP6, 128));
        let numbers = (word(self.transport, 4)?, word(self.transport, 6)?);
        is_request.then_some(numbers)
    }
}

/// What follows the IP header of a whole IPv4 packet, as raw sockets give it.
#[must_use]
pub fn v4_payload(packet: &[u8]) -> Option<&[u8]> {
    let first = *packet.first()?;
    let header = usize::from(first & 15) * 4;
    (first >> 4 == 4 && header >= V4_HEADER)
        .then(|| packet.get(header..))
        .flatten()
}

/// An ICMP message of IPv4, from its type on. `None`: damaged, cut, or of a kind that no measurement looks for.
#[must_use]
pub fn icmp4(message: &[u8]) -> Option<IcmpMessage<'_>> {
    if checksum(message, 0) != 0 {
        return None;
    }
    let header: &[u8; HEADER] = message.first_chunk()?;
    let (kind, code) = (header[0], header[1]);
    if (kind, code) == (0, 0) {
        return Some(echo_reply(header));
    }
    let mtu = u32::from(u16::from_be_bytes([header[6], header[7]]));
    let kind = kind4(kind, code, mtu)?;
    // RFC 4884 section 4.1: the sixth octet is the quoted packet's length in words of 32 bits, where extensions follow.
    let quoted = without_extensions(&message[HEADER..], usize::from(header[5]) * 4);
    let quoted = quoted4(quoted)?;
    Some(IcmpMessage::Error(IcmpError { kind, quoted }))
}

/// An ICMPv6 message, from its type on; the kernel has checked its checksum. `None`: cut, or of a kind that no
/// measurement looks for.
#[must_use]
pub fn icmp6(message: &[u8]) -> Option<IcmpMessage<'_>> {
    let header: &[u8; HEADER] = message.first_chunk()?;
    let (kind, code) = (header[0], header[1]);
    if (kind, code) == (129, 0) {
        return Some(echo_reply(header));
    }
    let mtu = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
    let kind = kind6(kind, code, mtu)?;
    let words = match kind {
        ErrorKind::TooBig { .. } => 0,
        _ => header[4],
    };
    // RFC 4884 section 4.2: words of 64 bits.
    let quoted = without_extensions(&message[HEADER..], usize::from(words) * 8);
    let quoted = quoted6(quoted)?;
    Some(IcmpMessage::Error(IcmpError { kind, quoted }))
}

/// An ICMP error by type, code and what it says of the next link.
pub(super) fn kind4(kind: u8, code: u8, mtu: u32) -> Option<ErrorKind> {
    Some(match (kind, code) {
        (11, 0) => ErrorKind::TimeExceeded,
        (3, 3) => ErrorKind::PortUnreachable,
        (3, 4) => ErrorKind::TooBig {
            mtu: Some(mtu).filter(|mtu| *mtu > 0),
        },
        (3, 9 | 10 | 13) => ErrorKind::Prohibited { code },
        (3, _) => ErrorKind::Unreachable { code },
        _ => return None,
    })
}

/// The same of ICMPv6.
pub(super) fn kind6(kind: u8, code: u8, mtu: u32) -> Option<ErrorKind> {
    Some(match (kind, code) {
        (3, 0) => ErrorKind::TimeExceeded,
        (1, 4) => ErrorKind::PortUnreachable,
        (1, 1 | 5 | 6) => ErrorKind::Prohibited { code },
        (1, _) => ErrorKind::Unreachable { code },
        (2, _) => ErrorKind::TooBig {
            mtu: Some(mtu).filter(|mtu| *mtu > 0),
        },
        _ => return None,
    })
}

fn echo_reply(header: &[u8; HEADER]) -> IcmpMessage<'_> {
    IcmpMessage::EchoReply(EchoReply {
        identifier: u16::from_be_bytes([header[4], header[5]]),
        sequence: u16::from_be_bytes([header[6], header[7]]),
    })
}

fn without_extensions(octets: &[u8], length: usize) -> &[u8] {
    match length {
        0 => octets,
        length => &octets[..length.min(octets.len())],
    }
}

/// An IPv4 packet that may be cut anywhere after its header.
fn quoted4(packet: &[u8]) -> Option<Quoted<'_>> {
    let header: &[u8; V4_HEADER] = packet.first_chunk()?;
    let length = u16::from_be_bytes([header[2], header[3]]);
    let fragment = u16::from_be_bytes([header[6], header[7]]);
    let transport = v4_payload(packet)?;
    let octets = usize::from(length).saturating_sub(packet.len() - transport.len());
    Some(Quoted {
        source: v4_address(&header[12..16])?,
        destination: v4_address(&header[16..20])?,
        protocol: header[9],
        ttl: header[8],
        traffic_class: header[1],
        length: u32::from(length),
        identification: Some(u16::from_be_bytes([header[4], header[5]])),
        dont_fragment: fragment & 0x4000 != 0,
        transport: match fragment & 0x1fff {
            0 => &transport[..octets.min(transport.len())],
            _ => &[],
        },
    })
}

/// An IPv6 packet that may be cut anywhere after its header.
fn quoted6(packet: &[u8]) -> Option<Quoted<'_>> {
    let header: &[u8; V6_HEADER] = packet.first_chunk()?;
    if header[0] >> 4 != 6 {
        return None;
    }
    let length = V6_HEADER + usize::from(u16::from_be_bytes([header[4], header[5]]));
    let packet = &packet[..length.min(packet.len())];
    let (protocol, transport) = after_extensions(header[6], &packet[V6_HEADER..]);
    Some(Quoted {
        source: v6_address(&header[8..24])?,
        destination: v6_address(&header[24..40])?,
        protocol,
        ttl: header[7],
        traffic_class: header[0] << 4 | header[1] >> 4,
        length: length as u32,
        identification: None,
        dont_fragment: true,
        transport,
    })
}

/// Looks through extension headers (RFC 8200 section 4): protocol, and what follows.
fn after_extensions(first: u8, octets: &[u8]) -> (u8, &[u8]) {
    let (mut protocol, mut rest) = (first, octets);
    for _ in 0..MOST_EXTENSIONS {
        let length = match (protocol, rest.get(1)) {
            // Hop-by-hop options, routing, destination options: in words of 64 bits, the first not counted.
            (0 | 43 | 60, Some(words)) => 8 + usize::from(*words) * 8,
            // A fragment; a later one has no transport header.
            (44, Some(_)) => match word(rest, 2) {
                Some(offset) if offset & 0xfff8 == 0 => 8,
                _ => return (rest[0], &[]),
            },
            (0 | 43 | 60 | 44, None) => return (protocol, &[]),
            _ => return (protocol, rest),
        };
        protocol = rest[0];
        rest = rest.get(length..).unwrap_or(&[]);
    }
    (protocol, &[])
}

fn word(octets: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(octets.get(at..at + 2)?.try_into().ok()?))
}

fn v4_address(octets: &[u8]) -> Option<IpAddr> {
    let octets: [u8; 4] = octets.try_into().ok()?;
    Some(Ipv4Addr::from(octets).into())
}

fn v6_address(octets: &[u8]) -> Option<IpAddr> {
    let octets: [u8; 16] = octets.try_into().ok()?;
    Some(Ipv6Addr::from(octets).into())
}

/// The Internet checksum (RFC 1071) of octets and a sum that was begun elsewhere; 0 over a message whose checksum is right.
#[must_use]
pub fn checksum(octets: &[u8], begun: u32) -> u16 {
    let words = octets.chunks(2).map(|pair| {
        u32::from(u16::from_be_bytes([
            pair[0],
            pair.get(1).copied().unwrap_or(0),
        ]))
    });
    let folded = |sum: u32| (sum & 0xffff) + (sum >> 16);
    let sum = words.fold(begun, |sum, word| folded(sum + word));
    !(folded(folded(sum)) as u16)
}

#[cfg(test)]
#[path = "parse/tests.rs"]
mod tests;
