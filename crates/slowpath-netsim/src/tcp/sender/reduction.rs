// SPDX-License-Identifier: Apache-2.0
//! How the window falls: proportional rate reduction (RFC 6937).

/// The reduction under way, or the last one.
#[derive(Clone, Debug, Default)]
pub(super) struct Reduction {
    /// Segments delivered since it began.
    delivered: u32,
    /// Segments sent since it began.
    pub sent: u32,
    /// The window before it.
    window: u32,
    /// The next new segment says that the window was reduced (CWR).
    pub cwr_due: bool,
}

impl Reduction {
    /// One begins, from that window.
    pub fn begin(&mut self, window: u32) {
        self.window = window;
        self.delivered = 0;
        self.sent = 0;
    }

    /// The window after an ACK that delivered `delivered` segments, `advanced` or not, and showed
    /// `lost` to be lost: RFC 6937 section 3, with the safe bound (PRR-SSRB) only where the ACK
    /// advances and finds nothing lost (`tcp_cwnd_reduction`).
    pub fn window(
        &mut self,
        pipe: u32,
        ssthresh: u32,
        delivered: u32,
        lost: u32,
        advanced: bool,
    ) -> u32 {
        self.delivered += delivered;
        let may_send = if pipe > ssthresh {
            // ceil(prr_delivered * ssthresh / RecoverFS) - prr_out.
            let share = (u64::from(self.delivered) * u64::from(ssthresh))
                .div_ceil(u64::from(self.window.max(1)));
            (share as u32).saturating_sub(self.sent)
        } else {
            let mut limit = self.delivered.saturating_sub(self.sent).max(delivered);
            if advanced && lost == 0 {
                limit += 1;
            }
            limit.min(ssthresh - pipe)
        };
        // The first of a reduction may always leave: a fast retransmission.
        pipe + may_send.max(u32::from(self.sent == 0))
    }
}
