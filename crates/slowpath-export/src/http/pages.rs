// SPDX-License-Identifier: Apache-2.0
//! The pages of the latest state, each made when it is first asked for.

use crate::catalogue;
use crate::counters::Status;
use crate::prometheus::{self, Format};
use crate::state::{Board, State};
use axum::body::Bytes;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// After this time without a new state the agent does not do its work.
const STALE: Duration = Duration::from_secs(60);

/// A page that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Page {
    /// The metrics.
    Metrics(Format),
    /// Whether the agent does its work.
    Health,
    /// What there is here.
    Index,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    /// How it is answered.
    pub(super) status: Status,
    /// What the body is.
    pub(super) content_type: &'static str,
    /// The body.
    pub(super) body: Bytes,
}

const PLAIN: &str = "text/plain; charset=utf-8";

impl Answer {
    /// With a body that says something.
    pub(super) fn plain(status: Status, body: impl Into<Bytes>) -> Self {
        Answer {
            status,
            content_type: PLAIN,
            body: body.into(),
        }
    }
}

/// What is served.
pub(super) struct Pages {
    board: Arc<Board>,
    stale: Duration,
    made: Mutex<Made>,
}

/// Pages of one state.
#[derive(Default)]
struct Made {
    /// With the moment it was left on the board.
    state: Option<(Arc<State>, Instant)>,
    metrics: Vec<(Format, Bytes)>,
}

impl Pages {
    pub(super) fn new(board: Arc<Board>, interval: Duration) -> Self {
        Pages {
            board,
            stale: STALE.max(interval * 3),
            made: Mutex::default(),
        }
    }

    /// The answer of the agent as it is now, which is counted.
    pub(super) fn answer(&self, page: Page) -> Answer {
        let answer = self.page(page, Instant::now());
        self.board.http.answered(answer.status);
        answer
    }

    /// An answer to what cannot be had here, which is counted.
    pub(super) fn refuse(&self, status: Status, body: &'static str) -> Answer {
        self.board.http.answered(status);
        Answer::plain(status, body)
    }

    fn page(&self, page: Page, now: Instant) -> Answer {
        // Pages and their state change as a whole: a panic elsewhere leaves good ones.
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        made.renew(&self.board);
        match (page, made.state.clone()) {
            (Page::Index, _) => Answer::plain(Status::Ok, "slowpath agent: /metrics, /healthz\n"),
            (_, None) => Answer::plain(Status::Unavailable, "No poll has succeeded yet.\n"),
            (Page::Health, Some((_, left))) => {
                let age = now.saturating_duration_since(left);
                if age > self.stale {
                    let text = format!("No poll has succeeded for {} s.\n", age.as_secs());
                    Answer::plain(Status::Unavailable, text)
                } else {
                    Answer::plain(Status::Ok, "ok\n")
                }
            }
            (Page::Metrics(format), Some((state, _))) => Answer {
                status: Status::Ok,
                content_type: format.content_type(),
                body: made.metrics(&self.board, &state, format),
            },
        }
    }
}

impl Made {
    /// Looks for a later state; pages of an earlier one go.
    fn renew(&mut self, board: &Board) {
        let latest = board.latest();
        let moment = |state: &Option<(Arc<State>, Instant)>| state.as_ref().map(|(_, at)| *at);
        if moment(&latest) != moment(&self.state) {
            self.state = latest;
            self.metrics.clear();
        }
    }

    fn metrics(&mut self, board: &Board, state: &State, format: Format) -> Bytes {
        if let Some((_, body)) = self.metrics.iter().find(|(f, _)| *f == format) {
            return body.clone();
        }
        let families = catalogue::families(state, &board.http, &board.push);
        let body = Bytes::from(prometheus::encode(&families, format));
        self.metrics.push((format, body.clone()));
        body
    }
}
