// SPDX-License-Identifier: Apache-2.0
//! Requests and answers: whose turn it is on a connection, and how long each end's turns took.
//!
//! The peer's turn lasts from the last write of this end's application to the first byte that arrives
//! and acknowledges all of it: the round trip is part of it. This end's turn lasts from the last byte that
//! arrived to its application's next write. Data that crosses on the way, and a write before all that
//! arrived was read, end no turn; such exchanges are counted as overlapping.
//!
//! A probe keeps [`Turns`], sums over the connection's life as far as observed; [`TurnTimes`] makes of
//! several looks at them the times and their distribution in between.

mod life;
mod times;

pub use life::{LifeAnswers, LifeTurns};
pub use times::{AnswerTimes, TurnTimes};

use crate::{Micros, MonoNanos};
use serde::{Deserialize, Serialize};

/// Turns of each end whose length is kept one by one.
pub const LATEST_TURNS: usize = 16;

/// One end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnEnd {
    /// The other one.
    Peer,
    /// This one.
    Here,
}

/// A turn that has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turn {
    /// Whose it is.
    pub end: TurnEnd,
    /// When it began.
    pub since: MonoNanos,
}

/// Turns of one end that have ended, over the connection's life as far as observed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnswerSums {
    /// How many.
    pub count: u64,
    /// How long they took in all.
    pub time: Micros,
    /// The longest.
    pub longest: Micros,
    /// How long the latest took, in microseconds: turn `n`, counted from 0, at
    /// `n % LATEST_TURNS`.
    pub latest: [u32; LATEST_TURNS],
}

impl AnswerSums {
    /// How many ended since an earlier look.
    pub const fn ended_since(&self, before: &AnswerSums) -> u64 {
        self.count.saturating_sub(before.count)
    }

    /// Those of them that are known one by one, the latest first, each with the number of turns that it
    /// stands for.
    pub fn latest_since(&self, before: &AnswerSums) -> impl Iterator<Item = (Micros, u64)> {
        let ended = self.ended_since(before);
        let known = ended.min(LATEST_TURNS as u64);
        (0..known).map(move |i| {
            let turn = (self.count - 1 - i) as usize % LATEST_TURNS;
            let weight = ended / known + u64::from(i < ended % known);
            (Micros(self.latest[turn].into()), weight)
        })
    }
}

/// Turns of both ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnSums {
    /// Exchanges that were not timed: the peer's data left it before it had what was written here, or this
    /// end's application wrote before it had read what had arrived.
    pub overlapping: u64,
    /// The peer's: from the last byte of a request to the first of its answer.
    pub peer: AnswerSums,
    /// This end's: from the last byte that arrived to the next write.
    pub here: AnswerSums,
}

/// Whose turn it is, and what turns there were; a connection without any takes no memory of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turns {
    watched: bool,
    turn: Option<Turn>,
    sums: Option<Box<TurnSums>>,
}

impl Turns {
    /// They are not observed.
    pub const UNOBSERVED: Turns = Turns {
        watched: false,
        turn: None,
        sums: None,
    };

    /// They are, with none that has ended; `turn` is the one that goes on.
    #[inline]
    pub const fn watched(turn: Option<Turn>) -> Self {
        Turns {
            watched: true,
            turn,
            sums: None,
        }
    }

    /// The same, with those that have ended.
    #[must_use]
    pub fn with(self, sums: TurnSums) -> Self {
        Turns {
            sums: Some(Box::new(sums)),
            ..self
        }
    }

    /// The same, with none so far.
    #[must_use]
    pub const fn at_birth(&self) -> Self {
        Turns {
            watched: self.watched,
            turn: None,
            sums: None,
        }
    }

    /// Takes over what was observed later.
    pub fn update(&mut self, later: &Turns) {
        self.watched = later.watched;
        self.turn = later.turn;
        match (&mut self.sums, &later.sums) {
            (Some(sums), Some(later)) => **sums = **later,
            (None, None) => {}
            (sums, later) => sums.clone_from(later),
        }
    }

    /// Turns that have ended; `None` if they are not observed.
    pub fn sums(&self) -> Option<TurnSums> {
        self.watched
            .then(|| self.sums.as_deref().copied().unwrap_or_default())
    }

    /// Turns that have ended, if there are any.
    pub fn ended(&self) -> Option<&TurnSums> {
        self.sums.as_deref()
    }

    /// The turn that goes on; `None` if it is no end's, or not known.
    pub const fn turn(&self) -> Option<Turn> {
        self.turn
    }

    /// How long the turn of that end has lasted at `now`; `None` if it is not its turn.
    pub fn pending(&self, end: TurnEnd, now: MonoNanos) -> Option<Micros> {
        let turn = self.turn.filter(|turn| turn.end == end)?;
        Some(now.since(turn.since))
    }
}
