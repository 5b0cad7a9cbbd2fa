// SPDX-License-Identifier: Apache-2.0
//! The rungs from the highest rates to the lowest.

/// Standings of connections, from the fewest problems to the most.
pub(crate) const STANDINGS: usize = 3;

/// Steps to a factor of two.
const PER_OCTAVE: usize = 4;

/// The highest rate is this many octaves above that of the configured interval: each look at
/// a connection with problems is a row in the log.
const UP: usize = 2;

/// The lowest rate is this many octaves below.
const DOWN: usize = 4;

/// Polls come this many octaves above.
const POLLS_UP: usize = 4;

/// Steps between the highest rate and the lowest.
const SPAN: usize = (UP + DOWN) * PER_OCTAVE;

/// Steps that connections without problems stay below the others at least: a factor of four.
const APART: usize = 2 * PER_OCTAVE;

/// Steps that one standing can go down.
const WAY: usize = SPAN - APART;

/// Steps that the polls go down from 16 an interval to two, when all else is at its lowest:
/// many small polls vary less than few large ones, and cost little more.
const POLLS_WAY: usize = 3 * PER_OCTAVE;

/// The last rung.
pub(crate) const LAST: usize = STANDINGS * WAY + POLLS_WAY;

/// The rung on which connections without problems are looked at once in each configured
/// interval.
pub(crate) const START: usize = UP * PER_OCTAVE - APART;

/// Rates on one rung, in looks a configured interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Rates {
    /// Polls.
    pub polls: f64,
    /// Looks at a connection that changes all the time, by its standing.
    pub looks: [f64; STANDINGS],
}

/// The rates on a rung: first those without problems go down, then those with some, then
/// the worst, then the polls.
pub(crate) fn rates(rung: usize) -> Rates {
    let below = |part: usize| rung.saturating_sub(part * WAY).min(WAY);
    let rate = |up: usize, steps: usize| 2f64.powf(up as f64 - steps as f64 / PER_OCTAVE as f64);
    Rates {
        polls: rate(POLLS_UP, below(STANDINGS).min(POLLS_WAY)),
        looks: [
            rate(UP, APART + below(0)),
            rate(UP, below(1)),
            rate(UP, below(2)),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rung_keeps_the_order_the_ratio_and_the_bounds() {
        for rung in 0..=LAST {
            let Rates { polls, looks } = rates(rung);
            assert!(looks[1] >= 4.0 * looks[0] * 0.999_999, "{rung}: {looks:?}");
            assert!(looks[2] >= looks[1], "{rung}: {looks:?}");
            assert!(polls >= looks[2] && polls <= 16.0);
            assert!(looks[2] <= 4.0 && looks[0] >= 1.0 / 16.0 * 0.999_999);
        }
        assert!((rates(LAST).polls - 2.0).abs() < 1e-9);
        let last = rates(LAST).looks;
        assert!((last[0] - 1.0 / 16.0).abs() < 1e-9 && (last[2] - 0.25).abs() < 1e-9);
        assert!((rates(START).looks[0] - 1.0).abs() < 1e-9);
    }

    /// One standing at a time, the least concerned first, each step by a fifth.
    #[test]
    fn each_rung_lowers_one_standing_by_one_step() {
        for rung in 0..STANDINGS * WAY {
            let (above, below) = (rates(rung).looks, rates(rung + 1).looks);
            let changed: Vec<usize> = (0..STANDINGS).filter(|s| above[*s] != below[*s]).collect();
            assert_eq!(changed, [rung / WAY]);
            let factor = above[changed[0]] / below[changed[0]];
            assert!((factor - 2f64.powf(0.25)).abs() < 1e-9);
        }
    }
}
