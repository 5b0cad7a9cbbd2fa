// SPDX-License-Identifier: Apache-2.0
//! Both ends of a connection, joined.
//!
//! Two connections are ends of one if
//!
//! 1. their addresses and ports are the same pair (`FourTuple::pair_key`), after the peer behind
//!    address translation took the remote one's place where it is known;
//! 2. each has the other's side as its own;
//! 3. two hosts observed them, at overlapping times, each host's clock corrected;
//! 4. neither address is loopback, link-local, unspecified or multicast;
//! 5. neither address was local on another host at that time: private addresses are used twice.

use slowpath_model::{FourTuple, Micros, WallMicros};
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

/// Clocks that were not measured may be so far off.
const TOLERANCE: Micros = Micros(2_000_000);
/// Of a pair of addresses and ports, so many connections are compared with each other.
const COMPARED: usize = 64;

/// A connection as one host observed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct End {
    /// The host, by number.
    pub host: u32,
    pub connection: u64,
    /// The remote end is the real peer, where it is known.
    pub tuple: FourTuple,
    /// When it was observed, by the server's clock.
    pub from: WallMicros,
    pub to: WallMicros,
    /// It is stated in the hour that is joined.
    pub in_hour: bool,
}

/// Both ends of a connection; `a` has the lower address and port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pair {
    pub a: End,
    pub b: End,
}

impl Pair {
    /// When both observed it; one of its ends may state the later time first where clocks differ.
    pub(crate) fn span(&self) -> (WallMicros, WallMicros) {
        let from = self.a.from.max(self.b.from);
        (from, self.a.to.min(self.b.to).max(from))
    }
}

/// Addresses, and the hosts on which they were local, from when to when.
#[derive(Debug, Default)]
pub(crate) struct Addresses(HashMap<IpAddr, Vec<(u32, WallMicros, WallMicros)>>);

impl Addresses {
    pub(crate) fn observe(&mut self, address: IpAddr, host: u32, from: WallMicros, to: WallMicros) {
        let of = self.0.entry(address).or_default();
        match of.iter_mut().find(|(of_host, ..)| *of_host == host) {
            Some(of) => (of.1, of.2) = (of.1.min(from), of.2.max(to)),
            None => of.push((host, from, to)),
        }
    }

    /// Whether the end's own address was another host's, too, while the connection was observed.
    fn is_shared(&self, end: &End) -> bool {
        let of = self
            .0
            .get(&end.tuple.local.ip())
            .map_or(&[][..], Vec::as_slice);
        of.iter()
            .any(|(host, from, to)| *host != end.host && overlap((end.from, end.to), (*from, *to)))
    }
}

fn overlap(a: (WallMicros, WallMicros), b: (WallMicros, WallMicros)) -> bool {
    a.0 <= b.1 + TOLERANCE && b.0 <= a.1 + TOLERANCE
}

/// Whether an address may name a host to others.
pub(crate) fn is_of_network(address: IpAddr) -> bool {
    let never = address.is_loopback() || address.is_unspecified() || address.is_multicast();
    let link_local = match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    !never && !link_local
}

/// The pairs among these ends of which at least one is stated in the hour.
pub(crate) fn join(ends: Vec<End>, addresses: &Addresses) -> Vec<Pair> {
    let mut ends = distinct(ends);
    ends.retain(|end| {
        let FourTuple { local, remote } = end.tuple;
        is_of_network(local.ip()) && is_of_network(remote.ip()) && !addresses.is_shared(end)
    });
    let key = |end: &End| -> (SocketAddr, SocketAddr) { end.tuple.pair_key() };
    ends.sort_unstable_by_key(|end| (key(end), end.from, end.host, end.connection));
    let mut pairs = Vec::new();
    for same in ends.chunk_by(|a, b| key(a) == key(b)) {
        for (n, first) in same.iter().enumerate() {
            for second in same[n + 1..].iter().take(COMPARED) {
                pairs.extend(pair(first, second));
            }
        }
    }
    pairs
}

fn pair(first: &End, second: &End) -> Option<Pair> {
    let opposite = first.tuple.local == second.tuple.remote;
    let at_once = overlap((first.from, first.to), (second.from, second.to));
    let stated = first.in_hour || second.in_hour;
    if first.host == second.host || !opposite || !at_once || !stated {
        return None;
    }
    Some(match first.tuple.local <= second.tuple.local {
        true => Pair {
            a: *first,
            b: *second,
        },
        false => Pair {
            a: *second,
            b: *first,
        },
    })
}

/// One end for each connection of a host, of all its summaries.
fn distinct(mut ends: Vec<End>) -> Vec<End> {
    ends.sort_unstable_by_key(|end| (end.host, end.connection, end.to));
    ends.dedup_by(|next, end| {
        let same = (end.host, end.connection) == (next.host, next.connection);
        if same {
            end.from = end.from.min(next.from);
            end.to = end.to.max(next.to);
            end.in_hour |= next.in_hour;
            // The latest summary knows the peer, if one does.
            end.tuple = next.tuple;
        }
        same
    });
    ends
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(host: u32, local: &str, remote: &str, (from, to): (i64, i64)) -> End {
        let address = |text: &str| text.parse().expect("an address");
        End {
            host,
            connection: u64::from(host) * 100 + from as u64,
            tuple: FourTuple {
                local: address(local),
                remote: address(remote),
            },
            from: WallMicros(from * 1_000_000),
            to: WallMicros(to * 1_000_000),
            in_hour: true,
        }
    }

    fn joined(ends: &[End]) -> Vec<(u64, u64)> {
        let mut addresses = Addresses::default();
        for end in ends {
            addresses.observe(end.tuple.local.ip(), end.host, end.from, end.to);
        }
        let pairs = join(ends.to_vec(), &addresses);
        pairs
            .iter()
            .map(|p| (p.a.connection, p.b.connection))
            .collect()
    }

    const A: &str = "10.0.0.1:40000";
    const B: &str = "10.0.0.2:443";

    #[test]
    fn ends_on_two_hosts_are_joined_and_of_one_host_are_not() {
        let (a, b) = (end(1, A, B, (10, 20)), end(2, B, A, (11, 30)));
        assert_eq!(joined(&[a, b]), [(110, 211)]);
        assert_eq!(joined(&[b, a]), [(110, 211)]);
        assert_eq!(joined(&[a, end(1, B, A, (11, 30))]), []);
        assert_eq!(joined(&[a, a, b, b]), [(110, 211)], "several summaries");
    }

    #[test]
    fn ports_that_were_used_again_are_joined_by_time() {
        let ends = [
            end(1, A, B, (10, 20)),
            end(2, B, A, (10, 20)),
            end(1, A, B, (60, 70)),
            end(2, B, A, (61, 71)),
        ];
        assert_eq!(joined(&ends), [(110, 210), (160, 261)]);
    }

    #[test]
    fn loopback_link_local_and_reused_private_addresses_are_never_joined() {
        for (a, b) in [
            ("127.0.0.1:1", "127.0.0.1:2"),
            ("[::1]:1", "[::1]:2"),
            ("169.254.0.1:1", "169.254.0.2:2"),
            ("[fe80::1]:1", "[fe80::2]:2"),
        ] {
            let ends = [end(1, a, b, (10, 20)), end(2, b, a, (10, 20))];
            assert_eq!(joined(&ends), [], "{a}");
        }
        // Another host has the address, too, at that time: whose connection it is, is not known.
        let ends = [end(1, A, B, (10, 20)), end(2, B, A, (10, 20))];
        let other = end(3, "10.0.0.2:9", "10.0.0.9:9", (15, 16));
        assert_eq!(joined(&[ends[0], ends[1], other]), []);
        // It had it later: an address that moved.
        let later = end(3, "10.0.0.2:9", "10.0.0.9:9", (50, 60));
        assert_eq!(joined(&[ends[0], ends[1], later]), [(110, 210)]);
    }

    #[test]
    fn a_pair_is_stated_where_one_of_its_ends_is() {
        let (mut a, mut b) = (end(1, A, B, (10, 20)), end(2, B, A, (11, 30)));
        a.in_hour = false;
        assert_eq!(joined(&[a, b]).len(), 1);
        b.in_hour = false;
        assert_eq!(joined(&[a, b]).len(), 0);
    }
}
