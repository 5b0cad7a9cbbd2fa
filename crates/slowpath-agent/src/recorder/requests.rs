// SPDX-License-Identifier: Apache-2.0
//! Which connections the agent asks for, and why.

use crate::live_connection::LiveConnection;
use slowpath_model::{FourTuple, MonoNanos, Precedence, Problem, ProblemSet, Stage};
use std::fmt;
use std::sync::Arc;

/// Asks of one poll; further ones are made at the connection's next.
const MOST: usize = 4_096;

/// Which connections are to be kept. It is asked of each when it is first judged, whenever an interval has a problem, and when it closes: the latest verdict, if there is one,
/// has the problems.
#[derive(Clone)]
pub struct KeepFilter(Arc<dyn Fn(&LiveConnection) -> bool + Send + Sync>);

impl KeepFilter {
    /// Those that `wanted` selects.
    pub fn new(wanted: impl Fn(&LiveConnection) -> bool + Send + Sync + 'static) -> Self {
        KeepFilter(Arc::new(wanted))
    }

    /// None.
    pub fn none() -> Self {
        KeepFilter::new(|_| false)
    }

    /// Those with a problem that someone other than the sending application has to act on.
    pub fn problems() -> Self {
        KeepFilter::new(|live| live.problems().iter().any(is_suspicious))
    }
}

impl fmt::Debug for KeepFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("KeepFilter").finish_non_exhaustive()
    }
}

/// Whether a problem makes a connection worth a replay: the sending application's own pace is none, nor is what nothing explains.
fn is_suspicious(problem: Problem) -> bool {
    problem.stage() != Stage::SenderApp && problem.precedence() != Precedence::Residue
}

/// One that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeepRequest {
    pub(crate) tuple: FourTuple,
    /// When it was last observed: if it lives, when that poll began, and it may have opened since.
    pub(crate) at: MonoNanos,
    /// It had not closed by then.
    pub(crate) lives: bool,
    /// None: only its owner is reported.
    pub(crate) reasons: Vec<&'static str>,
    /// The owner of this end.
    pub(crate) owner: Option<String>,
}

/// What has been asked for since the last poll; nothing without a recorder.
#[derive(Default)]
pub(crate) struct KeepRequests {
    wanted: Option<KeepFilter>,
    asks: Vec<KeepRequest>,
}

impl KeepRequests {
    pub(crate) fn new(wanted: KeepFilter) -> Self {
        KeepRequests {
            wanted: Some(wanted),
            asks: Vec::new(),
        }
    }

    /// A connection was judged, or has closed: asks for it if it is wanted and has not been asked for with these problems.
    pub(crate) fn judged(&mut self, connection: &mut LiveConnection) {
        let Some(KeepFilter(wanted)) = &self.wanted else {
            return;
        };
        let latest = connection.latest.iter();
        let problems: Vec<_> = latest
            .flat_map(|verdict| verdict.findings.iter().map(|finding| finding.problem))
            .filter(|problem| !connection.keep_reasons.contains(*problem))
            .collect();
        // Of one that closes the owner may be known only now.
        let named = connection.snapshot.closed && connection.owner.name().is_some();
        if connection.keep_requested && problems.is_empty() && !named {
            return;
        }
        let again = connection.keep_requested && problems.is_empty();
        if self.asks.len() >= MOST || !(again || wanted(connection)) {
            return;
        }
        connection.keep_requested = true;
        let known: ProblemSet = connection
            .keep_reasons
            .iter()
            .chain(problems.iter().copied())
            .collect();
        connection.keep_reasons = known;
        let reasons = match problems.as_slice() {
            [] if again => Vec::new(),
            [] => vec!["chosen"],
            problems => problems.iter().map(|problem| problem.name()).collect(),
        };
        self.asks.push(KeepRequest {
            tuple: connection.snapshot.tuple,
            at: connection.snapshot.at,
            lives: !connection.snapshot.closed,
            reasons,
            owner: connection.owner.name().map(|name| name.to_string()),
        });
    }

    pub(crate) fn take(&mut self) -> Vec<KeepRequest> {
        std::mem::take(&mut self.asks)
    }
}

#[cfg(test)]
#[path = "requests_tests.rs"]
mod tests;
