// SPDX-License-Identifier: Apache-2.0
//! Samples of a piece: how many packets on, how long after what the sample before predicts, and the step.

use super::column::{Column, Dense, Reading, Sparse, Writing};
use super::{common_divisor, spend};
use crate::error::Nonsense;
use crate::sampling::{Sample, Step};
use crate::varint::{put, put_signed};
use std::num::NonZeroU64;

fn since(base: u64, time: u64) -> i64 {
    time.wrapping_sub(base) as i64
}

/// Whole units in a time, rounded down.
fn units(nanos: i64, unit: u64) -> i64 {
    // At most the number itself, as a unit is at least 1.
    i128::from(nanos).div_euclid(i128::from(unit.max(1))) as i64
}

/// The denominator of a sample's step, as it usually is: the packets that follow it before the next one.
fn packets(index: u64, next: Option<u64>) -> u64 {
    next.map_or(1, |next| next.wrapping_sub(index).wrapping_sub(1).max(1))
}

/// Appends samples. The first one's time counts from `base`.
pub(super) fn put_samples(samples: &[Sample], base: u64, out: &mut Writing) {
    let Some(first) = samples.first() else {
        return;
    };
    let unit = samples
        .iter()
        .map(|sample| since(first.time, sample.time).unsigned_abs())
        .fold(0, common_divisor)
        .max(1);
    let grain = samples
        .iter()
        .map(|sample| sample.step.numerator)
        .fold(0, common_divisor)
        .max(1);
    put_signed(&mut out[Column::Clocks], since(base, first.time));
    put(&mut out[Column::Clocks], unit);
    put(&mut out[Column::Clocks], grain);
    let mut divisors = Sparse::new(Column::DivisorPlaces, Column::Divisors);
    let mut before: Option<&Sample> = None;
    for (place, sample) in samples.iter().enumerate() {
        let index = before.map_or(0, |before| before.index);
        put_signed(&mut out[Column::Sampled], since(index, sample.index));
        if let Some(before) = before {
            let reported = units(since(first.time, before.infer(sample.index)), unit);
            let is = units(since(first.time, sample.time), unit);
            put_signed(&mut out[Column::SampledTimes], is.wrapping_sub(reported));
        }
        put(&mut out[Column::Steps], sample.step.numerator / grain);
        let usual = packets(sample.index, samples.get(place + 1).map(|next| next.index));
        divisors.push(since(usual, sample.step.denominator.get()), out);
        before = Some(sample);
    }
    divisors.end(out);
}

/// The reverse.
pub(super) fn samples(
    count: u64,
    base: u64,
    from: &mut Reading<'_>,
    events: &mut usize,
) -> Result<Vec<Sample>, Nonsense> {
    if count == 0 {
        return Ok(Vec::new());
    }
    spend(events, usize::try_from(count).unwrap_or(usize::MAX))?;
    let first = base.wrapping_add(from[Column::Clocks].signed()? as u64);
    let unit = from[Column::Clocks].number()?;
    let grain = from[Column::Clocks].number()?;
    let mut indices = Vec::new();
    let mut index = 0u64;
    for _ in 0..count {
        index = index.wrapping_add(from[Column::Sampled].signed()? as u64);
        indices.push(index);
    }
    let mut divisors = Dense::new(Column::DivisorPlaces, Column::Divisors, from)?;
    let mut samples: Vec<Sample> = Vec::new();
    for (place, index) in indices.iter().enumerate() {
        let time = match samples.last() {
            None => first,
            Some(before) => {
                let reported = units(since(first, before.infer(*index)), unit);
                let is = reported.wrapping_add(from[Column::SampledTimes].signed()?);
                first.wrapping_add(is.wrapping_mul(unit as i64) as u64)
            }
        };
        let usual = packets(*index, indices.get(place + 1).copied());
        let denominator = usual.wrapping_add(divisors.next(from)? as u64);
        let large = Nonsense::Large {
            what: Column::Steps.name(),
        };
        let numerator = from[Column::Steps].number()?.checked_mul(grain);
        samples.push(Sample {
            index: *index,
            time,
            step: Step {
                numerator: numerator.ok_or(large)?,
                denominator: NonZeroU64::new(denominator).ok_or(large)?,
            },
        });
    }
    divisors.end()?;
    Ok(samples)
}
