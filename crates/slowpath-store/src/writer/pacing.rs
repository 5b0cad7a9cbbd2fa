// SPDX-License-Identifier: Apache-2.0
//! How long a conversion rests, so that it takes no more than its share of a core.
//!
//! Times and CPU times come as arguments. After each piece of work the rest lasts until the
//! time since the previous rest is the piece's CPU time over the share. A pause for other
//! reasons (a slow disk) counts as rest but is not saved up: no stretch of time holds more
//! than its share and one piece.

use crate::CpuShare;
use std::time::Duration;

/// CPU time below which a rest is not worth its two switches.
const PIECE: Duration = Duration::from_millis(1);

/// With several segments waiting a conversion takes the share of so many.
const SHARES: u64 = 3;

/// From so many waiting segments on, conversions are not paced: the disk is what runs short.
const MANY: u64 = 16;

/// The rests of one thread.
#[derive(Debug, Default)]
pub(super) struct Pacer {
    /// Time and CPU time at the end of the previous rest.
    time: Duration,
    cpu: Duration,
}

impl Pacer {
    /// How long to rest now, at `time`, having used `cpu`; zero to go on. Asked again after
    /// that rest, or part of it.
    pub(super) fn rest(&mut self, time: Duration, cpu: Duration, share: CpuShare) -> Duration {
        let used = cpu.saturating_sub(self.cpu);
        if used < PIECE {
            return Duration::ZERO;
        }
        let rest = share
            .time_for(used)
            .saturating_sub(time.saturating_sub(self.time));
        if rest.is_zero() {
            *self = Pacer { time, cpu };
        }
        rest
    }
}

/// What a conversion may take while so many segments wait, it included; `None` for all.
pub(super) fn allowance(share: CpuShare, waiting: u64) -> Option<CpuShare> {
    (waiting < MANY).then(|| share.times(waiting.clamp(1, SHARES)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HALF_PERCENT: f64 = 0.005;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// Works in pieces of so many milliseconds and rests as asked; gives when each piece ended
    /// and the CPU time until then.
    fn work(pieces: &[u64], share: f64) -> Vec<(Duration, Duration)> {
        let mut pacer = Pacer::default();
        let (mut time, mut cpu) = (Duration::ZERO, Duration::ZERO);
        let mut ends = Vec::new();
        for piece in pieces {
            time += ms(*piece);
            cpu += ms(*piece);
            ends.push((time, cpu));
            loop {
                let rest = pacer.rest(time, cpu, CpuShare::of_core(share));
                if rest.is_zero() {
                    break;
                }
                // Woken early now and then.
                time += rest.min(ms(700));
            }
        }
        ends
    }

    #[test]
    fn no_five_seconds_hold_more_than_the_share_and_a_piece() {
        let pieces: Vec<u64> = (0..200).map(|i| 1 + i * 7 % 20).collect();
        let ends = work(&pieces, HALF_PERCENT);
        for (i, (from, before)) in ends.iter().enumerate() {
            for (to, after) in &ends[i..] {
                let allowed = (*to - *from).mul_f64(HALF_PERCENT) + ms(20);
                assert!(*after - *before <= allowed, "{from:?} {to:?}");
            }
        }
        let (time, cpu) = ends[199];
        let share = cpu.as_secs_f64() / time.as_secs_f64();
        assert!((0.0049..0.0051).contains(&share), "{share}");
    }

    #[test]
    fn pieces_below_a_millisecond_add_up() {
        let mut pacer = Pacer::default();
        let share = CpuShare::of_core(0.5);
        let us = Duration::from_micros;
        assert_eq!(pacer.rest(us(400), us(400), share), Duration::ZERO);
        assert_eq!(pacer.rest(us(800), us(800), share), Duration::ZERO);
        assert_eq!(pacer.rest(us(1_200), us(1_200), share), us(1_200));
        assert_eq!(pacer.rest(us(2_400), us(1_200), share), Duration::ZERO);
    }

    #[test]
    fn time_spent_waiting_for_the_disk_is_not_saved_up() {
        let mut pacer = Pacer::default();
        let share = CpuShare::of_core(0.1);
        assert_eq!(pacer.rest(ms(60_000), ms(10), share), Duration::ZERO);
        assert_eq!(pacer.rest(ms(60_010), ms(20), share), ms(90));
    }

    #[test]
    fn a_backlog_speeds_conversions_up() {
        let share = CpuShare::of_core(HALF_PERCENT);
        assert_eq!(allowance(share, 1), Some(share));
        assert_eq!(allowance(share, 0), Some(share));
        assert_eq!(allowance(share, 2), Some(CpuShare::of_core(0.01)));
        for waiting in [3, 15] {
            assert_eq!(allowance(share, waiting), Some(CpuShare::of_core(0.015)));
        }
        assert_eq!(allowance(share, 16), None);
    }
}
