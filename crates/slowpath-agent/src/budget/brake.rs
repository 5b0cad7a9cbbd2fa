// SPDX-License-Identifier: Apache-2.0
//! The CPU time of the past five seconds, and whether another poll fits into it.

use slowpath_model::{Micros, MonoNanos};
use std::collections::VecDeque;

/// Over how long CPU shares are means.
pub(crate) const WINDOW: Micros = Micros(5_000_000);

/// Time is kept in pieces of this length.
const PIECE: Micros = Micros(100_000);

/// Longest time without a poll, whatever the cost: what closed has to be taken over.
const PATIENCE: Micros = Micros(4_500_000);

/// What is left free of the upper end, since nothing costs quite what was expected.
const MARGIN: f64 = 0.03;

/// The sliding window.
#[derive(Debug)]
pub(crate) struct Brake {
    /// When each piece began, and what was spent in it.
    pieces: VecDeque<(MonoNanos, Micros)>,
    last_poll: MonoNanos,
    /// Polls left out.
    pub left_out: u64,
}

impl Brake {
    /// An empty window.
    pub fn new(now: MonoNanos) -> Self {
        Brake {
            pieces: VecDeque::new(),
            last_poll: now,
            left_out: 0,
        }
    }

    /// `cpu` was spent until `now`.
    pub fn spent(&mut self, now: MonoNanos, cpu: Micros) {
        self.forget(now);
        match self.pieces.back_mut() {
            Some((began, spent)) if now.since(*began) < PIECE => *spent += cpu,
            _ => self.pieces.push_back((now, cpu)),
        }
    }

    /// A piece counts until all of it is five seconds old.
    fn forget(&mut self, now: MonoNanos) {
        while self
            .pieces
            .front()
            .is_some_and(|(at, _)| now.since(*at) >= WINDOW + PIECE)
        {
            self.pieces.pop_front();
        }
    }

    /// CPU of the past five seconds, as a share of one core, or a little more.
    pub fn used(&self, now: MonoNanos) -> f64 {
        let recent = (self.pieces.iter()).filter(|(at, _)| now.since(*at) < WINDOW + PIECE);
        let spent: u64 = recent.map(|(_, cpu)| cpu.0).sum();
        spent as f64 / WINDOW.0 as f64
    }

    /// Whether work that costs about `expected` leaves the mean below `limit` of a
    /// core.
    pub fn fits(&mut self, now: MonoNanos, expected: Micros, limit: f64) -> bool {
        self.forget(now);
        let share = self.used(now) + expected.0 as f64 / WINDOW.0 as f64;
        share <= limit * (1.0 - MARGIN)
    }

    /// Whether a poll that costs about `expected` may be made.
    pub fn allows(&mut self, now: MonoNanos, expected: Micros, limit: f64) -> bool {
        let allowed = self.fits(now, expected, limit) || now.since(self.last_poll) >= PATIENCE;
        if allowed {
            self.last_poll = now;
        } else {
            self.left_out += 1;
        }
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> MonoNanos {
        MonoNanos(ms * 1_000_000 + 1)
    }

    #[test]
    fn no_five_seconds_hold_more_than_allowed() {
        let mut brake = Brake::new(at(0));
        let mut spent: Vec<(u64, u64)> = Vec::new();
        // A poll of 4 ms is due every 50 ms: 8 % of a core, four times what is allowed.
        for ms in (0..60_000).step_by(50) {
            if brake.allows(at(ms), Micros(4_000), 0.02) {
                brake.spent(at(ms), Micros(4_000));
                spent.push((ms, 4_000));
            }
            let window = spent.iter().filter(|(t, _)| t + 5_000 > ms);
            let sum: u64 = window.map(|(_, cpu)| cpu).sum();
            assert!(sum <= 100_000, "{ms}: {sum}");
        }
        let total: u64 = spent.iter().map(|(_, cpu)| cpu).sum();
        // 2 % of a minute, less the margin and what does not fit into a window.
        assert!((1_100_000..=1_164_000).contains(&total), "{total}");
        assert_eq!(brake.left_out as usize, 1_200 - spent.len());
    }

    #[test]
    fn a_poll_is_never_put_off_for_ever() {
        let mut brake = Brake::new(at(0));
        let made: Vec<u64> = (0..10_000)
            .step_by(100)
            .filter(|ms| brake.allows(at(*ms), Micros(1), 0.0))
            .collect();
        assert_eq!(made, [4_500, 9_000]);
    }
}
