// SPDX-License-Identifier: Apache-2.0
//! Files that are no pcap and no pcapng but can become one: what they are by their first bytes, and
//! the tool that converts them. Magic numbers are those of Wireshark's wiretap, of RFC 1761 (snoop)
//! and of the compressors' format descriptions.

use std::fmt;

/// A format that is not read here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Foreign {
    /// Another format of captures, which Wireshark's editcap reads.
    Capture(&'static str),
    /// A compressed or packed file: how, and the command that unpacks it.
    Packed(&'static str, &'static str),
}

/// Formats of captures by their first bytes.
const CAPTURES: [(&[u8], &str); 14] = [
    (b"snoop\0\0\0", "snoop"),
    (b"GMBU", "Microsoft Network Monitor 2"),
    (b"RTSS", "Microsoft Network Monitor 1"),
    (b"TRSNIFF data    \x1a", "Sniffer"),
    (b"XCP\0", "NetXRay or Windows Sniffer"),
    (b"iptrace 1.0", "AIX iptrace"),
    (b"iptrace 2.0", "AIX iptrace"),
    (b"\x54\x52\x00\x64\x00", "HP-UX nettl"),
    (b"\x05VNF", "Visual Networks"),
    // pcap with changes of their own, in either byte order.
    (&0x1c00_01acu32.to_be_bytes(), "Ixia's variant of pcap"),
    (&0x1c00_01acu32.to_le_bytes(), "Ixia's variant of pcap"),
    (&0x1c00_01abu32.to_be_bytes(), "Ixia's variant of pcap"),
    (&0x1c00_01abu32.to_le_bytes(), "Ixia's variant of pcap"),
    (b"btsnoop\0", "btsnoop"),
];

/// Packed files by their first bytes.
const PACKED: [(&[u8], &str, &str); 8] = [
    (b"BZh", "bzip2", "bunzip2"),
    (b"\xfd7zXZ\0", "xz", "unxz"),
    (b"\x04\x22\x4d\x18", "lz4", "unlz4"),
    (b"LZIP", "lzip", "lzip -d"),
    (b"\x5d\x00\x00", "lzma", "unlzma"),
    (b"\x1f\x9d", "compress", "gunzip"),
    (b"PK\x03\x04", "zip", "unzip"),
    (b"7z\xbc\xaf\x27\x1c", "7-Zip", "7z x"),
];

impl Foreign {
    /// What begins so.
    #[cold]
    pub(super) fn of(begins: &[u8]) -> Option<Self> {
        let capture = CAPTURES.into_iter().find(|(m, _)| begins.starts_with(m));
        let packed = (PACKED.into_iter()).find(|(m, ..)| begins.starts_with(m));
        capture
            .map(|(_, name)| Foreign::Capture(name))
            .or(packed.map(|(_, how, command)| Foreign::Packed(how, command)))
            .or(is_erf(begins).then_some(Foreign::Capture("ERF (Endace)")))
    }
}

/// Whether the bytes are the header of an ERF record (Endace, "EDM04-01"): a time as 32 bits of
/// fraction and 32 of seconds, little-endian, then the record's type, flags, and big-endian its length,
/// drops and length on the wire. There is no magic number: the time has to be from 1990 to 2100 and
/// the length that of a whole record, as cards pad them.
fn is_erf(begins: &[u8]) -> bool {
    const SECONDS: std::ops::Range<u32> = 631_152_000..4_102_444_800;
    const HEADER: u16 = 16;
    /// ERF_TYPE_HDLC_POS to ERF_TYPE_IPV6 and those between; the highest bit says that headers follow.
    const TYPES: std::ops::RangeInclusive<u8> = 1..=27;
    let Some(header) = begins.first_chunk::<16>() else {
        return false;
    };
    let seconds = u32::from_le_bytes([header[4], header[5], header[6], header[7]]);
    let half = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let (length, wire) = (half(10), half(14));
    SECONDS.contains(&seconds)
        && TYPES.contains(&(header[8] & 0x7f))
        && length > HEADER
        && length.is_multiple_of(8)
        && wire > 0
}

impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Foreign::Capture(name) => write!(
                f,
                "a capture in the format of {name}, which is not read here; Wireshark's editcap \
                 converts it: editcap -F pcapng FILE converted.pcapng"
            ),
            Foreign::Packed(how, command) => write!(
                f,
                "packed with {how}; only gzip and zstd are unpacked here: unpack it first with {command} FILE"
            ),
        }
    }
}
