// SPDX-License-Identifier: Apache-2.0
//! What a capture says about a frame: its link type and its record. The readers make it, the decoder starts from it.

use crate::segment::Timestamp;

/// How a frame begins, by its capture's link type (the numbers of LINKTYPE_ and, where BSD
/// systems wrote their own, DLT_).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Link {
    /// Ethernet.
    Ethernet,
    /// BSD loopback: the address family in either byte order.
    Null,
    /// IP without anything before it; its first byte shows the version.
    Raw,
    /// Linux cooked capture.
    Sll,
    /// Linux cooked capture, version 2.
    Sll2,
    /// FDDI with IEEE 802.2.
    Fddi,
    /// PPP.
    Ppp,
    /// PPP or Cisco's HDLC.
    Hdlc,
    /// Linux's netfilter log.
    Nflog,
    /// Anything else: counted, not decoded.
    Unsupported(u32),
}

impl Link {
    /// The link type with that number.
    #[must_use]
    pub fn from_number(number: u32) -> Self {
        match number {
            1 => Link::Ethernet,
            0 | 108 => Link::Null,
            // 12 and 14: DLT_RAW of BSD systems; 228 and 229: IPv4 and IPv6 only.
            12 | 14 | 101 | 228 | 229 => Link::Raw,
            113 => Link::Sll,
            276 => Link::Sll2,
            10 => Link::Fddi,
            9 => Link::Ppp,
            50 | 104 => Link::Hdlc,
            239 => Link::Nflog,
            other => Link::Unsupported(other),
        }
    }
}

/// Where a captured frame lies, and what its record in the capture says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) number: u64,
    pub(crate) time: Timestamp,
    /// Where the frame is in the bytes that were shown.
    pub(crate) start: usize,
    pub(crate) captured: u32,
    pub(crate) wire_length: u32,
    pub(crate) interface: u32,
    pub(crate) link: Link,
}

impl Record {
    /// To be filled.
    pub(crate) const EMPTY: Record = Record {
        number: 0,
        time: Timestamp(0),
        start: 0,
        captured: 0,
        wire_length: 0,
        interface: 0,
        link: Link::Raw,
    };
}
