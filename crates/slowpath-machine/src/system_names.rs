// SPDX-License-Identifier: Apache-2.0
//! Looks up the names that filters and targets may contain, on this machine.

use slowpath_views::filter::Names;
use std::net::{IpAddr, ToSocketAddrs};
use std::ops::RangeInclusive;
use std::sync::OnceLock;

/// The system's names: `/etc/services`, the resolver (`getaddrinfo(3)`, hence `/etc/hosts`),
/// and `net.ipv4.ip_local_port_range`.
#[derive(Debug, Default)]
pub struct SystemNames {
    services: OnceLock<String>,
}

/// Services for machines without `/etc/services` (IANA service names registry).
const WELL_KNOWN: [(&str, u16); 12] = [
    ("ssh", 22),
    ("smtp", 25),
    ("domain", 53),
    ("http", 80),
    ("pop3", 110),
    ("imap2", 143),
    ("ldap", 389),
    ("https", 443),
    ("imaps", 993),
    ("mysql", 3306),
    ("postgresql", 5432),
    ("redis", 6379),
];

/// The TCP port of `service`, by name or alias, in a text of the form of `services(5)`.
fn port_in(services: &str, service: &str) -> Option<u16> {
    services.lines().find_map(|line| {
        let mut words = line.split('#').next()?.split_whitespace();
        let name = words.next()?;
        let (port, protocol) = words.next()?.split_once('/')?;
        let named = name == service || words.any(|alias| alias == service);
        (protocol == "tcp" && named)
            .then(|| port.parse().ok())
            .flatten()
    })
}

impl Names for SystemNames {
    fn port(&self, service: &str) -> Option<u16> {
        let services = self
            .services
            .get_or_init(|| std::fs::read_to_string("/etc/services").unwrap_or_default());
        port_in(services, service).or_else(|| {
            WELL_KNOWN
                .into_iter()
                .find(|(name, _)| *name == service)
                .map(|(_, port)| port)
        })
    }

    fn addresses(&self, host: &str) -> Vec<IpAddr> {
        let mut addresses: Vec<IpAddr> = (host, 0)
            .to_socket_addrs()
            .map(|found| found.map(|a| a.ip().to_canonical()).collect())
            .unwrap_or_default();
        addresses.sort_unstable();
        addresses.dedup();
        addresses
    }

    fn ephemeral_ports(&self) -> RangeInclusive<u16> {
        let default = 32768..=60999;
        let Ok(text) = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range") else {
            return default;
        };
        let mut numbers = text.split_whitespace().map(str::parse);
        match (numbers.next(), numbers.next()) {
            (Some(Ok(low)), Some(Ok(high))) => low..=high,
            _ => default,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_are_found_by_name_and_alias_for_tcp_only() {
        let text = "# services\nhttp 80/tcp www # web\nsnmp 161/udp\nhttp 80/udp\n";
        assert_eq!(port_in(text, "http"), Some(80));
        assert_eq!(port_in(text, "www"), Some(80));
        assert_eq!(port_in(text, "snmp"), None);
        assert_eq!(port_in(text, "web"), None);
    }
}
