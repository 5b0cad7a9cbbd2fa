// SPDX-License-Identifier: Apache-2.0
//! A replay's capture, relabelled as the runtime's: with the recorded addresses, ports and times.
//!
//! A replay runs between two hosts and ports of its own, on the recorded host's monotonic clock. Sequence numbers and timestamps stay those of the
//! replay, whose first ones are drawn anew; everything that follows from them is as it was.

use slowpath_recording::network;
use slowpath_recording::{Connection, Moment};
use std::net::IpAddr;

/// Bytes before each packet of a pcap file.
const RECORD: usize = 16;
/// Bytes before the first packet.
const FILE: usize = 24;

/// One packet of a replay, with its pcap record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Since 1970-01-01 UTC.
    pub at: Moment,
    /// Its connection's place among those of the capture.
    pub connection: usize,
    /// The end that sent it: 0 connected, 1 accepted.
    pub end: u8,
    /// Bytes on the wire.
    length: u32,
    bytes: Vec<u8>,
}

/// The packets of a capture of a replay in which `connections[n]` had the client port `first_port + n`; what belongs to none is left out.
pub fn packets(
    capture: &[u8],
    connections: &[&Connection],
    first_port: u16,
    end: usize,
    epoch: i64,
) -> Vec<Packet> {
    let mut rest = capture.get(FILE..).unwrap_or_default();
    let mut found = Vec::new();
    while let Some((head, tail)) = rest.split_at_checked(RECORD) {
        let word = |at: usize| {
            let bytes = head[at..].first_chunk();
            bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes))
        };
        let Some((bytes, next)) = tail.split_at_checked(word(8) as usize) else {
            break;
        };
        rest = next;
        let monotonic = u64::from(word(0)) * 1_000_000_000 + u64::from(word(4));
        let mut bytes = bytes.to_vec();
        if let Some((place, sender)) = readdress(&mut bytes, connections, first_port) {
            let monotonic = connections[place].moment(end, Moment(monotonic));
            found.push(Packet {
                at: Moment(monotonic.0.saturating_add_signed(epoch)),
                connection: place,
                end: sender,
                length: word(12),
                bytes,
            });
        }
    }
    found
}

/// A pcap file (nanoseconds, raw IP) of packets, which it sorts by their times: the first one is frame 1.
pub fn pcap(packets: &mut [Packet]) -> Vec<u8> {
    packets.sort_by_key(|packet| packet.at);
    let mut out = Vec::new();
    for word in [0xa1b2_3c4d_u32, 0x0004_0002, 0, 0, 65_535, 101] {
        out.extend_from_slice(&word.to_le_bytes());
    }
    for packet in packets {
        let (seconds, rest) = (packet.at.0 / 1_000_000_000, packet.at.0 % 1_000_000_000);
        // pcap counts seconds in 32 bits, until 2106.
        for word in [
            seconds as u32,
            rest as u32,
            packet.bytes.len() as u32,
            packet.length,
        ] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        out.extend_from_slice(&packet.bytes);
    }
    out
}

/// Gives the connection's place and the end that sent it; `None` for what is no packet of these connections.
fn readdress(
    bytes: &mut [u8],
    connections: &[&Connection],
    first_port: u16,
) -> Option<(usize, u8)> {
    let ip = network::read(bytes)?.header;
    let place_of_addresses = network::addresses(bytes)?;
    let port = |at: usize| Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?));
    let (source, destination) = (port(ip)?, port(ip + 2)?);
    let known = |port: u16| {
        let place = port.checked_sub(first_port).map(usize::from);
        place.filter(|place| *place < connections.len())
    };
    let sent = known(source);
    let place = sent.or_else(|| known(destination))?;
    let [client, server] = connections[place].addresses;
    let (from, to, sender) = match sent {
        Some(_) => (client, server, 0),
        None => (server, client, 1),
    };
    let mut new = Vec::with_capacity(36);
    for address in [from, to] {
        match address.ip() {
            IpAddr::V4(it) => new.extend(it.octets()),
            IpAddr::V6(it) => new.extend(it.octets()),
        }
    }
    let old = bytes.get(place_of_addresses.clone())?.to_vec();
    if new.len() != old.len() {
        return None;
    }
    if from.is_ipv4() {
        // IPv6 has no checksum of its own.
        fix_sum(bytes.get_mut(10..12)?, &old, &new);
    }
    bytes.get_mut(place_of_addresses)?.copy_from_slice(&new);
    let ports = [from, to].map(|it| it.port().to_be_bytes()).concat();
    let old = [old.as_slice(), bytes.get(ip..ip + 4)?].concat();
    new.extend(&ports);
    fix_sum(bytes.get_mut(ip + 16..ip + 18)?, &old, &new);
    bytes.get_mut(ip..ip + 4)?.copy_from_slice(&ports);
    Some((place, sender))
}

/// The Internet checksum after a change of words that it covers: RFC 1624, equation 3.
fn fix_sum(field: &mut [u8], old: &[u8], new: &[u8]) {
    let words = |bytes: &[u8]| -> Vec<u16> {
        let (pairs, _) = bytes.as_chunks::<2>();
        pairs.iter().map(|pair| u16::from_be_bytes(*pair)).collect()
    };
    let mut sum: u32 = words(field).iter().map(|word| u32::from(!word)).sum();
    sum += words(old).iter().map(|word| u32::from(!word)).sum::<u32>();
    sum += words(new).iter().map(|word| u32::from(*word)).sum::<u32>();
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    field.copy_from_slice(&(!(sum as u16)).to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use slowpath_recording::{End, Settings};

    /// The sum of all words with the field in place: 0xffff if it is right (RFC 1071).
    fn sum(bytes: &[u8]) -> u32 {
        let mut sum: u32 = bytes
            .chunks(2)
            .map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)))
            .sum();
        while sum >> 16 != 0 {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum
    }

    #[test]
    fn packets_get_the_recorded_addresses_and_stay_whole() {
        let mut packet = vec![
            0x45, 0, 0, 40, 0, 1, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
        ];
        packet.extend_from_slice(&[0x27, 0x10, 0x13, 0x88, 1, 2, 3, 4, 0, 0, 0, 0, 0x50, 2]);
        packet.extend_from_slice(&[0xff, 0xff, 0, 0, 0, 0]);
        let header = !(sum(&packet[..20]) as u16);
        packet[10..12].copy_from_slice(&header.to_be_bytes());
        let pseudo = |packet: &[u8]| {
            let mut all = packet[12..20].to_vec();
            all.extend_from_slice(&[0, 6, 0, 20]);
            all.extend_from_slice(&packet[20..]);
            all
        };
        let tcp = !(sum(&pseudo(&packet)) as u16);
        packet[36..38].copy_from_slice(&tcp.to_be_bytes());
        let mut capture = vec![0; FILE];
        for word in [3_u32, 5, 40, 40] {
            capture.extend_from_slice(&word.to_le_bytes());
        }
        capture.extend_from_slice(&packet);
        let addresses = ["192.0.2.7:4321", "198.51.100.9:443"].map(|text| text.parse().unwrap());
        let connection = Connection {
            addresses,
            settings: Settings::default(),
            ends: [End::default(), End::default()],
            joint: None,
        };
        let mut reported = packets(&capture, &[&connection], 10_000, 0, 7);
        assert_eq!((reported[0].connection, reported[0].end), (0, 0));
        let file = pcap(&mut reported);
        let bytes = &file[FILE + RECORD..];
        assert_eq!(&file[FILE..FILE + 8], &[3, 0, 0, 0, 12, 0, 0, 0]);
        assert_eq!(&bytes[12..20], &[192, 0, 2, 7, 198, 51, 100, 9]);
        assert_eq!(&bytes[20..24], &[0x10, 0xe1, 0x01, 0xbb]);
        assert_eq!((sum(&bytes[..20]), sum(&pseudo(bytes))), (0xffff, 0xffff));
    }

    #[test]
    fn packets_of_ipv6_as_well() {
        let mut packet = vec![0x60, 0, 0, 0, 0, 20, 6, 64];
        for last in [1, 2] {
            packet.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 10, 0, 0, last]);
        }
        // From the server: 5000 to 10,000.
        packet.extend([0x13, 0x88, 0x27, 0x10, 1, 2, 3, 4, 5, 6, 7, 8, 0x50, 0x10]);
        packet.extend([0xff, 0xff, 0, 0, 0, 0]);
        // RFC 8200 section 8.1: addresses, length, next header.
        let pseudo = |packet: &[u8]| {
            let mut all = packet[8..40].to_vec();
            all.extend([0, 0, 0, 20, 0, 0, 0, 6]);
            all.extend(&packet[40..]);
            all
        };
        let tcp = !(sum(&pseudo(&packet)) as u16);
        packet[56..58].copy_from_slice(&tcp.to_be_bytes());
        let mut capture = vec![0; FILE];
        for word in [3_u32, 5, 60, 60] {
            capture.extend(word.to_le_bytes());
        }
        capture.extend(&packet);
        let addresses = ["[2001:db8::7]:4321", "[2001:db8:1::9]:443"];
        let connection = Connection {
            addresses: addresses.map(|text| text.parse().unwrap()),
            settings: Settings::default(),
            ends: [End::default(), End::default()],
            joint: None,
        };
        let mut reported = packets(&capture, &[&connection], 10_000, 0, 0);
        assert_eq!((reported[0].connection, reported[0].end), (0, 1));
        let file = pcap(&mut reported);
        let bytes = &file[FILE + RECORD..];
        let mut wanted = [0; 36];
        wanted[..6].copy_from_slice(&[0x20, 1, 0x0d, 0xb8, 0, 1]);
        wanted[15] = 9;
        wanted[16..20].copy_from_slice(&[0x20, 1, 0x0d, 0xb8]);
        wanted[31] = 7;
        wanted[32..].copy_from_slice(&[0x01, 0xbb, 0x10, 0xe1]);
        assert_eq!(&bytes[8..44], &wanted);
        assert_eq!(sum(&pseudo(bytes)), 0xffff);
    }
}
