// SPDX-License-Identifier: Apache-2.0
//! What the two directions say of the two clocks, and how far a one-way delay can be believed.
//!
//! No delay is negative, and both directions' shortest delays make the least round trip R, whatever the clocks. So
//! the true shortest delay of a direction lies between 0 and R. A measured one outside is
//! *impossible*: the clocks differ by at least as much as it is outside.

use super::summary::Delays;
use serde::Serialize;
use slowpath_diagnose::clocks::{self, Point};
use std::time::Duration;

/// Steps that are looked for.
const MOST_STEPS: usize = 16;

/// Windows of the search for steps: enough that one of them is no twentieth of the packets.
const MOST_WINDOWS: usize = 256;

/// Smaller steps are noise of hosts, ns.
const LEAST_STEP: i64 = 1_000_000;

/// Windows on either side of a step that are compared.
const BESIDE: usize = 3;

/// Why a one-way delay cannot be true.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Doubt {
    /// Packets arrive before they are sent.
    Negative,
    /// It is longer than the shortest round trip: the other direction's is negative.
    LongerThanRoundTrip,
}

/// How wrong a direction's delays may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct OneWayError {
    /// At most this, ns; `None`: not known.
    pub error_ns: Option<u64>,
    /// What the clocks say of themselves (adjtimex), both ends added; `None`: one is not synchronised.
    pub clocks_ns: Option<u64>,
    /// What both directions allow; `None`: only one was measured, or it is impossible.
    pub directions_ns: Option<u64>,
    /// Why it cannot be true.
    pub doubt: Option<Doubt>,
}

/// Whether a shortest delay is impossible beside that of the other direction.
#[must_use]
pub fn impossible(here: i64, other: Option<i64>) -> Option<Doubt> {
    match other {
        _ if here < 0 => Some(Doubt::Negative),
        Some(other) if other < 0 => Some(Doubt::LongerThanRoundTrip),
        _ => None,
    }
}

impl OneWayError {
    /// Of a direction with the other one beside it. `clocks`: the errors that both ends claim, added.
    #[must_use]
    pub fn of(here: &Delays, other: Option<&Delays>, clocks: Option<Duration>) -> Self {
        let other = other.map(|delays| delays.min_ns);
        let doubt = impossible(here.min_ns, other);
        let clocks_ns = clocks.map(|error| u64::try_from(error.as_nanos()).unwrap_or(u64::MAX));
        let directions_ns = other
            .filter(|_| doubt.is_none())
            .map(|other| here.min_ns.max(other).unsigned_abs());
        let error_ns = match doubt {
            Some(_) => None,
            None => [clocks_ns, directions_ns].into_iter().flatten().min(),
        };
        OneWayError {
            error_ns,
            clocks_ns,
            directions_ns,
            doubt,
        }
    }
}

/// A step of one clock against the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Step {
    /// When, ns since the first packet.
    pub at_ns: i64,
    /// By how much the peer's clock went ahead, ns.
    pub size_ns: i64,
}

/// The peer's clock against this host's, as both directions show it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClockFinding {
    /// By how much the peer's clock is ahead at the first packet, ns.
    pub offset_ns: i64,
    /// The truth is not further away, ns: half the least round trip.
    pub offset_error_ns: u64,
    /// How much faster it runs, parts per million; 0 in short sessions, which do not show it.
    pub skew_ppm: f64,
    /// The truth is not further away.
    pub skew_error_ppm: f64,
    /// Steps in mid-session.
    pub steps: Vec<Step>,
}

/// What is taken out of delays, each by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Corrections {
    /// The clocks' difference at the first packet.
    pub offset: bool,
    /// What it grows by.
    pub skew: bool,
    /// Steps.
    pub steps: bool,
}

impl Corrections {
    /// What does not belong into a variation of delays.
    pub const VARIATION: Corrections = Corrections {
        offset: false,
        skew: true,
        steps: true,
    };

    /// Whether anything is taken out.
    #[must_use]
    pub fn any(self) -> bool {
        self.offset || self.skew || self.steps
    }
}

impl ClockFinding {
    /// The clocks' difference at a time, of the parts that are to be taken out, ns.
    #[must_use]
    pub fn difference(&self, at: i64, parts: Corrections) -> i64 {
        let mut sum = 0;
        if parts.offset {
            sum += self.offset_ns;
        }
        if parts.skew {
            sum += (self.skew_ppm * 1e-6 * at as f64) as i64;
        }
        if parts.steps {
            sum += stepped(&self.steps, at);
        }
        sum
    }
}

/// Steps until a time, added.
fn stepped(steps: &[Step], at: i64) -> i64 {
    let before = steps.iter().filter(|step| step.at_ns <= at);
    before.map(|step| step.size_ns).sum()
}

/// The peer's clock from delays there and back: when by this host's clock, ns since the first packet, and the
/// delay by both clocks, ns. `None` without both.
#[must_use]
pub fn judge(there: &[Point], back: &[Point]) -> Option<ClockFinding> {
    let mut upper = there.to_vec();
    let mut lower: Vec<Point> = back.iter().map(|&(at, delay)| (at, -delay)).collect();
    let steps = find_steps(&mut upper, &mut lower);
    let clock = clocks::estimate(&upper, &lower, 0)?;
    Some(ClockFinding {
        offset_ns: clock.offset,
        offset_error_ns: u64::try_from(clock.uncertainty.as_nanos()).unwrap_or(u64::MAX),
        skew_ppm: clock.drift_ppm,
        skew_error_ppm: clock.drift_uncertainty_ppm,
        steps,
    })
}

/// Finds steps, the largest first, and takes each out of the points. 1. Of each window of time take the
/// shortest delay in either direction. 2. A step moves them in opposite directions by the same; a change of
/// the path moves their sum. 3. The jump must exceed what windows differ by anyway.
fn find_steps(upper: &mut [Point], lower: &mut [Point]) -> Vec<Step> {
    let mut steps = Vec::new();
    while steps.len() < MOST_STEPS {
        let Some(step) = largest_step(upper, lower) else {
            break;
        };
        for point in upper.iter_mut().chain(lower.iter_mut()) {
            if point.0 >= step.at_ns {
                point.1 -= step.size_ns;
            }
        }
        steps.push(step);
    }
    steps.sort_unstable_by_key(|step| step.at_ns);
    steps
}

fn largest_step(upper: &[Point], lower: &[Point]) -> Option<Step> {
    let windows = windows(upper, lower)?;
    let noise = {
        let mut differences: Vec<i64> = windows
            .windows(2)
            .map(|pair| (pair[1].middle - pair[0].middle).abs())
            .collect();
        differences.sort_unstable();
        differences.get(differences.len() / 2).copied().unwrap_or(0)
    };
    let least = LEAST_STEP.max(6 * noise);
    let mut best: Option<Step> = None;
    for at in BESIDE..=windows.len().checked_sub(BESIDE)? {
        let (before, after) = (&windows[at - BESIDE..at], &windows[at..at + BESIDE]);
        let jump = median(after, |w| w.middle) - median(before, |w| w.middle);
        let path = median(after, |w| w.half) - median(before, |w| w.half);
        let larger = best.is_none_or(|best| jump.abs() > best.size_ns.abs());
        if jump.abs() >= least && path.abs() * 4 < jump.abs() && larger {
            best = Some(Step {
                at_ns: windows[at].from,
                size_ns: jump,
            });
        }
    }
    best
}

/// Shortest delays of a window: the middle of the band in which the clocks' difference lies, and half its width.
#[derive(Clone, Copy)]
struct Window {
    from: i64,
    middle: i64,
    half: i64,
}

fn median(windows: &[Window], value: impl Fn(&Window) -> i64) -> i64 {
    let mut values: Vec<i64> = windows.iter().map(value).collect();
    values.sort_unstable();
    values[values.len() / 2]
}

fn windows(upper: &[Point], lower: &[Point]) -> Option<Vec<Window>> {
    let times = || upper.iter().chain(lower).map(|point| point.0);
    let (from, to) = (times().min()?, times().max()?);
    let count = (upper.len().min(lower.len()) / 4).min(MOST_WINDOWS);
    if count < 2 * BESIDE {
        return None;
    }
    let width = (to - from) / count as i64 + 1;
    let mut bounds = vec![(i64::MAX, i64::MIN); count];
    for point in upper {
        let high = &mut bounds[((point.0 - from) / width) as usize].0;
        *high = (*high).min(point.1);
    }
    for point in lower {
        let low = &mut bounds[((point.0 - from) / width) as usize].1;
        *low = (*low).max(point.1);
    }
    let windows = bounds
        .iter()
        .enumerate()
        .filter(|(_, (high, low))| *high != i64::MAX && *low != i64::MIN);
    let windows = windows.map(|(index, (high, low))| Window {
        from: from + index as i64 * width,
        middle: high.midpoint(*low),
        half: (high - low) / 2,
    });
    Some(windows.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::summary::delays;

    const MS: i64 = 1_000_000;

    /// A name, and how the clocks differ at a time.
    type Case = (&'static str, Box<dyn Fn(i64) -> i64>);

    /// 20 ms there and 30 ms back, with up to 1.2 ms more, by clocks that differ by `theta`.
    fn session(seconds: i64, theta: impl Fn(i64) -> i64) -> (Vec<Point>, Vec<Point>) {
        let times = || (0..seconds * 100).map(|i| i * 10 * MS);
        let noise = |t: i64, period: i64| (t / (10 * MS) % period) * MS / 10;
        (
            times()
                .map(|t| (t, 20 * MS + noise(t, 13) + theta(t)))
                .collect(),
            times()
                .map(|t| (t, 30 * MS + noise(t, 7) - theta(t)))
                .collect(),
        )
    }

    /// P95 − P50 once what does not belong into it is taken out.
    fn jitter(points: &[Point], finding: &ClockFinding, sign: i64) -> i64 {
        let mut values: Vec<i64> = points
            .iter()
            .map(|&(at, delay)| delay - sign * finding.difference(at, Corrections::VARIATION))
            .collect();
        delays(&mut values, &[], 0).expect("packets").jitter_ns
    }

    #[test]
    fn offset_skew_and_steps_are_found_and_the_variation_stays_right() {
        let true_jitter = {
            let (there, _) = session(30, |_| 0);
            let mut values: Vec<i64> = there.iter().map(|p| p.1).collect();
            delays(&mut values, &[], 0).expect("packets").jitter_ns
        };
        let cases: [Case; 6] = [
            ("none", Box::new(|_| 0)),
            ("+50 ms", Box::new(|_| 50 * MS)),
            ("-50 ms", Box::new(|_| -50 * MS)),
            ("10 s", Box::new(|_| 10_000 * MS)),
            ("50 ppm", Box::new(|t| t / 20_000)),
            (
                "step",
                Box::new(|t| if t >= 12_345 * MS { 20 * MS } else { 0 }),
            ),
        ];
        for (name, theta) in cases {
            let (there, back) = session(30, &theta);
            let finding = judge(&there, &back).expect("both directions");
            assert!(
                (finding.offset_ns - theta(0)).unsigned_abs() <= finding.offset_error_ns,
                "{name}: {finding:?}"
            );
            let difference = jitter(&there, &finding, 1) - true_jitter;
            assert!(
                difference.abs() <= MS / 5,
                "{name}: {difference} ns, {finding:?}"
            );
            match name {
                "step" => {
                    assert_eq!(finding.steps.len(), 1, "{finding:?}");
                    assert!(
                        (finding.steps[0].size_ns - 20 * MS).abs() < MS,
                        "{finding:?}"
                    );
                    assert!(
                        (finding.steps[0].at_ns - 12_345 * MS).abs() < 300 * MS,
                        "{finding:?}"
                    );
                }
                _ => assert!(finding.steps.is_empty(), "{name}: {finding:?}"),
            }
            if name == "50 ppm" {
                assert!((finding.skew_ppm - 50.0).abs() < 5.0, "{finding:?}");
            }
        }
    }

    #[test]
    fn a_longer_path_is_no_step_of_a_clock() {
        let (mut there, back) = session(30, |_| 0);
        for point in &mut there {
            if point.0 > 15_000 * MS {
                point.1 += 20 * MS;
            }
        }
        assert_eq!(judge(&there, &back).expect("both").steps, []);
    }

    #[test]
    fn delays_outside_the_round_trip_are_impossible_and_have_no_error() {
        let of = |min: i64| delays(&mut [min, min + MS], &[], 0).expect("packets");
        let good = OneWayError::of(&of(20 * MS), Some(&of(30 * MS)), None);
        assert_eq!((good.error_ns, good.doubt), (Some(30_000_000), None));
        let clocks = Some(Duration::from_millis(2));
        let better = OneWayError::of(&of(20 * MS), Some(&of(30 * MS)), clocks);
        assert_eq!(better.error_ns, Some(2_000_000));
        let negative = OneWayError::of(&of(-30 * MS), Some(&of(80 * MS)), clocks);
        assert_eq!(
            (negative.error_ns, negative.doubt),
            (None, Some(Doubt::Negative))
        );
        let long = OneWayError::of(&of(80 * MS), Some(&of(-30 * MS)), clocks);
        assert_eq!(
            (long.error_ns, long.doubt),
            (None, Some(Doubt::LongerThanRoundTrip))
        );
        assert_eq!(OneWayError::of(&of(20 * MS), None, None).error_ns, None);
    }
}
