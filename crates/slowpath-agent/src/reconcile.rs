// SPDX-License-Identifier: Apache-2.0
//! Connections that no poll meets any more: whether to search for them, and how. Pure.
//!
//! A connection whose close left no record stays in the table until a *sweep*: a poll that
//! meets every connection, after which the others are gone. It costs 1.5 us a connection in
//! one piece. So once a minute all that have storage in the kernel are only *counted*, for a
//! tenth of that, and the sweep follows if the table has another number. A sweep without a count follows where
//! the kernel lost closes, or where more closed than its ring holds, so that it may have lost some without knowing.

/// Connections closed between two polls from which on the next poll meets every connection.
const MANY_CLOSED: u64 = 256;

#[derive(Debug, Default)]
pub(crate) struct Reconciler {
    /// Closes that the kernel knows to have lost, and that a sweep made up for.
    dropped: u64,
    sweep: bool,
    count: bool,
    /// Connections found that had no storage; `None` before they are searched for in this round.
    found: Option<u64>,
    /// Connections that were gone without a record and without a counted loss.
    pub uncounted: u64,
}

impl Reconciler {
    /// Whether a sweep is wanted while the kernel knows of `dropped` lost closes: a number that
    /// goes down again where a close turns out to have been late.
    pub fn wants_sweep(&self, dropped: u64) -> bool {
        self.sweep || dropped > self.dropped
    }

    /// A sweep found `gone` connections gone.
    pub fn swept(&mut self, dropped: u64, gone: u64) {
        self.uncounted += gone.saturating_sub(dropped.saturating_sub(self.dropped));
        self.dropped = dropped.max(self.dropped);
        self.sweep = false;
        self.count = false;
    }

    /// A poll met `visited` connections with storage, walking over all that have some if
    /// `walked`; `closed` closed before it, and the table has `known` now.
    pub fn polled(&mut self, walked: bool, visited: u64, closed: u64, known: u64) {
        self.sweep |= closed >= MANY_CLOSED;
        if walked && std::mem::take(&mut self.count) {
            self.sweep |= visited != known;
        }
    }

    /// Whether connections without storage have been searched for in this round.
    pub fn has_searched(&self) -> bool {
        self.found.is_some()
    }

    /// They have, and `found` had none; the next poll walks over all.
    pub fn searched(&mut self, found: u64) {
        self.found = Some(found);
        self.count = true;
    }

    /// The round ends; gives how many were found.
    pub fn end_round(&mut self) -> u64 {
        self.found.take().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_that_agrees_needs_no_sweep() {
        let mut reconciler = Reconciler::default();
        reconciler.searched(0);
        reconciler.polled(false, 7, 0, 8);
        assert!(!reconciler.wants_sweep(0), "this poll did not count");
        reconciler.polled(true, 8, 0, 8);
        assert!(!reconciler.wants_sweep(0));
        reconciler.polled(true, 7, 0, 8);
        assert!(!reconciler.wants_sweep(0), "it has been compared");
        assert_eq!(reconciler.end_round(), 0);
        reconciler.searched(2);
        reconciler.polled(true, 7, 0, 8);
        assert!(reconciler.wants_sweep(0));
        assert_eq!(reconciler.end_round(), 2);
        reconciler.swept(0, 1);
        assert!(!reconciler.wants_sweep(0));
        assert_eq!(reconciler.uncounted, 1);
    }

    #[test]
    fn lost_closes_are_counted_once() {
        let mut reconciler = Reconciler::default();
        assert!(reconciler.wants_sweep(3));
        reconciler.swept(3, 5);
        assert_eq!(reconciler.uncounted, 2);
        assert!(!reconciler.wants_sweep(3) && reconciler.wants_sweep(4));
    }

    #[test]
    fn a_close_that_was_only_late_is_no_loss() {
        let mut reconciler = Reconciler::default();
        reconciler.swept(3, 3);
        assert!(!reconciler.wants_sweep(2));
        reconciler.swept(2, 1);
        assert_eq!(reconciler.uncounted, 1);
        assert!(!reconciler.wants_sweep(3), "made up for already");
    }

    #[test]
    fn where_many_closed_all_are_met() {
        let mut reconciler = Reconciler::default();
        reconciler.polled(false, 1_000, MANY_CLOSED - 1, 1_000);
        assert!(!reconciler.wants_sweep(0));
        reconciler.polled(false, 1_000, MANY_CLOSED, 1_000);
        assert!(reconciler.wants_sweep(0));
    }
}
