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
//!
//! Where a router between the hosts translates an address, neither knows it and 1 does not hold. Then
//! one end still has the other's own address and port as its remote one, and what is left is joined
//! ([`Pair::translated`]) if also
//!
//! 6. the other sees the port as it is, as source NAT leaves it where it is free, or: the first
//!    accepted what the other opened, as with destination NAT;
//! 7. both began at the same time, neither has a pair by 1 to 5, and there is no other such end for
//!    either.

use slowpath_model::{FourTuple, Micros, WallMicros};
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

/// Clocks that were not measured may be so far off.
const TOLERANCE: Micros = Micros(2_000_000);
/// Two ends began at the same time if they were first observed within this, microseconds: polls come
/// every half second on the average, and clocks that were not measured may differ.
const AT_ONCE: i64 = 5_000_000;
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
    /// Whether it opened the connection, or accepted it, where that is known.
    pub opened: Option<bool>,
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
    /// It follows from what a router between them does not translate.
    pub translated: bool,
}

impl Pair {
    fn new(first: &End, second: &End, translated: bool) -> Pair {
        let (a, b) = match first.tuple.local <= second.tuple.local {
            true => (*first, *second),
            false => (*second, *first),
        };
        Pair { a, b, translated }
    }

    /// Whether it belongs to the hour that is joined.
    fn is_stated(&self) -> bool {
        self.a.in_hour || self.b.in_hour
    }

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

/// The pairs among these ends of which at least one is stated in the hour. Whether an address between
/// is translated is asked only if these are `all` ends of the hour.
pub(crate) fn join(ends: Vec<End>, addresses: &Addresses, all: bool) -> Vec<Pair> {
    let mut ends = distinct(ends);
    ends.retain(|end| {
        let FourTuple { local, remote } = end.tuple;
        is_of_network(local.ip()) && is_of_network(remote.ip()) && !addresses.is_shared(end)
    });
    let key = |end: &End| -> (SocketAddr, SocketAddr) { end.tuple.pair_key() };
    ends.sort_unstable_by_key(|end| (key(end), end.from, end.host, end.connection));
    let mut pairs = Vec::new();
    let mut left = Vec::new();
    for same in ends.chunk_by(|a, b| key(a) == key(b)) {
        let mut has_pair = vec![false; same.len()];
        for (n, first) in same.iter().enumerate() {
            let others = same.iter().enumerate().skip(n + 1).take(COMPARED);
            for (m, second) in others.filter(|(_, second)| are_ends(first, second)) {
                pairs.push(Pair::new(first, second, false));
                (has_pair[n], has_pair[m]) = (true, true);
            }
        }
        let single = same.iter().zip(has_pair).filter(|(_, has_pair)| !has_pair);
        left.extend(single.map(|(end, _)| *end).filter(|_| all));
    }
    pairs.extend(translated(left));
    pairs.retain(Pair::is_stated);
    pairs
}

fn are_ends(first: &End, second: &End) -> bool {
    let opposite = first.tuple.local == second.tuple.remote;
    let at_once = overlap((first.from, first.to), (second.from, second.to));
    first.host != second.host && opposite && at_once
}

/// The pairs among ends that are left over, by conditions 6 and 7.
fn translated(mut ends: Vec<End>) -> Vec<Pair> {
    ends.sort_unstable_by_key(|end| (own_and_port(end), end.from, end.host, end.connection));
    // By the end whose remote address is the other's own: which may be the other.
    let mut claims: HashMap<usize, Vec<usize>> = HashMap::new();
    let mut claimed: HashMap<usize, u32> = HashMap::new();
    for (n, end) in ends.iter().enumerate() {
        let others = candidates(&ends, end);
        for other in &others {
            *claimed.entry(*other).or_default() += 1;
        }
        if !others.is_empty() {
            claims.insert(n, others);
        }
    }
    let sole = claims.iter().filter_map(|(n, others)| match others[..] {
        [other] if claimed[&other] == 1 => Some((*n, other)),
        _ => None,
    });
    let sole = sole.filter(|(n, other)| !claimed.contains_key(n) && !claims.contains_key(other));
    sole.map(|(n, other)| Pair::new(&ends[n], &ends[other], true))
        .collect()
}

/// An end's own address and port, and the port at which it sees the other.
fn own_and_port(end: &End) -> (SocketAddr, u16) {
    (end.tuple.local, end.tuple.remote.port())
}

/// Which of these, in the order of [`own_and_port`], may be the end whose own address and port is the
/// remote one of `end`.
fn candidates(ends: &[End], end: &End) -> Vec<usize> {
    let wanted = (end.tuple.remote, end.tuple.local.port());
    let first = ends.partition_point(|other| own_and_port(other) < wanted);
    let kept = (first..ends.len()).take_while(|at| own_and_port(&ends[*at]) == wanted);
    let mut kept: Vec<usize> = kept.take(COMPARED).collect();
    kept.retain(|at| may_be_ends(end, &ends[*at]));
    if !kept.is_empty() || end.opened != Some(false) {
        return kept;
    }
    let first = ends.partition_point(|other| other.tuple.local < wanted.0);
    let same = (first..ends.len()).take_while(|at| ends[*at].tuple.local == wanted.0);
    let mut same: Vec<usize> = same.take(COMPARED).collect();
    if same.len() == COMPARED {
        // So many share a server's port, never a client's.
        same.clear();
    }
    same.retain(|at| ends[*at].opened == Some(true) && may_be_ends(end, &ends[*at]));
    same
}

/// Whether two ends began at once, and did not both open, or both accept.
fn may_be_ends(first: &End, second: &End) -> bool {
    let began = first.from.max(second.from).0 - first.from.min(second.from).0;
    let is_same_side = first.opened.is_some() && first.opened == second.opened;
    first.host != second.host && began <= AT_ONCE && !is_same_side
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
            end.opened = end.opened.or(next.opened);
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
            opened: None,
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
        let pairs = join(ends.to_vec(), &addresses, true);
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
    const ROUTER: &str = "192.0.2.1:40000";
    const SERVICE: &str = "192.0.2.9:443";

    #[test]
    fn a_router_that_keeps_the_port_does_not_hide_a_pair() {
        // Source NAT: the server sees the router.
        let ends = [end(1, A, B, (10, 20)), end(2, B, ROUTER, (11, 30))];
        assert_eq!(joined(&ends), [(110, 211)]);
        // Destination NAT: the client sees the service.
        let ends = [end(1, A, SERVICE, (10, 20)), end(2, B, A, (11, 30))];
        assert_eq!(joined(&ends), [(110, 211)]);
        // Both know their peer: there is nothing left to infer.
        let third = end(3, "10.0.0.3:40000", B, (10, 20));
        let ends = [end(1, A, B, (10, 20)), end(2, B, A, (10, 20)), third];
        assert_eq!(joined(&ends), [(110, 210)]);
        assert_eq!(joined(&[third]), []);
    }

    #[test]
    fn another_port_is_recognised_behind_it_where_one_end_accepted_what_the_other_opened() {
        let mut ends = [
            end(1, A, SERVICE, (10, 20)),
            end(2, "10.0.0.2:8443", A, (11, 30)),
        ];
        assert_eq!(joined(&ends), []);
        (ends[0].opened, ends[1].opened) = (Some(true), Some(false));
        assert_eq!(joined(&ends), [(110, 211)]);
        // The server knows who opened; a client does not know who accepted.
        (ends[0].opened, ends[1].opened) = (Some(false), Some(true));
        assert_eq!(joined(&ends), []);
    }

    #[test]
    fn what_is_ambiguous_or_began_at_another_time_is_no_pair() {
        let (client, server) = (end(1, A, B, (10, 20)), end(2, B, ROUTER, (11, 30)));
        // Two clients use the same port at that time: the router gave one of them another.
        let other = end(3, "10.0.0.3:40000", B, (12, 20));
        assert_eq!(joined(&[client, server, other]), []);
        // Two routers, the same port.
        let twice = end(2, B, "192.0.2.2:40000", (12, 30));
        assert_eq!(joined(&[client, server, twice]), []);
        assert_eq!(joined(&[client, end(2, B, ROUTER, (16, 30))]), []);
        // Both accepted.
        let accepted = |end: &End| End {
            opened: Some(false),
            ..*end
        };
        assert_eq!(joined(&[accepted(&client), accepted(&server)]), []);
    }
}
