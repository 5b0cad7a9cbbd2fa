// SPDX-License-Identifier: Apache-2.0
//! How RTT samples are spread: a histogram with eight steps an octave.

use std::time::Duration;

/// Steps an octave: a value is known to an eighth.
const STEPS: usize = 8;

/// Octaves from 1 µs on: up to 134 s.
const OCTAVES: usize = 27;

/// A histogram of durations. Those of a path are within few octaves, and there are many connections.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Spread {
    /// From the lowest octave to the highest.
    counts: Vec<[u32; STEPS]>,
    /// The lowest octave.
    first: usize,
    count: u64,
    least: u64,
}

impl Spread {
    /// Fetches the lowest octaves.
    #[inline]
    pub(super) fn prefetch(&self) {
        let start = self.counts.as_ptr().cast();
        crate::engine::prefetch_all(start, 4 * size_of::<[u32; STEPS]>());
    }

    /// Adds a sample.
    pub(super) fn add(&mut self, sample: Duration) {
        let nanos = u64::try_from(sample.as_nanos()).unwrap_or(u64::MAX);
        let (octave, step) = (step_of(nanos) / STEPS, step_of(nanos) % STEPS);
        if octave < self.first || octave - self.first >= self.counts.len() {
            self.reach(octave);
        }
        let step = &mut self.counts[octave - self.first][step];
        *step = step.saturating_add(1);
        self.least = match self.count {
            0 => nanos,
            _ => self.least.min(nanos),
        };
        self.count += 1;
    }

    /// Makes room for an octave.
    #[cold]
    fn reach(&mut self, octave: usize) {
        if self.counts.is_empty() {
            self.first = octave;
        }
        let below = self.first.saturating_sub(octave);
        self.counts
            .splice(..0, std::iter::repeat_n([0; STEPS], below));
        self.first -= below;
        let needed = octave - self.first + 1;
        self.counts
            .resize(needed.max(self.counts.len()), [0; STEPS]);
    }

    /// How many.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// The shortest; `None` if there is none.
    pub(super) fn least(&self) -> Option<Duration> {
        (self.count > 0).then(|| Duration::from_nanos(self.least))
    }

    /// The value that `percent` of all do not exceed, to an eighth; `None` if there is none.
    pub(super) fn percentile(&self, percent: u64) -> Option<Duration> {
        let rank = (self.count * percent).div_ceil(100).max(1);
        let mut observed = 0;
        for (step, count) in self.counts.as_flattened().iter().enumerate() {
            observed += u64::from(*count);
            if observed >= rank {
                let middle = middle_of(self.first * STEPS + step);
                return Some(Duration::from_nanos(middle.max(self.least)));
            }
        }
        None
    }
}

fn step_of(nanos: u64) -> usize {
    let micros = (nanos / 1_000).max(1);
    let octave = micros.ilog2() as usize;
    let within = nanos.saturating_mul(STEPS as u64) / 1_000 / (1 << octave);
    let step = (within as usize).saturating_sub(STEPS).min(STEPS - 1);
    (octave * STEPS + step).min(STEPS * OCTAVES - 1)
}

/// Nanoseconds in the middle of a step.
fn middle_of(step: usize) -> u64 {
    let (octave, step) = (step / STEPS, (step % STEPS) as u64);
    let steps = STEPS as u64;
    (1_000 << octave) * (2 * (steps + step) + 1) / (2 * steps)
}

#[cfg(test)]
mod tests {
    use super::Spread;
    use std::time::Duration;

    #[test]
    fn percentiles_are_known_to_an_eighth() {
        let mut spread = Spread::default();
        for ms in 1..=1000 {
            spread.add(Duration::from_millis(ms));
        }
        for percent in [5, 50, 95, 99] {
            let exact = 10.0 * percent as f64;
            let found = spread.percentile(percent).expect("there are samples");
            let error = (found.as_secs_f64() * 1e3 - exact).abs() / exact;
            assert!(error <= 0.125, "{percent}: {found:?}");
        }
        assert_eq!(spread.least(), Some(Duration::from_millis(1)));
    }

    #[test]
    fn the_order_of_samples_does_not_matter() {
        let mut samples = [1, 70_000, 3, 900, 12, 130_000_000, 40].map(Duration::from_micros);
        let mut spreads = Vec::new();
        for _ in 0..2 {
            let mut spread = Spread::default();
            samples.iter().for_each(|sample| spread.add(*sample));
            spreads.push(spread);
            samples.reverse();
        }
        assert_eq!(spreads[0], spreads[1]);
        // 40 us is the fourth of seven.
        let middle = spreads[0].percentile(50).expect("there are samples");
        let error = (middle.as_secs_f64() * 1e6 - 40.0).abs() / 40.0;
        assert!(error <= 0.125, "{middle:?}");
    }

    #[test]
    fn any_duration_is_taken() {
        let mut spread = Spread::default();
        for nanos in [0, 1, 999, 1_000, u64::MAX / 8, u64::MAX / 8 + 1] {
            spread.add(Duration::from_nanos(nanos));
        }
        assert_eq!(spread.count(), 6);
        assert!(spread.percentile(100).is_some());
    }
}
