// SPDX-License-Identifier: Apache-2.0
//! Medians, quantiles and the rank-sum test.

/// The median; of an even count the mean of the middle two. `None` of nothing.
#[must_use]
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() % 2 {
        1 => Some(sorted[middle]),
        _ => Some((sorted.get(middle.checked_sub(1)?)? + sorted[middle]) / 2.0),
    }
}

/// A quantile by nearest rank: the least value that at least that share of all do not exceed.
#[must_use]
pub fn quantile(values: &[f64], share: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (share.clamp(0.0, 1.0) * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied()
}

/// The one-sided rank-sum test (Mann and Whitney 1947): how likely it is that values of `high` rank as high above those of
/// `low` as they do if both come from one distribution. Normal approximation with the correction for ties and for
/// continuity; 1 where one of them is empty.
#[must_use]
pub fn rank_sum(low: &[f64], high: &[f64]) -> f64 {
    let (m, n) = (low.len() as f64, high.len() as f64);
    if m == 0.0 || n == 0.0 {
        return 1.0;
    }
    let mut all: Vec<(f64, bool)> = low.iter().map(|value| (*value, false)).collect();
    all.extend(high.iter().map(|value| (*value, true)));
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (mut rank_sum, mut ties, mut at) = (0.0, 0.0, 0);
    while at < all.len() {
        let equal = all[at..].iter().take_while(|it| it.0 == all[at].0).count();
        let rank = at as f64 + (equal as f64 + 1.0) / 2.0;
        let of_high = all[at..at + equal].iter().filter(|it| it.1).count();
        rank_sum += rank * of_high as f64;
        let equal_count = equal as f64;
        ties += equal_count.powi(3) - equal_count;
        at += equal;
    }
    let u = rank_sum - n * (n + 1.0) / 2.0;
    let total = m + n;
    let variance = m * n / 12.0 * (total + 1.0 - ties / (total * (total - 1.0).max(1.0)));
    if variance <= 0.0 {
        return 1.0;
    }
    upper_tail((u - m * n / 2.0 - 0.5) / variance.sqrt())
}

/// The share of a normal distribution above z: Abramowitz and Stegun 26.2.17, error below 7.5e-8.
fn upper_tail(z: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.231_641_9 * z.abs());
    let coefficients = [
        0.319_381_530,
        -0.356_563_782,
        1.781_477_937,
        -1.821_255_978,
        1.330_274_429,
    ];
    let polynomial = coefficients
        .iter()
        .rev()
        .fold(0.0, |sum, coefficient| (sum + coefficient) * t);
    let density = (-z * z / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
    let tail = density * polynomial;
    if z >= 0.0 { tail } else { 1.0 - tail }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn medians_and_quantiles_are_those_of_sorted_lists() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        let ten: Vec<f64> = (1..=10).rev().map(f64::from).collect();
        assert_eq!(quantile(&ten, 0.1), Some(1.0));
        assert_eq!(quantile(&ten, 0.9), Some(9.0));
        assert_eq!(quantile(&ten, 0.0), Some(1.0));
        assert_eq!(quantile(&[], 0.5), None);
    }

    #[test]
    fn the_normal_distributions_tail_has_its_known_values() {
        for (z, tail) in [
            (0.0, 0.5),
            (1.644_854, 0.05),
            (2.326_348, 0.01),
            (-1.0, 0.841_345),
        ] {
            assert!((upper_tail(z) - tail).abs() < 1e-6, "{z}");
        }
    }

    #[test]
    fn samples_that_do_not_overlap_are_significant_and_equal_ones_are_not() {
        let low: Vec<f64> = (0..8).map(f64::from).collect();
        let high: Vec<f64> = (10..18).map(f64::from).collect();
        // U = 64, mean 32, variance 8 · 8 · 17 / 12 = 90.667: z = 31.5 / 9.522 = 3.308, p = 0.00047.
        assert!((rank_sum(&low, &high) - 0.000_47).abs() < 0.000_01);
        assert!(rank_sum(&high, &low) > 0.999);
        assert!((rank_sum(&[1.0; 5], &[1.0; 5]) - 1.0).abs() < 1e-9);
        assert!((rank_sum(&[], &[1.0]) - 1.0).abs() < 1e-9);
    }

    proptest! {
        #[test]
        fn a_p_value_is_a_probability_and_does_not_depend_on_order(mut a in prop::collection::vec(-1e9f64..1e9, 0..20), mut b in prop::collection::vec(-1e9f64..1e9, 0..20)) {
            let p = rank_sum(&a, &b);
            prop_assert!((0.0..=1.0).contains(&p));
            a.reverse();
            b.reverse();
            prop_assert!((rank_sum(&a, &b) - p).abs() < 1e-12);
        }
    }
}
