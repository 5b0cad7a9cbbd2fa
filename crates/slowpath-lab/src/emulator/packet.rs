// SPDX-License-Identifier: Apache-2.0
//! IP packets as hosts send them: what the network looks at, what it changes, what its
//! routers answer. Bytes are anybody's and never trusted.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP6: u8 = 58;
/// RFC 791 section 3.1: more fragments.
const MORE: u16 = 0x2000;
/// RFC 791 section 3.1 without options; RFC 8200 section 3.
const V4_HEADER: usize = 20;
const V6_HEADER: usize = 40;
/// RFC 1812 section 4.3.2.3: as much as fits without exceeding 576 bytes.
const V4_ERROR: usize = 576;
/// RFC 4443 section 3.3: as much as fits into the least MTU.
const V6_ERROR: usize = 1280;
/// Time to live of what a router sends: RFC 1700's default.
pub(super) const TTL: u8 = 64;

/// What the network looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Parsed {
    pub source: IpAddr,
    pub destination: IpAddr,
    pub ttl: u8,
    /// RFC 3168 section 5.
    pub ecn: u8,
    /// The class selector: the upper three bits of the DSCP (RFC 2474 section 4.2.2).
    pub precedence: u8,
    /// The same for all packets of a flow in one direction.
    pub flow: u64,
    protocol: u8,
    /// Where the payload of IP begins.
    payload: usize,
    /// A later fragment: no transport header.
    fragment: bool,
    /// No router may fragment it: a bit in IPv4, always so in IPv6.
    dont_fragment: bool,
}

/// A flow's key from its addresses and ports: FNV-1a, 64 bits.
fn flow(parts: &[&[u8]]) -> u64 {
    let bytes = parts.iter().flat_map(|part| part.iter());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    })
}

impl Parsed {
    /// Reads the headers; `None` for what is not IP, or shorter than it says.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        match bytes.first()? >> 4 {
            4 => Self::v4(bytes),
            6 => Self::v6(bytes),
            _ => None,
        }
    }

    fn v4(bytes: &[u8]) -> Option<Self> {
        let header: &[u8; V4_HEADER] = bytes.first_chunk()?;
        let payload = usize::from(header[0] & 15) * 4;
        let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
        if payload < V4_HEADER || total < payload || total != bytes.len() {
            return None;
        }
        let offset = u16::from_be_bytes([header[6], header[7]]) & 0x1fff;
        let [a, b, c, d] = [header[12], header[13], header[14], header[15]];
        let source = Ipv4Addr::new(a, b, c, d);
        let [a, b, c, d] = [header[16], header[17], header[18], header[19]];
        let destination = Ipv4Addr::new(a, b, c, d);
        let protocol = header[9];
        let more = header[6] & 0x20 != 0;
        // A fragment's flow does without ports: all fragments take one way.
        let ports = ports(protocol, &bytes[payload..], offset != 0 || more);
        Some(Parsed {
            source: source.into(),
            destination: destination.into(),
            ttl: header[8],
            ecn: header[1] & 3,
            precedence: header[1] >> 5,
            flow: flow(&[&header[12..20], &[protocol], ports]),
            protocol,
            payload,
            fragment: offset != 0,
            dont_fragment: header[6] & 0x40 != 0,
        })
    }

    fn v6(bytes: &[u8]) -> Option<Self> {
        let header: &[u8; V6_HEADER] = bytes.first_chunk()?;
        let length = usize::from(u16::from_be_bytes([header[4], header[5]]));
        if bytes.len() != V6_HEADER + length {
            return None;
        }
        let address = |at: usize| {
            let mut octets = [0; 16];
            octets.copy_from_slice(&header[at..at + 16]);
            Ipv6Addr::from(octets)
        };
        let class = header[0] << 4 | header[1] >> 4;
        let protocol = header[6];
        let ports = ports(protocol, &bytes[V6_HEADER..], false);
        Some(Parsed {
            source: address(8).into(),
            destination: address(24).into(),
            ttl: header[7],
            ecn: class & 3,
            precedence: class >> 5,
            flow: flow(&[&header[8..40], &[protocol], ports]),
            protocol,
            payload: V6_HEADER,
            fragment: false,
            dont_fragment: true,
        })
    }

    /// Whether a router may answer it with an error: RFC 1122 section 3.2.2, RFC 4443 section
    /// 2.4 (e).
    fn may_be_answered(&self, bytes: &[u8]) -> bool {
        let kind = bytes.get(self.payload).copied();
        let is_error = match (self.protocol, kind) {
            // Echo, timestamp and the like are no errors.
            (ICMP, Some(kind)) => matches!(kind, 3 | 4 | 5 | 11 | 12),
            (ICMP6, Some(kind)) => kind < 128,
            (ICMP | ICMP6, None) => true,
            _ => false,
        };
        !is_error && !self.fragment
    }
}

/// The bytes of both ports, where there are any.
fn ports(protocol: u8, payload: &[u8], fragment: bool) -> &[u8] {
    match (protocol, payload) {
        (TCP | UDP, ports) if !fragment && ports.len() >= 4 => &ports[..4],
        _ => &[],
    }
}

/// RFC 1624 equation 3: the checksum after a 16-bit word has changed.
fn updated(checksum: u16, before: u16, after: u16) -> u16 {
    let sum = u32::from(!checksum) + u32::from(!before) + u32::from(after);
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    // Two folds leave 16 bits.
    !(sum as u16)
}

/// Changes the 16-bit word of an IPv4 header and its checksum.
fn change_word(bytes: &mut [u8], at: usize, change: impl FnOnce(&mut [u8])) {
    let word = |bytes: &[u8], at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
    let before = word(bytes, at);
    change(&mut bytes[at..at + 2]);
    let checksum = updated(word(bytes, 10), before, word(bytes, at));
    bytes[10..12].copy_from_slice(&checksum.to_be_bytes());
}

/// Writes what the network changed into a packet that [`Parsed::new`] has read.
pub(super) fn rewrite(bytes: &mut [u8], ttl: u8, ecn: u8, dscp: Option<u8>) {
    if bytes.len() < V4_HEADER {
        return;
    }
    let marks = |class: u8| dscp.map_or(class & !3, |dscp| dscp << 2) | (ecn & 3);
    if bytes[0] >> 4 == 4 {
        if bytes[8] != ttl {
            change_word(bytes, 8, |word| word[0] = ttl);
        }
        let class = marks(bytes[1]);
        if bytes[1] != class {
            change_word(bytes, 0, |word| word[1] = class);
        }
    } else {
        bytes[7] = ttl;
        // The traffic class lies across the first two bytes.
        let class = marks(bytes[0] << 4 | bytes[1] >> 4);
        bytes[0] = (bytes[0] & 0xf0) | (class >> 4);
        bytes[1] = (class << 4) | (bytes[1] & 0x0f);
    }
}

/// The fragments of a packet for a line with that MTU (RFC 791 section 2.3 and 3.2); `None` where
/// no router may make any, or the MTU leaves no room.
pub(super) fn fragments(bytes: &[u8], mtu: u32) -> Option<Vec<Vec<u8>>> {
    let parsed = Parsed::new(bytes)?;
    if parsed.dont_fragment {
        return None;
    }
    let (header, payload) = bytes.split_at(parsed.payload);
    // The unit of offsets is eight bytes.
    let room = (mtu as usize).checked_sub(header.len())? / 8 * 8;
    if room == 0 {
        return None;
    }
    let flags = u16::from_be_bytes([header[6], header[7]]);
    let count = payload.len().div_ceil(room);
    let fragment = |(number, part): (usize, &[u8])| {
        let mut fragment = header.to_vec();
        if number > 0 {
            drop_options(&mut fragment[V4_HEADER..]);
        }
        // Both fit: the packet's own length and offset did.
        let length = (header.len() + part.len()) as u16;
        let offset = (flags & 0x1fff) + (number * room / 8) as u16;
        let more = if number + 1 < count {
            MORE
        } else {
            flags & MORE
        };
        fragment[2..4].copy_from_slice(&length.to_be_bytes());
        fragment[6..8].copy_from_slice(&(flags & 0x8000 | more | offset & 0x1fff).to_be_bytes());
        fragment[10..12].fill(0);
        let checksum = finished(sum(&fragment, 0));
        fragment[10..12].copy_from_slice(&checksum);
        fragment.extend_from_slice(part);
        fragment
    };
    Some(payload.chunks(room).enumerate().map(fragment).collect())
}

/// RFC 791 section 3.1: only options with the copied flag are in later fragments. The others
/// become no-operations, as Linux does it (`ip_options_fragment`).
fn drop_options(mut options: &mut [u8]) {
    while let [kind, ..] = options {
        let length = match *kind {
            0 => return,
            1 => 1,
            _ => options
                .get(1)
                .map_or(1, |length| usize::from(*length).max(2)),
        };
        let length = length.min(options.len());
        let (option, rest) = options.split_at_mut(length);
        if option[0] & 0x80 == 0 {
            option.fill(1);
        }
        options = rest;
    }
}

/// Damages a packet: its last byte, which every transport's checksum covers.
pub(super) fn damage(bytes: &mut [u8]) {
    if let Some(last) = bytes.last_mut() {
        *last ^= 0x55;
    }
}

/// RFC 1071.
fn sum(bytes: &[u8], start: u32) -> u32 {
    let words = bytes.chunks(2).map(|word| {
        let low = word.get(1).copied().unwrap_or(0);
        u32::from(u16::from_be_bytes([word[0], low]))
    });
    words.fold(start, |sum, word| {
        let sum = sum + word;
        (sum & 0xffff) + (sum >> 16)
    })
}

fn finished(sum: u32) -> [u8; 2] {
    let sum = (sum & 0xffff) + (sum >> 16);
    // One fold more leaves 16 bits.
    (!(sum as u16)).to_be_bytes()
}

/// Why a router sends an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Complaint {
    /// RFC 792, RFC 4443 section 3.3.
    TimeExceeded,
    /// No route.
    Unreachable,
    /// Longer than the next line's MTU, which is this: RFC 1191 section 4, RFC 4443 section 3.2.
    TooBig(u32),
    /// No socket listens there: the router itself was asked.
    PortUnreachable,
}

impl Complaint {
    fn v4(self) -> [u8; 2] {
        match self {
            Complaint::TimeExceeded => [11, 0],
            Complaint::Unreachable => [3, 0],
            Complaint::TooBig(_) => [3, 4],
            Complaint::PortUnreachable => [3, 3],
        }
    }

    fn v6(self) -> [u8; 2] {
        match self {
            Complaint::TimeExceeded => [3, 0],
            Complaint::Unreachable => [1, 0],
            Complaint::TooBig(_) => [2, 0],
            Complaint::PortUnreachable => [1, 4],
        }
    }

    /// What stands behind type, code and checksum: RFC 1191's next-hop MTU is the lower half,
    /// RFC 4443's MTU all of it.
    fn rest(self) -> [u8; 4] {
        match self {
            Complaint::TooBig(mtu) => mtu.to_be_bytes(),
            _ => [0; 4],
        }
    }
}

/// A router's error about a packet, to its sender; `None` where none may be sent, or it would go
/// to the router itself.
pub(super) fn complaint(
    bytes: &[u8],
    complaint: Complaint,
    from4: Ipv4Addr,
    from6: Ipv6Addr,
) -> Option<Vec<u8>> {
    let parsed = Parsed::new(bytes)?;
    if !parsed.may_be_answered(bytes) {
        return None;
    }
    match parsed.source {
        IpAddr::V4(own) if own == from4 => None,
        IpAddr::V6(own) if own == from6 => None,
        IpAddr::V4(to) => {
            let quoted = &bytes[..bytes.len().min(V4_ERROR - V4_HEADER - 8)];
            Some(icmp4(complaint.v4(), &complaint.rest(), quoted, from4, to))
        }
        IpAddr::V6(to) => {
            let quoted = &bytes[..bytes.len().min(V6_ERROR - V6_HEADER - 8)];
            Some(icmp6(complaint.v6(), &complaint.rest(), quoted, from6, to))
        }
    }
}

/// A router's answer to a packet that it was itself asked with: an echo reply, or that
/// no socket listens.
pub(super) fn answer(bytes: &[u8]) -> Option<Vec<u8>> {
    let parsed = Parsed::new(bytes)?;
    let payload = &bytes[parsed.payload..];
    match (parsed.destination, parsed.source) {
        (IpAddr::V4(own), IpAddr::V4(to)) => {
            match (parsed.protocol, payload) {
                (ICMP, [8, 0, _, _, rest @ ..]) if rest.len() >= 4 && !parsed.fragment => Some(
                    icmp4([0, 0], rest[..4].try_into().ok()?, &rest[4..], own, to),
                ),
                (UDP, _) => complaint(
                    bytes,
                    Complaint::PortUnreachable,
                    own,
                    Ipv6Addr::UNSPECIFIED,
                ),
                _ => None,
            }
        }
        (IpAddr::V6(own), IpAddr::V6(to)) => match (parsed.protocol, payload) {
            (ICMP6, [128, 0, _, _, rest @ ..]) if rest.len() >= 4 => Some(icmp6(
                [129, 0],
                rest[..4].try_into().ok()?,
                &rest[4..],
                own,
                to,
            )),
            (UDP, _) => complaint(
                bytes,
                Complaint::PortUnreachable,
                Ipv4Addr::UNSPECIFIED,
                own,
            ),
            _ => None,
        },
        _ => None,
    }
}

fn icmp4(kind: [u8; 2], rest: &[u8; 4], data: &[u8], from: Ipv4Addr, to: Ipv4Addr) -> Vec<u8> {
    // At most an MTU, so it fits.
    let total = (V4_HEADER + 8 + data.len()) as u16;
    let mut packet = vec![0; V4_HEADER];
    packet[0] = 0x45;
    packet[2..4].copy_from_slice(&total.to_be_bytes());
    packet[8] = TTL;
    packet[9] = ICMP;
    packet[12..16].copy_from_slice(&from.octets());
    packet[16..20].copy_from_slice(&to.octets());
    let checksum = finished(sum(&packet, 0));
    packet[10..12].copy_from_slice(&checksum);
    message(&mut packet, kind, rest, data, 0);
    packet
}

fn icmp6(kind: [u8; 2], rest: &[u8; 4], data: &[u8], from: Ipv6Addr, to: Ipv6Addr) -> Vec<u8> {
    // At most an MTU, so it fits.
    let length = (8 + data.len()) as u16;
    let mut packet = vec![0; V6_HEADER];
    packet[0] = 0x60;
    packet[4..6].copy_from_slice(&length.to_be_bytes());
    packet[6] = ICMP6;
    packet[7] = TTL;
    packet[8..24].copy_from_slice(&from.octets());
    packet[24..40].copy_from_slice(&to.octets());
    // RFC 8200 section 8.1: the pseudo-header.
    let pseudo = sum(&packet[8..40], u32::from(length) + u32::from(ICMP6));
    message(&mut packet, kind, rest, data, pseudo);
    packet
}

/// Appends an ICMP message with its checksum, which begins with `start`.
fn message(packet: &mut Vec<u8>, kind: [u8; 2], rest: &[u8; 4], data: &[u8], start: u32) {
    let at = packet.len();
    packet.extend_from_slice(&[kind[0], kind[1], 0, 0]);
    packet.extend_from_slice(rest);
    packet.extend_from_slice(data);
    let checksum = finished(sum(&packet[at..], start));
    packet[at + 2..at + 4].copy_from_slice(&checksum);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 1071 from the definition: the sum over a correct header is all ones.
    fn is_correct(header: &[u8]) -> bool {
        let words = header.chunks(2);
        let sum: u32 = words.map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum();
        (sum & 0xffff) + (sum >> 16) == 0xffff
    }

    /// An IPv4 packet of UDP with those options, flags and offset, and so many bytes behind.
    fn packet(options: &[u8], flags: u16, payload: usize) -> Vec<u8> {
        let header = 20 + options.len();
        let mut packet = vec![0; header];
        packet[0] = 0x40 | (header / 4) as u8;
        packet[1] = 0b1011_1010;
        packet[2..4].copy_from_slice(&((header + payload) as u16).to_be_bytes());
        packet[4..6].copy_from_slice(&[0xab, 0xcd]);
        packet[6..8].copy_from_slice(&flags.to_be_bytes());
        packet[8] = 9;
        packet[9] = UDP;
        packet[12..20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
        packet[20..].copy_from_slice(options);
        let checksum = finished(sum(&packet, 0));
        packet[10..12].copy_from_slice(&checksum);
        packet.extend((0..payload).map(|at| at as u8));
        packet
    }

    #[test]
    fn later_fragments_have_only_the_options_that_are_copied() {
        // Record route (7) of seven bytes with room for one, which is not copied (RFC 791 section 3.1); a
        // stream identifier (136) of four, which is; the end.
        let options = [7, 7, 4, 0, 0, 0, 0, 136, 4, 1, 2, 0];
        let long = packet(&options, 0, 100);
        // 72 leave 40, five units.
        let fragments = fragments(&long, 72).expect("it may be");
        let shape = |fragment: &Vec<u8>| {
            assert!(is_correct(&fragment[..32]));
            assert_eq!(fragment[4..6], [0xab, 0xcd]);
            let flags = u16::from_be_bytes([fragment[6], fragment[7]]);
            (fragment.len(), flags, fragment[20..32].to_vec())
        };
        let later = vec![1, 1, 1, 1, 1, 1, 1, 136, 4, 1, 2, 0];
        let expected = [
            (72, 0x2000, options.to_vec()),
            (72, 0x2000 | 5, later.clone()),
            (52, 10, later),
        ];
        let found: Vec<_> = fragments.iter().map(shape).collect();
        assert_eq!(found, expected);
        let joined: Vec<u8> = fragments.iter().flat_map(|it| it[32..].to_vec()).collect();
        assert_eq!(joined, long[32..]);
    }

    #[test]
    fn a_fragment_of_the_middle_stays_one() {
        let middle = packet(&[], 0x2000 | 100, 64);
        let fragments = fragments(&middle, 59).expect("it may be");
        let flags: Vec<u16> = fragments
            .iter()
            .map(|it| u16::from_be_bytes([it[6], it[7]]))
            .collect();
        assert_eq!(flags, [0x2000 | 100, 0x2000 | 104]);
    }

    #[test]
    fn what_may_not_be_fragmented_is_not() {
        assert_eq!(fragments(&packet(&[], 0x4000, 100), 68), None);
        // No room for a unit.
        assert_eq!(fragments(&packet(&[], 0, 100), 27), None);
        assert_eq!(fragments(&packet(&[], 0, 100), 0), None);
        let mut six = vec![0; 100];
        six[0] = 0x60;
        six[5] = 60;
        assert_eq!(fragments(&six, 68), None);
    }

    #[test]
    fn options_that_say_anything_are_passed_over() {
        for options in [
            [0x44, 0, 0, 0],
            [0x44, 255, 1, 0x44],
            [1, 1, 1, 0x82],
            [0, 0x44, 9, 9],
        ] {
            let long = packet(&options, 0, 100);
            let fragments = fragments(&long, 68).expect("it may be");
            assert!(fragments.iter().all(|it| is_correct(&it[..24])));
        }
    }

    #[test]
    fn a_router_does_not_complain_to_itself() {
        let packet = packet(&[], 0, 8);
        let [one, two] = [1, 2].map(|last| Ipv4Addr::new(10, 0, 0, last));
        let about = |from| complaint(&packet, Complaint::Unreachable, from, Ipv6Addr::LOCALHOST);
        assert_eq!(about(one), None);
        assert!(about(two).is_some());
    }

    #[test]
    fn marks_are_written_with_their_checksum() {
        let mut four = packet(&[], 0, 8);
        rewrite(&mut four, 8, 3, None);
        assert_eq!((four[1], four[8]), (0b1011_1011, 8));
        assert!(is_correct(&four[..20]));
        rewrite(&mut four, 8, 0, Some(8));
        assert_eq!(four[1], 8 << 2);
        assert!(is_correct(&four[..20]));
        let mut six = vec![0; 48];
        // Traffic class 0xba, flow label 0xcdefe.
        six[..4].copy_from_slice(&[0x6b, 0xac, 0xde, 0xfe]);
        six[5] = 8;
        rewrite(&mut six, 8, 1, Some(0b10_0101));
        assert_eq!(six[..4], [0x69, 0x5c, 0xde, 0xfe]);
        assert_eq!(six[7], 8);
    }
}
