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
    /// Calls of one poll that went for later ones of the same: no reader could have had them.
    pub(super) dropped: u64,
}

impl CallLog {
    /// Takes the calls since the poll before.
    pub(crate) fn extend(&mut self, mut calls: Vec<Call>) {
        let excess = calls.len().saturating_sub(MAX_CALLS);
        self.dropped += excess as u64;
        calls.drain(..excess);
        let kept = MAX_CALLS - calls.len();
        let old = self.calls.len().saturating_sub(kept);
        self.calls.drain(..old);
        self.calls.extend(calls);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Call> {
        self.calls.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use slowpath_model::MonoNanos;
    use slowpath_observe::Direction;

    fn calls(numbers: std::ops::Range<u64>) -> Vec<Call> {
        let call = |n| Call {
            cookie: 1,
            at: MonoNanos(n),
            bytes: 1,
            direction: Direction::Send,
        };
        numbers.map(call).collect()
    }

    /// A million calls in 20 polls: each poll's are there to be read until the next.
    #[test]
    fn what_a_reader_could_have_read_is_not_lost() {
        let mut log = CallLog::default();
        for poll in 0..20 {
            log.extend(calls(poll * 50_000..(poll + 1) * 50_000));
            let latest = log.iter().last().map(|call| call.at.0);
            assert_eq!(latest, Some((poll + 1) * 50_000 - 1));
        }
        assert_eq!((log.dropped, log.iter().count()), (0, MAX_CALLS));
        // The oldest of those that are kept.
        let first = log.iter().next().map(|call| call.at.0);
        assert_eq!(first, Some(1_000_000 - 65_536));
    }

    #[test]
    fn what_never_could_be_read_is() {
        let mut log = CallLog::default();
        log.extend(calls(0..10));
        log.extend(calls(0..70_000));
        assert_eq!(log.dropped, 70_000 - 65_536);
        assert_eq!(log.iter().next().map(|call| call.at.0), Some(4_464));
        assert_eq!(log.iter().count(), MAX_CALLS);
    }
}
