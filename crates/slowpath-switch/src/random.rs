// SPDX-License-Identifier: Apache-2.0
//! Random numbers from a seed.

/// SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, OOPSLA
/// 2014): one addition and a mix a number, every seed as good as another.
#[derive(Clone, Debug)]
pub struct Random(u64);

/// The increment of SplitMix64: the golden ratio in 64 bits, odd.
const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// SplitMix64's mix: every bit of the input changes every bit of the output with
/// probability about 1/2 (Stafford's variant 13).
#[inline]
pub(crate) const fn mix(z: u64) -> u64 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Random {
    /// A generator.
    pub const fn new(seed: u64) -> Self {
        Random(seed)
    }

    /// A generator of its own for each number: the `stream`-th of that seed.
    pub const fn stream(seed: u64, stream: u64) -> Self {
        Random(mix(
            mix(seed.wrapping_add(GAMMA)) ^ stream.wrapping_mul(GAMMA)
        ))
    }

    /// The next 64 bits.
    #[inline]
    pub const fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GAMMA);
        mix(self.0)
    }

    /// A number below `bound`, each as likely as another; 0 if `bound` is 0. Lemire's
    /// method (Fast Random Integer Generation in an Interval, 2019).
    #[inline]
    pub const fn below(&mut self, bound: u32) -> u32 {
        let mut product = (self.next_u64() >> 32) * bound as u64;
        if (product as u32) < bound {
            // 2^32 modulo bound: that many first numbers would come once too often.
            let excess = bound.wrapping_neg() % bound;
            while (product as u32) < excess {
                product = (self.next_u64() >> 32) * bound as u64;
            }
        }
        (product >> 32) as u32
    }
}
