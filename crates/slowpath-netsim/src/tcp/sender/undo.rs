// SPDX-License-Identifier: Apache-2.0
//! Reductions that turn out to be needless, and taking them back.
//!
//! Two signs, as in Linux: F-RTO (RFC 5682), by which a timeout was spurious if what was
//! never sent again arrives after it; and DSACK (RFC 2883, RFC 3708), by which a reduction
//! was needless if every segment it sent again had arrived before. Linux has a third, the
//! echo of a timestamp from before the retransmission (RFC 3522), which mostly says the same
//! one ACK earlier; it is not modelled.

use super::Phase;
use super::machine::Machine;
use super::policy::Policy;
use crate::tcp::config::TcpConfig;
use crate::tcp::scoreboard::Delivered;
use slowpath_switch::Time;

/// What a reduction gives back if it was needless.
#[derive(Clone, Copy, Debug)]
pub(super) struct Undo {
    /// The first unacknowledged offset at its beginning (`undo_marker`).
    una: u64,
    /// The window before it.
    window: u32,
    /// The threshold before it; 0: nothing is given back, as there were marks too
    /// (`prior_ssthresh`).
    ssthresh: u32,
    /// Segments sent again since, less those that were duplicates (`undo_retrans`); `None`
    /// before the first.
    resent: Option<u32>,
}

/// Whether the last timeout was spurious (F-RTO).
#[derive(Clone, Debug, Default)]
pub(super) struct SpuriousTimeout {
    /// When the timer expired.
    expired_at: Time,
    /// It may still turn out spurious.
    possible: bool,
    /// New data goes before retransmissions: the second step of F-RTO.
    pub new_only: bool,
}

impl SpuriousTimeout {
    /// The timer expired.
    pub fn begin(&mut self, now: Time, possible: bool) {
        *self = SpuriousTimeout {
            expired_at: now,
            possible,
            new_only: false,
        };
    }
}

impl<P: Policy> Machine<P> {
    /// A reduction is about to begin (`tcp_init_undo`). With marks it would have come anyway.
    pub fn remember(&mut self, marks: bool) {
        let congestion = &self.congestion;
        // tcp_current_ssthresh.
        let threshold = congestion
            .ssthresh
            .max(congestion.window / 2 + congestion.window / 4);
        self.undo = Some(Undo {
            una: self.stream.una,
            window: congestion.window,
            ssthresh: if marks { 0 } else { threshold },
            resent: None,
        });
    }

    /// A segment leaves once more.
    #[inline]
    pub fn count_retransmission(&mut self) {
        if let Some(undo) = &mut self.undo {
            undo.resent = Some(undo.resent.unwrap_or(0) + 1);
        }
    }

    /// A DSACK of a block that ends there, by its low 32 bits (`tcp_check_dsack`).
    pub fn note_duplicate(&mut self, end: u32) {
        if let Some(undo) = &mut self.undo
            && (end.wrapping_sub(undo.una as u32) as i32) > 0
            && let Some(resent) = &mut undo.resent
        {
            *resent = resent.saturating_sub(1);
        }
    }

    /// Whether all that was sent again had arrived before (`tcp_may_undo`).
    fn was_needless(&self, config: &TcpConfig) -> bool {
        let undo = self.undo.as_ref();
        config.dsack_undo && undo.is_some_and(|undo| undo.resent == Some(0))
    }

    /// `tcp_undo_cwnd_reduction`.
    fn take_back(&mut self) {
        if let Some(undo) = self.undo.take()
            && undo.ssthresh > 0
        {
            self.model_undo();
            let congestion = &mut self.congestion;
            if !congestion.is_modelled() {
                congestion.window = congestion.window.max(undo.window);
            }
            congestion.ssthresh = congestion.ssthresh.max(undo.ssthresh);
            self.reduction.cwr_due = false;
        }
        self.counts.undone += 1;
    }

    /// Takes back a recovery in which nothing was sent again; false if something was
    /// (`tcp_packet_delayed`).
    pub fn take_back_unused(&mut self) -> bool {
        let unused = self.undo.is_some_and(|undo| undo.resent.is_none());
        if unused {
            self.take_back();
        }
        unused
    }

    /// What an ACK after a timeout says of that timeout (`tcp_process_loss`).
    pub fn doubt_timeout(
        &mut self,
        config: &TcpConfig,
        advanced: bool,
        duplicate: bool,
        delivered: &Delivered,
    ) {
        let spurious = &mut self.spurious;
        spurious.new_only = false;
        // Without SACK nothing says which copy of a retransmitted segment arrived.
        let unambiguous = config.sack || !delivered.resent;
        let expired_at = spurious.expired_at;
        let original = unambiguous && delivered.first_sent.is_some_and(|sent| sent <= expired_at);
        let possible = spurious.possible;
        if advanced && self.was_needless(config) || possible && original {
            // RFC 5682 section 3.1 step 3b.
            self.board.forget_losses();
            self.take_back();
            self.spurious.possible = false;
            self.timers.backoff = 0;
            self.dup_acks = 0;
            self.phase = Phase::Open;
        } else if possible && self.stream.next > self.recovery_point {
            // Step 3a: the new segments arrive and nothing from before does.
            self.spurious.possible = !duplicate && delivered.sacked == 0;
        } else if possible && advanced && self.stream.una < self.recovery_point {
            // Step 2b: what of the old arrives while new data is sent?
            self.recovery_point = self.stream.next;
            let has_new = self.new_segment(config).is_some();
            self.spurious.new_only = has_new;
            self.spurious.possible = has_new;
        }
    }

    /// Takes back a fast recovery, or a timeout that is over, whose retransmissions were all
    /// needless (`tcp_try_undo_dsack`).
    #[inline]
    pub fn doubt_recovery(&mut self, config: &TcpConfig) {
        if self.undo.is_none() || !self.was_needless(config) {
            return;
        }
        match self.phase {
            Phase::Open | Phase::Disorder => self.take_back(),
            Phase::Recovery => {
                self.take_back();
                if self.stream.una >= self.recovery_point {
                    self.reordering.settle();
                }
                self.keep_open();
            }
            Phase::Reduced | Phase::Loss => {}
        }
    }
}
