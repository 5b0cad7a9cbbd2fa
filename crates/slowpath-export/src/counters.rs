// SPDX-License-Identifier: Apache-2.0
//! What the exporters count: the server's answers by status, the pusher's attempts by outcome.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How a request is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
#[repr(u8)]
pub enum Status {
    Ok,
    BadRequest,
    NotFound,
    MethodNotAllowed,
    TooLarge,
    Unavailable,
}

impl Status {
    /// All, by their number.
    pub const ALL: [Status; 6] = [
        Status::Ok,
        Status::BadRequest,
        Status::NotFound,
        Status::MethodNotAllowed,
        Status::TooLarge,
        Status::Unavailable,
    ];

    /// The code (RFC 9110 section 15; 431: RFC 6585 section 5).
    pub fn code(self) -> u16 {
        match self {
            Status::Ok => 200,
            Status::BadRequest => 400,
            Status::NotFound => 404,
            Status::MethodNotAllowed => 405,
            Status::TooLarge => 431,
            Status::Unavailable => 503,
        }
    }
}

/// What the server counts.
#[derive(Debug, Default)]
pub struct HttpCounters {
    answers: [AtomicU64; Status::ALL.len()],
    dropped: AtomicU64,
}

impl HttpCounters {
    pub(crate) fn answered(&self, status: Status) {
        self.answers[status as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn dropped_one(&self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }

    /// Answers by status.
    pub fn answers(&self) -> impl Iterator<Item = (u16, u64)> {
        let counts = Status::ALL.into_iter().zip(&self.answers);
        counts.map(|(status, count)| (status.code(), count.load(Ordering::Relaxed)))
    }

    /// Clients sent away without an answer.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

/// What came of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The collector took it, but for some points.
    Delivered {
        /// Points not taken.
        refused: u64,
        /// Why not.
        reason: String,
    },
    /// It may take it later.
    Later {
        /// When, if it says so.
        after: Option<Duration>,
        /// What happened.
        reason: String,
    },
    /// It will not take it.
    Refused {
        /// What happened.
        reason: String,
    },
}

/// What the pusher counts.
#[derive(Debug, Default)]
pub struct PushCounters {
    delivered: AtomicU64,
    retried: AtomicU64,
    refused: AtomicU64,
    points_dropped: AtomicU64,
    trouble: Mutex<Option<String>>,
}

impl PushCounters {
    pub(crate) fn count(&self, outcome: &Outcome) {
        let counter = match outcome {
            Outcome::Delivered { .. } => &self.delivered,
            Outcome::Later { .. } => &self.retried,
            Outcome::Refused { .. } => &self.refused,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        *self.trouble() = match outcome {
            Outcome::Delivered { refused: 0, .. } => None,
            Outcome::Delivered { reason, .. }
            | Outcome::Later { reason, .. }
            | Outcome::Refused { reason } => Some(reason.clone()),
        };
    }

    pub(crate) fn drop_points(&self, count: u64) {
        self.points_dropped.fetch_add(count, Ordering::Relaxed);
    }

    /// Attempts by outcome.
    pub fn outcomes(&self) -> impl Iterator<Item = (&'static str, u64)> {
        [
            ("delivered", &self.delivered),
            ("retried", &self.retried),
            ("refused", &self.refused),
        ]
        .into_iter()
        .map(|(name, counter)| (name, counter.load(Ordering::Relaxed)))
    }

    /// Data points that no collector took.
    pub fn points_dropped(&self) -> u64 {
        self.points_dropped.load(Ordering::Relaxed)
    }

    /// What went wrong at the last attempt, if anything.
    pub fn last_trouble(&self) -> Option<String> {
        self.trouble().clone()
    }

    fn trouble(&self) -> MutexGuard<'_, Option<String>> {
        // Whole values are swapped: a panic elsewhere leaves a good one.
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
