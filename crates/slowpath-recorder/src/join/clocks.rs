// SPDX-License-Identifier: Apache-2.0
//! What one end's clock is to the other's: no packet comes before it was sent, either way.
//!
//! With D the accepting end's time less the other's, a packet to it gives D at most (it came there, less it was sent here), and one from it D at least. One offset that is within all of them
//! is taken, in the middle; where there is none the clocks do not run alike, and the line with most room on either side is.

use super::packets::Matches;
use slowpath_recording::{Clock, Moment, OneSided};

/// Clocks of machines drift no faster against each other: quartz within 100 parts in a million, and what NTP turns besides (`MAX_FREQ`, include/linux/timex.h: 500).
const MOST_DRIFT: f64 = 700e-6;
/// Halvings of the range of drifts: to less than a billionth.
const STEPS: usize = 60;

/// At a time of the accepting end, since the first: how much D is at most, or at least, less what it was first.
#[derive(Clone, Copy)]
struct Bound {
    at: f64,
    difference: f64,
}

#[derive(Default)]
struct Bounds {
    most: Vec<Bound>,
    least: Vec<Bound>,
}

impl Bounds {
    /// The highest and the lowest D at the beginning, if it grows by so much.
    fn room(&self, drift: f64) -> (f64, f64) {
        let begun = |it: &Bound| it.difference - drift * it.at;
        let most = self.most.iter().map(begun).fold(f64::INFINITY, f64::min);
        let least = self
            .least
            .iter()
            .map(begun)
            .fold(f64::NEG_INFINITY, f64::max);
        (most, least)
    }

    /// The drift with most room: how much there is has one peak.
    fn drift(&self) -> f64 {
        let room = |drift: f64| {
            let (most, least) = self.room(drift);
            most - least
        };
        let (mut low, mut high) = (-MOST_DRIFT, MOST_DRIFT);
        for _ in 0..2 * STEPS {
            let third = (high - low) / 3.0;
            if room(low + third) < room(high - third) {
                low += third;
            } else {
                high -= third;
            }
        }
        f64::midpoint(low, high)
    }
}

/// The accepting end's clock as the other one's, and how far from that it can be; `None`: packets do not bound it both ways.
pub(super) fn between(
    ends: &[&OneSided; 2],
    found: &[Matches; 2],
    limits: [usize; 2],
) -> (Clock, Option<u64>) {
    let runs = [0, 1].map(|end| &ends[end].end.runs[..limits[end]]);
    let [Some(client), Some(server)] = runs.map(|runs| runs.first()) else {
        return (Clock::default(), None);
    };
    let base = i128::from(server.at.0) - i128::from(client.at.0);
    let mut bounds = Bounds::default();
    for end in 0..2 {
        for run in runs[end] {
            let Some(Ok(numbers)) = found[end].run(&run.handler) else {
                continue;
            };
            for number in numbers.iter().filter_map(|it| it.ok()) {
                let sent = ends[1 - end].sent.get(number as usize);
                let sent = sent.and_then(|it| runs[1 - end].get(usize::try_from(it.run).ok()?));
                let Some(sent) = sent else { continue };
                let [here, there] = if end == 1 {
                    [sent.at, run.at]
                } else {
                    [run.at, sent.at]
                };
                let difference = i128::from(there.0) - i128::from(here.0) - base;
                let bound = Bound {
                    at: (there.0 as i64).wrapping_sub(server.at.0 as i64) as f64,
                    difference: difference as f64,
                };
                match end {
                    1 => bounds.most.push(bound),
                    _ => bounds.least.push(bound),
                }
            }
        }
    }
    let mut drift = 0.0;
    let (mut most, mut least) = bounds.room(drift);
    if most < least {
        drift = bounds.drift();
        (most, least) = bounds.room(drift);
    }
    let begun = match (most.is_finite(), least.is_finite()) {
        (true, true) => f64::midpoint(most, least),
        (true, false) => most,
        (false, true) => least,
        (false, false) => 0.0,
    };
    let bounded = most.is_finite() && least.is_finite();
    let within = bounded.then(|| ((most - least).abs() / 2.0) as u64);
    let offset = (-(base + begun as i128)).clamp(i64::MIN.into(), i64::MAX.into());
    let clock = Clock {
        offset: offset as i64,
        drift: (-drift * 1e9) as i32,
        since: Moment(server.at.0),
    };
    (clock, within)
}
