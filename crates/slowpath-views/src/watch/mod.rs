// SPDX-License-Identifier: Apache-2.0
//! Live connections followed poll by poll: which verdicts are new, rows, the closing summary.

mod new_verdicts;
mod rows;
mod summary;

pub use new_verdicts::NewVerdicts;
pub use rows::{Column, Row, sort};
pub(crate) use summary::unshown_line;
pub use summary::{CommandOutcome, SummaryOutput, WatchSummary, loss_line, unmeasured_lines};

use slowpath_model::{IntervalVerdict, Problem};

/// The share of an interval that `problem` took, 0..=1.
pub fn share_of(verdict: &IntervalVerdict, problem: Problem) -> f64 {
    let interval = verdict.interval();
    match problem {
        Problem::SenderAppLimited => {
            let taken: f64 = verdict
                .findings
                .iter()
                .map(|f| f.share.fraction_of(interval))
                .sum();
            (1.0 - taken).max(0.0)
        }
        _ => verdict
            .finding(problem)
            .map_or(0.0, |f| f.share.fraction_of(interval)),
    }
}
