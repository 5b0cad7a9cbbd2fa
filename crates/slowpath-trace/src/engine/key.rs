// SPDX-License-Identifier: Apache-2.0
//! What distinguishes one connection's frames from another's, and hashes of it.

use crate::decode::{Addresses, TcpLocation};
use crate::segment::Endpoint;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Addresses and ports, the same for both directions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key([u64; 5]);

impl PartialEq for Key {
    /// Without a call of memcmp.
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        let pairs = self.0.iter().zip(&other.0);
        pairs.fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
    }
}

/// Both versions' keys are distinct: this bit is in IPv6's only.
const IPV6: u64 = 1 << 32;

impl Key {
    /// To be filled.
    pub(super) const EMPTY: Key = Key([0; 5]);

    /// The lower and the higher end, IPv4-mapped addresses as IPv4.
    pub(super) fn ends(&self) -> [Endpoint; 2] {
        let [a, b, c, d, rest] = self.0;
        if rest & IPV6 == 0 {
            [a, b].map(|end| Endpoint {
                address: IpAddr::V4(Ipv4Addr::from((end >> 16) as u32)),
                port: end as u16,
            })
        } else {
            let address = |high: u64, low: u64| {
                let bits = u128::from(high) << 64 | u128::from(low);
                IpAddr::V6(Ipv6Addr::from(bits)).to_canonical()
            };
            [(a, b, rest >> 16), (c, d, rest)].map(|(high, low, port)| Endpoint {
                address: address(high, low),
                port: port as u16,
            })
        }
    }

    /// The key of a frame, and whether its sender is the lower of the two ends.
    #[inline(always)]
    pub(super) fn of(place: TcpLocation, data: &[u8]) -> (Self, bool) {
        let (source, destination) = place.ports(data);
        match place.addresses(data) {
            Addresses::V4(from, to) => {
                let from = u64::from(u32::from_be_bytes(from)) << 16 | u64::from(source);
                let to = u64::from(u32::from_be_bytes(to)) << 16 | u64::from(destination);
                let key = [from.min(to), from.max(to), 0, 0, 0];
                (Key(key), from <= to)
            }
            Addresses::V6(from, to) => {
                let from = (u128::from_be_bytes(from), source);
                let to = (u128::from_be_bytes(to), destination);
                let (low, high) = (from.min(to), from.max(to));
                let key = [
                    (low.0 >> 64) as u64,
                    low.0 as u64,
                    (high.0 >> 64) as u64,
                    high.0 as u64,
                    IPV6 | u64::from(low.1) << 16 | u64::from(high.1),
                ];
                (Key(key), from <= to)
            }
        }
    }
}

/// A hash of keys. Multiply and fold, as wyhash does it: not for cryptography, but who does
/// not know the seeds cannot aim at one place of the table.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeyHasher([u64; 2]);

impl KeyHasher {
    /// The same in every run: which shard a connection belongs to must not change.
    pub(super) const FIXED: Self = KeyHasher([0x9e37_79b9_7f4a_7c15, 0xd1b5_4a32_d192_ed03]);

    /// Another in every run.
    pub(super) fn random() -> Self {
        let seed = |n: u64| {
            let mut hasher = RandomState::new().build_hasher();
            hasher.write_u64(n);
            hasher.finish()
        };
        KeyHasher([seed(1), seed(2)])
    }

    #[inline(always)]
    pub(super) fn hash(self, key: &Key) -> u64 {
        let [seed, other] = self.0;
        let [a, b, c, d, e] = key.0;
        let mut hash = fold(a ^ seed, b ^ other);
        if e != 0 {
            hash = fold(hash ^ c ^ seed, d ^ other);
            hash ^= e;
        }
        fold(hash ^ other, seed | 1)
    }
}

#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}
