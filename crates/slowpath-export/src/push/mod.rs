// SPDX-License-Identifier: Apache-2.0
//! Pushes metrics to an OpenTelemetry collector periodically, over HTTP.
//!
//! The queue is bounded (`queue`): while a collector is unreachable, batches wait with growing
//! pauses between attempts; when too many wait, the oldest is dropped and its points are
//! counted. That loses resolution only: sums are cumulative.

mod endpoint;
mod queue;
mod security;
mod worker;

pub use crate::counters::{Outcome, PushCounters};
pub use endpoint::{Endpoint, EndpointError};
pub use queue::{MAX_BATCHES, Queue};
pub use security::SecurityError;
pub use worker::{Pusher, PusherError};

use std::path::PathBuf;

/// How to push.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Headers of each request: `key=value,key=value`, percent-encoded, as in
    /// `$OTEL_EXPORTER_OTLP_HEADERS`.
    pub headers: String,
    /// Compress what is sent.
    pub gzip: bool,
    /// Certificates of the authorities to trust, as PEM, in place of the machine's.
    pub certificate: Option<PathBuf>,
}
