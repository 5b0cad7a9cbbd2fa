// SPDX-License-Identifier: Apache-2.0
//! What the BPF programs cost in others' contexts, sampled: the kernel books run times only
//! while it is asked to, and each run then costs more.

use slowpath_model::{Micros, MonoNanos};

/// How long each sample is.
const SAMPLE: Micros = Micros(200_000);

/// Time from one sample to the next.
const PAUSE: Micros = Micros(10_000_000);

/// Who books the run times of the programs.
pub(crate) trait Meter {
    /// Begins to book; `false` if the kernel refuses.
    fn begin(&mut self) -> bool;
    /// Ends it.
    fn end(&mut self);
    /// Nanoseconds booked so far for programs that run outside of polls.
    fn nanos(&self) -> u64;
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

    /// Time passes.
    pub fn tick(&mut self, now: MonoNanos, meter: &mut impl Meter) {
        match self.state {
            State::Resting { until } if now >= until => {
                self.state = if meter.begin() {
                    State::Sampling {
                        since: now,
                        nanos: meter.nanos(),
                    }
                } else {
                    State::Refused
                };
            }
            State::Sampling { since, nanos } if now.since(since) >= SAMPLE => {
                let spent = meter.nanos().saturating_sub(nanos);
                meter.end();
                let share = spent as f64 / 1e3 / now.since(since).0 as f64;
                // A sample is short: half of the past stays.
                self.share = Some(self.share.map_or(share, |past| (past + share) / 2.0));
                self.state = State::Resting { until: now + PAUSE };
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Script {
        refuses: bool,
        booking: bool,
        begins: u32,
        nanos: u64,
    }

    impl Meter for Script {
        fn begin(&mut self) -> bool {
            self.begins += 1;
            self.booking = !self.refuses;
            self.booking
        }
        fn end(&mut self) {
            self.booking = false;
        }
        fn nanos(&self) -> u64 {
            self.nanos
        }
    }

    #[test]
    fn programs_that_take_half_a_percent_are_found_to() {
        let mut sampler = Sampler::new(MonoNanos(0));
        let mut meter = Script::default();
        let mut booked = 0;
        for ms in 0..60_000u64 {
            if meter.booking {
                meter.nanos += 5_000;
                booked += 1;
            }
            sampler.tick(MonoNanos(ms * 1_000_000), &mut meter);
        }
        assert!((sampler.share().unwrap() - 0.005).abs() < 1e-6);
        assert_eq!(meter.begins, 6);
        assert!(booked <= 6 * 201, "{booked} ms of sixty seconds");
    }

    #[test]
    fn who_is_refused_does_not_know_and_asks_no_more() {
        let mut sampler = Sampler::new(MonoNanos(0));
        let mut meter = Script {
            refuses: true,
            ..Script::default()
        };
        for second in 0..100 {
            sampler.tick(MonoNanos(second * 1_000_000_000), &mut meter);
        }
        assert_eq!((sampler.share(), meter.begins), (None, 1));
    }
}
