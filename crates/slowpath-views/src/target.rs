// SPDX-License-Identifier: Apache-2.0
//! What a person asks about: a process, a peer, a port, a name.

use crate::filter::Names;
use crate::source::{LiveConnection, LiveListener};
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

/// What `why` was asked about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A process id.
    Pid(u32),
    /// A peer by address.
    Peer {
        /// As it was written.
        text: String,
        /// Its addresses; never empty.
        addresses: Vec<IpAddr>,
        /// Its port; any if `None`.
        port: Option<u16>,
    },
    /// A port of either end.
    Port(u16),
    /// A process name, or the addresses of a host of that name.
    Name {
        /// The name.
        name: String,
        /// Empty if no host has it.
        addresses: Vec<IpAddr>,
    },
}

/// A text that is no target.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// Nothing.
    #[error("say what: a process id, a process name, HOST:PORT or :PORT")]
    Empty,
    /// The port is none.
    #[error("`{0}` is neither a port (0 to 65535) nor a TCP service in /etc/services")]
    Port(String),
    /// The host is none.
    #[error("`{0}` is neither an address nor the name of a host that can be found")]
    Host(String),
    /// Brackets without an IPv6 address in them.
    #[error("`{0}` is no IPv6 address in brackets; write [2001:db8::1]:443")]
    Brackets(String),
}

impl Target {
    /// Reads a target.
    ///
    /// # Errors
    /// [`TargetError`] for a text that is none, or a name that cannot be found.
    pub fn parse(text: &str, names: &dyn Names) -> Result<Self, TargetError> {
        let text = text.trim();
        if text.is_empty() {
            return Err(TargetError::Empty);
        }
        if text.bytes().all(|b| b.is_ascii_digit()) {
            return text
                .parse()
                .map(Target::Pid)
                .map_err(|_| TargetError::Host(text.to_owned()));
        }
        let port_of = |port: &str| {
            port.parse()
                .ok()
                .or_else(|| names.port(port))
                .ok_or_else(|| TargetError::Port(port.to_owned()))
        };
        let peer = |addresses: Vec<IpAddr>, port| Target::Peer {
            text: text.to_owned(),
            addresses,
            port,
        };
        if let Some(rest) = text.strip_prefix('[') {
            let wrong = || TargetError::Brackets(text.to_owned());
            let (inside, rest) = rest.split_once(']').ok_or_else(wrong)?;
            let address: Ipv6Addr = inside.parse().map_err(|_| wrong())?;
            let port = match rest.strip_prefix(':') {
                Some(port) => Some(port_of(port)?),
                None if rest.is_empty() => None,
                None => return Err(wrong()),
            };
            return Ok(peer(vec![IpAddr::V6(address).to_canonical()], port));
        }
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(peer(vec![address.to_canonical()], None));
        }
        match text.rsplit_once(':') {
            Some(("" | "*", port)) => Ok(Target::Port(port_of(port)?)),
            Some((host, port)) => {
                let port = port_of(port)?;
                let addresses = match host.parse::<IpAddr>() {
                    Ok(address) => vec![address.to_canonical()],
                    Err(_) => names.addresses(host),
                };
                if addresses.is_empty() {
                    return Err(TargetError::Host(host.to_owned()));
                }
                Ok(peer(addresses, Some(port)))
            }
            None => Ok(Target::Name {
                name: text.to_owned(),
                addresses: names.addresses(text),
            }),
        }
    }

    /// Whether a process of that id and command name is meant.
    pub fn fits_process(&self, pid: u32, command: &str) -> bool {
        match self {
            Target::Pid(meant) => *meant == pid,
            Target::Name { name, .. } => crate::filter::matches_pattern(name, command),
            Target::Port(_) | Target::Peer { .. } => false,
        }
    }

    /// How well a connection fits; `None` if it does not. Of the connections that fit, only
    /// the best are meant: on one host both ends of a connection may be observed, and a peer is
    /// the far one.
    pub fn fits(&self, live: LiveConnection<'_>) -> Option<Fit> {
        let tuple = live.snapshot.tuple;
        let at = |end: std::net::SocketAddr, addresses: &[IpAddr], port: Option<u16>| {
            addresses.contains(&end.ip()) && port.is_none_or(|p| p == end.port())
        };
        let good = |yes: bool, fit| yes.then_some(fit);
        match self {
            Target::Pid(pid) => good(live.owner.pid() == Some(*pid), Fit::Process),
            Target::Port(port) => good(
                tuple.remote.port() == *port || tuple.local.port() == *port,
                Fit::Port,
            ),
            Target::Peer {
                addresses, port, ..
            } => good(
                at(tuple.remote, addresses, *port)
                    || live
                        .real_peer
                        .is_some_and(|peer| at(peer, addresses, *port)),
                Fit::Peer,
            )
            .or_else(|| good(at(tuple.local, addresses, *port), Fit::OwnEnd)),
            Target::Name { name, addresses } => good(
                // A connection that closed before its owner was looked for is its listener's.
                live.owner
                    .command()
                    .or(live.owner.listener.as_ref())
                    .is_some_and(|c| crate::filter::matches_pattern(name, c)),
                Fit::Process,
            )
            .or_else(|| good(at(tuple.remote, addresses, None), Fit::Peer)),
        }
    }

    /// Whether a listening socket is meant: held by the process, on the port, or at the
    /// address.
    pub fn fits_listener(&self, live: LiveListener<'_>) -> bool {
        let local = live.snapshot.local;
        let mut holders = live.holders.iter().chain([live.owner]);
        match self {
            Target::Pid(pid) => holders.any(|o| o.pid() == Some(*pid)),
            Target::Port(port) => local.port() == *port,
            Target::Peer {
                addresses, port, ..
            } => addresses.contains(&local.ip()) && port.is_none_or(|p| p == local.port()),
            Target::Name { name, .. } => holders.any(|o| {
                o.command()
                    .is_some_and(|c| crate::filter::matches_pattern(name, c))
            }),
        }
    }
}

/// In what way a connection fits a target; better ones first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fit {
    /// Its owner is the process.
    Process,
    /// The peer is the one asked about.
    Peer,
    /// Either end has the port.
    Port,
    /// This host's end is the address asked about.
    OwnEnd,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Pid(pid) => write!(f, "process {pid}"),
            Target::Port(port) => write!(f, "port {port}"),
            Target::Name { name, addresses } if addresses.is_empty() => {
                write!(f, "a process named `{name}`")
            }
            Target::Name { name, addresses } => {
                write!(
                    f,
                    "a process or host named `{name}` ({})",
                    listed(addresses)
                )
            }
            Target::Peer {
                text, addresses, ..
            } => {
                let list = listed(addresses);
                if text.contains(&list) {
                    write!(f, "peer {text}")
                } else {
                    write!(f, "peer {text} ({list})")
                }
            }
        }
    }
}

fn listed(addresses: &[IpAddr]) -> String {
    let texts: Vec<String> = addresses.iter().map(IpAddr::to_string).collect();
    texts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scripted::live;
    use std::ops::RangeInclusive;

    struct FixedNames;

    impl Names for FixedNames {
        fn port(&self, service: &str) -> Option<u16> {
            (service == "https").then_some(443)
        }
        fn addresses(&self, host: &str) -> Vec<IpAddr> {
            match host {
                "web.example" => vec!["10.0.0.2".parse().unwrap()],
                _ => Vec::new(),
            }
        }
        fn ephemeral_ports(&self) -> RangeInclusive<u16> {
            32768..=60999
        }
    }

    fn parse(text: &str) -> Result<Target, TargetError> {
        Target::parse(text, &FixedNames)
    }

    fn peer(text: &str, address: &str, port: Option<u16>) -> Result<Target, TargetError> {
        Ok(Target::Peer {
            text: text.to_owned(),
            addresses: vec![address.parse().unwrap()],
            port,
        })
    }

    #[test]
    fn every_form_is_read() {
        assert_eq!(parse("1234"), Ok(Target::Pid(1234)));
        assert_eq!(parse(":443"), Ok(Target::Port(443)));
        assert_eq!(parse(":https"), Ok(Target::Port(443)));
        assert_eq!(
            parse("10.0.0.2:80"),
            peer("10.0.0.2:80", "10.0.0.2", Some(80))
        );
        assert_eq!(parse("10.0.0.2"), peer("10.0.0.2", "10.0.0.2", None));
        assert_eq!(parse("[::1]:80"), peer("[::1]:80", "::1", Some(80)));
        assert_eq!(parse("[::1]"), peer("[::1]", "::1", None));
        assert_eq!(parse("::1"), peer("::1", "::1", None));
        assert_eq!(
            parse("[::ffff:10.0.0.2]:80"),
            peer("[::ffff:10.0.0.2]:80", "10.0.0.2", Some(80))
        );
        assert_eq!(
            parse("web.example:https"),
            peer("web.example:https", "10.0.0.2", Some(443))
        );
        assert!(matches!(parse("nginx"), Ok(Target::Name { .. })));
        assert_eq!(
            parse("web.example:x"),
            Err(TargetError::Port("x".to_owned()))
        );
        assert_eq!(
            parse("no.example:80"),
            Err(TargetError::Host("no.example".to_owned()))
        );
        assert!(matches!(parse("[zz]:1"), Err(TargetError::Brackets(_))));
        assert!(matches!(parse("99999999999999"), Err(TargetError::Host(_))));
        assert_eq!(parse(" "), Err(TargetError::Empty));
    }

    #[test]
    fn a_peer_is_the_far_end_before_the_near_one() {
        let target = parse("10.0.0.2:80").unwrap();
        let client = live(1, "curl", "10.0.0.1:4000", "10.0.0.2:80");
        let server = live(2, "nginx", "10.0.0.2:80", "10.0.0.1:4000");
        assert_eq!(target.fits(client.live()), Some(Fit::Peer));
        assert_eq!(target.fits(server.live()), Some(Fit::OwnEnd));
        assert_eq!(
            target.fits(live(3, "x", "10.0.0.1:1", "10.0.0.3:80").live()),
            None
        );
        let named = parse("web.example").unwrap();
        assert_eq!(named.fits(client.live()), Some(Fit::Peer));
        assert_eq!(
            parse("curl").unwrap().fits(client.live()),
            Some(Fit::Process)
        );
        assert_eq!(parse("2").unwrap().fits(server.live()), Some(Fit::Process));
        assert_eq!(parse(":4000").unwrap().fits(server.live()), Some(Fit::Port));
    }
}
