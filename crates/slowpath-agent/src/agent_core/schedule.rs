// SPDX-License-Identifier: Apache-2.0
//! When the next poll is due: Poisson times (SNAP section 3.2).

use slowpath_model::MonoNanos;
use std::time::Duration;

/// The polling times.
#[derive(Debug)]
pub(crate) struct PollSchedule {
    interval: Duration,
    random: fastrand::Rng,
    next: MonoNanos,
}

impl PollSchedule {
    /// The first poll is due at `now`.
    pub(super) fn new(interval: Duration, seed: Option<u64>, now: MonoNanos) -> Self {
        PollSchedule {
            interval,
            random: seed.map_or_else(fastrand::Rng::new, fastrand::Rng::with_seed),
            next: now,
        }
    }

    /// Plans the poll after the one at `now`: an exponentially distributed time away, within
    /// a hundredth and ten times the mean, which is the interval unless given.
    pub(super) fn plan_next(&mut self, now: MonoNanos, mean: Option<Duration>) {
        let mean = mean.unwrap_or(self.interval).as_secs_f64();
        let drawn = -mean * (1.0 - self.random.f64()).ln();
        let wait = Duration::from_secs_f64(drawn.clamp(mean / 100.0, mean * 10.0));
        self.next = now + wait.into();
    }

    pub(super) fn set_interval(&mut self, interval: Duration) {
        self.interval = interval;
    }

    /// Time from `now` until the next poll is due; zero if it is.
    pub(crate) fn until_next(&self, now: MonoNanos) -> Duration {
        Duration::from_micros(self.next.since(now).0)
    }
}
