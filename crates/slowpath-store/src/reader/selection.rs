// SPDX-License-Identifier: Apache-2.0
//! Which rows of a log are wanted.

use crate::interval::Logged;
use slowpath_model::{ConnectionId, ProblemSet, WallMicros};
use std::collections::BTreeSet;

/// A stretch of wall time, its end excluded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeRange {
    /// Its beginning.
    pub from: WallMicros,
    /// Its end, excluded.
    pub to: WallMicros,
}

impl TimeRange {
    /// All time.
    pub const ALL: TimeRange = TimeRange {
        from: WallMicros(i64::MIN),
        to: WallMicros(i64::MAX),
    };

    /// Whether something that lasted from `from` to `to` has a part in it. What has no
    /// length counts where it lies.
    pub(crate) fn meets(self, from: WallMicros, to: WallMicros) -> bool {
        from < self.to && (to > self.from || (from == to && to >= self.from))
    }
}

/// Which problem intervals are wanted; by default all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IntervalFilter {
    /// Only intervals with at least one of these problems.
    pub problems: Option<ProblemSet>,
    /// Only intervals of these connections.
    pub connections: Option<BTreeSet<ConnectionId>>,
}

impl IntervalFilter {
    pub(super) fn wants(&self, logged: &Logged) -> bool {
        self.problems
            .is_none_or(|p| p.bits() & logged.problems().bits() != 0)
            && self
                .connections
                .as_ref()
                .is_none_or(|c| c.contains(&logged.interval.connection))
    }
}
