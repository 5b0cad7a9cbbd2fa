// SPDX-License-Identifier: Apache-2.0
//! Who may connect, and how much of what each may have.

use crate::control::Limits;
use crate::socket::PortRange;
use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// Peers of which packets without a connection are counted; further ones get nothing until one is forgotten.
const MOST_PEERS: usize = 4_096;

/// A range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    address: IpAddr,
    length: u8,
}

/// Why a text is no range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no range of addresses: write 192.0.2.0/24, 2001:db8::/32, or one address")]
pub struct CidrError(String);

impl Cidr {
    /// Whether an address is in it. IPv4 addresses mapped into IPv6 count as IPv4.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let bits = |address: IpAddr| match address.to_canonical() {
            IpAddr::V4(v4) => (u128::from(u32::from(v4)) << 96, 4),
            IpAddr::V6(v6) => (u128::from(v6), 6),
        };
        let ((ours, family), (theirs, their_family)) = (bits(self.address), bits(address));
        let shift = 128 - u32::from(self.length);
        family == their_family && (shift == 128 || ours >> shift == theirs >> shift)
    }
}

impl FromStr for Cidr {
    type Err = CidrError;

    fn from_str(text: &str) -> Result<Self, CidrError> {
        let error = || CidrError(text.to_owned());
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length.parse::<u8>().map_err(|_| error())?)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| error())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let length = length.unwrap_or(most);
        if length > most {
            return Err(error());
        }
        Ok(Cidr { address, length })
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

/// Limits of throughput tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThroughputLimits {
    /// Seconds of one test, warm-up included; 0: none are answered.
    pub seconds: u64,
    /// Tests of one peer at a time.
    pub of_peer: usize,
    /// Tests of all peers at a time: two share the path, and neither measures it.
    pub at_once: usize,
    /// Tests that one peer may begin within a minute.
    pub per_minute: usize,
}

impl Default for ThroughputLimits {
    fn default() -> Self {
        ThroughputLimits {
            seconds: 60,
            of_peer: 1,
            at_once: 4,
            per_minute: 20,
        }
    }
}

/// Limits of a server.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Who is answered.
    pub allow: Vec<Cidr>,
    /// What a session may have.
    pub limits: Limits,
    /// Control connections of all peers.
    pub connections: usize,
    /// Control connections of one peer.
    pub connections_of_peer: usize,
    /// Bits a second of one session, headers included.
    pub rate: u64,
    /// STAMP and TWAMP light packets a second of one peer.
    pub reflected_per_second: u32,
    /// Ports for test packets; `None`: any.
    pub ports: Option<PortRange>,
    /// Records of all sessions that are kept at a time, 32 octets each.
    pub records: u64,
    /// Throughput tests.
    pub throughput: ThroughputLimits,
}

impl Default for Policy {
    fn default() -> Self {
        Policy {
            allow: vec![
                "127.0.0.0/8".parse().expect("a range"),
                "::1/128".parse().expect("a range"),
            ],
            limits: Limits {
                slots: 4_096,
                packets: 1_000_000,
                padding: 8_972,
                sessions: 4,
            },
            connections: 64,
            connections_of_peer: 32,
            rate: 100_000_000,
            reflected_per_second: 10_000,
            ports: None,
            records: 8_000_000,
            throughput: ThroughputLimits::default(),
        }
    }
}

/// Lets in or not.
#[derive(Debug)]
pub struct Gate {
    policy: Policy,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    connections: HashMap<IpAddr, usize>,
    total: usize,
    records: u64,
    peers: HashMap<IpAddr, Bucket>,
}

/// Packets that a peer may send now.
#[derive(Debug)]
struct Bucket {
    tokens: f64,
    at: Instant,
}

/// A connection that was let in; its dropping makes room.
#[derive(Debug)]
pub struct Admission {
    gate: Arc<Gate>,
    peer: IpAddr,
    records: u64,
}

impl Gate {
    /// By a policy.
    #[must_use]
    pub fn new(policy: Policy) -> Self {
        Gate {
            policy,
            state: Mutex::default(),
        }
    }

    /// The policy.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        // Counters stay consistent even if a thread panicked between two of them.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether an address is answered at all.
    #[must_use]
    pub fn allows(&self, peer: IpAddr) -> bool {
        self.policy.allow.iter().any(|range| range.contains(peer))
    }

    /// Lets a connection in, if the peer is allowed and there is room.
    pub fn admit(self: &Arc<Self>, peer: IpAddr) -> Option<Admission> {
        let peer = peer.to_canonical();
        let mut state = self.lock();
        let of_peer = state.connections.get(&peer).copied().unwrap_or(0);
        let room =
            state.total < self.policy.connections && of_peer < self.policy.connections_of_peer;
        if !self.allows(peer) || !room {
            return None;
        }
        state.total += 1;
        *state.connections.entry(peer).or_default() += 1;
        Some(Admission {
            gate: Arc::clone(self),
            peer,
            records: 0,
        })
    }

    /// Whether a packet without a connection may be answered now.
    pub fn may_reflect(&self, peer: IpAddr, now: Instant) -> bool {
        let rate = f64::from(self.policy.reflected_per_second);
        let peer = peer.to_canonical();
        let mut state = self.lock();
        if !state.peers.contains_key(&peer) && state.peers.len() >= MOST_PEERS {
            // Forget those whose buckets are full again.
            state
                .peers
                .retain(|_, bucket| now.saturating_duration_since(bucket.at).as_secs() < 2);
            if state.peers.len() >= MOST_PEERS {
                return false;
            }
        }
        let bucket = state.peers.entry(peer).or_insert(Bucket {
            tokens: rate,
            at: now,
        });
        let passed = now.saturating_duration_since(bucket.at).as_secs_f64();
        bucket.tokens = (bucket.tokens + passed * rate).min(rate);
        bucket.at = now;
        let may = bucket.tokens >= 1.0;
        if may {
            bucket.tokens -= 1.0;
        }
        may
    }
}

impl Admission {
    /// Takes room for records; false: there is none now.
    #[must_use]
    pub fn reserve(&mut self, records: u64) -> bool {
        let mut state = self.gate.lock();
        let fits = state.records.saturating_add(records) <= self.gate.policy.records;
        if fits {
            state.records += records;
            self.records += records;
        }
        fits
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        let mut state = self.gate.lock();
        state.total -= 1;
        state.records -= self.records;
        if let Some(count) = state.connections.get_mut(&self.peer) {
            *count -= 1;
            if *count == 0 {
                state.connections.remove(&self.peer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn ranges_hold_their_addresses_and_no_others() {
        let holds = |range: &str, address: &str| {
            let range: Cidr = range.parse().expect("a range");
            range.contains(address.parse().expect("an address"))
        };
        assert!(holds("192.0.2.0/24", "192.0.2.77"));
        assert!(holds("192.0.2.0/24", "::ffff:192.0.2.77"));
        assert!(!holds("192.0.2.0/24", "192.0.3.1"));
        assert!(holds("0.0.0.0/0", "203.0.113.5"));
        assert!(!holds("0.0.0.0/0", "2001:db8::1"));
        assert!(holds("2001:db8::/32", "2001:db8:1::1"));
        assert!(holds("192.0.2.1", "192.0.2.1"));
        for wrong in ["", "192.0.2.0/33", "x/8", "192.0.2.0/", "::/129"] {
            assert!(wrong.parse::<Cidr>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn room_is_given_back() {
        let gate = Arc::new(Gate::new(Policy {
            connections: 3,
            connections_of_peer: 2,
            records: 100,
            ..Policy::default()
        }));
        let local: IpAddr = "127.0.0.1".parse().expect("an address");
        let mut first = gate.admit(local).expect("room");
        let second = gate.admit(local).expect("room");
        assert!(gate.admit(local).is_none());
        assert!(
            gate.admit("192.0.2.1".parse().expect("an address"))
                .is_none()
        );
        assert!(first.reserve(100));
        assert!(!first.reserve(1));
        drop(first);
        drop(second);
        assert!(gate.admit(local).expect("room").reserve(100));
    }

    #[test]
    fn a_flood_is_answered_at_the_rate_only() {
        let gate = Gate::new(Policy {
            reflected_per_second: 10,
            ..Policy::default()
        });
        let peer: IpAddr = "127.0.0.1".parse().expect("an address");
        let start = Instant::now();
        let answered = |from: u64| {
            (0..1_000)
                .filter(|i| gate.may_reflect(peer, start + Duration::from_millis(from + i)))
                .count()
        };
        // Ten at once, and ten in the second.
        assert!((19..=20).contains(&answered(0)));
        // As many peers as are forged: memory stays bounded.
        for host in 0..10_000u32 {
            gate.may_reflect(IpAddr::V4(host.into()), start);
        }
        assert!(gate.lock().peers.len() <= MOST_PEERS);
    }
}
