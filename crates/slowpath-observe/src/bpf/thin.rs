// SPDX-License-Identifier: Apache-2.0
//! Thinning: which poll looks at which changed connection.
//!
//! Polls come at Poisson times; each looks at a connection with a probability of its own,
//! whatever came before, so the looks at one connection are a thinned Poisson process,
//! which is Poisson again, at the rate of the polls times that probability. No poll draws
//! a random number for each connection: a probability that is the same every time and knows no past means
//! that the polls passed over are geometrically distributed, whenever one begins to count.
//! So the first event after a look draws that number in the kernel
//! (`draw_gap` in `connection.bpf.h`), notes the poll that is due, and the connection costs
//! nothing until then: its later events compare two numbers, its note waits here.
//!
//! What enters: notes, and the epoch of the list that a poll closes. What leaves: the
//! notes that are due. No I/O.

use crate::probes::connection::{GAPS, Note, RATES};
use rustc_hash::FxHashMap;

/// Number of different rates.
pub const RATE_COUNT: usize = RATES;

/// Polls that a note may wait at most.
const WHEEL: usize = 2_048;

/// How many polls pass between two looks, for a look with probability `probability` at each:
/// quantiles of the geometric distribution, of which one is drawn with equal probability.
/// None is as long as the wheel.
pub(super) fn gaps(probability: f64) -> [u16; GAPS] {
    let mut gaps = [0; GAPS];
    if probability >= 1.0 {
        return gaps;
    }
    let passed_over = (1.0 - probability.max(1.0 / WHEEL as f64)).ln();
    for (i, gap) in gaps.iter_mut().enumerate() {
        let quantile = (i as f64 + 0.5) / GAPS as f64;
        let polls = ((1.0 - quantile).ln() / passed_over).floor();
        *gap = polls.clamp(0.0, (WHEEL - 1) as f64) as u16;
    }
    gaps
}

/// Notes that wait for the poll that is due, and connections that change without an event.
pub(super) struct Waiting {
    notes: Vec<Vec<Note>>,
    busy: Vec<Vec<Note>>,
    /// For which poll each busy connection waits, by cookie: an earlier wait is void.
    busy_until: FxHashMap<u64, u32>,
    count: usize,
    limit: usize,
    gaps: Box<[[u16; GAPS]; RATES]>,
    random: fastrand::Rng,
}

impl Waiting {
    /// At most `limit` notes wait; further ones are due at once.
    pub fn new(limit: usize, gaps: Box<[[u16; GAPS]; RATES]>) -> Self {
        Waiting {
            notes: vec![Vec::new(); WHEEL],
            busy: vec![Vec::new(); WHEEL],
            busy_until: FxHashMap::default(),
            count: 0,
            limit,
            gaps,
            random: fastrand::Rng::new(),
        }
    }

    pub fn set_gaps(&mut self, gaps: Box<[[u16; GAPS]; RATES]>) {
        self.gaps = gaps;
    }

    /// Takes a note that came up to the poll that closes the list of `epoch`.
    pub fn add(&mut self, note: Note, epoch: u32, due: &mut Vec<Note>) {
        match self.place(note.due, epoch) {
            Some(place) => {
                self.notes[place].push(note);
                self.count += 1;
            }
            None => due.push(note),
        }
    }

    /// A connection that a poll has just looked at changes without an event: draws when to
    /// look again. The next poll closes the list of `next`.
    pub fn carry(&mut self, mut note: Note, rate: u8, next: u32) {
        let draw = self.random.usize(..GAPS);
        let gap = self.gaps[usize::from(rate) % RATES][draw];
        note.due = next.wrapping_add(gap.into());
        self.busy_until.insert(note.cookie, note.due);
        self.busy[note.due as usize % WHEEL].push(note);
        self.count += 1;
    }

    /// The notes that wait for the poll that closes the list of `epoch`.
    pub fn take(&mut self, epoch: u32, due: &mut Vec<Note>) {
        let place = &mut self.notes[epoch as usize % WHEEL];
        self.count -= place.len();
        due.append(place);
    }

    /// The busy connections that wait for the poll that closes the list of `epoch`.
    pub fn take_busy(&mut self, epoch: u32, due: &mut Vec<Note>) {
        let place = &mut self.busy[epoch as usize % WHEEL];
        self.count -= place.len();
        for note in place.drain(..) {
            if self.busy_until.get(&note.cookie) == Some(&epoch) {
                self.busy_until.remove(&note.cookie);
                due.push(note);
            }
        }
    }

    /// The busy connections have all just been looked at.
    pub fn forget_busy(&mut self) {
        self.busy_until.clear();
    }

    /// Where a note waits; `None` if it is due when the list of `epoch` is closed, or if
    /// too many wait.
    fn place(&self, due: u32, epoch: u32) -> Option<usize> {
        let wait = due.wrapping_sub(epoch) as usize;
        (wait > 0 && wait < WHEEL && self.count < self.limit).then_some(due as usize % WHEEL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(cookie: u64, due: u32) -> Note {
        Note {
            sk: 0,
            connection: 0,
            cookie,
            due,
            pad: 0,
        }
    }

    fn waiting(limit: usize, probability: f64) -> Waiting {
        Waiting::new(limit, Box::new([gaps(probability); RATES]))
    }

    fn taken(waiting: &mut Waiting, epoch: u32) -> Vec<u64> {
        let mut due = Vec::new();
        waiting.take(epoch, &mut due);
        waiting.take_busy(epoch, &mut due);
        due.iter().map(|n| n.cookie).collect()
    }

    /// A geometric distribution: with q = 1 - p, k polls are passed over with probability
    /// p q^k. Each is met by the table within one of its steps, and so is the mean, q / p,
    /// within what the last step leaves out.
    #[test]
    fn the_quantiles_are_geometric() {
        for probability in [1.0, 0.9, 0.5, 0.3, 0.125, 1.0 / 64.0, 1.0 / 256.0] {
            let table = gaps(probability);
            let q: f64 = 1.0 - probability;
            for k in 0..200 {
                let share = table.iter().filter(|g| **g == k).count() as f64 / GAPS as f64;
                let expected = probability * q.powi(k.into());
                assert!(
                    (share - expected).abs() <= 1.0 / GAPS as f64,
                    "{probability}, {k}: {share} beside {expected}"
                );
            }
            let mean = table.iter().map(|g| f64::from(*g)).sum::<f64>() / GAPS as f64;
            let expected = q / probability;
            assert!(
                (mean - expected).abs() <= 0.005 * expected.max(1.0),
                "{probability}: {mean} beside {expected}"
            );
        }
    }

    #[test]
    fn every_note_comes_out_when_it_is_due_and_once() {
        let mut waiting = waiting(1_000, 0.5);
        let first = u32::MAX - 3; // epochs wrap around
        let mut due = Vec::new();
        for i in 0..10u32 {
            waiting.add(note(i.into(), first.wrapping_add(i)), first, &mut due);
        }
        assert_eq!(due.iter().map(|n| n.cookie).collect::<Vec<_>>(), [0]);
        for i in 1..10u32 {
            assert_eq!(taken(&mut waiting, first.wrapping_add(i)), [u64::from(i)]);
        }
        assert_eq!(waiting.count, 0);
    }

    #[test]
    fn a_note_too_many_or_from_the_past_is_due_at_once() {
        let mut waiting = waiting(1, 0.5);
        let mut due = Vec::new();
        waiting.add(note(1, 12), 10, &mut due);
        assert!(due.is_empty());
        waiting.add(note(2, 12), 10, &mut due);
        waiting.add(note(3, 9), 10, &mut due);
        waiting.add(note(4, 10 + WHEEL as u32), 10, &mut due);
        assert_eq!(due.iter().map(|n| n.cookie).collect::<Vec<_>>(), [2, 3, 4]);
        assert_eq!(taken(&mut waiting, 12), [1]);
    }

    #[test]
    fn a_busy_connection_waits_once() {
        let mut waiting = waiting(1_000, 0.1);
        // Looked at because of an event while it waited: the earlier wait is void.
        for next in 0..50 {
            waiting.carry(note(7, 0), 0, next);
        }
        let met = (0..WHEEL as u32 + 50)
            .map(|epoch| taken(&mut waiting, epoch).len())
            .sum::<usize>();
        assert_eq!(met, 1);
        assert_eq!((waiting.count, waiting.busy_until.len()), (0, 0));
    }
}
