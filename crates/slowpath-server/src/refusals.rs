// SPDX-License-Identifier: Apache-2.0
//! Who was refused, counted by reason.

use slowpath_ship::answers::RefusalKind;
use std::sync::atomic::{AtomicU64, Ordering};

/// Why someone was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// No TLS 1.3, or none at all.
    Tls,
    /// A certificate that no CA of ours signed, or that names no host.
    Certificate,
    /// A certificate that has expired and can be renewed no more.
    Expired,
    /// A certificate that was revoked.
    Revoked,
    /// Something took longer than its deadline, or gave way.
    Dropped,
    /// The head of a request is not HTTP, or too long.
    Head,
    /// The request was answered with this.
    Answered(RefusalKind),
}

/// The labels of `slowpath_server_refused_total`.
const LABELS: [&str; 20] = [
    "tls",
    "certificate",
    "expired",
    "revoked",
    "dropped",
    "head",
    "malformed",
    "name",
    "token",
    "used",
    "token-expired",
    "behind",
    "other-bytes",
    "clone",
    "too-large",
    "media-type",
    "newer",
    "busy",
    "full",
    "unknown",
];

impl Reason {
    /// As the label of a metric.
    pub fn label(self) -> &'static str {
        match self {
            Reason::Tls => "tls",
            Reason::Certificate | Reason::Answered(RefusalKind::Certificate) => "certificate",
            Reason::Expired | Reason::Answered(RefusalKind::Expired) => "expired",
            Reason::Revoked | Reason::Answered(RefusalKind::Revoked) => "revoked",
            Reason::Dropped => "dropped",
            Reason::Head => "head",
            Reason::Answered(kind) => label(kind),
        }
    }
}

fn label(kind: RefusalKind) -> &'static str {
    match kind {
        RefusalKind::Malformed => "malformed",
        RefusalKind::Certificate => "certificate",
        RefusalKind::Revoked => "revoked",
        RefusalKind::Expired => "expired",
        RefusalKind::Name => "name",
        RefusalKind::Token => "token",
        RefusalKind::Used => "used",
        RefusalKind::TokenExpired => "token-expired",
        RefusalKind::Behind => "behind",
        RefusalKind::OtherBytes => "other-bytes",
        RefusalKind::Clone => "clone",
        RefusalKind::TooLarge => "too-large",
        RefusalKind::MediaType => "media-type",
        RefusalKind::Newer => "newer",
        RefusalKind::Busy => "busy",
        RefusalKind::Full => "full",
        RefusalKind::Unknown => "unknown",
    }
}

/// The counts since the server started.
#[derive(Debug, Default)]
pub struct Refusals([AtomicU64; LABELS.len()]);

impl Refusals {
    /// Counts one.
    pub fn count(&self, reason: Reason) {
        let label = reason.label();
        if let Some(at) = LABELS.iter().position(|it| *it == label) {
            self.0[at].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How often each reason was counted, by its label.
    pub fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let counts = self.0.iter().map(|count| count.load(Ordering::Relaxed));
        LABELS.into_iter().zip(counts)
    }

    /// How often this reason was counted.
    pub fn of(&self, reason: Reason) -> u64 {
        let mut counts = self.counts();
        counts
            .find(|(label, _)| *label == reason.label())
            .map_or(0, |(_, count)| count)
    }
}

impl slowpath_http::Events for Refusals {
    fn refused(&self, _: u16) {
        self.count(Reason::Head);
    }

    fn dropped(&self) {
        self.count(Reason::Dropped);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_counted_under_its_own_label() {
        let refusals = Refusals::default();
        refusals.count(Reason::Revoked);
        refusals.count(Reason::Answered(RefusalKind::Revoked));
        refusals.count(Reason::Answered(RefusalKind::OtherBytes));
        assert_eq!(refusals.of(Reason::Revoked), 2);
        assert_eq!(refusals.of(Reason::Answered(RefusalKind::OtherBytes)), 1);
        assert_eq!(refusals.counts().map(|(_, n)| n).sum::<u64>(), 3);
    }
}
