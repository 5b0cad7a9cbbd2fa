// SPDX-License-Identifier: Apache-2.0
//! What lies below IP: the headers of link types, tags, labels.

use super::{DecodeOptions, NotTcp, TcpLocation, Undecodable, half, ip, word};
use crate::frame::Link;

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const TRANSPARENT_ETHERNET: u16 = 0x6558;

/// Tags, labels and tunnels in a row, more than which no one nests.
pub(super) const DEEPEST: u32 = 16;

/// A walk down a frame's headers.
pub(super) struct Descent<'a> {
    pub(super) data: &'a [u8],
    pub(super) wire_length: u32,
    pub(super) options: DecodeOptions,
    /// Headers passed.
    pub(super) depth: u32,
    /// Where ICMP begins.
    pub(super) icmp: Option<usize>,
}

const SHORT: NotTcp = NotTcp::Undecodable(Undecodable::LinkHeader);

pub(super) fn locate(
    link: Link,
    data: &[u8],
    wire_length: u32,
    options: DecodeOptions,
) -> Result<TcpLocation, NotTcp> {
    Descent::new(data, wire_length, options).locate(link)
}

impl<'a> Descent<'a> {
    pub(super) fn new(data: &'a [u8], wire_length: u32, options: DecodeOptions) -> Self {
        Descent {
            data,
            wire_length,
            options,
            depth: 0,
            icmp: None,
        }
    }

    pub(super) fn locate(&mut self, link: Link) -> Result<TcpLocation, NotTcp> {
        match link {
            Link::Ethernet => self.ethernet(0),
            Link::Raw => self.ip(0),
            Link::Null => self.null(),
            Link::Sll => self.protocol_at(14, 16),
            Link::Sll2 => self.protocol_at(0, 20),
            Link::Fddi => self.fddi(),
            // Where frames are Cisco's HDLC, captures say PPP too.
            Link::Ppp | Link::Hdlc => self.hdlc(),
            Link::Nflog => self.nflog(),
            Link::Unsupported(number) => Err(NotTcp::LinkType(number)),
        }
    }
}

impl Descent<'_> {
    /// Counts a header; an error past the deepest.
    pub(super) fn deeper(&mut self) -> Result<(), NotTcp> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(NotTcp::Undecodable(Undecodable::Nesting));
        }
        Ok(())
    }

    pub(super) fn ethernet(&mut self, at: usize) -> Result<TcpLocation, NotTcp> {
        self.protocol_at(at + 12, at + 14)
    }

    /// The EtherType, or 802.3 length, is at one place, and what it names at the other.
    fn protocol_at(&mut self, field: usize, next: usize) -> Result<TcpLocation, NotTcp> {
        let protocol = half(self.data, field).ok_or(SHORT)?;
        self.protocol(protocol, next)
    }

    /// What an EtherType names lies at `at`.
    pub(super) fn protocol(
        &mut self,
        mut protocol: u16,
        mut at: usize,
    ) -> Result<TcpLocation, NotTcp> {
        loop {
            match protocol {
                IPV4 => return self.ipv4(at),
                IPV6 => return self.ipv6(at),
                // 802.1Q, 802.1ad, and two that came before it: a tag, then the next.
                0x8100 | 0x88a8 | 0x9100 | 0x9200 => {
                    self.deeper()?;
                    protocol = half(self.data, at + 2).ok_or(SHORT)?;
                    at += 4;
                }
                // MPLS: labels up to the one with the bottom bit (RFC 3032).
                0x8847 | 0x8848 => {
                    self.deeper()?;
                    let label = self.data.get(at..at + 4).ok_or(SHORT)?;
                    at += 4;
                    if label[2] & 1 != 0 {
                        return self.below_labels(at, protocol);
                    }
                }
                // PPPoE session (RFC 2516).
                0x8864 => {
                    self.deeper()?;
                    return self.ppp(at + 6);
                }
                // Cisco's VN-tag: four bytes, then the next type.
                0x8926 => {
                    self.deeper()?;
                    protocol = half(self.data, at + 4).ok_or(SHORT)?;
                    at += 6;
                }
                // IEEE 802.1BR, the E-tag: six bytes, then the next type.
                0x893f => {
                    self.deeper()?;
                    protocol = half(self.data, at + 6).ok_or(SHORT)?;
                    at += 8;
                }
                // IEEE 802.1ah: a tag, then a whole frame.
                0x88e7 => {
                    self.deeper()?;
                    return self.ethernet(at + 4);
                }
                // Cisco's FabricPath: the same, but a tunnel that captures show beside what went in.
                0x8903 if self.options.tunnels => {
                    self.deeper()?;
                    return self.ethernet(at + 2);
                }
                TRANSPARENT_ETHERNET => {
                    self.deeper()?;
                    return self.ethernet(at);
                }
                // 802.3: a length and not a type. 1 and 4 are what Linux's cooked captures
                // say of 802.3 and 802.2.
                0..=1500 => return self.llc(at),
                other => return Err(NotTcp::EtherType(other)),
            }
        }
    }

    /// MPLS does not say what it carries.
    fn below_labels(&mut self, at: usize, protocol: u16) -> Result<TcpLocation, NotTcp> {
        match self.data.get(at).map(|first| first >> 4) {
            Some(4) => self.ipv4(at),
            Some(6) => self.ipv6(at),
            _ => Err(NotTcp::EtherType(protocol)),
        }
    }

    /// IEEE 802.2.
    fn llc(&mut self, at: usize) -> Result<TcpLocation, NotTcp> {
        let Some(&[to, from, control]) = self.data.get(at..).and_then(|r| r.first_chunk()) else {
            return Err(SHORT);
        };
        match (to, from, control) {
            (0xaa, 0xaa, 3) => {
                self.deeper()?;
                self.protocol_at(at + 6, at + 8)
            }
            (6, 6, 3) => self.ipv4(at + 3),
            _ => Err(NotTcp::Llc),
        }
    }

    fn fddi(&mut self) -> Result<TcpLocation, NotTcp> {
        match self.data.first() {
            // Frames of LLC, asynchronous, of any priority.
            Some(control) if control & 0xf0 == 0x50 => self.llc(13),
            Some(_) => Err(NotTcp::Llc),
            None => Err(SHORT),
        }
    }

    fn null(&mut self) -> Result<TcpLocation, NotTcp> {
        if self.data.len() < 4 {
            return Err(SHORT);
        }
        let family = word(self.data, 0);
        match family.min(family.swap_bytes()) {
            2 => self.ipv4(4),
            // NetBSD and OpenBSD, FreeBSD, Darwin; Linux.
            24 | 28 | 30 | 10 => self.ipv6(4),
            family => Err(NotTcp::EtherType(family as u16)),
        }
    }

    fn ppp(&mut self, at: usize) -> Result<TcpLocation, NotTcp> {
        // Address and control may be left out (RFC 1661, RFC 1662).
        let at = if half(self.data, at) == Some(0xff03) {
            at + 2
        } else {
            at
        };
        let first = *self.data.get(at).ok_or(SHORT)?;
        // So may the protocol's first byte; then the one that is there is odd.
        let (protocol, next) = if first & 1 == 1 {
            (first.into(), at + 1)
        } else {
            (half(self.data, at).ok_or(SHORT)?, at + 2)
        };
        match protocol {
            0x21 => self.ipv4(next),
            0x57 => self.ipv6(next),
            // MPLS.
            0x281 => self.protocol(0x8847, next),
            other => Err(NotTcp::EtherType(other)),
        }
    }

    fn hdlc(&mut self) -> Result<TcpLocation, NotTcp> {
        match self.data.first() {
            Some(0x0f | 0x8f) => self.protocol_at(2, 4),
            Some(_) => self.ppp(0),
            None => Err(SHORT),
        }
    }

    /// LINKTYPE_NFLOG: family, version, resource; then attributes of length and type, in the
    /// capturing host's byte order, of which number 9 is the packet.
    fn nflog(&mut self) -> Result<TcpLocation, NotTcp> {
        const PAYLOAD: u16 = 9;
        let mut at = 4;
        // Others come first, each once: more than these are none.
        for _ in 0..64 {
            let little = |at| half(self.data, at).map(u16::swap_bytes);
            let (Some(mut length), Some(mut kind)) = (little(at), little(at + 2)) else {
                return Err(SHORT);
            };
            // There are not so many kinds: it was a big-endian host.
            if kind > 0xff {
                (length, kind) = (length.swap_bytes(), kind.swap_bytes());
            }
            if kind == PAYLOAD {
                return self.ip(at + 4);
            }
            at += usize::from(length).max(4).next_multiple_of(4);
        }
        Err(SHORT)
    }

    pub(super) fn ip(&mut self, at: usize) -> Result<TcpLocation, NotTcp> {
        match self.data.get(at).map(|first| first >> 4) {
            Some(4) => self.ipv4(at),
            Some(6) => self.ipv6(at),
            Some(_) => Err(NotTcp::Undecodable(Undecodable::IpHeader)),
            None => Err(ip::CUT),
        }
    }
}
