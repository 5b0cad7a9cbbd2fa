// SPDX-License-Identifier: Apache-2.0
//! Links: a pair of interfaces, their addresses, their rate and their delay.

use crate::delay::DelayLine;
use crate::{Namespace, TestbedError, offload};
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// Which addresses a connection uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Family {
    /// IPv4 sockets and addresses.
    #[default]
    Ipv4,
    /// IPv6 sockets and addresses.
    Ipv6,
    /// IPv6 sockets, IPv4-mapped addresses (RFC 4291 section 2.5.5.2), IPv4 packets.
    Mapped,
}

/// What a link is like. Both directions are alike.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LinkOptions {
    /// Rate in Mbit/s, made by TBF at each end's egress; `None`: as fast as the machine.
    pub rate_mbit: Option<f64>,
    /// TBF's bucket in bytes; at least one packet of the link's MTU.
    pub burst_bytes: u32,
    /// TBF's queue in bytes; what exceeds it is dropped.
    pub queue_bytes: u32,
    /// Delay in one direction in milliseconds; 0 is a plain veth pair.
    pub delay_ms: u32,
    /// MTU in bytes, 1280 to 65,535.
    pub mtu: u32,
    /// Whether segmentation offloads stay on: packets then differ from segments, and
    /// counts cannot be asserted.
    pub offloads: bool,
}

impl Default for LinkOptions {
    fn default() -> Self {
        LinkOptions {
            rate_mbit: None,
            burst_bytes: 3_100,
            queue_bytes: 150_000,
            delay_ms: 0,
            mtu: 1_500,
            offloads: false,
        }
    }
}

/// A link between namespaces a and b.
#[derive(Debug)]
pub struct Link {
    number: u8,
    interface: String,
    /// Kept for its drop.
    _delay_line: Option<DelayLine>,
}

impl Link {
    pub(crate) fn new(
        a: &Namespace,
        b: &Namespace,
        number: u8,
        options: &LinkOptions,
    ) -> Result<Self, TestbedError> {
        let interface = format!("sp{number}");
        let delay_line = if options.delay_ms == 0 {
            a.ip(&format!(
                "link add name {interface} type veth peer name {interface} netns {}",
                b.name()
            ))?;
            None
        } else {
            let delay = Duration::from_millis(options.delay_ms.into());
            Some(DelayLine::start(a, b, &interface, delay)?)
        };
        let link = Link {
            number,
            interface,
            _delay_line: delay_line,
        };
        // Neighbours are permanent and addresses skip duplicate detection: the first
        // packets of a link are the workload's.
        for (namespace, mine, other) in [(a, 1, 2), (b, 2, 1)] {
            link.configure(namespace, mine, other, options)?;
        }
        Ok(link)
    }

    fn configure(
        &self,
        namespace: &Namespace,
        mine: u8,
        other: u8,
        options: &LinkOptions,
    ) -> Result<(), TestbedError> {
        let interface = &self.interface;
        let mac = |end: u8| format!("02:73:70:00:{:02x}:{end:02x}", self.number);
        let (v4, v6) = (self.v4(mine), self.v6(mine));
        let (other_v4, other_v6) = (self.v4(other), self.v6(other));
        let mut lines = format!(
            "link set {interface} address {} mtu {} addrgenmode none\n",
            mac(mine),
            options.mtu
        );
        if !options.offloads {
            lines += &format!("link set {interface} gso_max_segs 1\n");
        }
        lines += &format!(
            "link set {interface} up\n\
             addr add {v4}/24 dev {interface}\n\
             addr add {v6}/64 dev {interface} nodad\n\
             neigh add {other_v4} lladdr {other_mac} dev {interface} nud permanent\n\
             neigh add {other_v6} lladdr {other_mac} dev {interface} nud permanent\n",
            other_mac = mac(other)
        );
        if !options.offloads && options.delay_ms == 0 {
            offload::disable(namespace, interface)?;
        }
        namespace.ip(&lines)?;
        if let Some(rate) = options.rate_mbit {
            namespace.tc(&format!(
                "qdisc add dev {interface} root tbf rate {}bit burst {} limit {}",
                (rate * 1e6) as u64,
                options.burst_bytes,
                options.queue_bytes
            ))?;
        }
        Ok(())
    }

    /// The interface's name, the same in both namespaces.
    pub fn interface(&self) -> &str {
        &self.interface
    }

    /// The address a socket in namespace b listens on and one in a connects to, for
    /// connections of that family.
    pub fn b_address(&self, family: Family) -> IpAddr {
        self.address(2, family)
    }

    /// The address of namespace a's end.
    pub fn a_address(&self, family: Family) -> IpAddr {
        self.address(1, family)
    }

    fn address(&self, end: u8, family: Family) -> IpAddr {
        match family {
            Family::Ipv4 => IpAddr::V4(self.v4(end)),
            Family::Ipv6 => IpAddr::V6(self.v6(end)),
            Family::Mapped => IpAddr::V6(self.v4(end).to_ipv6_mapped()),
        }
    }

    fn v4(&self, end: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 77, self.number, end)
    }

    fn v6(&self, end: u8) -> Ipv6Addr {
        let number = u16::from(self.number);
        Ipv6Addr::new(0xfd00, 0x77, number, 0, 0, 0, 0, end.into())
    }
}
