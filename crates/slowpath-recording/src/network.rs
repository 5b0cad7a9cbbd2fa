// SPDX-License-Identifier: Apache-2.0
//! The header of IP in a captured packet: RFC 791 section 3.1, RFC 8200 section 3.

use std::net::IpAddr;
use std::ops::Range;

/// `IPPROTO_TCP`.
const TCP: u8 = 6;
/// Bytes of a header of IPv6.
const IPV6: usize = 40;

/// Of a packet of TCP right behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// Its bytes.
    pub header: usize,
    /// Bytes behind it.
    pub payload: u32,
    /// The ECN field.
    pub ecn: u8,
    /// Source.
    pub from: IpAddr,
    /// Destination.
    pub to: IpAddr,
}

/// Where the two addresses stand.
pub fn addresses(packet: &[u8]) -> Option<Range<usize>> {
    match packet.first()? >> 4 {
        4 => Some(12..20),
        6 => Some(8..IPV6),
        _ => None,
    }
}

/// `None`: it is none, or cut, or something stands between it and TCP.
pub fn read(packet: &[u8]) -> Option<Network> {
    let short = |at: usize| Some(u16::from_be_bytes(*packet.get(at..)?.first_chunk()?));
    let first = *packet.first()?;
    let pair = packet.get(addresses(packet)?)?;
    if first >> 4 == 6 {
        let (from, to) = pair.split_first_chunk::<16>()?;
        return (*packet.get(6)? == TCP).then_some(Network {
            header: IPV6,
            payload: u32::from(short(4)?),
            // The traffic class begins in the lower half of the first byte.
            ecn: packet.get(1)? >> 4 & 3,
            from: IpAddr::from(*from),
            to: IpAddr::from(*to.first_chunk::<16>()?),
        });
    }
    let header = usize::from(first & 15) * 4;
    let (from, to) = pair.split_first_chunk::<4>()?;
    (header >= 20 && *packet.get(9)? == TCP).then_some(Network {
        header,
        payload: u32::from(short(2)?).checked_sub(header as u32)?,
        ecn: packet.get(1)? & 3,
        from: IpAddr::from(*from),
        to: IpAddr::from(*to.first_chunk::<4>()?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_say_the_same() {
        let mut old = vec![0x45, 3, 0, 60, 0, 0, 0, 0, 64, 6, 0, 0];
        old.extend([192, 0, 2, 1, 198, 51, 100, 2]);
        let old = read(&old).expect("a header");
        assert_eq!((old.header, old.payload, old.ecn), (20, 40, 3));
        assert_eq!(
            [old.from, old.to].map(|it| it.to_string()),
            ["192.0.2.1", "198.51.100.2"]
        );
        // Traffic class 3, flow label 0x12345.
        let mut new = vec![0x60, 0x31, 0x23, 0x45, 0, 40, 6, 64];
        for last in [1, 2] {
            new.extend([0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
        }
        let it = read(&new).expect("a header");
        assert_eq!((it.header, it.payload, it.ecn), (40, 40, 3));
        assert_eq!(
            [it.from, it.to].map(|it| it.to_string()),
            ["2001:db8::1", "2001:db8::2"]
        );
        // ICMPv6; cut; neither.
        new[6] = 58;
        assert_eq!(read(&new), None);
        new[6] = TCP;
        assert_eq!(read(&new[..39]), None);
        new[0] = 0x50;
        assert_eq!(read(&new), None);
    }
}
