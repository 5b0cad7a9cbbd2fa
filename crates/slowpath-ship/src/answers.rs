// SPDX-License-Identifier: Apache-2.0
//! What client and server say to each other in JSON.
//!
//! | request | body | answer |
//! |---|---|---|
//! | `POST /v1/batch` | a [`batch`](crate::batch) | [`Flushed`] |
//! | `POST /v1/segments` | [`SegmentsRequest`] | [`SegmentsAnswer`] |
//! | `GET /v1/ca` | | [`CaAnswer`] |
//! | `POST /v1/join` | [`JoinRequest`] | [`CertificateAnswer`] |
//! | `POST /v1/renew` | [`RenewRequest`] | [`CertificateAnswer`] |
//!
//! Any of them is refused by a status of 400 and more with a [`Refusal`]. Both halves ignore
//! fields that they do not know, so that either may be the newer one.

use crate::batch::Prefix;
use serde::{Deserialize, Serialize};

/// Where batches go.
pub const BATCH: &str = "/v1/batch";
/// Where a client asks what the server has of its segments.
pub const SEGMENTS: &str = "/v1/segments";
/// Where the bundle of CA certificates is.
pub const CA: &str = "/v1/ca";
/// Where a token becomes a certificate.
pub const JOIN: &str = "/v1/join";
/// Where a certificate becomes its successor.
pub const RENEW: &str = "/v1/renew";
/// The type of a batch's body.
pub const BATCH_TYPE: &str = "application/octet-stream";
/// The type of all other bodies.
pub const JSON_TYPE: &str = "application/json";
/// The most segments that a client asks about at once.
pub const MAX_SEGMENTS: usize = 10_000;
/// The longest answer that a client reads, in bytes: that to [`MAX_SEGMENTS`] ids.
pub const MAX_ANSWER: u64 = 4 << 20;

/// Which server answered, and what it trusts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerState {
    /// The server's id.
    pub server: String,
    /// Drawn when the server starts: where it changed, clients ask what the server still has.
    pub start: String,
    /// SHA-256 of its CA bundle, see [`bundle_hash`](crate::identity::bundle_hash).
    pub ca: String,
}

/// A batch is flushed: 200.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flushed {
    /// Up to where the segment is flushed at the server, bytes.
    pub offset: u64,
    /// The running CRC up to there.
    pub crc: Prefix,
    /// When the request's last byte was received, microseconds since 1970 by the server's clock.
    pub received_us: i64,
    /// When the answer was sent, by the same clock.
    pub sent_us: i64,
    /// Who answered.
    #[serde(flatten)]
    pub state: ServerState,
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RefusalKind {
    /// 400: the body is none that can be read; `field` says where.
    Malformed,
    /// 403: it wants a certificate of this server's CA.
    Certificate,
    /// 403: the certificate was revoked.
    Revoked,
    /// 403: the certificate has expired; it may still renew.
    Expired,
    /// 403: the name asked for is not that of the certificate or invitation.
    Name,
    /// 403: the token is unknown, or its secret is another.
    Token,
    /// 403: the token was used with another key.
    Used,
    /// 403: the token has expired.
    TokenExpired,
    /// 409: the server has less than what comes before the batch; `offset` and `crc` say what.
    Behind,
    /// 409: the server has other bytes there; `offset` and `crc` say what.
    OtherBytes,
    /// 409: another process ships under this name.
    Clone,
    /// 413: the body is longer than `limit`.
    TooLarge,
    /// 415: the body is of another type.
    MediaType,
    /// 426: the server reads only older versions: `versions`.
    Newer,
    /// 429, 503: too much at once; wait as long as `Retry-After` says.
    Busy,
    /// 507: the server's disk is full.
    Full,
    /// What a newer server says.
    #[serde(other)]
    Unknown,
}

impl RefusalKind {
    /// Its HTTP status.
    pub fn status(self) -> u16 {
        match self {
            RefusalKind::Malformed | RefusalKind::Unknown => 400,
            RefusalKind::Certificate
            | RefusalKind::Revoked
            | RefusalKind::Expired
            | RefusalKind::Name
            | RefusalKind::Token
            | RefusalKind::Used
            | RefusalKind::TokenExpired => 403,
            RefusalKind::Behind | RefusalKind::OtherBytes | RefusalKind::Clone => 409,
            RefusalKind::TooLarge => 413,
            RefusalKind::MediaType => 415,
            RefusalKind::Newer => 426,
            RefusalKind::Busy => 503,
            RefusalKind::Full => 507,
        }
    }
}

/// The newest versions that a server reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Versions {
    /// Of the protocol.
    pub protocol: u16,
    /// Of the spool's framing.
    pub framing: u16,
    /// Of the records' schema.
    pub schema: u16,
}

impl Versions {
    /// Those of this slowpath.
    pub const OWN: Versions = Versions {
        protocol: crate::batch::PROTOCOL,
        framing: slowpath_store::spool::SPOOL_VERSION,
        schema: slowpath_store::SCHEMA_VERSION,
    };
}

/// The body of a refusal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// Why.
    pub error: RefusalKind,
    /// The same in words, with a way out.
    pub message: String,
    /// Of [`RefusalKind::Malformed`]: which field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// Of [`RefusalKind::Behind`] and [`RefusalKind::OtherBytes`]: up to where the segment is
    /// flushed, bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    /// The running CRC up to there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crc: Option<Prefix>,
    /// Of [`RefusalKind::TooLarge`]: the most bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// Of [`RefusalKind::Newer`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub versions: Option<Versions>,
}

impl Refusal {
    /// A refusal that has no more to say than its kind and a message.
    pub fn new(error: RefusalKind, message: impl Into<String>) -> Self {
        Refusal {
            error,
            message: message.into(),
            field: None,
            offset: None,
            crc: None,
            limit: None,
            versions: None,
        }
    }
}

/// What a client has of a segment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientSegment {
    /// Its id.
    pub id: String,
    /// Its length as far as it is written, bytes.
    pub length: u64,
    /// Up to where it was acknowledged.
    pub offset: u64,
    /// The running CRC up to there.
    pub crc: Prefix,
}

/// `POST /v1/segments`: what a client has, to a server that started anew.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentsRequest {
    /// At most [`MAX_SEGMENTS`].
    pub segments: Vec<ClientSegment>,
}

/// What the server has of a segment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerSegment {
    /// Its id.
    pub id: String,
    /// Up to where it is flushed, bytes; 0 of one that the server does not know.
    pub offset: u64,
    /// The running CRC up to there.
    pub crc: Prefix,
}

/// The answer to [`SegmentsRequest`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentsAnswer {
    /// One for each segment asked about.
    pub segments: Vec<ServerSegment>,
    /// Who answered.
    #[serde(flatten)]
    pub state: ServerState,
}

/// `GET /v1/ca`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaAnswer {
    /// The certificates of all CAs that the server trusts, PEM; that which signed the server's own
    /// certificate first.
    pub bundle: String,
}

/// `POST /v1/join`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinRequest {
    /// The token as it was printed.
    pub token: String,
    /// A certificate signing request (PKCS #10), PEM.
    pub csr: String,
}

impl std::fmt::Debug for JoinRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JoinRequest").finish_non_exhaustive()
    }
}

/// `POST /v1/renew`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RenewRequest {
    /// A certificate signing request (PKCS #10) of the new key, PEM.
    pub csr: String,
}

/// A new certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificateAnswer {
    /// The certificate and those between it and the CA's, PEM.
    pub certificate: String,
    /// As in [`CaAnswer`].
    pub bundle: String,
    /// Who answered.
    #[serde(flatten)]
    pub state: ServerState,
}
