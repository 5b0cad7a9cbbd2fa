// SPDX-License-Identifier: Apache-2.0
//! What one rule says of one interval.

use slowpath_model::Micros;

/// What one rule says of one interval, before thresholds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// A statistic that the rule needs is missing or went backwards.
    Unmeasured,
    /// It did not happen.
    Absent,
    /// It happened; how long it lasted is unknown.
    Coarse {
        /// How often, if known.
        events: Option<u64>,
    },
    /// It lasted this long.
    Measured {
        /// The counter's difference as it is. It may exceed the interval: by the grain of
        /// the kernel's clock, and where a wait is counted when it ends.
        time: Micros,
        /// How often; `None` for problems that have a duration only.
        events: Option<u64>,
    },
}

impl Measure {
    /// Of a problem that has a duration only.
    pub(crate) fn of_time(time: Option<Micros>) -> Self {
        match time {
            None => Measure::Unmeasured,
            Some(Micros::ZERO) => Measure::Absent,
            Some(time) => Measure::Measured { time, events: None },
        }
    }

    /// Of a problem that is counted; events without a known time are coarse.
    pub(crate) fn of_events(events: Option<u64>, time: Option<Micros>) -> Self {
        match (events, time) {
            (None, _) | (Some(0), None) => Measure::Unmeasured,
            (Some(0), Some(Micros::ZERO)) => Measure::Absent,
            (events, None) => Measure::Coarse { events },
            (events, Some(time)) => Measure::Measured { time, events },
        }
    }

    /// The measured time; zero if absent, `None` if it is not known.
    pub fn time(self) -> Option<Micros> {
        match self {
            Measure::Absent => Some(Micros::ZERO),
            Measure::Measured { time, .. } => Some(time),
            Measure::Unmeasured | Measure::Coarse { .. } => None,
        }
    }

    /// The events; zero if absent, `None` if they are not known or the problem has none.
    pub fn events(self) -> Option<u64> {
        match self {
            Measure::Absent => Some(0),
            Measure::Measured { events, .. } | Measure::Coarse { events } => events,
            Measure::Unmeasured => None,
        }
    }
}
