// SPDX-License-Identifier: Apache-2.0
//! How the clocks of two places differ, from one-way delays in both directions.
//!
//! The places are called client and server, as where a connection was recorded; of a measurement they are this end and
//! the peer. A packet of the client passes the client's clock first: server's clock less client's
//! clock is its delay and the clocks' difference, θ. A packet of the server the other way round:
//! θ less its delay. No delay is negative, so θ lies below every difference of the one
//! kind and above every one of the other: within a band as wide as the two shortest delays
//! combined, the least RTT between the places. The middle of the band is the estimate,
//! right if both shortest delays are the same; half the band is the uncertainty, whatever the paths.
//!
//! Clocks drift: θ = θ₀ + δ·t. For each δ there is a band; it is widest at the true δ, since a
//! wrong one makes packets at one end of the recording look too fast in one direction, at
//! the other end in the other. The width is concave in δ, so a search finds the best.
//! Every δ with a band at all is possible: the drift is uncertain by the band's width over
//! the recording's length. Drift is looked for only in recordings of [`DRIFT_TIME`] and more
//! with packets of both sides all through; otherwise it is taken to be 0, which the
//! bounds of [`Clock::drift_uncertainty_ppm`] include.

use std::time::Duration;

/// Shorter recordings do not show drift from queueing, ns.
pub const DRIFT_TIME: i64 = 10_000_000_000;

/// Drifts looked for, parts per million: ten times what crystals do.
const MOST_DRIFT_PPM: f64 = 500.0;

/// Windows of which only the shortest delay counts.
const WINDOWS: usize = 256;

/// Steps of the search: MOST_DRIFT_PPM · 0.62^60 is nothing.
const STEPS: usize = 60;

/// The clock near the server against the one near the client.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Clock {
    /// By how much it is ahead, ns, at [`Clock::at`].
    pub offset: i64,
    /// The truth is not further away than this: half the least RTT between the recordings.
    pub uncertainty: Duration,
    /// How much faster it runs, parts per million.
    pub drift_ppm: f64,
    /// The truth is not further away than this.
    pub drift_uncertainty_ppm: f64,
    /// Time, on the client's clock, to which the offset belongs, ns since the epoch.
    pub at: i64,
}

impl Clock {
    /// By how much it is ahead at a time of the client's clock.
    #[must_use]
    pub fn offset_at(&self, time: i64) -> i64 {
        let passed = time.saturating_sub(self.at) as f64;
        self.offset
            .saturating_add((self.drift_ppm * 1e-6 * passed) as i64)
    }

    /// What the client's clock shows when the server's shows `time`.
    #[must_use]
    pub fn on_client(&self, time: i64) -> i64 {
        let about = time.saturating_sub(self.offset);
        time.saturating_sub(self.offset_at(about))
    }
}

/// A difference of the two clocks' times of one packet: when, ns since the recording's beginning, and how much, ns.
pub type Point = (i64, i64);

/// The clock from the differences of the client's packets (upper bounds of θ) and the
/// server's (lower ones). `None` without both.
#[must_use]
pub fn estimate(upper: &[Point], lower: &[Point], start: i64) -> Option<Clock> {
    let span = span_of(upper, lower)?;
    let (upper, lower) = (thin(upper, span, true), thin(lower, span, false));
    let long =
        span.1 - span.0 >= DRIFT_TIME && all_through(&upper, span) && all_through(&lower, span);
    let drift = if long { search(&upper, &lower) } else { 0.0 };
    let (low, high) = band(&upper, &lower, drift)?;
    let seconds = ((span.1 - span.0) as f64 / 1e9).max(1e-9);
    let width = (high - low).max(0.0);
    Some(Clock {
        offset: f64::midpoint(low, high) as i64,
        uncertainty: Duration::from_nanos((width / 2.0) as u64),
        drift_ppm: drift,
        drift_uncertainty_ppm: width / seconds / 1e3,
        at: start,
    })
}

/// First and last time.
fn span_of(upper: &[Point], lower: &[Point]) -> Option<(i64, i64)> {
    let times = || upper.iter().chain(lower).map(|p| p.0);
    Some((times().min()?, times().max()?))
}

/// The best of each window.
fn thin(points: &[Point], (from, to): (i64, i64), least: bool) -> Vec<Point> {
    let width = ((to - from) / WINDOWS as i64).max(1);
    let mut best: Vec<Option<Point>> = vec![None; WINDOWS + 1];
    for point in points {
        let window = ((point.0 - from) / width).clamp(0, WINDOWS as i64) as usize;
        let better = best[window].is_none_or(|b| (point.1 < b.1) == least && point.1 != b.1);
        if better {
            best[window] = Some(*point);
        }
    }
    best.into_iter().flatten().collect()
}

/// In the first and the last quarter of the time too.
fn all_through(points: &[Point], (from, to): (i64, i64)) -> bool {
    let quarter = (to - from) / 4;
    points.iter().any(|p| p.0 <= from + quarter) && points.iter().any(|p| p.0 >= to - quarter)
}

/// Where θ₀ can lie for a drift.
fn band(upper: &[Point], lower: &[Point], drift_ppm: f64) -> Option<(f64, f64)> {
    let bound = |p: &Point| p.1 as f64 - drift_ppm * 1e-6 * p.0 as f64;
    let high = upper.iter().map(bound).min_by(f64::total_cmp)?;
    let low = lower.iter().map(bound).max_by(f64::total_cmp)?;
    Some((low, high))
}

/// The drift with the widest band: golden-section search.
fn search(upper: &[Point], lower: &[Point]) -> f64 {
    let width = |drift| band(upper, lower, drift).map_or(f64::MIN, |(low, high)| high - low);
    let golden = (5f64.sqrt() - 1.0) / 2.0;
    let (mut from, mut to) = (-MOST_DRIFT_PPM, MOST_DRIFT_PPM);
    for _ in 0..STEPS {
        let (a, b) = (to - golden * (to - from), from + golden * (to - from));
        if width(a) < width(b) {
            from = a;
        } else {
            to = b;
        }
    }
    f64::midpoint(from, to)
}

#[cfg(test)]
mod tests {
    use super::estimate;

    /// Delays of 20 ms and 30 ms and now and then more; θ = 7 s + 40 ppm.
    fn points(seconds: i64, drift_ppm: i64) -> (Vec<super::Point>, Vec<super::Point>) {
        let theta = |t: i64| 7_000_000_000 + t / 1_000_000 * drift_ppm;
        let times = (0..seconds * 100).map(|i| i * 10_000_000);
        let jitter = |t: i64, period: i64| (t / 10_000_000 % period) * 100_000;
        let upper = times
            .clone()
            .map(|t| (t, theta(t) + 20_000_000 + jitter(t, 13)));
        let lower = times.map(|t| (t, theta(t) - 30_000_000 - jitter(t, 17)));
        (upper.collect(), lower.collect())
    }

    #[test]
    fn the_truth_lies_within_half_the_least_round_trip() {
        let (upper, lower) = points(5, 0);
        let clock = estimate(&upper, &lower, 0).expect("both are there");
        // The middle of 7 s − 30 ms and 7 s + 20 ms.
        assert_eq!(clock.offset, 6_995_000_000);
        assert_eq!(clock.uncertainty.as_millis(), 25);
        assert_eq!(clock.drift_ppm, 0.0);
        assert!((7_000_000_000 - clock.offset).unsigned_abs() <= 25_000_000);
    }

    #[test]
    fn drift_is_found() {
        for drift in [-100, 0, 40] {
            let (upper, lower) = points(100, drift);
            let clock = estimate(&upper, &lower, 0).expect("both are there");
            assert!((clock.drift_ppm - drift as f64).abs() < 1.0, "{clock:?}");
            // 50 ms in 100 s.
            assert!(
                (clock.drift_uncertainty_ppm - 500.0).abs() < 20.0,
                "{clock:?}"
            );
            assert!(clock.uncertainty.as_millis().abs_diff(25) <= 1);
            let after = clock.offset_at(100_000_000_000);
            let truth = 7_000_000_000 + drift * 100_000;
            assert!((truth - after).unsigned_abs() <= 27_000_000, "{clock:?}");
        }
    }

    #[test]
    fn one_direction_is_not_enough() {
        let (upper, _) = points(1, 0);
        assert!(estimate(&upper, &[], 0).is_none());
    }
}
