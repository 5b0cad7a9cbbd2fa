// SPDX-License-Identifier: Apache-2.0
//! The batches that wait to be pushed, and when to try: pure, with time as an argument.
//!
//! The rules (OTLP/HTTP, "Failures" and "Throttling"):
//!
//! 1. The oldest batch goes first.
//! 2. What may succeed later (no connection; 429, 502, 503, 504) is tried again after a
//!    pause: what the collector asks for (`Retry-After`), else one that doubles from
//!    [`FIRST_PAUSE`] to [`LONGEST_PAUSE`], each shortened by up to a half at random so
//!    that many agents do not come back as one.
//! 3. What will not succeed (any other status) is dropped.
//! 4. Past [`MAX_BATCHES`] the oldest batch is dropped.

use crate::counters::Outcome;
use crate::otlp::Batch;
use std::collections::VecDeque;
use std::time::Duration;

/// Batches that wait at most.
pub const MAX_BATCHES: usize = 4;

/// The pause after a first failure.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// The longest pause, also if the collector asks for a longer one.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// What waits.
#[derive(Debug, Default)]
pub struct Queue {
    batches: VecDeque<Batch>,
    /// Failures in a row.
    failures: u32,
    /// Not before this moment, on the caller's clock.
    not_before: Duration,
}

impl Queue {
    /// Adds a batch; gives the points dropped for want of room.
    pub fn push(&mut self, batch: Batch) -> u64 {
        self.batches.push_back(batch);
        let mut dropped = 0;
        while self.batches.len() > MAX_BATCHES {
            dropped += self.batches.pop_front().map_or(0, |b| b.points);
        }
        dropped
    }

    /// How many batches wait.
    pub fn len(&self) -> usize {
        self.batches.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// When the next attempt is due; `None` if nothing waits.
    pub fn due(&self) -> Option<Duration> {
        (!self.batches.is_empty()).then_some(self.not_before)
    }

    /// The batch to try, if an attempt is due at `now`.
    pub fn next(&self, now: Duration) -> Option<&Batch> {
        self.batches.front().filter(|_| now >= self.not_before)
    }

    /// What came of trying [`Queue::next`] at `now`; gives the points that are lost.
    /// `random` is uniform in 0..1.
    pub fn done(&mut self, outcome: &Outcome, now: Duration, random: f64) -> u64 {
        match outcome {
            Outcome::Delivered { refused, .. } => {
                self.advance();
                *refused
            }
            Outcome::Refused { .. } => self.advance(),
            Outcome::Later { after, .. } => {
                let doubled = FIRST_PAUSE.saturating_mul(1 << self.failures.min(16));
                let pause = match after {
                    Some(after) => (*after).min(LONGEST_PAUSE),
                    None => doubled.min(LONGEST_PAUSE).mul_f64(1.0 - random / 2.0),
                };
                self.failures += 1;
                self.not_before = now + pause;
                0
            }
        }
    }

    fn advance(&mut self) -> u64 {
        self.failures = 0;
        self.not_before = Duration::ZERO;
        self.batches.pop_front().map_or(0, |b| b.points)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(points: u64) -> Batch {
        Batch {
            body: vec![points as u8],
            points,
        }
    }

    fn later(after: Option<u64>) -> Outcome {
        Outcome::Later {
            after: after.map(Duration::from_secs),
            reason: String::new(),
        }
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn pauses_double_up_to_a_bound() {
        let mut queue = Queue::default();
        assert_eq!(queue.push(batch(1)), 0);
        let mut now = Duration::ZERO;
        let mut pauses = Vec::new();
        for _ in 0..12 {
            assert!(queue.next(now).is_some());
            assert_eq!(queue.done(&later(None), now, 0.0), 0);
            let due = queue.due().unwrap();
            assert!(queue.next(due - Duration::from_millis(1)).is_none());
            pauses.push((due - now).as_secs());
            now = due;
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]);
        queue.done(&later(None), now, 1.0);
        assert_eq!(queue.due(), Some(now + at(150)));
    }

    #[test]
    fn a_collector_says_when() {
        let mut queue = Queue::default();
        queue.push(batch(1));
        queue.done(&later(Some(7)), at(100), 0.5);
        assert_eq!(queue.due(), Some(at(107)));
        queue.done(&later(Some(1_000_000)), at(107), 0.5);
        assert_eq!(queue.due(), Some(at(407)));
    }

    #[test]
    fn the_oldest_goes_first_and_is_dropped_first() {
        let mut queue = Queue::default();
        let dropped: Vec<u64> = (1..=6).map(|points| queue.push(batch(points))).collect();
        assert_eq!(dropped, [0, 0, 0, 0, 1, 2]);
        assert_eq!(queue.len(), MAX_BATCHES);
        assert_eq!(queue.next(at(0)), Some(&batch(3)));
        let delivered = Outcome::Delivered {
            refused: 2,
            reason: String::new(),
        };
        assert_eq!(queue.done(&delivered, at(0), 0.0), 2);
        let refused = Outcome::Refused {
            reason: String::new(),
        };
        assert_eq!(queue.done(&refused, at(0), 0.0), 4);
        assert_eq!(queue.next(at(0)), Some(&batch(5)));
    }

    #[test]
    fn success_ends_the_pauses() {
        let mut queue = Queue::default();
        queue.push(batch(1));
        queue.push(batch(2));
        for now in [0, 10, 20] {
            queue.done(&later(None), at(now), 0.0);
        }
        let delivered = Outcome::Delivered {
            refused: 0,
            reason: String::new(),
        };
        queue.done(&delivered, at(30), 0.0);
        assert_eq!(queue.next(at(30)), Some(&batch(2)));
        queue.done(&later(None), at(30), 0.0);
        assert_eq!(queue.due(), Some(at(31)));
    }
}
