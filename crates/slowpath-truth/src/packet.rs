// SPDX-License-Identifier: Apache-2.0
//! The TCP headers in a capture of IP packets: as little as the truth needs.
//!
//! What enters: a pcap stream with nanoseconds (as `slowpath_trace::live` gives it). What
//! leaves: [`Packet`]s. What does not parse is left out and counted.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// FIN, SYN, RST, ACK, ECE (RFC 9293 section 3.1).
pub const FIN: u8 = 0x01;
/// See [`FIN`].
pub const SYN: u8 = 0x02;
/// See [`FIN`].
pub const RST: u8 = 0x04;
/// See [`FIN`].
pub const ACK: u8 = 0x10;
/// See [`FIN`].
pub const ECE: u8 = 0x40;

/// One TCP segment as it passed an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// When, in nanoseconds of the capture's clock.
    pub at: u64,
    /// Who sent it.
    pub from: SocketAddr,
    /// To whom.
    pub to: SocketAddr,
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgement number.
    pub ack: u32,
    /// The window field, not scaled.
    pub window: u16,
    /// TCP flags.
    pub flags: u8,
    /// Payload bytes, by the IP header.
    pub payload: u32,
    /// Whether the network marked it: CE (RFC 3168 section 5).
    pub ce: bool,
    /// TSval (RFC 7323).
    pub tsval: Option<u32>,
    /// Window scale of a SYN.
    pub scale: Option<u8>,
    /// SACK blocks (RFC 2018), as many as there are.
    pub sack: [(u32, u32); 4],
    /// How many.
    pub sacks: u8,
}

impl Packet {
    /// Whether a flag is set.
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// The SACK blocks.
    pub fn sack_blocks(&self) -> &[(u32, u32)] {
        &self.sack[..usize::from(self.sacks)]
    }
}

/// Bytes before a pcap file's first record.
pub(crate) const FILE_HEADER: usize = 24;

/// One record of a pcap file.
pub(crate) struct Record<'a> {
    /// When it was captured, in nanoseconds of the capture's clock.
    pub(crate) at: u64,
    frame: &'a [u8],
    /// Where it ends in the file.
    pub(crate) end: usize,
}

/// The whole records of a pcap stream (little-endian, nanoseconds).
pub(crate) fn records(pcap: &[u8]) -> impl Iterator<Item = Record<'_>> {
    let mut rest = pcap.get(FILE_HEADER..).unwrap_or(&[]);
    std::iter::from_fn(move || {
        let (head, body) = rest.split_first_chunk::<16>()?;
        let word = |i: usize| {
            u32::from_le_bytes([head[i], head[i + 1], head[i + 2], head[i + 3]]) as usize
        };
        let (frame, next) = body.split_at_checked(word(8))?;
        rest = next;
        Some(Record {
            at: word(0) as u64 * 1_000_000_000 + word(4) as u64,
            frame,
            end: pcap.len() - next.len(),
        })
    })
}

/// The segments of a pcap stream of raw IP (link type 101, little-endian, nanoseconds), and
/// how many records were something else.
pub fn packets(pcap: &[u8]) -> (Vec<Packet>, u64) {
    let mut packets = Vec::new();
    let mut others = 0;
    for record in records(pcap) {
        match parse(record.at, record.frame) {
            Some(packet) => packets.push(packet),
            None => others += 1,
        }
    }
    (packets, others)
}

fn parse(at: u64, frame: &[u8]) -> Option<Packet> {
    let be16 =
        |bytes: &[u8], i: usize| Some(u16::from_be_bytes([*bytes.get(i)?, *bytes.get(i + 1)?]));
    // Version, header length, total length, protocol, both addresses, traffic class.
    let (header, total, protocol, from, to, class) = match frame.first()? >> 4 {
        4 => {
            let v4 = |i: usize| -> Option<IpAddr> {
                let bytes: [u8; 4] = frame.get(i..i + 4)?.try_into().ok()?;
                Some(Ipv4Addr::from(bytes).into())
            };
            let header = usize::from(frame[0] & 15) * 4;
            (
                header,
                be16(frame, 2)?.into(),
                *frame.get(9)?,
                v4(12)?,
                v4(16)?,
                *frame.get(1)?,
            )
        }
        6 => {
            let v6 = |i: usize| -> Option<IpAddr> {
                let bytes: [u8; 16] = frame.get(i..i + 16)?.try_into().ok()?;
                Some(Ipv6Addr::from(bytes).into())
            };
            let class = (be16(frame, 0)? >> 4) as u8;
            let total = usize::from(be16(frame, 4)?) + 40;
            (40, total, *frame.get(6)?, v6(8)?, v6(24)?, class)
        }
        _ => return None,
    };
    // TCP, IANA's protocol number.
    if protocol != 6 {
        return None;
    }
    let tcp = frame.get(header..)?;
    let be32 = |i: usize| Some(u32::from(be16(tcp, i)?) << 16 | u32::from(be16(tcp, i + 2)?));
    let offset = usize::from(tcp.get(12)? >> 4) * 4;
    let mut packet = Packet {
        at,
        from: SocketAddr::new(from, be16(tcp, 0)?),
        to: SocketAddr::new(to, be16(tcp, 2)?),
        seq: be32(4)?,
        ack: be32(8)?,
        window: be16(tcp, 14)?,
        flags: *tcp.get(13)?,
        payload: total.checked_sub(header + offset)? as u32,
        ce: class & 3 == 3,
        tsval: None,
        scale: None,
        sack: [(0, 0); 4],
        sacks: 0,
    };
    options(tcp.get(20..offset)?, &mut packet);
    Some(packet)
}

fn options(mut rest: &[u8], packet: &mut Packet) {
    while let [kind, tail @ ..] = rest {
        match kind {
            0 => return,
            1 => rest = tail,
            _ => {
                let length = usize::from(*tail.first().unwrap_or(&0));
                let Some((option, next)) = rest.split_at_checked(length.max(2)) else {
                    return;
                };
                option_of(*kind, &option[2..], packet);
                rest = next;
            }
        }
    }
}

/// Kinds 3 (RFC 7323), 5 (RFC 2018), 8 (RFC 7323).
fn option_of(kind: u8, value: &[u8], packet: &mut Packet) {
    let be32 = |b: &[u8]| u32::from_be_bytes([b[0], b[1], b[2], b[3]]);
    match (kind, value) {
        (3, [scale]) => packet.scale = Some((*scale).min(14)),
        (8, [_, _, _, _, ..]) => packet.tsval = Some(be32(value)),
        (5, _) => {
            for (block, to) in value.chunks_exact(8).zip(&mut packet.sack) {
                *to = (be32(block), be32(&block[4..]));
                packet.sacks += 1;
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pcap file of one record.
    fn file(frame: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; 24];
        let length = frame.len() as u32;
        for word in [7, 9, length, length] {
            bytes.extend(u32::to_le_bytes(word));
        }
        bytes.extend(frame);
        bytes
    }

    /// 20 bytes of IPv4, 44 of TCP (NOP, NOP, timestamps, NOP, NOP, SACK), 100 of payload
    /// that the capture cut off.
    fn frame() -> Vec<u8> {
        let mut frame = vec![
            0x45, 3, 0, 164, 0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
        ];
        frame.extend([
            0x12, 0x34, 0, 80, 0, 0, 0, 5, 0, 0, 0, 6, 0xb0, 0x50, 1, 0, 0, 0, 0, 0,
        ]);
        frame.extend([1, 1, 8, 10, 0, 0, 0, 77, 0, 0, 0, 1]);
        frame.extend([1, 1, 5, 10, 0, 0, 0, 8, 0, 0, 0, 9]);
        frame
    }

    #[test]
    fn headers_are_read_and_cut_payload_counts() {
        let (found, others) = packets(&file(&frame()));
        assert_eq!((found.len(), others), (1, 0));
        let packet = found[0];
        assert_eq!(packet.at, 7_000_000_009);
        assert_eq!(packet.from, "10.0.0.1:4660".parse().expect("an address"));
        assert_eq!((packet.seq, packet.ack, packet.window), (5, 6, 256));
        assert_eq!(packet.payload, 100);
        assert!(packet.ce && packet.has(ACK) && packet.has(ECE) && !packet.has(SYN));
        assert_eq!(packet.tsval, Some(77));
        assert_eq!(packet.sack_blocks(), [(8, 9)]);
    }

    #[test]
    fn whatever_is_cut_off_is_no_packet() {
        let whole = frame();
        for length in 0..whole.len() {
            assert_eq!(packets(&file(&whole[..length])), (vec![], 1), "{length}");
        }
        assert_eq!(packets(&file(&whole)[..50]), (vec![], 0));
    }
}
