// SPDX-License-Identifier: Apache-2.0
//! Numbers for tests: the same each time.

/// `count` values, each made of a number of Marsaglia's xorshift64 (13, 7, 17).
pub fn random<T>(count: usize, of: impl Fn(u64) -> T) -> Vec<T> {
    let mut state = 88_172_645_463_325_252u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    (0..count).map(|_| of(next())).collect()
}
