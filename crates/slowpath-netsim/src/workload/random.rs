// SPDX-License-Identifier: Apache-2.0
//! Random numbers of the kinds that workloads need.

use slowpath_switch::{Random, Span};

/// A number in (0, 1], a multiple of 2^-53, each as likely as another.
pub(super) fn uniform(random: &mut Random) -> f64 {
    ((random.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64
}

/// An exponentially distributed time of that mean, in picoseconds; a century at most.
pub(super) fn exponential(random: &mut Random, mean: f64) -> Span {
    let time = -natural_logarithm(uniform(random)) * mean;
    // The conversion saturates; half a picosecond more rounds.
    Span((time + 0.5) as u64)
}

/// The natural logarithm of a number in (0, 1], the same on every machine, which a library's
/// need not be.
///
/// With x = m 2^e and m in [sqrt(1/2), sqrt(2)): ln x = e ln 2 + 2 atanh((m - 1)/(m + 1)).
/// The argument s of atanh is at most 0.172, so that the terms s^(2k+1)/(2k+1) from k = 11
/// on are below 2^-55 of the first.
pub(super) fn natural_logarithm(x: f64) -> f64 {
    let bits = x.to_bits();
    let mut exponent = (bits >> 52) as i32 - 1023;
    let mut mantissa = f64::from_bits((bits & ((1 << 52) - 1)) | (1023 << 52));
    if mantissa > std::f64::consts::SQRT_2 {
        mantissa /= 2.0;
        exponent += 1;
    }
    let s = (mantissa - 1.0) / (mantissa + 1.0);
    let square = s * s;
    let mut sum = 0.0;
    for k in (0..=11).rev() {
        sum = sum * square + 1.0 / f64::from(2 * k + 1);
    }
    f64::from(exponent) * std::f64::consts::LN_2 + 2.0 * s * sum
}
