// SPDX-License-Identifier: Apache-2.0
//! The rungs from the highest rates to the lowest.

/// Standings of connections, from the fewest problems to the most.
pub(crate) const PRIORITIES: usize = 3;

/// Steps to a factor of two.
const PER_OCTAVE: usize = 4;

/// Steps of the highest rate above that of the configured interval, to 5.7 times: each sample
/// of a connection with problems is a row in the log.
const UP: usize = SEPARATION;

/// Steps of the lowest rate below it, to a thirty-second.
const DOWN: usize = 5 * PER_OCTAVE;

/// Polls come this many octaves above.
const POLLS_UP: usize = 4;

/// Steps between the highest rate and the lowest.
const SPAN: usize = UP + DOWN;

/// Steps that connections without problems stay below the others at least: a factor of 5.7.
/// Four is promised; what is drawn by chance, and what changes too rarely to be sampled
/// whenever it is due, take part of it.
const SEPARATION: usize = 10;

/// Steps that one priority can go down.
const WAY: usize = SPAN - SEPARATION;

/// Steps that the polls go down from 16 an interval to eight while those without problems
/// take their last steps: no connection waits for more than
/// 2,048 polls, which has to be many times the mean.
const FEWER: usize = PER_OCTAVE;

/// Steps that they go on to two an interval, when all else is at its lowest: many small polls
/// vary less than few large ones, and cost little more.
const POLLS_WAY: usize = 2 * PER_OCTAVE;

/// The last rung.
pub(crate) const LAST: usize = PRIORITIES * WAY + POLLS_WAY;

/// The rung on which connections without problems are sampled once in each configured
/// interval.
pub(crate) const START: usize = UP - SEPARATION;

/// Rates on one rung, in samples a configured interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Rates {
    /// Polls.
    pub polls: f64,
    /// Samples of a connection that changes all the time, by its priority.
    pub samples: [f64; PRIORITIES],
}

/// The rates on a rung: first those without problems go down, then those with some, then
/// the worst, then the polls.
pub(crate) fn rates(rung: usize) -> Rates {
    let below = |part: usize| rung.saturating_sub(part * WAY).min(WAY);
    let rate = |up: usize, steps: usize| 2f64.powf((up as f64 - steps as f64) / PER_OCTAVE as f64);
    Rates {
        polls: rate(
            POLLS_UP * PER_OCTAVE,
            below(0).saturating_sub(WAY - FEWER) + below(PRIORITIES).min(POLLS_WAY),
        ),
        samples: [
            rate(UP, SEPARATION + below(0)),
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
            let Rates { polls, samples } = rates(rung);
            assert!(samples[1] >= 5.6 * samples[0], "{rung}: {samples:?}");
            assert!(samples[2] >= samples[1], "{rung}: {samples:?}");
            assert!(polls >= samples[2] && polls <= 16.0);
            assert!(samples[2] <= 5.7 && samples[0] >= 1.0 / 32.0 * 0.999_999);
            // Who waits longest waits for 256 polls in the mean.
            assert!(polls <= 256.001 * samples[0], "{rung}");
        }
        assert!((rates(LAST).polls - 2.0).abs() < 1e-9);
        let last = rates(LAST).samples;
        assert!((last[0] - 1.0 / 32.0).abs() < 1e-9 && (last[2] - 0.176_776_695_3).abs() < 1e-9);
        assert!((rates(START).samples[0] - 1.0).abs() < 1e-9);
    }

    /// One priority at a time, the least concerned first, each step by a fifth.
    #[test]
    fn each_rung_lowers_one_standing_by_one_step() {
        for rung in 0..PRIORITIES * WAY {
            let (above, below) = (rates(rung).samples, rates(rung + 1).samples);
            let changed: Vec<usize> = (0..PRIORITIES).filter(|s| above[*s] != below[*s]).collect();
            assert_eq!(changed, [rung / WAY]);
            let factor = above[changed[0]] / below[changed[0]];
            assert!((factor - 2f64.powf(0.25)).abs() < 1e-9);
        }
    }
}
