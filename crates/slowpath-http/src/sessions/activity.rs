// SPDX-License-Identifier: Apache-2.0
//! What a session waits for, and until when.

use super::SessionLimits;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// The state of one session, shared by those who read from it and who serve it.
#[derive(Clone)]
pub(crate) struct Activity {
    state: Arc<Mutex<(Phase, Instant)>>,
    limits: SessionLimits,
    idle: Duration,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// No request is under way.
    Idle,
    /// The first bytes of a head are there.
    Head,
    /// A request is being read or answered.
    Request,
}

impl Activity {
    pub(crate) fn new(limits: SessionLimits, anonymous: bool) -> Self {
        Activity {
            state: Arc::new(Mutex::new((Phase::Idle, Instant::now()))),
            limits,
            idle: if anonymous {
                limits.anonymous_idle
            } else {
                limits.idle
            },
        }
    }

    /// Bytes were read.
    pub(crate) fn bytes_arrived(&self) {
        let mut state = self.lock();
        if state.0 == Phase::Idle {
            *state = (Phase::Head, Instant::now());
        }
    }

    /// A request's head is complete.
    pub(crate) fn request_started(&self) {
        *self.lock() = (Phase::Request, Instant::now());
    }

    /// The answer is handed over.
    pub(crate) fn request_answered(&self) {
        *self.lock() = (Phase::Idle, Instant::now());
    }

    /// When what it waits for must have happened.
    pub(crate) fn deadline(&self) -> Instant {
        let (phase, since) = *self.lock();
        since
            + match phase {
                Phase::Idle => self.idle,
                Phase::Head => self.limits.head,
                Phase::Request => self.limits.request,
            }
    }

    /// Whether it waits for a client that has sent a part of a request.
    pub(crate) fn is_idle(&self) -> bool {
        self.lock().0 == Phase::Idle
    }

    fn lock(&self) -> MutexGuard<'_, (Phase, Instant)> {
        // The pair is stored whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
