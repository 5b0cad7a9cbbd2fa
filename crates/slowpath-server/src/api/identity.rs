// SPDX-License-Identifier: Apache-2.0
//! `GET /v1/ca`, `POST /v1/join`, `POST /v1/renew`.

use super::refused::json;
use super::{Api, Asking, Refused};
use crate::ca::{HOST_LIFE_US, InvitationError, IssueError, RequestError};
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use serde::de::DeserializeOwned;
use slowpath_model::WallMicros;
use slowpath_ship::answers::{CaAnswer, CertificateAnswer, JoinRequest, RefusalKind, RenewRequest};
use slowpath_ship::identity::{HostName, Token};
use std::sync::Arc;

/// The most bytes of a request for a certificate.
const MOST: usize = 16 << 10;

/// The type of bodies in JSON.
pub(super) const JSON: [&str; 2] = ["application/json", "application/json; charset=utf-8"];

/// Whoever asks gets it; a host that has the former ones is on record as having these.
pub(super) async fn ca(State(api): State<Arc<Api>>, asking: Asking) -> Response {
    let bundle = api.door.bundle();
    if let Some(peer) = &asking.0.peer {
        api.hosts().fetched_bundle(&peer.host, &bundle.hash);
    }
    json(&CaAnswer {
        bundle: bundle.pem.clone(),
    })
}

pub(super) async fn join(
    State(api): State<Arc<Api>>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refused> {
    let request: JoinRequest = api.read_json(&headers, body, MOST).await?;
    let token: Result<Token, _> = request.token.parse();
    let token = token.map_err(|error| api.refuse(RefusalKind::Token, error.to_string()))?;
    let now = api.clock.now();
    let signed = api.ca().join(&token, &request.csr, now);
    let signed = signed.map_err(|error| api.not_issued(&error))?;
    Ok(api.certified(&token.host, signed, now, true))
}

pub(super) async fn renew(
    State(api): State<Arc<Api>>,
    asking: Asking,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refused> {
    // Expired ones as well.
    let (peer, body) = api.passed(api.identified(&asking), body).await?;
    let request: RenewRequest = api.read_json(&headers, body, MOST).await?;
    let now = api.clock.now();
    let signed = api.ca().renew(&peer.host, &request.csr, now);
    let signed = signed.map_err(|error| api.not_issued(&error))?;
    Ok(api.certified(&peer.host, signed, now, false))
}

impl Api {
    pub(super) async fn read_json<T: DeserializeOwned>(
        &self,
        headers: &HeaderMap,
        body: Body,
        most: usize,
    ) -> Result<T, Refused> {
        let held = self.read(headers, body, most, &JSON).await?;
        serde_json::from_slice(&held.bytes).map_err(|error| {
            let refused = self.refuse(RefusalKind::Malformed, error.to_string());
            refused.with(|refusal| refusal.field = Some("body".to_owned()))
        })
    }

    fn certified(
        &self,
        host: &HostName,
        certificate: String,
        now: WallMicros,
        is_new: bool,
    ) -> Response {
        let bundle = self.door.bundle();
        let expires = WallMicros(now.0.saturating_add(HOST_LIFE_US));
        let mut hosts = self.hosts();
        hosts.certified(host, expires, is_new);
        hosts.fetched_bundle(host, &bundle.hash);
        drop(hosts);
        if is_new {
            self.journal.say(&format!("{host} joined"));
        }
        json(&CertificateAnswer {
            certificate,
            bundle: bundle.pem.clone(),
            state: self.state(),
        })
    }

    fn not_issued(&self, error: &IssueError) -> Refused {
        let kind = match error {
            IssueError::Invitation(InvitationError::Unknown) => RefusalKind::Token,
            IssueError::Invitation(InvitationError::Used) => RefusalKind::Used,
            IssueError::Invitation(InvitationError::Expired) => RefusalKind::TokenExpired,
            IssueError::Invitation(InvitationError::Revoked) => RefusalKind::Revoked,
            IssueError::Request(RequestError::Name) => RefusalKind::Name,
            IssueError::Request(_) => RefusalKind::Malformed,
            IssueError::Invitation(InvitationError::State(_)) | IssueError::State(_) => {
                self.journal.warn(&error.to_string());
                return self.refuse(RefusalKind::Full, "the server cannot keep its state");
            }
        };
        let refused = self.refuse(kind, error.to_string());
        match kind {
            RefusalKind::Malformed => {
                refused.with(|refusal| refusal.field = Some("csr".to_owned()))
            }
            _ => refused,
        }
    }
}
