// SPDX-License-Identifier: Apache-2.0
//! Pushes metrics to an OpenTelemetry collector, over HTTP, now and then.
//!
//! What waits is bounded (`queue`): while a collector is away, batches wait with growing
//! pauses between attempts; when too many wait, the oldest goes and its points are counted.
//! Nothing is lost by that but resolution: sums are cumulative.

mod endpoint;
mod queue;
mod security;
mod worker;

pub use endpoint::{Endpoint, EndpointError};
pub use queue::{MAX_BATCHES, Outcome, Queue};
pub use security::SecurityError;
pub use worker::{Pusher, PusherError};

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

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
    fn count(&self, outcome: &Outcome) {
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

    fn drop_points(&self, count: u64) {
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

    fn trouble(&self) -> std::sync::MutexGuard<'_, Option<String>> {
        // Whole values are swapped: a panic elsewhere leaves a good one.
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The pairs of a list as OpenTelemetry's environment variables have them
/// (`key=value,key=value`, values percent-encoded as in W3C Baggage); what is no pair is
/// passed over.
pub(crate) fn pairs(list: &str) -> impl Iterator<Item = (String, String)> {
    list.split(',').filter_map(|pair| {
        let (key, value) = pair.split_once('=')?;
        let key = key.trim();
        (!key.is_empty()).then(|| (key.to_owned(), decoded(value.trim())))
    })
}

/// Without percent-encoding (RFC 3986 section 2.1); a percent sign that begins none stays.
fn decoded(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.as_bytes();
    while let [first, rest @ ..] = bytes {
        let code = match rest {
            [high, low, ..] if *first == b'%' => std::str::from_utf8(&[*high, *low])
                .ok()
                .filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()))
                .and_then(|digits| u8::from_str_radix(digits, 16).ok()),
            _ => None,
        };
        match code {
            Some(byte) => {
                out.push(byte);
                bytes = &rest[2..];
            }
            None => {
                out.push(*first);
                bytes = rest;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_percent_encoded_pairs() {
        let read: Vec<_> = pairs("a=1, b = x%20y%2C%3d ,c,=d,e=100%,f=%zz,g=").collect();
        let pair = |k: &str, v: &str| (k.to_owned(), v.to_owned());
        assert_eq!(
            read,
            [
                pair("a", "1"),
                pair("b", "x y,="),
                pair("e", "100%"),
                pair("f", "%zz"),
                pair("g", ""),
            ]
        );
    }
}
