// SPDX-License-Identifier: Apache-2.0
//! The times between runs, in as few bits as they are surprising.
//!
//! 1. What is expected depends on the handlers before, now and next, and on the last two gaps: a sender's acknowledgments come at the rate of its bottleneck.
//! 2. A gap is coded as answers: how many bits it has, and the first three below its highest; the others are as they are.
//! 3. Each answer has a probability in each of three situations, learnt from the answers before. They are mixed: their logits (`ln p/(1-p)`) weighted, and the
//!    weights moved towards whichever was right (gradient descent on the code length; Mahoney, "Adaptive weighing of context models for lossless data
//!    compression", 2005).
//! 4. A range coder turns answers into bytes.
//!
//! All in whole numbers: the same on every machine.

use super::model::{Decoder, Encoder};
use crate::error::Nonsense;
use crate::{Handler, Run, Timer};
use std::sync::LazyLock;

/// Situations that are mixed.
const MIXED: usize = 3;
/// Answers that are learnt, by hash; two that share a place disturb each other a little.
const PLACES: usize = 1 << 20;
/// Questions that have weights of their own.
const QUESTIONS: usize = 256;
/// The largest logit, in 256ths.
const MOST: i32 = 2047;
/// Weights are in 65,536ths: 0.4 at first.
const WEIGHT: i32 = 26_214;
/// A weight moves by error times logit, divided by two to the power of that.
const SLOW: u32 = 14;
/// No answer is surer than this, in 65,536ths.
const LEAST: i32 = 32;
/// Answers after which the newest one counts no less.
const MEMORY: u32 = 160;
const ONE: i32 = 1 << 16;
const HALF: u32 = 1 << 15;

/// What is known of a run before its time is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind(u8);

impl Kind {
    /// Before the first run, and after the last.
    pub(crate) const NONE: Kind = Kind(0xff);

    pub(crate) fn of(run: &Run) -> Kind {
        let handler = match &run.handler {
            Handler::Packet { .. } => 0,
            Handler::Send { .. } => 1,
            Handler::Receive { .. } => 2,
            Handler::SmallQueue => 3,
            Handler::Timer { timer, .. } => match timer {
                Timer::Write => 4,
                Timer::DelayedAck => 5,
                Timer::Pacing => 6,
                _ => 7,
            },
            Handler::Resume | Handler::Release { .. } => 8,
            _ => 9,
        };
        let marked = matches!(run.handler, Handler::Packet { marked: true, .. });
        Kind(handler * 4 + u8::from(!run.outcomes.is_empty()) * 2 + u8::from(marked))
    }
}

/// Logits to probabilities and back.
struct Logistic {
    /// From -2,047 on, in 65,536ths.
    probability: Vec<u16>,
    /// Of probabilities in 4,096ths.
    logit: Vec<i16>,
}

static LOGISTIC: LazyLock<Logistic> = LazyLock::new(|| {
    // e^(1/256) in 2^40ths.
    const STEP: u128 = 1_103_814_994_613;
    let mut power = 1u128 << 40;
    let mut upper = Vec::new();
    for _ in 0..=MOST {
        let probability = (power << 16) / (power + (1 << 40));
        // Between a half and 0.99967.
        upper.push(probability as u16);
        power = (power * STEP) >> 40;
    }
    let lower = upper[1..].iter().rev().map(|p| p.wrapping_neg());
    let probability: Vec<u16> = lower.chain(upper.iter().copied()).collect();
    let mut logit = Vec::new();
    let mut place = 0;
    for part in 0..4096u32 {
        let middle = part * 16 + 8;
        while place + 1 < probability.len() && u32::from(probability[place]) < middle {
            place += 1;
        }
        logit.push(place as i16 - MOST as i16);
    }
    Logistic { probability, logit }
});

/// What an answer is expected to be, and what made it so.
struct Guess {
    yes: i32,
    logits: [i32; MIXED],
    places: [usize; MIXED],
}

/// What was learnt.
#[derive(Clone, Debug)]
pub(crate) struct Gaps {
    /// A probability with its highest bit turned round, and how many answers it is from: zero is a half from none.
    answers: Vec<u32>,
    weights: Vec<[i32; MIXED]>,
    contexts: [u64; MIXED],
    kinds: [Kind; 2],
    last: [u64; 2],
    /// `log2` of the unit: gaps in other units are other gaps.
    class: u64,
}

fn mix(parts: &[u64]) -> u64 {
    // Odd: 2^64 over the golden ratio.
    parts.iter().fold(0, |hash, part| {
        (hash ^ part)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(23)
    })
}

/// Small gaps by themselves, others by how many bits they have.
fn bucket(gap: u64) -> u64 {
    match gap {
        0..16 => gap,
        _ => 12 + u64::from(gap.ilog2()),
    }
}

/// Of a number's answers: which question, or none if it is not learnt.
fn question(bits: u32, below: u32, above: u64) -> Option<u32> {
    // Of three bits those above are 1 to 7, with the highest.
    (below <= 3).then(|| 72 + bits.min(20) * 8 + above as u32 - 1)
}

impl Gaps {
    pub(crate) fn new() -> Gaps {
        Gaps {
            answers: vec![0; PLACES],
            weights: vec![[WEIGHT; MIXED]; QUESTIONS],
            contexts: [0; MIXED],
            kinds: [Kind::NONE; 2],
            last: [0; 2],
            class: 0,
        }
    }

    /// Another piece begins, with that unit and that run.
    pub(crate) fn begin(&mut self, unit: u64, first: Kind) {
        self.class = u64::from(unit.max(1).ilog2());
        self.kinds = [Kind::NONE, first];
        self.last = [0; 2];
    }

    /// The next gap's situation: before that run, which is followed by another.
    pub(crate) fn next(&mut self, now: Kind, later: Kind) {
        self.kinds = [self.kinds[1], now];
        let pair = u64::from(self.kinds[0].0) << 8 | u64::from(now.0) | self.class << 16;
        let [last, before] = self.last.map(bucket);
        self.contexts = [
            mix(&[1, pair, last, before]),
            mix(&[2, pair, last]),
            mix(&[3, pair, later.0.into()]),
        ];
    }

    fn guess(&self, question: u32) -> Guess {
        let table = &*LOGISTIC;
        let weights = &self.weights[question as usize % QUESTIONS];
        let mut guess = Guess {
            yes: 0,
            logits: [0; MIXED],
            places: [0; MIXED],
        };
        let mut sum = 0i64;
        for (number, context) in self.contexts.iter().enumerate() {
            let place = (mix(&[*context, question.into()]) >> 40) as usize % PLACES;
            let answer = self.answers[place];
            if answer >> 16 > 0 {
                let yes = (answer & 0xffff) ^ HALF;
                guess.logits[number] = table.logit[(yes >> 4) as usize].into();
            }
            guess.places[number] = place;
            sum += i64::from(weights[number]) * i64::from(guess.logits[number]);
        }
        let logit = (sum >> 16).clamp(-i64::from(MOST), MOST.into());
        let yes = i32::from(table.probability[(logit + i64::from(MOST)) as usize]);
        guess.yes = yes.clamp(LEAST, ONE - LEAST);
        guess
    }

    fn learn(&mut self, question: u32, guess: &Guess, yes: bool) {
        let error = if yes { ONE - guess.yes } else { -guess.yes };
        let weights = &mut self.weights[question as usize % QUESTIONS];
        for (weight, logit) in weights.iter_mut().zip(guess.logits) {
            // At most 2^16 times 2^11, and a weight stays within 2^20.
            let by = (error * logit + (1 << (SLOW - 1))) >> SLOW;
            *weight = (*weight + by).clamp(-(1 << 20), 1 << 20);
        }
        for place in guess.places {
            let answer = &mut self.answers[place];
            let (observed, is) = (*answer >> 16, (*answer & 0xffff) ^ HALF);
            let (is, weight) = (is as i32, 2 * observed as i32 + 3);
            let to = if yes { ONE - 1 } else { 0 };
            let next = is + (to - is) * 2 / weight;
            *answer = (next as u32 ^ HALF) & 0xffff | (observed + 1).min(MEMORY) << 16;
        }
    }

    /// Bits that a gap of `gap` units would take.
    pub(crate) fn cost(&self, gap: u64) -> f64 {
        let number = gap.saturating_add(1);
        let bits = number.ilog2();
        let mut cost = 0.0;
        let mut count = |question, yes| {
            let probability = f64::from(self.guess(question).yes) / f64::from(ONE);
            cost -= if yes { probability } else { 1.0 - probability }.log2();
        };
        for bit in 0..bits {
            count(bit, true);
        }
        count(bits, false);
        for (below, place) in (0..bits).rev().enumerate().take(3) {
            let yes = number >> place & 1 == 1;
            if let Some(question) = question(bits, below as u32 + 1, number >> (place + 1)) {
                count(question, yes);
            }
        }
        cost + f64::from(bits.saturating_sub(3))
    }

    /// A gap was what it was; nothing is learnt from it.
    pub(crate) fn note(&mut self, gap: u64) {
        self.last = [gap, self.last[0]];
    }

    fn code(&mut self, question: u32, yes: bool, coder: &mut Encoder) {
        let guess = self.guess(question);
        coder.code(yes, guess.yes as u32);
        self.learn(question, &guess, yes);
    }

    fn answer(
        &mut self,
        question: u32,
        coder: &mut Decoder,
        bytes: &[u8],
    ) -> Result<bool, Nonsense> {
        let guess = self.guess(question);
        let yes = coder.decode(guess.yes as u32, bytes)?;
        self.learn(question, &guess, yes);
        Ok(yes)
    }

    /// Codes a gap.
    pub(super) fn encode(&mut self, gap: i64, coder: &mut Encoder) {
        let size = gap.unsigned_abs();
        let number = size + 1;
        let bits = number.ilog2();
        for bit in 0..bits {
            self.code(bit, true, coder);
        }
        self.code(bits, false, coder);
        for (below, place) in (0..bits).rev().enumerate() {
            let yes = number >> place & 1 == 1;
            match question(bits, below as u32 + 1, number >> (place + 1)) {
                Some(question) => self.code(question, yes, coder),
                None => coder.code(yes, HALF),
            }
        }
        if size > 0 {
            self.code(70, gap < 0, coder);
        }
        self.note(size);
    }

    /// Learns from a gap.
    pub(crate) fn see(&mut self, gap: u64) {
        self.encode(gap as i64, &mut Encoder::new());
    }

    /// The reverse of [`Gaps::encode`].
    pub(super) fn decode(&mut self, coder: &mut Decoder, bytes: &[u8]) -> Result<i64, Nonsense> {
        let mut bits = 0;
        while self.answer(bits, coder, bytes)? {
            bits += 1;
            if bits == u64::BITS {
                return Err(Nonsense::Large { what: "times" });
            }
        }
        let mut number = 1u64;
        for below in 1..=bits {
            let yes = match question(bits, below, number) {
                Some(question) => self.answer(question, coder, bytes)?,
                None => coder.decode(HALF, bytes)?,
            };
            number = number << 1 | u64::from(yes);
        }
        let size = number - 1;
        let back = size > 0 && self.answer(70, coder, bytes)?;
        self.note(size);
        let gap = if back {
            (size as i64).wrapping_neg()
        } else {
            size as i64
        };
        if gap.unsigned_abs() == size && (gap < 0) == back {
            Ok(gap)
        } else {
            Err(Nonsense::Large { what: "times" })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::random::random;
    use super::*;

    const PACKET: Kind = Kind(0);

    fn coded(gaps: &[i64]) -> Vec<u8> {
        let (mut model, mut coder) = (Gaps::new(), Encoder::new());
        model.begin(6000, PACKET);
        for gap in gaps {
            model.next(PACKET, PACKET);
            model.encode(*gap, &mut coder);
        }
        coder.finish()
    }

    fn comes_back(gaps: &[i64]) -> usize {
        let bytes = coded(gaps);
        let (mut model, mut coder) = (Gaps::new(), Decoder::new(&bytes).expect("four bytes"));
        model.begin(6000, PACKET);
        for gap in gaps {
            model.next(PACKET, PACKET);
            assert_eq!(model.decode(&mut coder, &bytes), Ok(*gap));
        }
        assert_eq!(coder.end(&bytes), Ok(()));
        bytes.len()
    }

    #[test]
    fn any_gap_comes_back() {
        comes_back(&[0, 1, -1, 2, i64::MAX, i64::MIN, 0, i64::MAX - 1, 1 << 40]);
        comes_back(&random(20_000, |n| n as i64));
        comes_back(&random(20_000, |n| (n >> (n % 64)) as i64));
    }

    /// Each logit is that of its probability.
    #[test]
    fn logits_are_what_they_are_called() {
        let table = &*LOGISTIC;
        assert_eq!(table.probability.len(), 2 * MOST as usize + 1);
        for (place, probability) in table.probability.iter().enumerate() {
            let logit = (place as f64 - f64::from(MOST)) / 256.0;
            let expected = 65_536.0 / (1.0 + (-logit).exp());
            let off = (f64::from(*probability) - expected).abs();
            assert!(off <= 1.01, "{logit}: {probability} for {expected}");
        }
        for (part, logit) in table.logit.iter().enumerate() {
            let middle = (part as f64 * 16.0 + 8.0) / 65_536.0;
            let expected = (middle / (1.0 - middle)).ln() * 256.0;
            let expected = expected.clamp(-f64::from(MOST), MOST.into());
            // The next of them; near the ends many have the same probability in 65,536ths.
            let alike = 1.5 / (middle * (1.0 - middle) * 256.0);
            let off = (f64::from(*logit) - expected).abs();
            assert!(off <= 2.0 + alike, "{middle}: {logit} for {expected}");
        }
    }

    /// Regular gaps cost next to nothing, random ones what Shannon says and little more.
    #[test]
    fn the_cost_is_near_the_entropy() {
        let regular: Vec<i64> = (0..60_000)
            .map(|n| if n % 3 == 2 { 4 } else { 2 })
            .collect();
        assert!(comes_back(&regular) < 250, "{}", comes_back(&regular));
        // One of 2 and 5 with equal chance: a bit each.
        let coin = random(60_000, |n| if n >> 40 & 1 == 0 { 2 } else { 5 });
        let bytes = comes_back(&coin) as f64;
        assert!(bytes > 7_400.0 && bytes < 1.05 * 7_500.0, "{bytes}");
    }

    #[test]
    fn too_few_bytes_are_noticed() {
        let gaps = random(5_000, |n| (n % 900) as i64);
        let bytes = coded(&gaps);
        let cut = &bytes[..bytes.len() / 2];
        let (mut model, mut coder) = (Gaps::new(), Decoder::new(cut).expect("four bytes"));
        model.begin(6000, PACKET);
        let mut read = gaps.iter().map(|_| {
            model.next(PACKET, PACKET);
            model.decode(&mut coder, cut)
        });
        assert!(read.any(|gap| gap.is_err()));
    }
}
