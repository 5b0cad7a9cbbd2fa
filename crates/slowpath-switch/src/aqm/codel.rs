// SPDX-License-Identifier: Apache-2.0
//! Controlled delay.

use super::{AqmError, Passing, Verdict};
use crate::time::{Span, Time};

/// No time is longer.
const MOST: Span = Span::from_millis(1_000_000);
/// Intervals after which the rate of the last time of dropping is forgotten (RFC 8289 section 5.6).
const REMEMBERED: u64 = 16;

/// Controlled delay (RFC 8289). When every packet of an interval waited for longer than the target,
/// one is dropped, and others at distances that shrink with the square root of their number, until
/// one waited for less.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoDel {
    /// The waiting time that a queue may have for long.
    pub target: Span,
    /// For how long it may have more: a round trip, the longest usual one.
    pub interval: Span,
    /// Marks ECN-capable packets instead.
    pub ecn: bool,
}

impl Default for CoDel {
    /// 5 ms and 100 ms (RFC 8289 sections 4.3 and 4.4).
    fn default() -> Self {
        CoDel {
            target: Span::from_millis(5),
            interval: Span::from_millis(100),
            ecn: true,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct State {
    config: CoDel,
    /// The longest packet that came: a queue that holds no more than that is no standing one.
    longest: u32,
    /// When packets will have waited too long for an interval; `None`: they do not.
    first_above: Option<Time>,
    /// When the next is dropped, while packets are.
    dropping: bool,
    drop_next: Time,
    count: u64,
    last_count: u64,
    /// A packet was dropped for the one that leaves now: the state stands behind that.
    repeated: bool,
}

impl State {
    pub fn new(config: CoDel) -> Result<Self, AqmError> {
        let good = |time: Span| time > Span::ZERO && time <= MOST;
        if !good(config.target) || !good(config.interval) {
            return Err(AqmError::Time);
        }
        Ok(State {
            config,
            longest: 0,
            first_above: None,
            dropping: false,
            drop_next: Time::ZERO,
            count: 0,
            last_count: 0,
            repeated: false,
        })
    }

    pub fn arrives(&mut self, packet: Passing) {
        self.longest = self.longest.max(packet.bytes);
    }

    /// Of the first packet. After [`Verdict::Drop`] the next one's turn is at the same time.
    pub fn leaves(&mut self, packet: Passing, came: Time) -> Verdict {
        let now = packet.now;
        let mark = packet.capable && self.config.ecn;
        let too_long = self.is_too_long(packet, now.since(came));
        let again = core::mem::take(&mut self.repeated);
        if self.dropping {
            if !too_long {
                self.dropping = false;
                return Verdict::Pass;
            }
            if again {
                self.drop_next = self.next(self.drop_next);
            }
            if now < self.drop_next {
                return Verdict::Pass;
            }
            self.count += 1;
            if mark {
                self.drop_next = self.next(self.drop_next);
                return Verdict::Mark;
            }
            self.repeated = true;
            return Verdict::Drop;
        }
        if !too_long {
            return Verdict::Pass;
        }
        self.begin(now);
        Verdict::signal(mark)
    }

    /// Packets begin to be dropped.
    fn begin(&mut self, now: Time) {
        self.dropping = true;
        let since_last = self.count - self.last_count;
        let lately = now.since(self.drop_next).0 < REMEMBERED * self.config.interval.0;
        self.count = if since_last > 1 && lately {
            since_last
        } else {
            1
        };
        self.drop_next = self.next(now);
        self.last_count = self.count;
    }

    /// Whether packets have waited too long for an interval (`dodequeue` of RFC 8289 section 5.5).
    fn is_too_long(&mut self, packet: Passing, waited: Span) -> bool {
        if waited < self.config.target || packet.queue.bytes <= u64::from(self.longest) {
            self.first_above = None;
            return false;
        }
        match self.first_above {
            None => {
                self.first_above = Some(packet.now + self.config.interval);
                false
            }
            Some(first) => packet.now >= first,
        }
    }

    /// The control law: an interval by the square root of the count later.
    fn next(&self, from: Time) -> Time {
        // The root with 16 binary digits behind the point: the count is far below 2^32.
        let root = (self.count.min(u64::from(u32::MAX)) << 32).isqrt().max(1);
        let step = (u128::from(self.config.interval.0) << 16) / u128::from(root);
        // At most an interval.
        from + Span(step as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::Depth;
    use crate::time::Rate;
    use alloc::vec::Vec;

    fn packet(now: Time, packets: u32, capable: bool) -> Passing {
        Passing {
            now,
            queue: Depth {
                bytes: u64::from(packets) * 1_000,
                packets,
            },
            leaving: true,
            bytes: 1_000,
            capable,
            rate: Rate::from_bits_per_second(8_000_000).unwrap(),
        }
    }

    /// When packets are dropped that all waited for `waited`, one a millisecond, for as long.
    fn drops(
        state: &mut State,
        from: u64,
        milliseconds: u64,
        waited: u64,
        capable: bool,
    ) -> Vec<u64> {
        state.arrives(packet(Time::ZERO, 0, capable));
        let mut at = Vec::new();
        for ms in from..from + milliseconds {
            let now = Time::from_nanos(ms * 1_000_000);
            let came = Time::from_nanos((ms - waited) * 1_000_000);
            while state.leaves(packet(now, 50, capable), came) != Verdict::Pass {
                at.push(ms);
                if capable {
                    break;
                }
            }
        }
        at
    }

    /// The first after an interval of too much waiting, the next at distances of 100 ms by the
    /// square root of their number.
    #[test]
    fn distances_shrink_with_the_square_root() {
        for capable in [false, true] {
            let mut state = State::new(CoDel::default()).unwrap();
            let found = drops(&mut state, 1_000, 1_000, 50, capable);
            let mut expected = Vec::from([1_100]);
            let mut next = 1_100.0;
            for count in 1.. {
                next += 100.0 / f64::from(count).sqrt();
                if next >= 2_000.0 {
                    break;
                }
                // The first packet at or after it.
                expected.push(next.ceil() as u64);
            }
            assert_eq!(found, expected, "{capable}");
        }
    }

    #[test]
    fn short_waits_and_short_queues_end_it() {
        let mut state = State::new(CoDel::default()).unwrap();
        assert!(!drops(&mut state, 1_000, 500, 50, false).is_empty());
        assert!(state.dropping);
        assert!(drops(&mut state, 1_500, 500, 4, false).is_empty());
        assert!(!state.dropping);
        // One packet that waits long is no standing queue.
        for ms in 0..400 {
            let now = Time::from_nanos((3_000 + ms) * 1_000_000);
            assert_eq!(
                state.leaves(packet(now, 1, false), Time::ZERO),
                Verdict::Pass
            );
        }
        assert!(state.first_above.is_none());
    }

    /// Soon after, it goes on at the rate of before (RFC 8289 section 5.6).
    #[test]
    fn the_rate_is_remembered() {
        let mut state = State::new(CoDel::default()).unwrap();
        let before = drops(&mut state, 1_000, 1_500, 50, false).len() as u64;
        drops(&mut state, 2_500, 100, 1, false);
        drops(&mut state, 2_600, 101, 50, false);
        assert_eq!(state.count, before - 1);
        // And not long after.
        drops(&mut state, 2_701, 5_000, 1, false);
        drops(&mut state, 7_701, 101, 50, false);
        assert_eq!(state.count, 1);
    }

    #[test]
    fn impossible_times_are_refused() {
        let wrong = CoDel {
            target: Span::ZERO,
            ..CoDel::default()
        };
        assert_eq!(State::new(wrong).err(), Some(AqmError::Time));
    }
}
