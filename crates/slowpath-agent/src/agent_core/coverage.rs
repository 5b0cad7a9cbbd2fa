// SPDX-License-Identifier: Apache-2.0
//! The record of what was observed and lost, once a minute.

use crate::host::{Host, Record};
use crate::summaries::TURN;
use slowpath_model::{Coverage, LossCounters, Micros, MonoNanos, WallMicros};
use slowpath_observe::PollReport as Observed;

/// How often connections that no poll meets are searched for, coverage is recorded and,
/// without a CPU budget, summaries of living connections are saved; under one they are saved
/// in rotation.
const ROUNDS: Micros = TURN;

/// What a round ends with, as the machine shows it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RoundReading {
    pub(crate) wall: WallMicros,
    /// What the observer and the log have lost.
    pub(crate) losses: LossCounters,
    /// Connections opened and closed since the start, where the kernel counts them.
    pub(crate) turnover: Option<(u64, u64)>,
}

/// The round under way, and the record of the one before.
#[derive(Debug)]
pub(crate) struct CoverageRounds {
    began: MonoNanos,
    next: MonoNanos,
    current: Coverage,
    latest: Option<Coverage>,
}

impl CoverageRounds {
    pub(super) fn new(now: MonoNanos) -> Self {
        CoverageRounds {
            began: now,
            next: now + ROUNDS,
            current: Coverage::default(),
            latest: None,
        }
    }

    /// Whether the round should end.
    pub(super) fn is_due(&self, now: MonoNanos) -> bool {
        now >= self.next
    }

    /// A poll was made; `counts_closes`: the kernel counts what opens and closes.
    pub(super) fn polled(&mut self, observed: &Observed, counts_closes: bool) {
        let current = &mut self.current;
        current.polls += 1;
        current.repeats += observed.repeats;
        current.emitted += observed.emitted;
        current.sockets = observed.visited;
        current.missed = current.missed.max(observed.missed + observed.left_over);
        if !counts_closes {
            current.closed += observed.closed;
        }
    }

    /// Ends the round; the record has what the polls counted and the machine shows.
    pub(super) fn end(&mut self, now: MonoNanos, reading: &RoundReading) -> Coverage {
        let mut coverage = std::mem::take(&mut self.current);
        coverage.end = reading.wall;
        coverage.duration = now.since(self.began);
        (self.began, self.next) = (now, now + ROUNDS);
        if let Some((opened, closed)) = reading.turnover {
            coverage.opened = opened;
            coverage.closed = closed;
        }
        coverage
    }

    /// Logs the record and keeps it.
    pub(super) fn record(&mut self, coverage: Coverage, host: &mut dyn Host) {
        host.record(Record::Coverage(&coverage));
        self.latest = Some(coverage);
    }

    /// The latest record.
    pub(crate) fn latest(&self) -> Option<&Coverage> {
        self.latest.as_ref()
    }
}
