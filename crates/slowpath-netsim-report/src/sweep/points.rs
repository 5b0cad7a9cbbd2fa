// SPDX-License-Identifier: Apache-2.0
//! What the runs of a combination say: means over the seeds, with their confidence intervals.

use super::{Completions, RunResult, SlowdownResult, WorkloadResult};
use serde::Serialize;
use slowpath_netsim::sweep::Sweep;
use statrs::distribution::{ContinuousCDF, StudentsT};
use std::collections::BTreeMap;

/// Of an interval: that it contains the mean, if runs are drawn again and again.
const CONFIDENCE: f64 = 0.95;

/// A mean over seeds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// Seeds that gave a value.
    pub seeds: u64,
    /// The mean of their values.
    pub mean: f64,
    /// The 95 % confidence interval's ends, by Student's t; `None` of one seed.
    pub low: Option<f64>,
    /// Its upper end.
    pub high: Option<f64>,
}

impl Estimate {
    /// Of these values; `None` of none.
    pub fn of(values: &[f64]) -> Option<Self> {
        let count = values.len();
        if count == 0 {
            return None;
        }
        let mean = values.iter().sum::<f64>() / count as f64;
        let half = (count > 1).then(|| {
            let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
            let freedom = (count - 1) as f64;
            // A location of 0, a scale of 1 and a positive number of degrees are always valid.
            let t = StudentsT::new(0.0, 1.0, freedom)
                .map_or(f64::INFINITY, |t| t.inverse_cdf((1.0 + CONFIDENCE) / 2.0));
            t * (squares / freedom / count as f64).sqrt()
        });
        Some(Estimate {
            seeds: count as u64,
            mean,
            low: half.map(|half| mean - half),
            high: half.map(|half| mean + half),
        })
    }
}

/// One workload of a combination.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PointWorkload {
    /// The workload's name.
    pub name: String,
    /// Flows that began, of all seeds.
    pub flows: u64,
    /// Those that are done.
    pub flows_done: u64,
    /// The mean flow completion time, microseconds.
    pub fct_mean_us: Option<Estimate>,
    /// The median one.
    pub fct_p50_us: Option<Estimate>,
    /// The 95th percentile.
    pub fct_p95_us: Option<Estimate>,
    /// The 99th percentile.
    pub fct_p99_us: Option<Estimate>,
    /// The median slowdown.
    pub slowdown_p50: Option<Estimate>,
    /// Its 99th percentile.
    pub slowdown_p99: Option<Estimate>,
    /// The median query completion time, microseconds.
    pub qct_p50_us: Option<Estimate>,
    /// Its 99th percentile.
    pub qct_p99_us: Option<Estimate>,
    /// Payload that arrived in order, over the simulated time.
    pub goodput_bits_per_second: Option<Estimate>,
    /// Packets dropped in a run.
    pub packets_dropped: Option<Estimate>,
    /// Retransmission timeouts in a run.
    pub timeouts: Option<Estimate>,
}

/// One combination.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Point {
    /// Each key's value.
    pub values: BTreeMap<String, String>,
    /// Its workloads.
    pub workloads: Vec<PointWorkload>,
}

/// All combinations, in their order; `results` are those of all runs, in theirs.
pub fn points(sweep: &Sweep, results: &[RunResult]) -> Vec<Point> {
    let seeds = sweep.seeds.len().max(1);
    let point = |(number, runs): (usize, &[RunResult])| {
        let keys = sweep.vary.iter().map(|one| one.key.clone());
        let values = sweep.values(number as u64).into_iter();
        Point {
            values: keys.zip(values.map(str::to_owned)).collect(),
            workloads: workloads(runs),
        }
    };
    results.chunks(seeds).enumerate().map(point).collect()
}

/// The workloads are those of the first run: a sweep changes none of their number.
fn workloads(runs: &[RunResult]) -> Vec<PointWorkload> {
    let first = runs.first().map_or(&[][..], |run| &run.workloads[..]);
    let one = |(number, workload): (usize, &WorkloadResult)| {
        let all = || runs.iter().filter_map(move |run| run.workloads.get(number));
        let estimate = |of: &dyn Fn(&WorkloadResult) -> Option<f64>| {
            let values: Vec<f64> = all().filter_map(of).collect();
            Estimate::of(&values)
        };
        let times = |of: fn(&WorkloadResult) -> Option<Completions>,
                     which: fn(Completions) -> u64| {
            estimate(&|workload| of(workload).map(|times| which(times) as f64 / 1e6))
        };
        let count =
            |of: fn(&WorkloadResult) -> u64| estimate(&|workload| Some(of(workload) as f64));
        let slowdown = |which: fn(SlowdownResult) -> u64| {
            estimate(&|workload| workload.slowdown.map(|it| which(it) as f64 / 1e3))
        };
        PointWorkload {
            name: workload.name.clone(),
            flows: all().map(|workload| workload.flows).sum(),
            flows_done: all().map(|workload| workload.flows_done).sum(),
            fct_mean_us: times(|it| it.fct, |it| it.mean),
            fct_p50_us: times(|it| it.fct, |it| it.p50),
            fct_p95_us: times(|it| it.fct, |it| it.p95),
            fct_p99_us: times(|it| it.fct, |it| it.p99),
            slowdown_p50: slowdown(|it| it.p50),
            slowdown_p99: slowdown(|it| it.p99),
            qct_p50_us: times(|it| it.qct, |it| it.p50),
            qct_p99_us: times(|it| it.qct, |it| it.p99),
            goodput_bits_per_second: count(|it| it.goodput_bits_per_second),
            packets_dropped: count(|it| it.packets_dropped),
            timeouts: count(|it| it.timeouts),
        }
    };
    first.iter().enumerate().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A textbook's table of Student's t: 2.776 for four degrees of freedom, 2.093 for nineteen.
    #[test]
    fn intervals_are_students() {
        let five = Estimate::of(&[1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
        assert_eq!((five.seeds, five.mean), (5, 3.0));
        let half = 2.776 * (2.5_f64 / 5.0).sqrt();
        assert!((five.high.unwrap() - 3.0 - half).abs() < 1e-3, "{five:?}");
        assert!((3.0 - five.low.unwrap() - half).abs() < 1e-3, "{five:?}");
        let twenty: Vec<f64> = (0..20).map(|it| f64::from(it % 2)).collect();
        let twenty = Estimate::of(&twenty).unwrap();
        let half = 2.093 * (20.0 * 0.25 / 19.0 / 20.0_f64).sqrt();
        assert!((twenty.high.unwrap() - 0.5 - half).abs() < 1e-3);
        let one = Estimate::of(&[7.0]).unwrap();
        assert_eq!((one.mean, one.low, one.high), (7.0, None, None));
        assert_eq!(Estimate::of(&[]), None);
    }
}
