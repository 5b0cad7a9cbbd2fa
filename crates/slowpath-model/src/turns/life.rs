// SPDX-License-Identifier: Apache-2.0
//! Turns over a connection's life, as the log keeps them.

use super::{AnswerSums, TurnEnd, Turns};
use crate::{Micros, MonoNanos};
use serde::{Deserialize, Serialize};

/// Turns of both ends, over the connection's life as far as observed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LifeTurns {
    /// The peer's.
    pub peer: LifeAnswers,
    /// This end's.
    pub here: LifeAnswers,
    /// Exchanges that were not timed.
    pub overlapping: u64,
}

/// Turns of one end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LifeAnswers {
    /// Those that ended.
    pub count: u64,
    /// How long they took in all.
    pub time: Micros,
    /// How long the present one has lasted, if it is this end's.
    pub pending: Option<Micros>,
}

impl LifeTurns {
    /// As they were at `at`.
    pub fn of(turns: &Turns, at: MonoNanos) -> Option<Self> {
        let sums = turns.sums()?;
        let of = |end, sums: &AnswerSums| LifeAnswers {
            count: sums.count,
            time: sums.time,
            pending: turns.pending(end, at),
        };
        Some(LifeTurns {
            peer: of(TurnEnd::Peer, &sums.peer),
            here: of(TurnEnd::Here, &sums.here),
            overlapping: sums.overlapping,
        })
    }
}
