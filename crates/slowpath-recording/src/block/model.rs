// SPDX-License-Identifier: Apache-2.0
//! Which pattern comes next, in as few bits as it is surprising.
//!
//! 1. What is expected depends on the pattern of the last run, on how many in a row had it, and on the pattern before those: "a read after each second packet" is then no surprise.
//! 2. Is it pattern 0, is it pattern 1, and so on: each answer has a probability, learnt from the answers before in the same situation.
//! 3. A range coder (Martin 1979; carries as in Schindler's and LZMA's) turns answers into bytes.
//!
//! Patterns past the fifteenth are in a column of their own.

use crate::error::Nonsense;

/// Patterns that have an answer of their own.
pub(super) const COMMON: usize = 15;
/// Of such patterns and "another".
const PLACES: usize = COMMON + 1;
/// Lengths of stretches that are distinguished.
const LENGTHS: usize = 32;
/// Probabilities are in 65,536ths.
const ONE: u32 = 1 << 16;
/// No answer is ever surer than this.
const LEAST: u32 = 48;
/// Answers after which the newest one counts no less than one in this number.
const MEMORY: u32 = 160;
/// Below this the range is too small for 65,536ths.
const BOTTOM: u32 = 1 << 24;

/// An answer's probability to be yes, and from how many answers it is.
#[derive(Clone, Copy, Debug)]
struct Answer {
    yes: u16,
    observed: u16,
}

impl Answer {
    const NEW: Answer = Answer {
        yes: (ONE / 2) as u16,
        observed: 0,
    };

    fn learn(&mut self, yes: bool) {
        let weight = u32::from(self.observed) + 2;
        let is = u32::from(self.yes);
        let next = match yes {
            true => is + (ONE - is) / weight,
            false => is - is / weight,
        };
        // Between LEAST and ONE - LEAST, which fits.
        self.yes = next.clamp(LEAST, ONE - LEAST) as u16;
        if weight < MEMORY {
            self.observed += 1;
        }
    }
}

/// What was learnt.
#[derive(Clone, Debug)]
pub(super) struct Model {
    answers: Vec<Answer>,
    last: usize,
    length: usize,
    before: usize,
}

impl Model {
    pub(super) fn new() -> Model {
        Model {
            answers: vec![Answer::NEW; PLACES * PLACES * LENGTHS * COMMON],
            last: COMMON,
            length: 0,
            before: COMMON,
        }
    }

    /// The answers of the present situation.
    fn situation(&mut self) -> &mut [Answer] {
        let length = match self.length {
            0..24 => self.length,
            long => 24 + (long / 24).ilog2().min(7) as usize,
        };
        let number = (self.before * PLACES + self.last) * LENGTHS + length;
        &mut self.answers[number * COMMON..][..COMMON]
    }

    fn note(&mut self, place: usize) {
        let place = place.min(COMMON);
        if place == self.last {
            self.length += 1;
            return;
        }
        self.before = self.last;
        self.last = place;
        self.length = 0;
    }

    /// Codes a pattern; from [`COMMON`] on only that it is one of those.
    pub(super) fn encode(&mut self, place: usize, coder: &mut Encoder) {
        for (common, answer) in self.situation().iter_mut().enumerate() {
            let yes = common == place;
            coder.code(yes, answer.yes.into());
            answer.learn(yes);
            if yes {
                break;
            }
        }
        self.note(place);
    }

    /// The reverse; [`COMMON`] for a pattern in that column.
    pub(super) fn decode(&mut self, coder: &mut Decoder, bytes: &[u8]) -> Result<usize, Nonsense> {
        let mut place = COMMON;
        for (common, answer) in self.situation().iter_mut().enumerate() {
            let yes = coder.decode(answer.yes.into(), bytes)?;
            answer.learn(yes);
            if yes {
                place = common;
                break;
            }
        }
        self.note(place);
        Ok(place)
    }
}

/// Writes answers.
#[derive(Clone, Debug)]
pub(super) struct Encoder {
    low: u64,
    range: u32,
    /// The byte that a carry may still change, and how many 0xff follow it.
    held: u8,
    full: usize,
    begun: bool,
    out: Vec<u8>,
}

impl Encoder {
    pub(super) fn new() -> Encoder {
        Encoder {
            low: 0,
            range: u32::MAX,
            held: 0,
            full: 0,
            begun: false,
            out: Vec::new(),
        }
    }

    pub(super) fn code(&mut self, yes: bool, probability: u32) {
        let part = (self.range >> 16) * probability;
        if yes {
            self.range = part;
        } else {
            self.low += u64::from(part);
            self.range -= part;
        }
        while self.range < BOTTOM {
            self.range <<= 8;
            self.shift();
        }
    }

    fn shift(&mut self) {
        let carry = (self.low >> 32) as u8;
        if self.low < 0xff00_0000 || carry > 0 {
            if self.begun {
                self.out.push(self.held.wrapping_add(carry));
            }
            self.out
                .extend(std::iter::repeat_n(0xffu8.wrapping_add(carry), self.full));
            self.full = 0;
            self.begun = true;
            self.held = (self.low >> 24) as u8;
        } else {
            self.full += 1;
        }
        self.low = (self.low & 0x00ff_ffff) << 8;
    }

    /// The bytes.
    pub(super) fn finish(mut self) -> Vec<u8> {
        for _ in 0..5 {
            self.shift();
        }
        self.out
    }
}

/// Reads answers.
#[derive(Clone, Debug)]
pub(super) struct Decoder {
    code: u32,
    range: u32,
    at: usize,
}

impl Decoder {
    pub(super) fn new(bytes: &[u8]) -> Result<Decoder, Nonsense> {
        let mut decoder = Decoder {
            code: 0,
            range: u32::MAX,
            at: 0,
        };
        for _ in 0..4 {
            decoder.byte(bytes)?;
        }
        Ok(decoder)
    }

    fn byte(&mut self, bytes: &[u8]) -> Result<(), Nonsense> {
        let byte = bytes.get(self.at).ok_or(Nonsense::Short { what: NAME })?;
        self.code = self.code << 8 | u32::from(*byte);
        self.at += 1;
        Ok(())
    }

    pub(super) fn decode(&mut self, probability: u32, bytes: &[u8]) -> Result<bool, Nonsense> {
        let part = (self.range >> 16) * probability;
        let yes = self.code < part;
        if yes {
            self.range = part;
        } else {
            self.code -= part;
            self.range -= part;
        }
        while self.range < BOTTOM {
            self.range <<= 8;
            self.byte(bytes)?;
        }
        Ok(yes)
    }

    /// All bytes must have been used.
    pub(super) fn end(&self, bytes: &[u8]) -> Result<(), Nonsense> {
        if self.at == bytes.len() {
            Ok(())
        } else {
            Err(Nonsense::Left { what: NAME })
        }
    }
}

const NAME: &str = "patterns of runs";

#[cfg(test)]
mod tests {
    use super::super::random::random;
    use super::*;

    fn coded(places: &[usize]) -> Vec<u8> {
        let (mut model, mut coder) = (Model::new(), Encoder::new());
        for place in places {
            model.encode(*place, &mut coder);
        }
        coder.finish()
    }

    fn comes_back(places: &[usize]) -> usize {
        let bytes = coded(places);
        let (mut model, mut coder) = (Model::new(), Decoder::new(&bytes).expect("four bytes"));
        for place in places {
            let read = model.decode(&mut coder, &bytes).expect("all there");
            assert_eq!(read, (*place).min(COMMON));
        }
        assert_eq!(coder.end(&bytes), Ok(()));
        bytes.len()
    }

    #[test]
    fn any_sequence_comes_back() {
        comes_back(&[]);
        comes_back(&[0]);
        comes_back(&[40, 0, 15, 14, 3]);
        for skew in [1, 2, 17, 1_000] {
            comes_back(&random(20_000, |n| (n % 18 / (n / 64 % skew + 1)) as usize));
        }
    }

    /// Regular sequences cost next to nothing, random ones what Shannon says and little more.
    #[test]
    fn the_cost_is_near_the_entropy() {
        let regular: Vec<usize> = (0..60_000).map(|n| usize::from(n % 12 == 11)).collect();
        assert!(comes_back(&regular) < 200, "{}", comes_back(&regular));
        let seventh = random(60_000, |n| usize::from(n % 7 == 0));
        // Binary entropy of 1/7.
        let entropy = 0.591_672_8 * 60_000.0 / 8.0;
        let cost = comes_back(&seventh) as f64;
        assert!(
            cost > 0.98 * entropy && cost < 1.1 * entropy,
            "{cost} of {entropy}"
        );
    }

    #[test]
    fn too_few_bytes_are_noticed() {
        let places = random(5_000, |n| (n % 9) as usize);
        let bytes = coded(&places);
        let cut = &bytes[..bytes.len() / 2];
        let (mut model, mut coder) = (Model::new(), Decoder::new(cut).expect("four bytes"));
        let mut read = places.iter().map(|_| model.decode(&mut coder, cut));
        assert!(read.any(|place| place.is_err()));
        assert!(Decoder::new(&bytes[..3]).is_err());
    }
}
