// SPDX-License-Identifier: Apache-2.0
//! Which page a request asks for, and how an answer goes out.

use super::pages::{Answer, Page, Pages};
use crate::counters::Status;
use crate::prometheus::Format;
use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get};
use std::sync::Arc;

/// What is served where.
pub(super) fn router(pages: Pages) -> Router {
    Router::new()
        .route("/", only(get(index)))
        .route("/healthz", only(get(health)))
        .route("/metrics", only(get(metrics)))
        .fallback(not_here)
        .with_state(Arc::new(pages))
}

/// Other methods than GET and HEAD are refused.
fn only(get: MethodRouter<Arc<Pages>>) -> MethodRouter<Arc<Pages>> {
    get.fallback(not_this_method)
}

async fn index(State(pages): State<Arc<Pages>>) -> Answer {
    pages.answer(Page::Index)
}

async fn health(State(pages): State<Arc<Pages>>) -> Answer {
    pages.answer(Page::Health)
}

async fn metrics(State(pages): State<Arc<Pages>>, headers: HeaderMap) -> Answer {
    let accepts = headers.get_all(header::ACCEPT).into_iter();
    let accepts: Vec<&str> = accepts.filter_map(|value| value.to_str().ok()).collect();
    pages.answer(Page::Metrics(Format::negotiate(&accepts.join(","))))
}

async fn not_here(State(pages): State<Arc<Pages>>) -> Answer {
    pages.refuse(Status::NotFound, "There is /metrics here, and /healthz.\n")
}

async fn not_this_method(State(pages): State<Arc<Pages>>) -> Response {
    let answer = pages.refuse(Status::MethodNotAllowed, "Only GET and HEAD.\n");
    let mut response = answer.into_response();
    let methods = HeaderValue::from_static("GET, HEAD");
    response.headers_mut().insert(header::ALLOW, methods);
    response
}

impl IntoResponse for Answer {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status.code()).expect("codes of Status are valid");
        let headers = [
            (header::CONTENT_TYPE, self.content_type),
            (header::VARY, "Accept"),
            (header::CACHE_CONTROL, "no-store"),
        ];
        (status, headers, self.body).into_response()
    }
}
