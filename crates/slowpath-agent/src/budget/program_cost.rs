// SPDX-License-Identifier: Apache-2.0
//! What the BPF programs cost in others' contexts, sampled: the kernel measures run times only
//! while it is asked to, and each run then costs more. Pure: who reads the kernel does what
//! [`Sampler::due`] asks for.

use slowpath_model::{Micros, MonoNanos};

/// How long each sample is.
const SAMPLE: Micros = Micros(200_000);

/// Time from one sample to the next.
const PAUSE: Micros = Micros(10_000_000);

/// What is to be done now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sample {
    /// Have run times measured, and read them.
    Begin,
    /// Read run times, and have them measured no longer.
    End,
}

#[derive(Debug)]
enum State {
    Resting { until: MonoNanos },
    Sampling { since: MonoNanos, nanos: u64 },
    Refused,
}

/// The sampler.
#[derive(Debug)]
pub(crate) struct Sampler {
    state: State,
    share: Option<f64>,
}

impl Sampler {
    pub fn new(now: MonoNanos) -> Self {
        Sampler {
            state: State::Resting { until: now },
            share: None,
        }
    }

    /// The share of a core, as sampled lately; `None` before the first sample and where the
    /// kernel refuses.
    pub fn share(&self) -> Option<f64> {
        self.share
    }

    /// What is to be done at `now`, if anything.
    pub fn due(&self, now: MonoNanos) -> Option<Sample> {
        match self.state {
            State::Resting { until } if now >= until => Some(Sample::Begin),
            State::Sampling { since, .. } if now.since(since) >= SAMPLE => Some(Sample::End),
            _ => None,
        }
    }

    /// It was done: nanoseconds measured so far for programs that run outside of polls;
    /// `None` if the kernel refuses to measure.
    pub fn read(&mut self, now: MonoNanos, nanos: Option<u64>) {
        let Some(nanos) = nanos else {
            self.state = State::Refused;
            return;
        };
        if let State::Sampling {
            since,
            nanos: before,
        } = self.state
        {
            let spent = nanos.saturating_sub(before);
            let share = spent as f64 / 1e3 / now.since(since).0 as f64;
            // A sample is short: half of the past stays.
            self.share = Some(self.share.map_or(share, |past| (past + share) / 2.0));
            self.state = State::Resting { until: now + PAUSE };
        } else {
            self.state = State::Sampling { since: now, nanos };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_that_take_half_a_percent_are_measured_so() {
        let mut sampler = Sampler::new(MonoNanos(0));
        let (mut measuring, mut begins, mut nanos, mut measured) = (false, 0, 0, 0);
        for ms in 0..60_000u64 {
            let now = MonoNanos(ms * 1_000_000);
            if measuring {
                nanos += 5_000;
                measured += 1;
            }
            if let Some(sample) = sampler.due(now) {
                measuring = sample == Sample::Begin;
                begins += u32::from(measuring);
                sampler.read(now, Some(nanos));
            }
        }
        assert!((sampler.share().unwrap() - 0.005).abs() < 1e-6);
        assert_eq!(begins, 6);
        assert!(measured <= 6 * 201, "{measured} ms of sixty seconds");
    }

    #[test]
    fn after_a_refusal_nothing_is_known_and_nothing_is_asked() {
        let mut sampler = Sampler::new(MonoNanos(0));
        assert_eq!(sampler.due(MonoNanos(0)), Some(Sample::Begin));
        sampler.read(MonoNanos(0), None);
        for second in 0..100 {
            assert_eq!(sampler.due(MonoNanos(second * 1_000_000_000)), None);
        }
        assert_eq!(sampler.share(), None);
    }
}
