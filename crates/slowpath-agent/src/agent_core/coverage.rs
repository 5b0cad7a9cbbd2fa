// SPDX-License-Identifier: Apache-2.0
//! The record of what was observed and lost, once a minute; and every few seconds how long was
//! looked and how often, for when the agent is killed.

use crate::host::{Host, Record};
use crate::summaries::TURN;
use slowpath_model::{ClockStatus, Coverage, LossCounters, Micros, MonoNanos, WallMicros};
use slowpath_observe::PollReport as Observed;

/// How often connections that no poll meets are searched for, coverage is recorded and,
/// without a CPU budget, summaries of living connections are saved; under one they are saved
/// in rotation.
const ROUNDS: Micros = TURN;

/// How often the log gets the time in which polls were made: what a killed agent leaves unsaid.
/// Each is some 50 bytes of the spool; in Parquet they are part of the round's row.
const STRETCHES: Micros = Micros(5_000_000);

/// What a round ends with, as the machine shows it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RoundReading {
    pub(crate) wall: WallMicros,
    /// What the observer and the log have lost.
    pub(crate) losses: LossCounters,
    /// Connections opened and closed since the start, where the kernel counts them.
    pub(crate) turnover: Option<(u64, u64)>,
    /// How good the wall clock is, where the kernel states it.
    pub(crate) clock: Option<ClockStatus>,
}

/// The round under way, and the record of the one before.
#[derive(Debug)]
pub(crate) struct CoverageRounds {
    /// The beginning of the round, and of what of it is not in the log.
    began: MonoNanos,
    logged_until: MonoNanos,
    next: MonoNanos,
    current: Coverage,
    /// Polls of the round that are in the log.
    polls_logged: u64,
    latest: Option<Coverage>,
}

impl CoverageRounds {
    pub(super) fn new(now: MonoNanos) -> Self {
        CoverageRounds {
            began: now,
            logged_until: now,
            next: now + ROUNDS,
            current: Coverage::default(),
            polls_logged: 0,
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

    /// The stretch since the last one, when the next is due. The round's record, too, is of what
    /// no stretch has. Losses are those of the last round: they grow.
    pub(super) fn stretch(&mut self, now: MonoNanos, wall: WallMicros) -> Option<Coverage> {
        if now < self.logged_until + STRETCHES || self.is_due(now) {
            return None;
        }
        let stretch = Coverage {
            end: wall,
            duration: now.since(self.logged_until),
            polls: self.current.polls - self.polls_logged,
            sockets: self.current.sockets,
            losses: self.latest.as_ref().map(|l| l.losses).unwrap_or_default(),
            ..Coverage::default()
        };
        (self.logged_until, self.polls_logged) = (now, self.current.polls);
        Some(stretch)
    }

    /// Ends the round; the record has what the polls counted and the machine shows.
    pub(super) fn end(&mut self, now: MonoNanos, reading: &RoundReading) -> Coverage {
        let mut coverage = std::mem::take(&mut self.current);
        coverage.end = reading.wall;
        coverage.clock = reading.clock;
        coverage.duration = now.since(self.began);
        self.next = now + ROUNDS;
        if let Some((opened, closed)) = reading.turnover {
            coverage.opened = opened;
            coverage.closed = closed;
        }
        coverage
    }

    /// Logs what of the round's record no stretch has, and keeps the whole.
    pub(super) fn record(&mut self, now: MonoNanos, coverage: Coverage, host: &mut dyn Host) {
        let rest = Coverage {
            duration: now.since(self.logged_until),
            polls: coverage.polls - self.polls_logged,
            ..coverage.clone()
        };
        host.record(Record::Coverage(&rest));
        self.latest = Some(coverage);
        (self.began, self.logged_until, self.polls_logged) = (now, now, 0);
    }

    /// The latest record.
    pub(crate) fn latest(&self) -> Option<&Coverage> {
        self.latest.as_ref()
    }
}
