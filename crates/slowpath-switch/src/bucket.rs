// SPDX-License-Identifier: Apache-2.0
//! A token bucket in exact integers.

use crate::time::Time;

/// Parts of a token: at a rate of one token a second, a picosecond brings one part.
const PARTS: u128 = 1_000_000_000_000;

/// A token bucket: begins full, is filled at a rate up to its size, and what takes more than it
/// holds takes nothing. The meter of RFC 2697 section 3 with one bucket (an excess burst size
/// of 0). A token is whatever the caller counts: a bit, a message.
///
/// Exact: over any time t from the beginning at most `size + rate t` tokens are taken, and
/// whoever asks for no more than is there gets it. No part of a token is rounded away.
#[derive(Clone, Debug)]
pub struct TokenBucket {
    /// Tokens a second: parts a picosecond.
    rate: u64,
    /// In parts.
    size: u128,
    /// In parts.
    level: u128,
    /// When it was as full as `level` says.
    at: Time,
}

impl TokenBucket {
    /// A full one that gets `rate` tokens a second and holds `size`.
    pub fn new(rate: u64, size: u64, at: Time) -> Self {
        let size = u128::from(size) * PARTS;
        TokenBucket {
            rate,
            size,
            level: size,
            at,
        }
    }

    /// Takes `tokens` tokens if it holds them. A time before that of the last call counts as that.
    pub fn take(&mut self, now: Time, tokens: u64) -> bool {
        // Both factors are below 2^64, and `size` is below 2^64 * 10^12: no sum overflows.
        let filled = u128::from(self.rate) * u128::from(now.since(self.at).0);
        self.level = self.level.saturating_add(filled).min(self.size);
        self.at = self.at.max(now);
        let wanted = u128::from(tokens) * PARTS;
        let enough = wanted <= self.level;
        if enough {
            self.level -= wanted;
        }
        enough
    }
}
