// SPDX-License-Identifier: Apache-2.0
//! How long turns took between looks at their sums, and how that is distributed.

#[cfg(test)]
use super::LATEST_TURNS;
use super::{AnswerSums, LifeAnswers, LifeTurns, TurnEnd, TurnSums, Turns};
use crate::{Micros, MonoNanos};
use std::collections::BTreeMap;

/// Buckets of an octave, as a power of two: a value and its bucket's middle differ by 1/128 at most.
const FINE: u32 = 6;

/// This part of the exchanges, if they overlap, makes the traffic duplex: the times of the others no
/// longer have a 95th percentile of all.
const OVERLAPPING_PART: u64 = 20;

/// The bucket of a value: exact up to 127, then 64 an octave, so 1,728 in all.
const fn bucket(us: u32) -> u16 {
    if us < 1 << FINE {
        return us as u16;
    }
    let shift = us.ilog2() - FINE;
    ((shift << FINE) + (us >> shift)) as u16
}

/// The middle of a bucket.
const fn middle(bucket: u16) -> u64 {
    let bucket = bucket as u64;
    if bucket < 2 << FINE {
        return bucket;
    }
    let shift = (bucket >> FINE) - 1;
    let low = (bucket - (shift << FINE)) << shift;
    low + (1 << shift) / 2
}

/// Turns of one end in the time observed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnswerTimes {
    /// Turns that ended, and that began before if they had to.
    pub count: u64,
    /// How long those took in all, each from its beginning.
    pub time: Micros,
    /// The longest of them. Where more than [`LATEST_TURNS`](super::LATEST_TURNS) ended between two looks
    /// and none was the longest of the connection's life, the longest of those that are known one by one.
    pub longest: Micros,
    /// How much of the time observed was this end's turn, the one that goes on included.
    pub turn_time: Micros,
    /// How long the present turn has lasted, if it is this end's; of several connections the longest.
    pub pending: Option<Micros>,
    /// How many turns took how long; weighted where not all are known one by one.
    buckets: BTreeMap<u16, u64>,
}

impl AnswerTimes {
    /// How long a turn took in the mean.
    pub fn mean(&self) -> Option<Micros> {
        self.time.0.checked_div(self.count).map(Micros)
    }

    /// How long the part `q` (0..=1) of the turns took at most, within 1/128 of it.
    pub fn quantile(&self, q: f64) -> Option<Micros> {
        let all: u64 = self.buckets.values().sum();
        let wanted = ((all as f64 * q).ceil() as u64).clamp(1, all.max(1));
        let mut so_far = 0;
        let (found, _) = self.buckets.iter().find(|(_, count)| {
            so_far += *count;
            so_far >= wanted
        })?;
        let longest = u32::try_from(self.longest.0).unwrap_or(u32::MAX);
        Some(match bucket(longest) == *found {
            true => self.longest,
            false => Micros(middle(*found)),
        })
    }

    /// Adds another connection's.
    pub fn merge(&mut self, other: &AnswerTimes) {
        self.count += other.count;
        self.time += other.time;
        self.longest = self.longest.max(other.longest);
        self.turn_time += other.turn_time;
        self.pending = self.pending.max(other.pending);
        for (bucket, count) in &other.buckets {
            *self.buckets.entry(*bucket).or_default() += count;
        }
    }

    /// Adds what ended between two looks.
    fn add(&mut self, before: &AnswerSums, after: &AnswerSums) {
        let ended = after.ended_since(before);
        if ended == 0 {
            return;
        }
        let mut longest = Micros::ZERO;
        for (time, weight) in after.latest_since(before) {
            longest = longest.max(time);
            let us = u32::try_from(time.0).unwrap_or(u32::MAX);
            *self.buckets.entry(bucket(us)).or_default() += weight;
        }
        if after.longest > before.longest {
            longest = after.longest;
        }
        self.count += ended;
        self.time += after.time.saturating_sub(before.time);
        self.longest = self.longest.max(longest);
    }
}

/// Turns of both ends in the time observed, from looks at a connection one after another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TurnTimes {
    /// The peer's: how long its answers took, the round trip included.
    pub peer: AnswerTimes,
    /// This end's: how long its application took to write again.
    pub here: AnswerTimes,
    /// Exchanges that were not timed: one end sent before it had what the other had sent.
    pub overlapping: u64,
    /// Whether turns could be observed.
    pub observed: bool,
    last: Option<Reading>,
}

/// What the last look gave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Reading {
    sums: TurnSums,
    /// The time of turns that have ended and of the one that goes on, of the peer and of this end.
    so_far: [Micros; 2],
}

impl Reading {
    fn of(turns: &Turns, now: MonoNanos) -> Option<Self> {
        let sums = turns.sums()?;
        let so_far =
            |end, sums: &AnswerSums| sums.time + turns.pending(end, now).unwrap_or(Micros::ZERO);
        Some(Reading {
            sums,
            so_far: [
                so_far(TurnEnd::Peer, &sums.peer),
                so_far(TurnEnd::Here, &sums.here),
            ],
        })
    }
}

impl TurnTimes {
    /// Of a connection that is observed from its birth: the first look shows what there was since.
    pub fn from_birth() -> Self {
        TurnTimes {
            last: Some(Reading::default()),
            ..TurnTimes::default()
        }
    }

    /// Takes in a look at `now`.
    pub fn observe(&mut self, turns: &Turns, now: MonoNanos) {
        let Some(reading) = Reading::of(turns, now) else {
            return;
        };
        self.observed = true;
        if let Some(last) = self.last.replace(reading) {
            let (before, after) = (&last.sums, &reading.sums);
            self.overlapping += after.overlapping.saturating_sub(before.overlapping);
            self.peer.add(&before.peer, &after.peer);
            self.here.add(&before.here, &after.here);
            let passed = |i: usize| reading.so_far[i].saturating_sub(last.so_far[i]);
            self.peer.turn_time += passed(0);
            self.here.turn_time += passed(1);
        }
        self.peer.pending = turns.pending(TurnEnd::Peer, now);
        self.here.pending = turns.pending(TurnEnd::Here, now);
    }

    /// Adds another connection's.
    pub fn merge(&mut self, other: &TurnTimes) {
        self.peer.merge(&other.peer);
        self.here.merge(&other.here);
        self.overlapping += other.overlapping;
        self.observed |= other.observed;
    }

    /// Whether data passes both ways at once in more than a twentieth of the exchanges: it is no sequence of
    /// requests and answers.
    pub const fn duplex(&self) -> bool {
        self.overlapping * OVERLAPPING_PART > self.overlapping + self.peer.count
    }
}

impl From<&LifeAnswers> for AnswerTimes {
    /// How they are distributed is not known.
    fn from(answers: &LifeAnswers) -> Self {
        AnswerTimes {
            count: answers.count,
            time: answers.time,
            turn_time: answers.time + answers.pending.unwrap_or(Micros::ZERO),
            pending: answers.pending,
            ..AnswerTimes::default()
        }
    }
}

impl From<Option<&LifeTurns>> for TurnTimes {
    fn from(turns: Option<&LifeTurns>) -> Self {
        let Some(turns) = turns else {
            return TurnTimes::default();
        };
        TurnTimes {
            peer: (&turns.peer).into(),
            here: (&turns.here).into(),
            overlapping: turns.overlapping,
            observed: true,
            last: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Turn;

    const MS: u64 = 1_000;

    /// Turns that took `ms` milliseconds, one after the other.
    fn answers(ms: &[u32]) -> AnswerSums {
        let mut sums = AnswerSums::default();
        for ms in ms {
            let us = ms * MS as u32;
            sums.latest[sums.count as usize % LATEST_TURNS] = us;
            sums.count += 1;
            sums.time += Micros(us.into());
            sums.longest = sums.longest.max(Micros(us.into()));
        }
        sums
    }

    fn at(ms: u64) -> MonoNanos {
        MonoNanos(ms * 1_000_000)
    }

    fn turns(turn: Option<(TurnEnd, u64)>, peer: &[u32], here: &[u32]) -> Turns {
        let turn = turn.map(|(end, since)| Turn {
            end,
            since: at(since),
        });
        Turns::watched(turn).with(TurnSums {
            overlapping: 0,
            peer: answers(peer),
            here: answers(here),
        })
    }

    #[test]
    fn a_value_lies_within_a_128th_of_its_buckets_middle() {
        for us in (0..5_000).chain((0..32).flat_map(|e| [1 << e, u32::MAX >> e])) {
            let near = middle(bucket(us));
            assert!(near.abs_diff(us.into()) * 128 <= us.into(), "{us}: {near}");
        }
        for us in 0..5_000 {
            assert!(bucket(us + 1) - bucket(us) <= 1, "{us}");
        }
        assert_eq!(bucket(u32::MAX), 1_727);
    }

    /// Requests at 0, 100 and 200 ms, answered after 30, 50 and 10 ms.
    #[test]
    fn answers_are_counted_with_their_times() {
        let mut times = TurnTimes::from_birth();
        let peer = [30, 50, 10];
        times.observe(
            &turns(Some((TurnEnd::Here, 210)), &peer, &[70, 50]),
            at(300),
        );
        assert_eq!(times.peer.count, 3);
        assert_eq!(times.peer.mean(), Some(Micros(30 * MS)));
        assert_eq!(times.peer.longest, Micros(50 * MS));
        let median = times.peer.quantile(0.5).unwrap();
        assert!(median.0.abs_diff(30 * MS) <= 30 * MS / 128, "{median}");
        assert_eq!(times.peer.quantile(0.95), Some(Micros(50 * MS)));
        assert_eq!(times.peer.turn_time, Micros(90 * MS));
        assert_eq!(times.here.turn_time, Micros((70 + 50 + 90) * MS));
        assert_eq!(times.here.pending, Some(Micros(90 * MS)));
        assert_eq!(times.peer.pending, None);
    }

    /// The request was written 7 s before the first look: the time since that counts.
    #[test]
    fn a_pending_answer_counts_while_it_is_pending() {
        let mut times = TurnTimes::default();
        let pending = turns(Some((TurnEnd::Peer, 0)), &[5], &[]);
        times.observe(&pending, at(7_000));
        assert_eq!(times.peer.pending, Some(Micros(7_000 * MS)));
        assert_eq!(times.peer.turn_time, Micros::ZERO);
        times.observe(&pending, at(9_000));
        assert_eq!(times.peer.count, 0);
        assert_eq!(times.peer.turn_time, Micros(2_000 * MS));
        // It came at 9.5 s; then the application waits.
        let answered = turns(Some((TurnEnd::Here, 9_500)), &[5, 9_500], &[]);
        times.observe(&answered, at(10_000));
        assert_eq!(times.peer.count, 1);
        assert_eq!(times.peer.mean(), Some(Micros(9_500 * MS)));
        assert_eq!(times.peer.turn_time, Micros(2_500 * MS));
        assert_eq!(times.here.turn_time, Micros(500 * MS));
    }

    #[test]
    fn where_more_ended_than_are_kept_the_latest_stand_for_all() {
        let before = turns(None, &[7_000], &[]);
        let mut all = vec![7_000];
        all.extend([1; 84]);
        all.extend([3; 16]);
        let mut times = TurnTimes::default();
        times.observe(&before, at(0));
        times.observe(&turns(None, &all, &[]), at(1_000));
        assert_eq!(times.peer.count, 100);
        assert_eq!(times.peer.buckets.values().sum::<u64>(), 100);
        assert_eq!(times.peer.time, Micros((84 + 48) * MS));
        // What took 7 s ended before.
        assert_eq!(times.peer.longest, Micros(3 * MS));
    }

    #[test]
    fn traffic_in_which_a_twentieth_overlaps_has_no_turns() {
        let mut times = TurnTimes::from_birth();
        let sums = |overlapping| TurnSums {
            overlapping,
            peer: answers(&[1; 190]),
            ..TurnSums::default()
        };
        times.observe(&Turns::watched(None).with(sums(10)), at(1));
        assert!(!times.duplex());
        times.observe(&Turns::watched(None).with(sums(11)), at(2));
        assert!(times.duplex());
        assert!(!TurnTimes::default().duplex());
    }

    #[test]
    fn what_is_not_observed_is_not_zero() {
        let mut times = TurnTimes::from_birth();
        times.observe(&Turns::UNOBSERVED, at(1));
        assert!(!times.observed);
        assert_eq!(times.peer.quantile(0.5), None);
        assert_eq!(Turns::UNOBSERVED.sums(), None);
        assert_eq!(Turns::watched(None).sums(), Some(TurnSums::default()));
    }

    #[test]
    fn connections_are_added_up() {
        let of = |ms: &[u32], since| {
            let mut times = TurnTimes::from_birth();
            times.observe(&turns(Some((TurnEnd::Peer, since)), ms, &[]), at(1_000));
            times
        };
        let mut sum = of(&[10], 900);
        sum.merge(&of(&[20, 30], 400));
        assert_eq!(sum.peer.count, 3);
        assert_eq!(sum.peer.longest, Micros(30 * MS));
        assert_eq!(sum.peer.pending, Some(Micros(600 * MS)));
        assert_eq!(sum.peer.turn_time, Micros((10 + 100 + 50 + 600) * MS));
    }
}
