// SPDX-License-Identifier: Apache-2.0
//! Flow sizes from a cumulative distribution.
//!
//! The format is that of the published ones: a size in bytes and the probability of at most
//! that size on each line, separated by white space; empty lines and what follows `#` do not
//! count. Probabilities are fractions or percent, as the last one shows: it is 1 or 100.

use super::random::uniform;
use slowpath_switch::Random;

/// The largest size: 1 PB.
const MAX_SIZE: f64 = 1e15;
/// The most points.
const MAX_POINTS: usize = 1 << 20;

/// What is wrong with a file of sizes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct CdfError {
    /// Where, from 1 on.
    pub line: usize,
    /// What.
    pub problem: CdfProblem,
}

/// What is wrong with a line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CdfProblem {
    /// Not two numbers.
    #[error("a line is a size in bytes and a probability")]
    NotTwoNumbers,
    /// A size below zero, or too large.
    #[error("the size is not between 0 and 10^15 bytes")]
    Size,
    /// A probability that is none.
    #[error("the probability is not between 0 and 1, or 0 and 100 percent")]
    Probability,
    /// A size or a probability below the one before.
    #[error("sizes and probabilities do not fall")]
    Falls,
    /// The last probability leaves something over.
    #[error("the last probability is neither 1 nor 100 percent")]
    Incomplete,
    /// No points at all.
    #[error("there is no point")]
    Empty,
    /// All flows have no bytes.
    #[error("every size is 0")]
    AllZero,
    /// Too many points.
    #[error("more than {MAX_POINTS} points")]
    TooMany,
}

/// A distribution of flow sizes: linear between points. What the first point's probability
/// leaves below it has the first point's size.
#[derive(Clone, Debug, PartialEq)]
pub struct SizeDistribution {
    /// Size, and the probability of at most that.
    points: Vec<(f64, f64)>,
    mean: f64,
}

impl SizeDistribution {
    /// Every flow has that many bytes; at least 1.
    pub fn constant(bytes: u64) -> Self {
        let size = (bytes as f64).clamp(1.0, MAX_SIZE);
        SizeDistribution {
            points: vec![(size, 1.0)],
            mean: size,
        }
    }

    /// Reads a file's text.
    ///
    /// # Errors
    /// The first line that is wrong.
    pub fn parse(text: &str) -> Result<Self, CdfError> {
        let mut points: Vec<(f64, f64)> = Vec::new();
        let mut last_line = 1;
        for (number, line) in text.lines().enumerate() {
            let content = line.split('#').next().unwrap_or_default();
            let mut words = content.split_whitespace();
            let Some(size) = words.next() else {
                continue;
            };
            last_line = number + 1;
            let error = |problem| CdfError {
                line: number + 1,
                problem,
            };
            let numbers = (size.parse::<f64>(), words.next().map(str::parse::<f64>));
            let (Ok(size), Some(Ok(probability)), None) = (numbers.0, numbers.1, words.next())
            else {
                return Err(error(CdfProblem::NotTwoNumbers));
            };
            if !(0.0..=MAX_SIZE).contains(&size) {
                return Err(error(CdfProblem::Size));
            }
            if !(0.0..=100.0 + 1e-6).contains(&probability) {
                return Err(error(CdfProblem::Probability));
            }
            if points
                .last()
                .is_some_and(|last| size < last.0 || probability < last.1)
            {
                return Err(error(CdfProblem::Falls));
            }
            if points.len() == MAX_POINTS {
                return Err(error(CdfProblem::TooMany));
            }
            points.push((size, probability));
        }
        Self::from_points(points).map_err(|problem| CdfError {
            line: last_line,
            problem,
        })
    }

    fn from_points(mut points: Vec<(f64, f64)>) -> Result<Self, CdfProblem> {
        let Some(last) = points.last().copied() else {
            return Err(CdfProblem::Empty);
        };
        let whole = if (last.1 - 1.0).abs() <= 1e-9 {
            1.0
        } else if (last.1 - 100.0).abs() <= 1e-6 {
            100.0
        } else {
            return Err(CdfProblem::Incomplete);
        };
        for point in &mut points {
            point.1 = (point.1 / whole).min(1.0);
        }
        let end = points.len() - 1;
        points[end].1 = 1.0;
        let mut mean = points[0].0 * points[0].1;
        for pair in points.windows(2) {
            mean += (pair[1].1 - pair[0].1) * (pair[0].0 + pair[1].0) / 2.0;
        }
        if mean <= 0.0 {
            return Err(CdfProblem::AllZero);
        }
        Ok(SizeDistribution { points, mean })
    }

    /// The mean of the continuous distribution, in bytes.
    pub fn mean(&self) -> f64 {
        self.mean
    }

    /// The largest size.
    pub fn max(&self) -> u64 {
        self.points.last().map_or(1, |point| point.0 as u64).max(1)
    }

    /// The size that a share `u` of flows, in (0, 1], does not exceed, to the nearest byte
    /// and at least 1.
    pub fn quantile(&self, u: f64) -> u64 {
        let above = self.points.partition_point(|point| point.1 < u);
        let above = above.min(self.points.len() - 1);
        let (size, probability) = self.points[above];
        let size = match above.checked_sub(1).map(|below| self.points[below]) {
            Some((low, from)) if probability > from => {
                low + (u - from) / (probability - from) * (size - low)
            }
            _ => size,
        };
        ((size + 0.5) as u64).max(1)
    }

    pub(super) fn sample(&self, random: &mut Random) -> u64 {
        if self.points.len() == 1 {
            return self.quantile(1.0);
        }
        self.quantile(uniform(random))
    }
}
