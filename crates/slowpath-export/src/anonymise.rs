// SPDX-License-Identifier: Apache-2.0
//! Replaces addresses and names by unrecognisable ones, with a key.
//!
//! What enters: a key of 128 bits and an address or a name. What leaves: another address or
//! name, the same for the same key.
//!
//! What is promised: two addresses that share their first n bits, and no more, do so
//! afterwards (Xu, Fan, Ammar and Moon: "Prefix-preserving IP address anonymization", ICNP
//! 2002, section 3, with SipHash-2-4 as the pseudorandom function): racks stay racks. The
//! map is one to one. Anyone who knows some of the addresses learns which prefixes others share
//! with them: an anonymised export hides hosts from strangers, not from insiders.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A key and what it does.
#[derive(Clone, Debug)]
pub struct Anonymiser {
    key: (u64, u64),
}

/// Separates the uses of one key.
#[derive(Clone, Copy)]
enum Domain {
    V4 = 4,
    V6 = 6,
    Name = 1,
}

impl Anonymiser {
    /// With this key.
    pub fn new(key: [u8; 16]) -> Self {
        let [a, b] = [0, 8].map(|at| {
            let mut half = [0; 8];
            half.copy_from_slice(&key[at..at + 8]);
            u64::from_le_bytes(half)
        });
        Anonymiser { key: (a, b) }
    }

    /// Another address of the same family.
    pub fn address(&self, address: IpAddr) -> IpAddr {
        match address {
            IpAddr::V4(v4) => {
                let bits = u128::from(v4.to_bits()) << 96;
                let mapped = self.prefixes(bits, 32, Domain::V4);
                IpAddr::V4(Ipv4Addr::from_bits((mapped >> 96) as u32))
            }
            IpAddr::V6(v6) => {
                let mapped = self.prefixes(v6.to_bits(), 128, Domain::V6);
                IpAddr::V6(Ipv6Addr::from_bits(mapped))
            }
        }
    }

    /// Flips each of the first bits or not, as the bits before it say.
    fn prefixes(&self, bits: u128, length: u32, domain: Domain) -> u128 {
        let mut mapped = bits;
        for i in 0..length {
            let prefix = if i == 0 {
                0
            } else {
                bits >> (128 - i) << (128 - i)
            };
            let mut input = [0; 18];
            input[0] = domain as u8;
            input[1] = i as u8;
            input[2..].copy_from_slice(&prefix.to_be_bytes());
            let flip = siphash(self.key, &input) & 1;
            mapped ^= u128::from(flip) << (127 - i);
        }
        mapped
    }

    /// Sixteen digits instead of a name.
    pub fn name(&self, name: &str) -> String {
        let mut input = vec![Domain::Name as u8];
        input.extend(name.as_bytes());
        format!("{:016x}", siphash(self.key, &input))
    }
}

/// SipHash-2-4 (Aumasson and Bernstein, 2012, section 2).
fn siphash((k0, k1): (u64, u64), input: &[u8]) -> u64 {
    let mut v = [
        k0 ^ 0x736f_6d65_7073_6575,
        k1 ^ 0x646f_7261_6e64_6f6d,
        k0 ^ 0x6c79_6765_6e65_7261,
        k1 ^ 0x7465_6462_7974_6573,
    ];
    let mut take = |word: u64| {
        v[3] ^= word;
        round(&mut v);
        round(&mut v);
        v[0] ^= word;
    };
    let mut words = input.chunks_exact(8);
    for word in &mut words {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(word);
        take(u64::from_le_bytes(bytes));
    }
    let rest = words.remainder();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    last[7] = input.len() as u8;
    take(u64::from_le_bytes(last));
    v[2] ^= 0xff;
    for _ in 0..4 {
        round(&mut v);
    }
    v[0] ^ v[1] ^ v[2] ^ v[3]
}

fn round(v: &mut [u64; 4]) {
    v[0] = v[0].wrapping_add(v[1]);
    v[1] = v[1].rotate_left(13) ^ v[0];
    v[0] = v[0].rotate_left(32);
    v[2] = v[2].wrapping_add(v[3]);
    v[3] = v[3].rotate_left(16) ^ v[2];
    v[0] = v[0].wrapping_add(v[3]);
    v[3] = v[3].rotate_left(21) ^ v[0];
    v[2] = v[2].wrapping_add(v[1]);
    v[1] = v[1].rotate_left(17) ^ v[2];
    v[2] = v[2].rotate_left(32);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn key() -> [u8; 16] {
        std::array::from_fn(|i| i as u8)
    }

    #[test]
    fn siphash_is_that_of_its_paper() {
        // Appendix A: key 00..0f, input 00..0e.
        let Anonymiser { key } = Anonymiser::new(key());
        let input: Vec<u8> = (0..15).collect();
        assert_eq!(siphash(key, &input), 0xa129_ca61_49be_45e5);
    }

    fn shared(a: IpAddr, b: IpAddr) -> u32 {
        match (a, b) {
            (IpAddr::V4(a), IpAddr::V4(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
            (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
            _ => panic!("families differ"),
        }
    }

    #[test]
    fn prefixes_stay_as_long_as_they_were() {
        let anonymiser = Anonymiser::new(key());
        for group in [
            &[
                "10.0.0.1",
                "10.0.0.2",
                "10.0.1.1",
                "10.128.0.1",
                "192.0.2.1",
                "0.0.0.0",
            ][..],
            &[
                "2001:db8::1",
                "2001:db8::2",
                "2001:db8:0:1::1",
                "fe80::1",
                "::",
            ],
        ] {
            let addresses: Vec<IpAddr> = group.iter().map(|a| a.parse().unwrap()).collect();
            for a in &addresses {
                assert_ne!(anonymiser.address(*a), *a);
                for b in &addresses {
                    let mapped = shared(anonymiser.address(*a), anonymiser.address(*b));
                    assert_eq!(mapped, shared(*a, *b), "{a} {b}");
                }
            }
        }
    }

    #[test]
    fn no_two_share_an_address_and_keys_differ() {
        let (one, other) = (Anonymiser::new(key()), Anonymiser::new([7; 16]));
        let all: Vec<IpAddr> = (0..4096)
            .map(|i| Ipv4Addr::from_bits(0x0a00_0000 + i).into())
            .collect();
        let mapped: BTreeSet<IpAddr> = all.iter().map(|a| one.address(*a)).collect();
        assert_eq!(mapped.len(), all.len());
        assert_ne!(one.address(all[0]), other.address(all[0]));
        assert_ne!(one.name("nginx.service"), other.name("nginx.service"));
        assert_ne!(one.name("a"), one.name("b"));
    }
}
