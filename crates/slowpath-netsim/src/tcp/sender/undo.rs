// SPDX-License-Identifier: Apache-2.0
//! Reductions that turn out to be needless, and taking them back.
//!
//! Two signs, as in Linux: F-RTO (RFC 5682), by which a timeout was spurious if what was
//! never sent again arrives after it; and DSACK (RFC 2883, RFC 3708), by which a reduction
//! was needless if every segment it sent again had arrived before. Linux has a third, the
//! echo of a timestamp from before the retransmission (RFC 3522), which mostly says the same
//! one ACK earlier; it is not modelled.

use super::{Phase, Sender};
use crate::tcp::config::TcpConfig;
use crate::tcp::scoreboard::Delivered;

/// What there was before a reduction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Before {
    /// The first unacknowledged offset (`undo_marker`).
    una: u64,
    window: u32,
    /// 0: nothing is given back, as there were marks too (`prior_ssthresh`).
    ssthresh: u32,
    /// Segments sent again since, less those that were duplicates (`undo_retrans`); `None`
    /// before the first.
    resent: Option<u32>,
}

impl Sender {
    /// A reduction is about to begin (`tcp_init_undo`). With marks it would have come anyway.
    pub(super) fn remember(&mut self, marks: bool) {
        let congestion = &self.congestion;
        // tcp_current_ssthresh.
        let threshold = congestion
            .ssthresh
            .max(congestion.window / 2 + congestion.window / 4);
        self.before = Some(Before {
            una: self.una,
            window: congestion.window,
            ssthresh: if marks { 0 } else { threshold },
            resent: None,
        });
    }

    /// A segment is sent again.
    #[inline]
    pub(super) fn note_resent(&mut self) {
        if let Some(before) = &mut self.before {
            before.resent = Some(before.resent.unwrap_or(0) + 1);
        }
    }

    /// A DSACK of a block that ends there, by its low 32 bits (`tcp_check_dsack`).
    pub(super) fn note_duplicate(&mut self, end: u32) {
        if let Some(before) = &mut self.before
            && (end.wrapping_sub(before.una as u32) as i32) > 0
            && let Some(resent) = &mut before.resent
        {
            *resent = resent.saturating_sub(1);
        }
    }

    /// Whether all that was sent again had arrived before (`tcp_may_undo`).
    fn was_needless(&self, config: &TcpConfig) -> bool {
        let before = self.before.as_ref();
        config.dsack_undo && before.is_some_and(|before| before.resent == Some(0))
    }

    /// `tcp_undo_cwnd_reduction`.
    fn take_back(&mut self) {
        if let Some(before) = self.before.take()
            && before.ssthresh > 0
        {
            let congestion = &mut self.congestion;
            congestion.window = congestion.window.max(before.window);
            congestion.ssthresh = congestion.ssthresh.max(before.ssthresh);
            self.cwr_due = false;
        }
        self.counts.undone += 1;
    }

    /// What an ACK after a timeout says of that timeout (`tcp_process_loss`).
    pub(super) fn doubt_timeout(
        &mut self,
        config: &TcpConfig,
        advanced: bool,
        duplicate: bool,
        delivered: &Delivered,
    ) {
        self.new_only = false;
        // Without SACK nothing says which copy of what was sent again arrived.
        let told = config.sack || !delivered.resent;
        let lost_at = self.lost_at;
        let original = told && delivered.first_sent.is_some_and(|sent| sent <= lost_at);
        if advanced && self.was_needless(config) || self.frto && original {
            // RFC 5682 section 3.1 step 3b.
            self.board.forget_losses();
            self.take_back();
            self.frto = false;
            self.backoff = 0;
            self.dup_acks = 0;
            self.phase = Phase::Open;
        } else if self.frto && self.next > self.recovery_point {
            // Step 3a: the new segments arrive and nothing from before does.
            self.frto = !duplicate && delivered.sacked == 0;
        } else if self.frto && advanced && self.una < self.recovery_point {
            // Step 2b: what of the old arrives while new data is sent?
            self.recovery_point = self.next;
            self.new_only = self.new_segment(config).is_some();
            self.frto = self.new_only;
        }
    }

    /// Takes back a fast recovery, or a timeout that is over, whose retransmissions were all
    /// needless (`tcp_try_undo_dsack`).
    #[inline]
    pub(super) fn doubt_recovery(&mut self, config: &TcpConfig) {
        if self.before.is_none() || !self.was_needless(config) {
            return;
        }
        match self.phase {
            Phase::Open | Phase::Disorder => self.take_back(),
            Phase::Recovery => {
                self.take_back();
                if self.una >= self.recovery_point {
                    self.settle_reordering();
                }
                // tcp_try_keep_open.
                self.recovery_point = self.next;
                self.phase = if self.board.sacked() + self.board.lost() > 0 {
                    Phase::Disorder
                } else {
                    Phase::Open
                };
            }
            Phase::Reduced | Phase::Loss => {}
        }
    }
}
