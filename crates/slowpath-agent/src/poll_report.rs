// SPDX-License-Identifier: Apache-2.0
//! What one poll met and cost.

use slowpath_model::{Micros, MonoNanos};

/// What one poll met and cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PollReport {
    /// When the poll began.
    pub at: MonoNanos,
    /// Connections that live.
    pub sockets: u64,
    /// Snapshots emitted because something had changed.
    pub emitted: u64,
    /// Connections that closed since the previous poll.
    pub closed: u64,
    /// Connections alive that the poll did not meet.
    pub missed: u64,
    /// Connections met twice and counted once.
    pub repeats: u64,
    /// Problem intervals found.
    pub problems: u64,
    /// CPU time of this poll in all threads of the process, user and system.
    pub cpu: Micros,
    /// Views should be refreshed now. Under a budget polls come faster than views need: the
    /// counts above then add up until this is set, and so does
    /// [`Agent::recently_closed`](crate::Agent::recently_closed).
    pub refresh: bool,
}
