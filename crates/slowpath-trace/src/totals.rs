// SPDX-License-Identifier: Apache-2.0
//! What a capture holds, TCP or not: every frame is counted once.

use crate::decode::{IP_TCP, NotTcp, Undecodable};
use std::collections::BTreeMap;

/// Frames and their bytes on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Frames.
    pub frames: u64,
    /// Their bytes on the wire.
    pub bytes: u64,
}

impl Count {
    #[inline]
    pub(crate) fn add(&mut self, wire_length: u32) {
        self.frames += 1;
        self.bytes += u64::from(wire_length);
    }

    fn merge(&mut self, other: Count) {
        self.frames += other.frames;
        self.bytes += other.bytes;
    }
}

/// Where the frames went. The counts add up to [`Totals::all`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Totals {
    /// Left out by the filter.
    pub filtered_out: Count,
    ip: Box<[Count; 256]>,
    /// Not IP, by EtherType (PPP: protocol; loopback: address family).
    pub ether_types: BTreeMap<u16, Count>,
    /// IEEE 802.2 without a protocol known here.
    pub llc: Count,
    /// Fragments of IP packets other than the first.
    pub later_fragments: Count,
    /// Of link types that are not decoded, by number.
    pub link_types: BTreeMap<u32, Count>,
    undecodable: [Count; Undecodable::ALL.len()],
}

impl Default for Totals {
    fn default() -> Self {
        Totals {
            filtered_out: Count::default(),
            ip: Box::new([Count::default(); 256]),
            ether_types: BTreeMap::new(),
            llc: Count::default(),
            later_fragments: Count::default(),
            link_types: BTreeMap::new(),
            undecodable: Default::default(),
        }
    }
}

/// IP protocol numbers that a summary names.
const ICMP: [u8; 2] = [1, 58];
const UDP: u8 = 17;
/// EtherType.
const ARP: u16 = 0x0806;

impl Totals {
    #[inline]
    pub(crate) fn tcp_frame(&mut self, wire_length: u32) {
        self.ip[usize::from(IP_TCP)].add(wire_length);
    }

    pub(crate) fn other(&mut self, other: NotTcp, wire_length: u32) {
        let count = match other {
            NotTcp::Ip(protocol) => &mut self.ip[usize::from(protocol)],
            NotTcp::EtherType(number) => self.ether_types.entry(number).or_default(),
            NotTcp::Llc => &mut self.llc,
            NotTcp::LaterFragment => &mut self.later_fragments,
            NotTcp::LinkType(number) => self.link_types.entry(number).or_default(),
            NotTcp::Undecodable(reason) => &mut self.undecodable[reason as usize],
        };
        count.add(wire_length);
    }

    /// TCP segments that could be read.
    #[must_use]
    pub fn tcp(&self) -> Count {
        self.ip(IP_TCP)
    }

    /// UDP.
    #[must_use]
    pub fn udp(&self) -> Count {
        self.ip(UDP)
    }

    /// ICMP for IPv4 and IPv6.
    #[must_use]
    pub fn icmp(&self) -> Count {
        let mut sum = self.ip(ICMP[0]);
        sum.merge(self.ip(ICMP[1]));
        sum
    }

    /// ARP.
    #[must_use]
    pub fn arp(&self) -> Count {
        self.ether_types.get(&ARP).copied().unwrap_or_default()
    }

    /// Of the IP protocol with that number.
    #[must_use]
    pub fn ip(&self, protocol: u8) -> Count {
        self.ip[usize::from(protocol)]
    }

    /// The IP protocols that were observed.
    pub fn ip_protocols(&self) -> impl Iterator<Item = (u8, Count)> {
        let numbered = (0..=u8::MAX).zip(self.ip.iter().copied());
        numbered.filter(|(_, count)| count.frames > 0)
    }

    /// Frames that could not be decoded for that reason.
    #[must_use]
    pub fn undecodable(&self, reason: Undecodable) -> Count {
        self.undecodable[reason as usize]
    }

    /// All frames.
    #[must_use]
    pub fn all(&self) -> Count {
        let mut all = Count::default();
        let kinds = [self.filtered_out, self.llc, self.later_fragments];
        let maps = self.ether_types.values().chain(self.link_types.values());
        let counts = kinds.iter().chain(self.ip.iter()).chain(maps);
        for count in counts.chain(&self.undecodable) {
            all.merge(*count);
        }
        all
    }

    pub(crate) fn merge(&mut self, other: &Totals) {
        self.filtered_out.merge(other.filtered_out);
        self.llc.merge(other.llc);
        self.later_fragments.merge(other.later_fragments);
        for (mine, theirs) in self.ip.iter_mut().zip(other.ip.iter()) {
            mine.merge(*theirs);
        }
        for (mine, theirs) in self.undecodable.iter_mut().zip(&other.undecodable) {
            mine.merge(*theirs);
        }
        for (number, count) in &other.ether_types {
            self.ether_types.entry(*number).or_default().merge(*count);
        }
        for (number, count) in &other.link_types {
            self.link_types.entry(*number).or_default().merge(*count);
        }
    }
}
