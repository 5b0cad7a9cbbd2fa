// SPDX-License-Identifier: Apache-2.0
//! IPv4, IPv6 with its extension headers, and what tunnels in them.

use super::icmp;
use super::link::Descent;
use super::{Headers, IP_TCP, NotTcp, TcpLocation, Undecodable, half, word};

/// UDP ports of VXLAN (RFC 7348; 8472 before, and still Linux's default) and Geneve (RFC 8926).
const VXLAN: [u16; 2] = [4789, 8472];
const GENEVE: u16 = 6081;

pub(super) const CUT: NotTcp = NotTcp::Undecodable(Undecodable::IpHeaderCut);
const SHORT: NotTcp = NotTcp::Undecodable(Undecodable::IpLength);

impl Descent<'_> {
    /// Bytes of the frame from there on, by its length on the wire.
    fn wire_from(&self, at: usize) -> u32 {
        self.wire_length.saturating_sub(at as u32)
    }

    pub(super) fn ipv4(&mut self, ip: usize) -> Result<TcpLocation, NotTcp> {
        let header = self
            .data
            .get(ip..)
            .and_then(|rest| rest.first_chunk::<20>());
        let Some(header) = header else {
            // The first byte may be there and wrong: then it is not the snap length's fault.
            return Err(match self.data.get(ip) {
                Some(first) if first >> 4 != 4 => NotTcp::Undecodable(Undecodable::IpHeader),
                _ => CUT,
            });
        };
        let header_length = u32::from(header[0] & 15) * 4;
        if header[0] >> 4 != 4 || header_length < 20 {
            return Err(NotTcp::Undecodable(Undecodable::IpHeader));
        }
        let total = match u16::from_be_bytes([header[2], header[3]]) {
            // Segmentation offload, or BIG TCP: longer than the field can say.
            0 => self.wire_from(ip),
            reported => reported.into(),
        };
        let length = total.checked_sub(header_length).ok_or(SHORT)?;
        let fragment = u16::from_be_bytes([header[6], header[7]]);
        if fragment & 0x1fff != 0 {
            return Err(NotTcp::LaterFragment);
        }
        let carried = Headers {
            ip,
            tcp: ip + header_length as usize,
            length,
            ipv6: false,
            first_fragment: fragment & 0x2000 != 0,
        };
        self.carried(header[9], carried)
    }

    pub(super) fn ipv6(&mut self, ip: usize) -> Result<TcpLocation, NotTcp> {
        let header = self
            .data
            .get(ip..)
            .and_then(|rest| rest.first_chunk::<40>());
        let Some(header) = header else {
            return Err(match self.data.get(ip) {
                Some(first) if first >> 4 != 6 => NotTcp::Undecodable(Undecodable::IpHeader),
                _ => CUT,
            });
        };
        if header[0] >> 4 != 6 {
            return Err(NotTcp::Undecodable(Undecodable::IpHeader));
        }
        let mut protocol = header[6];
        let mut carried = Headers {
            ip,
            tcp: ip + 40,
            length: match u16::from_be_bytes([header[4], header[5]]) {
                // A jumbogram (RFC 2675) or segmentation offload; both are as long as the frame.
                0 => self.wire_from(ip + 40),
                reported => reported.into(),
            },
            ipv6: true,
            first_fragment: false,
        };
        loop {
            let extension = match protocol {
                // Hop-by-hop, routing, destination options, mobility, host identity, shim6.
                0 | 43 | 60 | 135 | 139 | 140 => {
                    let [next, length] = self.two(carried.tcp)?;
                    (next, (usize::from(length) + 1) * 8)
                }
                // Authentication (RFC 4302): in words, less two.
                51 => {
                    let [next, length] = self.two(carried.tcp)?;
                    (next, (usize::from(length) + 2) * 4)
                }
                44 => {
                    let [next, _] = self.two(carried.tcp)?;
                    let fragment = half(self.data, carried.tcp + 2).ok_or(CUT)?;
                    if fragment & 0xfff8 != 0 {
                        return Err(NotTcp::LaterFragment);
                    }
                    carried.first_fragment = fragment & 1 != 0;
                    (next, 8)
                }
                _ => return self.carried(protocol, carried),
            };
            let (next, size) = extension;
            protocol = next;
            carried.tcp += size;
            carried.length = carried.length.checked_sub(size as u32).ok_or(SHORT)?;
        }
    }

    fn two(&self, at: usize) -> Result<[u8; 2], NotTcp> {
        let rest = self.data.get(at..).and_then(|rest| rest.first_chunk());
        rest.copied().ok_or(CUT)
    }

    /// What an IP packet carries: of anything but TCP, only where it begins matters.
    fn carried(&mut self, protocol: u8, found: Headers) -> Result<TcpLocation, NotTcp> {
        if protocol == IP_TCP {
            return TcpLocation::new(self.data, found);
        }
        let at = found.tcp;
        if matches!(protocol, icmp::ICMP | icmp::ICMPV6) {
            self.icmp = Some(at);
        }
        let as_it_is = Err(NotTcp::Ip(protocol));
        if !self.options.tunnels {
            return as_it_is;
        }
        match protocol {
            4 | 41 => {
                self.deeper()?;
                self.ip(at)
            }
            47 => self.gre(at).unwrap_or(as_it_is),
            17 => self.udp(at).unwrap_or(as_it_is),
            _ => as_it_is,
        }
    }

    /// GRE (RFC 2784, RFC 2890). `None`: nothing that is looked into.
    fn gre(&mut self, at: usize) -> Option<Result<TcpLocation, NotTcp>> {
        const CHECKSUM: u16 = 0x8000;
        const ROUTING: u16 = 0x4000;
        const KEY: u16 = 0x2000;
        const SEQUENCE: u16 = 0x1000;
        let flags = half(self.data, at)?;
        let protocol = half(self.data, at + 2)?;
        if flags & (ROUTING | 7) != 0 {
            return None;
        }
        let optional = [CHECKSUM, KEY, SEQUENCE];
        let fields = optional.iter().filter(|flag| flags & **flag != 0).count();
        self.tunnelled(protocol, at + 4 + 4 * fields)
    }

    fn udp(&mut self, at: usize) -> Option<Result<TcpLocation, NotTcp>> {
        let port = half(self.data, at + 2)?;
        let inside = at + 8;
        if VXLAN.contains(&port) {
            // The flag I says that there is a network identifier; without it, it is not VXLAN.
            let valid = self.data.get(inside)? & 8 != 0;
            return valid.then(|| self.tunnelled(0x6558, inside + 8)).flatten();
        }
        if port == GENEVE {
            let first = word(self.data.get(..inside + 4)?, inside);
            let (version, options) = (first >> 30, first >> 24 & 0x3f);
            let header = 8 + options as usize * 4;
            return (version == 0)
                .then(|| self.tunnelled(first as u16, inside + header))
                .flatten();
        }
        None
    }

    fn tunnelled(&mut self, protocol: u16, at: usize) -> Option<Result<TcpLocation, NotTcp>> {
        if let Err(deep) = self.deeper() {
            return Some(Err(deep));
        }
        Some(self.protocol(protocol, at))
    }
}
