// SPDX-License-Identifier: Apache-2.0
//! What the switch asks of a packet.

/// A port of one switch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct PortId(pub u16);

impl PortId {
    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// Where a packet goes: the caller's number for a host, counted from 0 without gaps, as the
/// route table is an array.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Destination(pub u32);

/// What the switch asks of a packet. All of it is read on the hot path: fields of the value
/// itself, not of something behind a pointer.
pub trait Packet {
    /// Its length on the wire, everything included that takes time there.
    fn bytes(&self) -> u32;

    /// Where it goes.
    fn destination(&self) -> Destination;

    /// What ECMP and flowlets hash, and flow occupancy counts by: equal for the packets of one flow in
    /// one direction. Need not be well mixed.
    fn flow(&self) -> u64;

    /// Its class, 0 is served first. Classes the switch does not have count as its last.
    fn class(&self) -> u8 {
        0
    }

    /// Whether its transport is ECN-capable: ECT(0), ECT(1) or CE (RFC 3168 section 5).
    fn is_ecn_capable(&self) -> bool;

    /// Sets Congestion Experienced.
    fn mark(&mut self);

    /// Its time to live, in hops.
    fn ttl(&self) -> u8;

    /// Changes its time to live.
    fn set_ttl(&mut self, ttl: u8);
}

/// A packet for callers that need no more than a handle of their own. The C ABI's packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Header {
    /// The caller's; the switch does not look at it.
    pub handle: u64,
    /// See [`Packet::flow`].
    pub flow: u64,
    /// See [`Packet::bytes`].
    pub bytes: u32,
    /// See [`Packet::destination`].
    pub destination: u32,
    /// See [`Packet::class`].
    pub class: u8,
    /// See [`Packet::ttl`].
    pub ttl: u8,
    /// The ECN field, RFC 3168 section 5: 0 not capable, 1 ECT(1), 2 ECT(0), 3 CE.
    pub ecn: u8,
    /// The caller's; the switch does not look at it.
    pub tag: u8,
}

impl Packet for Header {
    #[inline]
    fn bytes(&self) -> u32 {
        self.bytes
    }

    #[inline]
    fn destination(&self) -> Destination {
        Destination(self.destination)
    }

    #[inline]
    fn flow(&self) -> u64 {
        self.flow
    }

    #[inline]
    fn class(&self) -> u8 {
        self.class
    }

    #[inline]
    fn is_ecn_capable(&self) -> bool {
        self.ecn != 0
    }

    #[inline]
    fn mark(&mut self) {
        self.ecn = 3;
    }

    #[inline]
    fn ttl(&self) -> u8 {
        self.ttl
    }

    #[inline]
    fn set_ttl(&mut self, ttl: u8) {
        self.ttl = ttl;
    }
}
