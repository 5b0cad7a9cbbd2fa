// SPDX-License-Identifier: Apache-2.0
//! Loss patterns (RFC 3357): are losses single or in bursts, and how far from each other.

use serde::Serialize;

/// Loss periods and loss distances of a sample.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LossPattern {
    /// Runs of losses in a row (RFC 3357 section 5.3.2).
    pub periods: u64,
    /// The longest run, packets.
    pub longest_period: u64,
    /// Half the runs are no longer.
    pub median_period: u64,
    /// The least difference of the sequence numbers of a loss and the one before it (section 5.3.1).
    pub least_distance: Option<u64>,
    /// Half are no larger.
    pub median_distance: Option<u64>,
    /// The largest.
    pub largest_distance: Option<u64>,
}

impl LossPattern {
    /// Of the sequence numbers of lost packets, ascending.
    #[must_use]
    pub fn of(lost: impl Iterator<Item = u32>) -> Self {
        let (mut periods, mut distances): (Vec<u64>, Vec<u64>) = (Vec::new(), Vec::new());
        let mut last: Option<u32> = None;
        for sequence in lost {
            let distance = last.map(|last| u64::from(sequence) - u64::from(last));
            match (distance, periods.last_mut()) {
                (Some(1), Some(period)) => *period += 1,
                _ => periods.push(1),
            }
            distances.extend(distance);
            last = Some(sequence);
        }
        periods.sort_unstable();
        distances.sort_unstable();
        LossPattern {
            periods: periods.len() as u64,
            longest_period: periods.last().copied().unwrap_or(0),
            median_period: median(&periods).unwrap_or(0),
            least_distance: distances.first().copied(),
            median_distance: median(&distances),
            largest_distance: distances.last().copied(),
        }
    }
}

/// The lower median of sorted values.
fn median(sorted: &[u64]) -> Option<u64> {
    sorted.get(sorted.len().saturating_sub(1) / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::LossPattern;

    #[test]
    fn runs_and_distances_are_those_of_the_losses() {
        let pattern = LossPattern::of([2, 3, 4, 10, 15].into_iter());
        assert_eq!(pattern.periods, 3);
        assert_eq!((pattern.longest_period, pattern.median_period), (3, 1));
        assert_eq!(pattern.least_distance, Some(1));
        assert_eq!(pattern.median_distance, Some(1));
        assert_eq!(pattern.largest_distance, Some(6));
        assert_eq!(LossPattern::of(std::iter::empty()), LossPattern::default());
    }
}
