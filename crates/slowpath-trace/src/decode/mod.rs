// SPDX-License-Identifier: Apache-2.0
//! From a frame to its TCP header, and to what it is if it is not TCP.
//!
//! What enters: the captured bytes of a frame, its link type and its length on the wire.
//!
//! What leaves: the place of the TCP header and the length of what follows by the IP header,
//! from which [`Segment`] is made; or [`NotTcp`], which says what else it is, or why that is not known.
//!
//! What is promised: any bytes are decided on, in bounded time, without allocation. Lengths
//! are those of the IP header, so that neither Ethernet's padding nor a short snap length
//! change them. Where segmentation offload left that length 0, the frame's own length stands in. Where
//! it is less than the headers that the frame has, as some small devices send their FINs, the segment
//! counts without payload, as it does for tcptrace and Wireshark; a receiver drops it.

mod checksum;
mod icmp;
mod ip;
mod link;

pub use crate::frame::Link;
pub(crate) use icmp::unreachable;

use crate::frame::Record;
use crate::segment::{Endpoint, Flags, Segment};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub(crate) const IP_TCP: u8 = 6;
const TCP_HEADER: usize = 20;

/// What is looked into and checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DecodeOptions {
    /// Look into VXLAN, Geneve, GRE and IP in IP for the TCP inside; otherwise they count as
    /// what carries them.
    pub tunnels: bool,
    /// Verify TCP checksums where all of a segment was captured.
    pub checksums: bool,
}

/// What a frame is that is not TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotTcp {
    /// Another protocol over IP, by its number.
    Ip(u8),
    /// Another protocol, by its EtherType.
    EtherType(u16),
    /// IEEE 802.2 without a protocol known here.
    Llc,
    /// A fragment of an IP packet other than the first; its TCP header was in the first.
    LaterFragment,
    /// A link type that is not decoded here.
    LinkType(u32),
    /// It is not known.
    Undecodable(Undecodable),
}

/// Why a frame cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Undecodable {
    /// Too little was captured, or sent, for the header below IP.
    LinkHeader,
    /// Too little was captured for the IP header or its extensions.
    IpHeaderCut,
    /// An IP version or header length that cannot be.
    IpHeader,
    /// The IP header says that the packet is shorter than its headers.
    IpLength,
    /// Too little was captured for the TCP header.
    TcpHeaderCut,
    /// The TCP header's length is less than 20 bytes, or more than the packet and the frame have.
    TcpHeader,
    /// Headers nested deeper than anybody nests them.
    Nesting,
}

impl Undecodable {
    /// All reasons.
    pub const ALL: [Undecodable; 7] = [
        Undecodable::LinkHeader,
        Undecodable::IpHeaderCut,
        Undecodable::IpHeader,
        Undecodable::IpLength,
        Undecodable::TcpHeaderCut,
        Undecodable::TcpHeader,
        Undecodable::Nesting,
    ];
}

impl std::fmt::Display for Undecodable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Undecodable::LinkHeader => "too short for the headers below IP",
            Undecodable::IpHeaderCut => "IP header not captured whole",
            Undecodable::IpHeader => "not an IP header",
            Undecodable::IpLength => "IP length shorter than the headers",
            Undecodable::TcpHeaderCut => "TCP header not captured whole",
            Undecodable::TcpHeader => "TCP header with a length that cannot be",
            Undecodable::Nesting => "headers nested too deep",
        })
    }
}

/// Where a frame's TCP is: in one word, because millions a second are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TcpLocation(u64);

/// The bits of an offset; no headers are that long.
const OFFSET_BITS: u32 = 15;
const OFFSET: u64 = (1 << OFFSET_BITS) - 1;

/// What a [`TcpLocation`] is made of.
#[derive(Clone, Copy, Debug)]
struct Headers {
    /// Of the IP header in the frame.
    ip: usize,
    /// Of the TCP header in the frame.
    tcp: usize,
    /// Bytes of TCP, header and payload, by the IP header.
    length: u32,
    ipv6: bool,
    /// More fragments follow.
    first_fragment: bool,
}

/// Both ends as a frame names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Addresses {
    V4([u8; 4], [u8; 4]),
    V6([u8; 16], [u8; 16]),
}

/// Finds the TCP header in the common case, at a stroke: Ethernet, IPv4 without options or fragments,
/// TCP. What is then done with the place is compiled for it, if it is inlined.
#[inline(always)]
pub(crate) fn locate_plain(link: Link, data: &[u8]) -> Option<TcpLocation> {
    if link == Link::Ethernet
        && let Some(head) = data.first_chunk::<54>()
        && head[12..15] == [8, 0, 0x45]
        && head[20] & 0x3f == 0
        && head[21] == 0
        && head[23] == IP_TCP
    {
        let length = u32::from(u16::from_be_bytes([head[16], head[17]]));
        if length >= 40 {
            let headers = Headers {
                ip: 14,
                tcp: 34,
                length: length - 20,
                ipv6: false,
                first_fragment: false,
            };
            return TcpLocation::new(data, headers).ok();
        }
    }
    None
}

/// Finds the TCP header.
pub(crate) fn locate(
    link: Link,
    data: &[u8],
    wire_length: u32,
    options: DecodeOptions,
) -> Result<TcpLocation, NotTcp> {
    match locate_plain(link, data) {
        Some(found) => Ok(found),
        None => link::locate(link, data, wire_length, options),
    }
}

#[inline]
fn half(data: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*data.get(at..)?.first_chunk()?))
}

#[inline(always)]
fn word(data: &[u8], at: usize) -> u32 {
    let bytes = data.get(at..).and_then(|rest| rest.first_chunk());
    bytes.map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

impl TcpLocation {
    /// If the TCP header is there and can be right.
    #[inline(always)]
    fn new(data: &[u8], found: Headers) -> Result<Self, NotTcp> {
        let Headers {
            ip, tcp, length, ..
        } = found;
        if data.len() < tcp + TCP_HEADER {
            return Err(NotTcp::Undecodable(match length < TCP_HEADER as u32 {
                true => Undecodable::IpLength,
                false => Undecodable::TcpHeaderCut,
            }));
        }
        if tcp > OFFSET as usize {
            return Err(NotTcp::Undecodable(Undecodable::Nesting));
        }
        let header = usize::from(data[tcp + 12] >> 4) * 4;
        if header < TCP_HEADER || header > length as usize && data.len() < tcp + header {
            return Err(NotTcp::Undecodable(Undecodable::TcpHeader));
        }
        let flags = u64::from(found.ipv6) | u64::from(found.first_fragment) << 1;
        let offsets = (ip as u64) << OFFSET_BITS | tcp as u64;
        Ok(TcpLocation(u64::from(length) << 32 | offsets << 2 | flags))
    }

    /// Of a quoted segment: addresses and ports only. `None`: it lies deeper than headers do.
    fn quoted(ip: usize, tcp: usize, ipv6: bool) -> Option<Self> {
        let offsets = (ip as u64) << OFFSET_BITS | tcp as u64;
        (tcp <= OFFSET as usize).then(|| TcpLocation(offsets << 2 | u64::from(ipv6)))
    }

    #[inline(always)]
    fn ip(self) -> usize {
        (self.0 >> (2 + OFFSET_BITS) & OFFSET) as usize
    }

    #[inline(always)]
    fn tcp(self) -> usize {
        (self.0 >> 2 & OFFSET) as usize
    }

    #[inline(always)]
    fn length(self) -> u32 {
        (self.0 >> 32) as u32
    }

    #[inline(always)]
    fn is_ipv6(self) -> bool {
        self.0 & 1 != 0
    }

    #[inline(always)]
    fn is_first_fragment(self) -> bool {
        self.0 & 2 != 0
    }

    /// Who sends to whom.
    #[inline(always)]
    pub(crate) fn addresses(self, data: &[u8]) -> Addresses {
        let ip = self.ip();
        // `locate` has observed the whole header: the rests are never taken.
        if self.is_ipv6() {
            let both: [u8; 32] = *data[ip + 8..].first_chunk().unwrap_or(&[0; 32]);
            let [mut from, mut to] = [[0; 16]; 2];
            from.copy_from_slice(&both[..16]);
            to.copy_from_slice(&both[16..]);
            Addresses::V6(from, to)
        } else {
            let [a, b, c, d, e, f, g, h] = *data[ip + 12..].first_chunk().unwrap_or(&[0; 8]);
            Addresses::V4([a, b, c, d], [e, f, g, h])
        }
    }

    /// Source and destination port.
    #[inline(always)]
    pub(crate) fn ports(self, data: &[u8]) -> (u16, u16) {
        let both = word(data, self.tcp());
        ((both >> 16) as u16, both as u16)
    }

    /// The segment, complete.
    #[inline(always)]
    pub(crate) fn segment<'a>(
        self,
        record: &Record,
        data: &'a [u8],
        options: DecodeOptions,
    ) -> Segment<'a> {
        let ip = self.ip();
        let tcp = self.tcp();
        let header: &[u8; TCP_HEADER] = data[tcp..].first_chunk().unwrap_or(&[0; TCP_HEADER]);
        // Read from where they lie: bytes split and reassembled wait for the
        // processor's store buffer.
        let word = |at: usize| u32::from_be_bytes([0, 1, 2, 3].map(|i| header[at + i]));
        let half = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        let (offset, flags) = (header[12], header[13]);
        let header_length = usize::from(offset >> 4) * 4;
        // An IP packet longer than its frame has no more bytes than the frame.
        let end = data.len().min(tcp + self.length() as usize);
        let payload = (tcp + header_length).min(end);
        let (from, to) = match self.addresses(data) {
            Addresses::V4(from, to) => (
                IpAddr::V4(Ipv4Addr::from(from)),
                IpAddr::V4(Ipv4Addr::from(to)),
            ),
            Addresses::V6(from, to) => (
                IpAddr::V6(Ipv6Addr::from(from)).to_canonical(),
                IpAddr::V6(Ipv6Addr::from(to)).to_canonical(),
            ),
        };
        let (source_port, destination_port) = self.ports(data);
        let (ecn, ttl, ip_id) = if self.is_ipv6() {
            (data[ip + 1] >> 4 & 3, data[ip + 7], None)
        } else {
            let id = u16::from_be_bytes([data[ip + 4], data[ip + 5]]);
            (data[ip + 1] & 3, data[ip + 8], Some(id))
        };
        Segment {
            time: record.time,
            frame: record.number,
            source: Endpoint {
                address: from,
                port: source_port,
            },
            destination: Endpoint {
                address: to,
                port: destination_port,
            },
            sequence: word(4),
            acknowledgement: word(8),
            flags: Flags(u16::from(offset & 1) << 8 | u16::from(flags)),
            window: half(14),
            urgent: half(18),
            length: self.length().saturating_sub(header_length as u32),
            // A frame has fewer bytes than fill 32 bits.
            captured: (end - payload) as u32,
            options: &data[(tcp + TCP_HEADER).min(payload)..payload],
            checksum_ok: if options.checksums {
                checksum::verify(self, data)
            } else {
                None
            },
            ecn,
            ttl,
            ip_id,
            wire_length: record.wire_length,
        }
    }
}
