// SPDX-License-Identifier: Apache-2.0
//! Who is who: connections and their addresses.

use crate::MonoNanos;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// Names one connection on one host, unambiguously over reboots, network namespaces and
/// reused 4-tuples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ConnectionId {
    /// The kernel's boot id (`/proc/sys/kernel/random/boot_id`) as a 128-bit number.
    pub boot_id: u128,
    /// Inode number of the network namespace (`net->ns.inum`); 0 where the tier does not know it.
    pub netns: u32,
    /// The socket cookie (`sock_gen_cookie`), unique since boot.
    pub cookie: u64,
    /// When the connection was opened or, for connections older than the agent and for
    /// the inet_diag tier, 0: a socket that is disconnected and connected again keeps its
    /// cookie.
    pub start: MonoNanos,
}

/// The 4-tuple of a connection, as the socket sees it, IPv4-mapped IPv6 addresses
/// (RFC 4291 section 2.5.5.2) turned into IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FourTuple {
    /// This host's address and port.
    pub local: SocketAddr,
    /// The peer's address and port.
    pub remote: SocketAddr,
}

/// `::ffff:a.b.c.d` becomes `a.b.c.d`; every other address stays.
pub fn normalise(address: IpAddr) -> IpAddr {
    address.to_canonical()
}

impl FourTuple {
    /// A 4-tuple with both addresses normalised.
    pub fn new(local: SocketAddr, remote: SocketAddr) -> Self {
        FourTuple {
            local: SocketAddr::new(normalise(local.ip()), local.port()),
            remote: SocketAddr::new(normalise(remote.ip()), remote.port()),
        }
    }

    /// The same connection as its other end has it.
    pub fn reversed(self) -> Self {
        FourTuple {
            local: self.remote,
            remote: self.local,
        }
    }

    /// Whether this end serves: it accepted the connection; where that is not known, its port is the
    /// lower one, because ephemeral ports lie above those of services (RFC 6335 section 6).
    pub fn serves(self, origin: Origin) -> bool {
        match origin {
            Origin::Accepted => true,
            Origin::Opened => false,
            Origin::Unknown => self.local.port() < self.remote.port(),
        }
    }

    /// The port of the service.
    pub fn service_port(self, origin: Origin) -> u16 {
        let end = if self.serves(origin) {
            self.local
        } else {
            self.remote
        };
        end.port()
    }

    /// A key that both ends of a connection agree on (no address translation between them).
    pub fn pair_key(self) -> (SocketAddr, SocketAddr) {
        if self.local <= self.remote {
            (self.local, self.remote)
        } else {
            (self.remote, self.local)
        }
    }
}

impl fmt::Display for FourTuple {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} -> {}", self.local, self.remote)
    }
}

/// Which end opened the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// This end called `connect`.
    Opened,
    /// This end accepted it.
    Accepted,
    /// It is older than the agent, or the tier does not know.
    Unknown,
}
