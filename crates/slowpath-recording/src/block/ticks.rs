// SPDX-License-Identifier: Apache-2.0
//! `jiffies` as far as it does not follow from the time.
//!
//! The kernel advances `jiffies` at multiples of a tick of the monotonic clock (`tick_do_update_jiffies64`), now and then late. So a run's time gives its
//! `jiffies`, but for when within a tick the first run was, which is kept, and for runs to which the kernel was late.

use crate::{Moment, Run};

const SECOND: i128 = 1_000_000_000;

/// Predicts `jiffies` of runs after a first one.
#[derive(Clone, Debug)]
pub(super) struct Ticks {
    at: Moment,
    jiffies: u32,
    hz: u32,
    /// How long before the first run its tick had begun, in nanoseconds.
    phase: u64,
    /// What the last run had more than the time predicts.
    off: u32,
}

/// A tick, in nanoseconds; of an unknown rate, none.
fn tick(hz: u32) -> u64 {
    1_000_000_000u64.checked_div(hz.into()).unwrap_or(0)
}

/// When a run began whose time is not kept: `ticks` after the run before it.
pub(crate) fn later(before: Moment, ticks: i32, hz: u32) -> Moment {
    let nanos = i64::from(ticks).wrapping_mul(tick(hz) as i64);
    Moment(before.0.wrapping_add(nanos as u64))
}

impl Ticks {
    pub(super) fn new(at: Moment, jiffies: u32, hz: u32) -> Ticks {
        Ticks {
            at,
            jiffies,
            hz,
            phase: 0,
            off: 0,
        }
    }

    pub(super) fn hz(&self) -> u32 {
        self.hz
    }

    pub(super) fn set(&mut self, phase: u64) {
        self.phase = phase;
    }

    /// Finds a phase with which most runs' `jiffies` follow from their times, the nearest to the usual one, and gives it.
    pub(super) fn fit(&mut self, runs: &[Run], usual: u64) -> u64 {
        if self.hz == 0 {
            return 0;
        }
        let hz = i128::from(self.hz);
        // The first nanosecond of a tick, counted from the beginning of the first run's.
        let begins = |tick: i128| (tick * SECOND + hz - 1).div_euclid(hz);
        let (mut least, mut end) = (0, begins(1));
        for run in runs {
            let ticks = i128::from(run.jiffies.wrapping_sub(self.jiffies) as i32);
            let since = i128::from(run.at.0.wrapping_sub(self.at.0) as i64);
            let from = least.max(begins(ticks) - since);
            let to = end.min(begins(ticks + 1) - since);
            if from < to {
                (least, end) = (from, to);
            }
        }
        // Between 0 and a tick, which is at most a second.
        self.phase = i128::from(usual).clamp(least, end - 1) as u64;
        self.phase
    }

    /// How long before that moment its tick had begun.
    pub(super) fn phase_at(&self, at: Moment) -> u64 {
        if self.hz == 0 {
            return 0;
        }
        let hz = i128::from(self.hz);
        let since = i128::from(at.0.wrapping_sub(self.at.0) as i64) + i128::from(self.phase);
        // Less than a second.
        ((since * hz).rem_euclid(SECOND) / hz) as u64
    }

    /// What a later piece's first run has more than this one predicts.
    pub(super) fn differ_at(&self, run: &Run) -> i32 {
        run.jiffies.wrapping_sub(self.reported(run.at)) as i32
    }

    /// The reverse.
    pub(super) fn jiffies_at(&self, at: Moment, more: i64) -> u32 {
        self.reported(at).wrapping_add(more as u32)
    }

    fn reported(&self, at: Moment) -> u32 {
        let since = i128::from(at.0.wrapping_sub(self.at.0) as i64) + i128::from(self.phase);
        let ticks = (since * i128::from(self.hz)).div_euclid(SECOND);
        self.jiffies.wrapping_add(ticks as u32)
    }

    /// What this run has more than predicted, beyond what the run before it had.
    pub(super) fn differ(&mut self, run: &Run) -> i32 {
        let off = run.jiffies.wrapping_sub(self.reported(run.at));
        let more = off.wrapping_sub(self.off) as i32;
        self.off = off;
        more
    }

    /// The reverse.
    pub(super) fn jiffies(&mut self, at: Moment, more: i64) -> u32 {
        self.off = self.off.wrapping_add(more as u32);
        self.reported(at).wrapping_add(self.off)
    }
}
