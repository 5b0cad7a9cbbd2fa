// SPDX-License-Identifier: Apache-2.0
//! What a line does to packets: the decisions.

use super::plan::{BitErrors, Burst, Impairment, Pick, Share};
use crate::random::Random;
use crate::time::{Span, Time};

/// Streams of lines begin here; switches have the numbers below.
const STREAMS: u64 = 1 << 63;

/// The state of a [`Pick`].
#[derive(Clone, Debug)]
struct Picker {
    counted: u64,
    /// Where in the chosen numbers the next can be.
    next: usize,
    bad: bool,
    share: Random,
    burst: Random,
}

impl Picker {
    fn new(share: Random, burst: Random) -> Self {
        Picker {
            counted: 0,
            next: 0,
            bad: false,
            share,
            burst,
        }
    }

    fn picks(&mut self, pick: &Pick, bytes: u32) -> bool {
        if bytes < pick.at_least {
            return false;
        }
        self.counted += 1;
        let number = self.counted;
        let by_share = pick.share != Share::NONE && pick.share.has(self.share.next_u64());
        let by_burst = pick.burst.is_some_and(|burst| self.in_burst(burst));
        while pick
            .numbers
            .get(self.next)
            .is_some_and(|range| range.1 < number)
        {
            self.next += 1;
        }
        let by_number = pick
            .numbers
            .get(self.next)
            .is_some_and(|range| range.0 <= number);
        let by_step = pick.every.is_some_and(|(first, step)| {
            // A step of 0 is refused with the plan.
            number >= first && (number - first).is_multiple_of(step)
        });
        by_share || by_burst || by_number || by_step
    }

    fn in_burst(&mut self, burst: Burst) -> bool {
        let change = if self.bad { burst.end } else { burst.begin };
        self.bad ^= change.has(self.burst.next_u64());
        let share = if self.bad { burst.bad } else { burst.good };
        share.has(self.burst.next_u64())
    }
}

/// What becomes of a packet on a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fate {
    /// It does not arrive.
    pub lost: bool,
    /// It arrives damaged.
    pub corrupted: bool,
    /// It arrives twice.
    pub copied: bool,
    /// It arrives after those behind it.
    pub late: bool,
}

/// A line's impairment and its state.
#[derive(Clone, Debug)]
pub struct Impaired {
    plan: Impairment,
    loss: Picker,
    corruption: Picker,
    copies: Picker,
    late: Picker,
    jitter: Random,
    bits: Random,
    /// When the last packet that was not late arrives.
    last: Time,
}

impl Impaired {
    /// One of that line, with the random numbers that the [module](super) defines for the seed.
    pub fn new(plan: Impairment, seed: u64, line: u32) -> Self {
        let stream = |purpose| Random::stream(seed, STREAMS + (u64::from(line) << 8) + purpose);
        Impaired {
            plan,
            loss: Picker::new(stream(0), stream(1)),
            corruption: Picker::new(stream(2), stream(6)),
            copies: Picker::new(stream(3), stream(7)),
            late: Picker::new(stream(4), stream(8)),
            jitter: stream(5),
            bits: stream(9),
            last: Time::ZERO,
        }
    }

    /// Another impairment from here on. Chosen numbers are looked for from the beginning.
    pub fn change(&mut self, plan: Impairment) {
        self.plan = plan;
        for picker in [
            &mut self.loss,
            &mut self.corruption,
            &mut self.copies,
            &mut self.late,
        ] {
            picker.next = 0;
        }
    }

    /// Decides on the next packet.
    pub fn decide(&mut self, bytes: u32) -> Fate {
        let errors = self.plan.bit_errors;
        let damaged = errors != BitErrors::NONE && errors.damage(bytes, self.bits.next_u64());
        Fate {
            lost: self.loss.picks(&self.plan.loss, bytes) || damaged,
            corrupted: self.corruption.picks(&self.plan.corruption, bytes),
            copied: self.copies.picks(&self.plan.copies, bytes),
            late: self.late.picks(&self.plan.late.pick, bytes),
        }
    }

    /// When a packet arrives that would arrive at `arrival` without impairment.
    pub fn arrival(&mut self, arrival: Time, late: bool) -> Time {
        let mut arrival = arrival + self.plan.delay;
        let most = self.plan.jitter.most.0;
        if most > 0 {
            let wide = u128::from(self.jitter.next_u64()) * (u128::from(most) + 1);
            // At most `most`.
            arrival += Span((wide >> 64) as u64);
        }
        if late {
            return arrival + self.plan.late.by;
        }
        if !self.plan.jitter.overtaking {
            arrival = arrival.max(self.last);
            self.last = arrival;
        }
        arrival
    }
}
