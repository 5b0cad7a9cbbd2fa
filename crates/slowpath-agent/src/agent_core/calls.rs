// SPDX-License-Identifier: Apache-2.0
//! Socket calls of suspicious connections, the latest ones.

use slowpath_observe::Call;
use std::collections::VecDeque;

/// Calls kept in memory.
const MAX_CALLS: usize = 65_536;

/// The latest calls, oldest first.
#[derive(Debug, Default)]
pub(crate) struct CallLog {
    calls: VecDeque<Call>,
    /// Calls that went for later ones.
    pub(super) dropped: u64,
}

impl CallLog {
    pub(crate) fn extend(&mut self, calls: impl IntoIterator<Item = Call>) {
        for call in calls {
            if self.calls.len() >= MAX_CALLS {
                self.calls.pop_front();
                self.dropped += 1;
            }
            self.calls.push_back(call);
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Call> {
        self.calls.iter()
    }
}
