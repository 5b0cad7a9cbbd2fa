// SPDX-License-Identifier: Apache-2.0
//! Which of several summaries of a connection holds.

use slowpath_model::{ConnectionId, ConnectionSummary, FourTuple, Owner, WallMicros};
use std::net::SocketAddr;

/// Whether `new` replaces `old`, a summary of the same connection.
pub(crate) fn supersedes(new: &ConnectionSummary, old: &ConnectionSummary) -> bool {
    summary_rank(new) >= summary_rank(old)
}

/// Of several summaries of a connection the one with the greatest rank holds.
pub fn summary_rank(summary: &ConnectionSummary) -> Rank {
    (summary.closed, summary.polls, summary.last_observed)
}

/// Of several summaries of a connection the one with the greatest rank holds: whether it was
/// closed, its polls, and when it was last observed.
pub type Rank = (bool, u64, WallMicros);

/// Who a connection is, by one of its summaries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionIdentity {
    /// The connection.
    pub connection: ConnectionId,
    /// The rank of that summary.
    pub rank: Rank,
    /// Its addresses and ports.
    pub tuple: FourTuple,
    /// Its owner.
    pub owner: Owner,
    /// The peer behind address translation.
    pub real_peer: Option<SocketAddr>,
}

impl From<ConnectionSummary> for ConnectionIdentity {
    fn from(summary: ConnectionSummary) -> Self {
        ConnectionIdentity {
            connection: summary.connection,
            rank: summary_rank(&summary),
            tuple: summary.tuple,
            owner: summary.owner,
            real_peer: summary.real_peer,
        }
    }
}

/// A summary's identity, rank and time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ranked {
    pub connection: ConnectionId,
    pub first_observed: WallMicros,
    pub last_observed: WallMicros,
    pub closed: bool,
    pub polls: u64,
}

impl Ranked {
    pub(crate) fn rank(&self) -> Rank {
        (self.closed, self.polls, self.last_observed)
    }
}
