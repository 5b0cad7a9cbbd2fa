// SPDX-License-Identifier: Apache-2.0
//! The tests that the judge uses. Distributions are `statrs`'s.

use statrs::distribution::{
    Beta, ChiSquared, ContinuousCDF, DiscreteCDF, Hypergeometric, Normal, Poisson,
};

/// Trials and how many of them were losses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Packets.
    pub sent: u64,
    /// Of these, lost.
    pub lost: u64,
}

impl Count {
    /// The lost part; 0 of nothing.
    #[must_use]
    pub fn share(self) -> f64 {
        match self.sent {
            0 => 0.0,
            sent => self.lost as f64 / sent as f64,
        }
    }

    /// Both.
    #[must_use]
    pub fn and(self, other: Count) -> Count {
        Count {
            sent: self.sent + other.sent,
            lost: self.lost + other.lost,
        }
    }

    /// What the share is below with 95 % confidence (Clopper and Pearson 1934): without a loss 1 − 0.05^(1/sent).
    #[must_use]
    pub fn bound(self) -> f64 {
        if self.lost >= self.sent {
            return 1.0;
        }
        let (lost, kept) = (self.lost as f64, (self.sent - self.lost) as f64);
        Beta::new(lost + 1.0, kept).map_or(1.0, |beta| beta.inverse_cdf(0.95))
    }
}

/// Fisher's exact test, one-sided: how likely `second` has at least as many of all losses as it has, if the
/// share is the same in both.
#[must_use]
pub fn fisher(first: Count, second: Count) -> f64 {
    let both = first.and(second);
    if second.lost == 0 || first.sent == 0 {
        return 1.0;
    }
    Hypergeometric::new(both.sent, both.lost, second.sent)
        .map_or(1.0, |losses| losses.sf(second.lost - 1).clamp(0.0, 1.0))
}

/// The upper tail of the standard normal distribution.
fn upper(z: f64) -> f64 {
    Normal::standard().sf(z)
}

/// The Cochran–Armitage test for a trend (Armitage 1955), one-sided: shares that grow with the score.
#[must_use]
pub fn trend(groups: &[(f64, Count)]) -> f64 {
    let all = groups
        .iter()
        .fold(Count::default(), |sum, group| sum.and(group.1));
    let (n, p) = (all.sent as f64, all.share());
    if all.lost == 0 || all.lost == all.sent {
        return 1.0;
    }
    let mean = groups
        .iter()
        .map(|(score, c)| score * c.sent as f64)
        .sum::<f64>()
        / n;
    let statistic: f64 = groups
        .iter()
        .map(|(score, c)| (score - mean) * (c.lost as f64 - c.sent as f64 * p))
        .sum();
    let squares: f64 = groups
        .iter()
        .map(|(score, c)| c.sent as f64 * (score - mean).powi(2))
        .sum();
    let variance = p * (1.0 - p) * squares;
    if variance <= 0.0 {
        return 1.0;
    }
    upper(statistic / variance.sqrt())
}

/// The test of Mann and Whitney (1947), one-sided: values of `second` are larger. Also the probability that one of
/// `second` exceeds one of `first`.
#[must_use]
pub fn larger(first: &[f64], second: &[f64]) -> (f64, f64) {
    let (n, m) = (first.len() as f64, second.len() as f64);
    if first.is_empty() || second.is_empty() {
        return (1.0, 0.5);
    }
    let mut values: Vec<(f64, bool)> = first.iter().map(|&value| (value, false)).collect();
    values.extend(second.iter().map(|&value| (value, true)));
    values.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (mut ranks, mut ties, mut at) = (0.0, 0.0, 0);
    while at < values.len() {
        let same = values[at..]
            .iter()
            .take_while(|value| value.0 == values[at].0)
            .count();
        // The mean of ranks at + 1 to at + same.
        let rank = at as f64 + (same as f64 + 1.0) / 2.0;
        let of_second = values[at..at + same].iter().filter(|value| value.1).count();
        ranks += rank * of_second as f64;
        ties += (same as f64).powi(3) - same as f64;
        at += same;
    }
    let wins = ranks - m * (m + 1.0) / 2.0;
    let all = n + m;
    let variance = n * m / 12.0 * (all + 1.0 - ties / (all * (all - 1.0)));
    let p = match variance > 0.0 {
        true => upper((wins - n * m / 2.0 - 0.5) / variance.sqrt()),
        false => 1.0,
    };
    (p, wins / (n * m))
}

/// How likely at least `events` are where `expected` are expected.
#[must_use]
pub fn at_least(events: u64, expected: f64) -> f64 {
    match events {
        0 => 1.0,
        _ if expected <= 0.0 => 0.0,
        _ => Poisson::new(expected).map_or(1.0, |poisson| poisson.sf(events - 1)),
    }
}

/// The upper tail of χ².
#[must_use]
pub fn chi_squared(statistic: f64, freedom: f64) -> f64 {
    match freedom > 0.0 && statistic.is_finite() {
        true => ChiSquared::new(freedom).map_or(1.0, |chi| chi.sf(statistic.max(0.0))),
        false => 1.0,
    }
}

/// Losses independent by bit: the probability of a bit that fits best, and how well it does: the p-value of the
/// likelihood ratio against a share of its own for each size.
#[must_use]
pub fn bits(groups: &[(f64, Count)]) -> (f64, f64) {
    let slope = |rate: f64| -> f64 {
        let of = |&(bits, count): &(f64, Count)| {
            let (lost, kept) = (count.lost as f64, (count.sent - count.lost) as f64);
            // d/dλ of lost ln(1 − e^−λb) − kept λ b
            lost * bits / (rate * bits).exp_m1() - kept * bits
        };
        groups.iter().map(of).sum()
    };
    let (mut low, mut high) = (1e-15_f64, 1.0_f64);
    for _ in 0..200 {
        let middle = (low * high).sqrt();
        if slope(middle) > 0.0 {
            low = middle;
        } else {
            high = middle;
        }
    }
    let rate = low;
    let likelihood = |lost: f64, kept: f64, share: f64| {
        let term = |count: f64, part: f64| if count > 0.0 { count * part.ln() } else { 0.0 };
        term(lost, share) + term(kept, 1.0 - share)
    };
    let ratio: f64 = groups
        .iter()
        .map(|&(bits, count)| {
            let (lost, kept) = (count.lost as f64, (count.sent - count.lost) as f64);
            let free = likelihood(lost, kept, count.share());
            2.0 * (free - likelihood(lost, kept, -(-rate * bits).exp_m1()))
        })
        .sum();
    (rate, chi_squared(ratio, groups.len() as f64 - 1.0))
}

/// A line in a spectrum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Period {
    /// The period, in the unit of the events.
    pub period: f64,
    /// 1: every event falls on the same phase; 0: on any.
    pub concentration: f64,
    /// How likely such a line is somewhere in the spectrum of independent events.
    pub p: f64,
}

/// Events of one stretch, and of what they were drawn: places of losses among the places of packets.
#[derive(Clone, Debug, Default)]
pub struct Stretch {
    /// Places of losses.
    pub events: Vec<f64>,
    /// Places of packets, thinned out evenly where they are many.
    pub trials: Vec<f64>,
    /// From the first packet to the last.
    pub length: f64,
}

/// Events that the spectrum takes, of all stretches.
const MOST_EVENTS: usize = 900;

/// Packets' places that it takes, of all stretches.
const MOST_TRIALS: usize = 1_500;

/// The least number for each stretch, as far as it has them.
const FEWEST_TRIALS: usize = 250;

/// Frequencies looked at between two independent ones.
const OVERSAMPLING: f64 = 4.0;

/// How much more often the largest of such densely spaced lines exceeds a bound than the largest of independent
/// ones (Baluev 2008, compared with 1,000 spectra of independent events).
const DENSE: f64 = 3.0;

/// Looks for a period between `least` and a third of a stretch: Rayleigh's test (Mardia and Jupp 2000, 6.3.1) at each
/// frequency, added over the stretches, whose phases need not agree, less what the packets' own places give. The p-value
/// is that of the strongest line, times the number of independent frequencies.
#[must_use]
pub fn period(stretches: &[Stretch], least: f64) -> Option<Period> {
    let used = |stretch: &&Stretch| stretch.events.len() >= 3 && stretch.length > 3.0 * least;
    let stretches: Vec<&Stretch> = stretches.iter().filter(used).collect();
    let most_events = MOST_EVENTS / stretches.len().max(1);
    let most_trials = (MOST_TRIALS / stretches.len().max(1)).max(FEWEST_TRIALS);
    let length = stretches.iter().map(|s| s.length).fold(0.0, f64::max);
    let events: usize = stretches.iter().map(|s| s.events.len()).sum();
    if events < 5 {
        return None;
    }
    let (lowest, highest) = (3.0 / length, 1.0 / least);
    let lines = Lines {
        lowest,
        step: 1.0 / (length * OVERSAMPLING),
        count: ((highest - lowest) * length * OVERSAMPLING).max(1.0) as usize + 1,
    };
    let (mut strength, mut aligned) = (vec![0.0; lines.count], vec![0.0; lines.count]);
    let mut used_events = 0.0;
    // Choices of their own: the same one would repeat its chance in every stretch.
    for (choice, stretch) in (0u64..).step_by(2).zip(&stretches) {
        let events = lines.resultants(&thinned(&stretch.events, most_events, choice));
        let trials = lines.resultants(&thinned(&stretch.trials, most_trials, choice + 1));
        let n = stretch.events.len().min(most_events) as f64;
        let m = stretch.trials.len().min(most_trials) as f64;
        used_events += n;
        for (at, (event, trial)) in events.iter().zip(&trials).enumerate() {
            strength[at] += distance(event, trial, (n, m));
            aligned[at] += n * (event.x.powi(2) + event.y.powi(2));
        }
    }
    let most = strength.iter().copied().fold(0.0, f64::max);
    // A train of pulses has all harmonics: its period is that of the lowest.
    let near = strength.iter().position(|&line| line >= 0.8 * most)?;
    let end = (near + OVERSAMPLING as usize + 1).min(lines.count);
    let peak = (near..end).max_by(|&a, &b| strength[a].total_cmp(&strength[b]))?;
    let p = chi_squared(2.0 * most, 2.0 * stretches.len() as f64);
    Some(Period {
        period: 1.0 / (lowest + lines.step * peak as f64),
        concentration: (aligned[peak] / used_events).clamp(0.0, 1.0).sqrt(),
        p: (p * (highest - lowest) * length * DENSE).clamp(0.0, 1.0),
    })
}

/// At most `most` of values: one of each of as many equal parts, which one by a hash, so that no period comes from the
/// choice.
fn thinned(values: &[f64], most: usize, choice: u64) -> Vec<f64> {
    if values.len() <= most {
        return values.to_vec();
    }
    let edge = |part: usize| part * values.len() / most;
    let choose = |part: usize| {
        let (from, to) = (edge(part), edge(part + 1));
        // The finalizer of SplitMix64 (Steele, Lea and Flood 2014).
        let z = (part as u64 | choice << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        values[from + (z >> 33) as usize % (to - from)]
    };
    (0..most).map(choose).collect()
}

/// The mean of places' unit vectors at a frequency, and at twice that.
#[derive(Clone, Copy, Debug, Default)]
struct Resultant {
    x: f64,
    y: f64,
    x2: f64,
    y2: f64,
}

/// How far events are from packets at a frequency: half of what is distributed as χ² with two degrees of freedom where
/// events are drawn from the packets. Without packets' places all phases are alike.
fn distance(events: &Resultant, packets: &Resultant, (n, m): (f64, f64)) -> f64 {
    if m == 0.0 {
        return n * (events.x.powi(2) + events.y.powi(2));
    }
    let (dx, dy) = (events.x - packets.x, events.y - packets.y);
    let xx = (1.0 + packets.x2) / 2.0 - packets.x.powi(2);
    let yy = (1.0 - packets.x2) / 2.0 - packets.y.powi(2);
    let xy = packets.y2 / 2.0 - packets.x * packets.y;
    let determinant = xx * yy - xy * xy;
    // Where nearly all packets have one phase, or two opposite ones, events say nothing.
    if determinant < 0.02 {
        return 0.0;
    }
    let square = (yy * dx * dx - 2.0 * xy * dx * dy + xx * dy * dy) / determinant;
    // The packets' places are a sample, too.
    n * m / (n + m) * square / 2.0
}

/// Equally spaced frequencies.
struct Lines {
    lowest: f64,
    step: f64,
    count: usize,
}

impl Lines {
    fn resultants(&self, places: &[f64]) -> Vec<Resultant> {
        let mut sums = vec![Resultant::default(); self.count];
        let angle =
            |place: f64, frequency: f64| std::f64::consts::TAU * (place * frequency).fract();
        for &place in places {
            let (mut y, mut x) = angle(place, self.lowest).sin_cos();
            let (sine, cosine) = angle(place, self.step).sin_cos();
            for sum in &mut sums {
                sum.x += x;
                sum.y += y;
                sum.x2 += x * x - y * y;
                sum.y2 += 2.0 * x * y;
                (x, y) = (x * cosine - y * sine, x * sine + y * cosine);
            }
        }
        let n = (places.len() as f64).max(1.0);
        for sum in &mut sums {
            *sum = Resultant {
                x: sum.x / n,
                y: sum.y / n,
                x2: sum.x2 / n,
                y2: sum.y2 / n,
            };
        }
        sums
    }
}

/// Which of several p-values are below `level` all at once (Holm 1979).
#[must_use]
pub fn holm(values: &[f64], level: f64) -> Vec<bool> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
    let mut holds = vec![false; values.len()];
    for (rank, &index) in order.iter().enumerate() {
        if values[index] > level / (values.len() - rank) as f64 {
            break;
        }
        holds[index] = true;
    }
    holds
}

/// The middle value; `None` of none.
#[must_use]
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len().checked_sub(1)? / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(sent: u64, lost: u64) -> Count {
        Count { sent, lost }
    }

    #[test]
    fn without_a_loss_the_bound_is_a_root_of_a_twentieth() {
        // 1 − 0.05^(1/299) is 0.00997: the rule of three.
        let bound = count(299, 0).bound();
        assert!(
            (bound - (1.0 - 0.05_f64.powf(1.0 / 299.0))).abs() < 1e-9,
            "{bound}"
        );
        assert!((count(10, 10).bound() - 1.0).abs() < 1e-12);
    }

    #[test]
    fn fishers_tea_has_its_p_value() {
        // Fisher 1935: 8 cups, of 4 chosen 3 right: (16 + 1) / 70.
        let p = fisher(count(4, 1), count(4, 3));
        assert!((p - 17.0 / 70.0).abs() < 1e-9, "{p}");
    }

    #[test]
    fn a_trend_is_found_and_the_opposite_is_not() {
        // By hand: scores 0, 1; shares 1/10 and 5/10: statistic 0.5 · (5 − 3) + 0.5 · (3 − 1) = 2, variance 0.3 · 0.7 · 5
        // = 1.05, z = 1.952, upper tail 0.0255.
        let p = trend(&[(0.0, count(10, 1)), (1.0, count(10, 5))]);
        assert!((p - 0.0255).abs() < 0.0005, "{p}");
        assert!(trend(&[(0.0, count(10, 5)), (1.0, count(10, 1))]) > 0.97);
    }

    #[test]
    fn larger_values_are_found_by_their_ranks() {
        // 10 pairs of 3 by 4 values: all win, U = 12, mean 6, variance 3 · 4 · 8 / 12 = 8, z = 5.5 / 2.828 = 1.9445.
        let (p, wins) = larger(&[1.0, 2.0, 3.0], &[4.0, 5.0, 6.0, 7.0]);
        assert!((p - 0.0259).abs() < 0.0005, "{p}");
        assert!((wins - 1.0).abs() < 1e-12);
        assert!((larger(&[1.0, 1.0], &[1.0, 1.0]).1 - 0.5).abs() < 1e-12);
    }

    #[test]
    fn a_loss_that_grows_with_the_bits_fits_and_an_even_one_does_not() {
        // 1 − e^(−12,000 · 1e-6) = 0.011928; of 336 bits 0.000336.
        let (rate, p) = bits(&[
            (336.0, count(100_000, 34)),
            (12_000.0, count(100_000, 1_193)),
        ]);
        assert!((rate / 1e-6 - 1.0).abs() < 0.01, "{rate}");
        assert!(p > 0.5, "{p}");
        assert!(bits(&[(336.0, count(10_000, 100)), (12_000.0, count(10_000, 100))]).1 < 1e-6);
    }

    #[test]
    fn every_hundredth_is_a_period_of_a_hundred() {
        let stretch = Stretch {
            events: (0..40).map(|i| f64::from(i * 100 + 17)).collect(),
            trials: (0..4_000).map(f64::from).collect(),
            length: 4_000.0,
        };
        let found = period(&[stretch], 2.0).expect("a line");
        assert!((found.period - 100.0).abs() < 1.0, "{found:?}");
        assert!(found.concentration > 0.95 && found.p < 1e-6, "{found:?}");
    }

    #[test]
    fn of_several_p_values_holm_keeps_those_below_their_steps() {
        // 0.01 / 3, 0.01 / 2: the third is not looked at.
        assert_eq!(holm(&[0.004, 0.001, 0.009], 0.01), [true, true, true]);
        assert_eq!(holm(&[0.006, 0.001, 0.009], 0.01), [false, true, false]);
    }
}
