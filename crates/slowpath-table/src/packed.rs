// SPDX-License-Identifier: Apache-2.0
//! Values of a column in few bytes while its rows are collected: they are read once, in order.

use bytes::Bytes;
use parquet::data_type::ByteArray;

/// Numbers, each as its difference from the one before: zigzag, then seven bits a byte (LEB128).
/// A number like the one before takes one byte, none more than ten.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    bytes: Vec<u8>,
    last: i64,
}

impl Numbers {
    pub(crate) fn push(&mut self, number: i64) {
        let step = number.wrapping_sub(self.last);
        self.last = number;
        let mut left = ((step << 1) ^ (step >> 63)).cast_unsigned();
        while left >= 0x80 {
            self.bytes.push(left as u8 | 0x80);
            left >>= 7;
        }
        self.bytes.push(left as u8);
    }
}

/// How far a column's numbers have been read.
#[derive(Debug, Default)]
pub(crate) struct NumbersRead {
    at: usize,
    last: i64,
}

impl NumbersRead {
    /// Reads the next numbers, as many of them as there are.
    pub(crate) fn take(&mut self, numbers: &Numbers, count: usize) -> Vec<i64> {
        let mut taken = Vec::with_capacity(count);
        while taken.len() < count && self.at < numbers.bytes.len() {
            let (mut step, mut shift) = (0, 0);
            while let Some(byte) = numbers.bytes.get(self.at) {
                self.at += 1;
                step |= u64::from(byte & 0x7f) << shift;
                shift += 7;
                if *byte < 0x80 {
                    break;
                }
            }
            let step = ((step >> 1) ^ (step & 1).wrapping_neg()).cast_signed();
            self.last = self.last.wrapping_add(step);
            taken.push(self.last);
        }
        taken
    }
}

/// Texts one after the other, one that repeats the one before as a count.
#[derive(Debug, Default)]
pub(crate) struct Texts {
    bytes: Vec<u8>,
    runs: Vec<Run>,
}

/// A text, and how often it comes.
#[derive(Clone, Copy, Debug)]
struct Run {
    /// Where it ends; it begins where the one before ends.
    end: usize,
    count: usize,
}

impl Texts {
    pub(crate) fn push(&mut self, text: &str) {
        let before = self.runs.len().checked_sub(2).map(|at| self.runs[at].end);
        if let Some(run) = self.runs.last_mut()
            && self.bytes[before.unwrap_or(0)..] == *text.as_bytes()
        {
            run.count += 1;
            return;
        }
        self.bytes.extend_from_slice(text.as_bytes());
        self.runs.push(Run {
            end: self.bytes.len(),
            count: 1,
        });
    }

    /// All of them, to be read.
    pub(crate) fn read(&mut self) -> TextsRead {
        TextsRead {
            bytes: std::mem::take(&mut self.bytes).into(),
            runs: std::mem::take(&mut self.runs),
            start: 0,
            run: 0,
            taken: 0,
        }
    }
}

/// Texts, and how far they have been read.
#[derive(Debug, Default)]
pub(crate) struct TextsRead {
    bytes: Bytes,
    runs: Vec<Run>,
    /// Where the present run's text begins, which run that is, and how many of it were read.
    start: usize,
    run: usize,
    taken: usize,
}

impl TextsRead {
    /// Reads the next texts, as many of them as there are.
    pub(crate) fn take(&mut self, count: usize) -> Vec<ByteArray> {
        let mut taken = Vec::with_capacity(count);
        while taken.len() < count
            && let Some(run) = self.runs.get(self.run)
        {
            if self.taken == run.count {
                (self.start, self.taken) = (run.end, 0);
                self.run += 1;
                continue;
            }
            taken.push(ByteArray::from(self.bytes.slice(self.start..run.end)));
            self.taken += 1;
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_whatever_they_are_and_in_pieces_of_any_size() {
        let given = [
            0,
            1,
            -1,
            i64::MAX,
            i64::MIN,
            i64::MIN,
            63,
            64,
            -64,
            -65,
            1 << 40,
        ];
        let mut numbers = Numbers::default();
        given.iter().for_each(|n| numbers.push(*n));
        for piece in 1..=given.len() {
            let mut read = NumbersRead::default();
            let mut all = Vec::new();
            while all.len() < given.len() {
                all.extend(read.take(&numbers, piece));
            }
            assert_eq!(all, given);
            assert!(read.take(&numbers, 1).is_empty());
        }
    }

    /// The bound of [`Numbers`], from LEB128's seven bits: a difference needs up to 64 of them.
    #[test]
    fn a_number_like_the_one_before_takes_a_byte_and_none_more_than_ten() {
        let mut numbers = Numbers::default();
        (0..1_000).for_each(|_| numbers.push(0));
        assert_eq!(numbers.bytes.len(), 1_000);
        numbers.push(i64::MIN);
        assert_eq!(numbers.bytes.len(), 1_010);
    }

    #[test]
    fn texts_come_back_and_repeated_ones_take_no_bytes() {
        let given = ["", "", "a", "a", "a", "ab", "", "b", "ab"];
        for piece in 1..=given.len() {
            let mut texts = Texts::default();
            given.iter().for_each(|text| texts.push(text));
            assert_eq!(texts.bytes, b"aabbab");
            let mut read = texts.read();
            let mut all = Vec::new();
            while all.len() < given.len() {
                let taken = read.take(piece);
                all.extend(taken.iter().map(|t| t.as_utf8().unwrap().to_owned()));
            }
            assert_eq!(all, given);
            assert!(read.take(1).is_empty());
        }
    }
}
