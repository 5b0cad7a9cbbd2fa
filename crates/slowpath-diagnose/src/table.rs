// SPDX-License-Identifier: Apache-2.0
//! SNAP's Table 4: how many connections and applications have each problem, for how much
//! of their time.

use serde::{Deserialize, Serialize};
use slowpath_model::{ConnectionSummary, Micros, Problem};
use std::collections::BTreeMap;

/// The columns of [`ProblemRow::connections_percent`]: more than this percentage of a
/// connection's time.
pub const TIME_PERCENTAGES: [f64; 5] = [0.0, 25.0, 50.0, 75.0, 99.9];

/// The same in thousandths, to compare without rounding.
const TIME_PERMILLE: [u16; 5] = [0, 250, 500, 750, 999];

/// Applications count from more than 5 % and more than 50 % of their time.
const APPLICATION_PERMILLE: [u16; 2] = [50, 500];

/// One problem's row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProblemRow {
    /// Which problem.
    pub problem: Problem,
    /// Connections that could not be measured for this problem and did not show it; they
    /// are in no percentage.
    pub unmeasured: u64,
    /// Percentage of the other connections, 0..=100, that had the problem for more than
    /// [`TIME_PERCENTAGES`] of their time; `None` if there are none.
    pub connections_percent: Option<[f64; TIME_PERCENTAGES.len()]>,
    /// Applications that had it for more than 5 % of their connections' summed time.
    pub applications_over_5_percent: u64,
    /// Applications that had it for more than 50 % of their connections' summed time.
    pub applications_over_50_percent: u64,
}

/// SNAP's Table 4, a row a problem.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProblemTable {
    /// Connections observed for some time.
    pub connections: u64,
    /// Connections that were met, but not observed for any time; they are in no row.
    pub unobserved: u64,
    /// Applications that own connections, as the user's rules name them, else by command.
    pub applications: u64,
    /// Connections whose owner is unknown; they are in no application.
    pub owner_unknown: u64,
    /// In the order of [`Problem::ALL`].
    pub rows: Vec<ProblemRow>,
}

#[derive(Default)]
struct Application {
    observed: [Micros; Problem::ALL.len()],
    time: [Micros; Problem::ALL.len()],
}

/// Whether `part` is more than `permille` thousandths of `whole`.
fn exceeds(part: Micros, whole: Micros, permille: u16) -> bool {
    u128::from(part.0) * 1000 > u128::from(whole.0) * u128::from(permille)
}

/// Makes the table; `summaries` holds each connection once (its last summary).
pub fn problem_table<'a>(summaries: impl Iterator<Item = &'a ConnectionSummary>) -> ProblemTable {
    const PROBLEMS: usize = Problem::ALL.len();
    let (mut connections, mut unobserved, mut owner_unknown) = (0u64, 0, 0);
    let mut unmeasured = [0u64; PROBLEMS];
    let mut over = [[0u64; TIME_PERMILLE.len()]; PROBLEMS];
    let mut applications: BTreeMap<&str, Application> = BTreeMap::new();

    for summary in summaries {
        if summary.observed == Micros::ZERO {
            unobserved += 1;
            continue;
        }
        connections += 1;
        let mut application = match summary.owner.name() {
            Some(name) => Some(applications.entry(name).or_default()),
            None => {
                owner_unknown += 1;
                None
            }
        };
        for problem in Problem::ALL {
            let i = problem as usize;
            let time = summary.problem_time[i];
            if time == Micros::ZERO && summary.unmeasured.contains(problem) {
                unmeasured[i] += 1;
                continue;
            }
            for (count, permille) in over[i].iter_mut().zip(TIME_PERMILLE) {
                *count += u64::from(exceeds(time, summary.observed, permille));
            }
            if let Some(application) = &mut application {
                application.observed[i] += summary.observed;
                application.time[i] += time;
            }
        }
    }

    let rows = Problem::ALL.into_iter().map(|problem| {
        let i = problem as usize;
        let measured = connections - unmeasured[i];
        let applications_over = |permille| {
            applications
                .values()
                .filter(|a| exceeds(a.time[i], a.observed[i], permille))
                .count() as u64
        };
        ProblemRow {
            problem,
            unmeasured: unmeasured[i],
            connections_percent: (measured > 0)
                .then(|| over[i].map(|n| 100.0 * n as f64 / measured as f64)),
            applications_over_5_percent: applications_over(APPLICATION_PERMILLE[0]),
            applications_over_50_percent: applications_over(APPLICATION_PERMILLE[1]),
        }
    });
    ProblemTable {
        connections,
        unobserved,
        applications: applications.len() as u64,
        owner_unknown,
        rows: rows.collect(),
    }
}
