// SPDX-License-Identifier: Apache-2.0
//! One TCP segment as a capture shows it: what the readers produce and the reconstruction consumes.

use std::net::IpAddr;

/// Nanoseconds since the Unix epoch, as the capture's clock reported them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub i64);

/// One end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Endpoint {
    /// The address, IPv4-mapped ones as IPv4.
    pub address: IpAddr,
    /// The TCP port.
    pub port: u16,
}

/// Flags of a TCP header, in the order of RFC 9293 section 3.1 with AE of RFC 9768 above them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(pub u16);

impl Flags {
    /// No more data from the sender.
    pub const FIN: u16 = 0x001;
    /// Synchronise sequence numbers.
    pub const SYN: u16 = 0x002;
    /// Reset the connection.
    pub const RST: u16 = 0x004;
    /// Push.
    pub const PSH: u16 = 0x008;
    /// The acknowledgement number is valid.
    pub const ACK: u16 = 0x010;
    /// The urgent pointer is valid.
    pub const URG: u16 = 0x020;
    /// ECN echo (RFC 3168).
    pub const ECE: u16 = 0x040;
    /// Congestion window reduced (RFC 3168).
    pub const CWR: u16 = 0x080;
    /// Accurate ECN (RFC 9768), earlier NS.
    pub const AE: u16 = 0x100;

    /// Whether any of `flags` is set.
    #[must_use]
    pub fn any(self, flags: u16) -> bool {
        self.0 & flags != 0
    }
}

/// A TCP segment. Lengths come from the headers and not from what was captured.
#[derive(Clone, Copy, Debug)]
pub struct Segment<'a> {
    /// When it was captured.
    pub time: Timestamp,
    /// The frame's number in its capture, from 1.
    pub frame: u64,
    /// Who sent it.
    pub source: Endpoint,
    /// Who is to get it.
    pub destination: Endpoint,
    /// Sequence number.
    pub sequence: u32,
    /// Acknowledgement number; meaningful with ACK only.
    pub acknowledgement: u32,
    /// The header's flags.
    pub flags: Flags,
    /// The window as sent, not scaled.
    pub window: u16,
    /// Urgent pointer; meaningful with URG only.
    pub urgent: u16,
    /// Bytes of payload according to the IP header.
    pub length: u32,
    /// Bytes of payload that were captured: a prefix, perhaps none.
    pub captured: u32,
    /// What was captured of the header's options: a prefix.
    pub options: &'a [u8],
    /// Whether the TCP checksum was found wrong; `None`: not checked or not checkable (truncated, offloaded).
    pub checksum_ok: Option<bool>,
    /// ECN field of the IP header (RFC 3168): 0 not capable, 1 ECT(1), 2 ECT(0), 3 congestion experienced.
    pub ecn: u8,
    /// Time to live or hop limit.
    pub ttl: u8,
    /// Identification of IPv4; IPv6 has none outside fragments.
    pub ip_id: Option<u16>,
    /// Bytes of the frame on the wire.
    pub wire_length: u32,
}
