// SPDX-License-Identifier: Apache-2.0
//! Which of several summaries of a connection holds.

use slowpath_model::{ConnectionSummary, WallMicros};

/// Whether `new` replaces `old`, a summary of the same connection.
pub(crate) fn supersedes(new: &ConnectionSummary, old: &ConnectionSummary) -> bool {
    summary_rank(new) >= summary_rank(old)
}

/// Of several summaries of a connection the one with the greatest rank holds.
pub fn summary_rank(summary: &ConnectionSummary) -> (bool, u64, WallMicros) {
    (summary.closed, summary.polls, summary.last_observed)
}
