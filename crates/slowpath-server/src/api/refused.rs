// SPDX-License-Identifier: Apache-2.0
//! Answers that refuse, and answers in JSON.

use super::Api;
use crate::refusals::Reason;
use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use slowpath_ship::answers::{Refusal, RefusalKind};

/// Seconds after which a server that is busy may be asked again; agents add up to as much.
const AGAIN: u64 = 2;
/// The same where its disk is full: someone has to free space.
const AGAIN_FULL: u64 = 30;

/// An answer that refuses, counted.
#[derive(Debug)]
pub(crate) struct Refused(pub(crate) Box<Refusal>);

impl Refused {
    /// With the words of a field.
    pub(crate) fn with(mut self, change: impl FnOnce(&mut Refusal)) -> Self {
        change(&mut self.0);
        self
    }

    pub(crate) fn kind(&self) -> RefusalKind {
        self.0.error
    }
}

impl Api {
    pub(crate) fn refuse(&self, error: RefusalKind, message: impl Into<String>) -> Refused {
        self.refusals.count(Reason::Answered(error));
        Refused(Box::new(Refusal::new(error, message)))
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let kind = self.kind();
        let status = StatusCode::from_u16(kind.status());
        let mut response = json(&*self.0);
        *response.status_mut() = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let again = match kind {
            RefusalKind::Busy => Some(AGAIN),
            RefusalKind::Full => Some(AGAIN_FULL),
            _ => None,
        };
        if let Some(seconds) = again {
            response.headers_mut().insert(RETRY_AFTER, seconds.into());
        }
        response
    }
}

/// An answer in JSON.
pub(crate) fn json(value: &impl Serialize) -> Response {
    // Of the answers' types, none of which can fail: their keys are strings.
    let text = serde_json::to_vec(value).unwrap_or_default();
    let mut response = Response::new(Body::from(text));
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}
