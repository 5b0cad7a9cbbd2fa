// SPDX-License-Identifier: Apache-2.0
//! Samples in whole microseconds: numbers that take fewer bytes, within the same threshold.
//!
//! 1. A time is rounded to a microsecond: half a microsecond off at most.
//! 2. The sampler gets a threshold that is a microsecond less.
//! 3. What the packets after a sample took is rounded to a microsecond: half a microsecond off at the last of them at most, and less before.

use crate::sampling::{Sample, Sampler};

const MICRO: u64 = 1_000;

/// A [`Sampler`] whose samples are whole microseconds.
#[derive(Clone, Debug)]
pub struct CoarseSampler {
    sampler: Sampler,
    rounds: bool,
    packets: u64,
}

impl CoarseSampler {
    /// A sampler that infers times within `threshold` nanoseconds. Below 2 us it rounds nothing.
    pub fn new(threshold: u32) -> Self {
        let rounds = u64::from(threshold) >= 2 * MICRO;
        let less = if rounds { MICRO as u32 } else { 0 };
        CoarseSampler {
            sampler: Sampler::new(threshold - less),
            rounds,
            packets: 0,
        }
    }

    /// The next packet was sent at `time`, in nanoseconds. Gives the sample before it, if this one is a sample too.
    pub fn push(&mut self, time: u64) -> Option<Sample> {
        let sample = self.sampler.push(self.rounded(time));
        let sample = sample.map(|sample| self.whole(sample));
        self.packets += 1;
        sample
    }

    /// The sample that the last packets belong to.
    pub fn finish(&mut self) -> Option<Sample> {
        let sample = self.sampler.finish()?;
        Some(self.whole(sample))
    }

    fn rounded(&self, nanos: u64) -> u64 {
        match self.rounds {
            true => nanos.saturating_add(MICRO / 2) / MICRO * MICRO,
            false => nanos,
        }
    }

    /// Rounds the step of a sample whose packets all have come.
    fn whole(&self, mut sample: Sample) -> Sample {
        // A step over fewer packets than there are would be further off at the last.
        let packets = self.packets.saturating_sub(sample.index + 1);
        if sample.step.denominator.get() >= packets {
            sample.step.numerator = self.rounded(sample.step.numerator);
        }
        sample
    }
}
