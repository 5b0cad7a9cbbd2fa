// SPDX-License-Identifier: Apache-2.0
//! What a retransmission timeout and a tail loss probe do, whatever the timers.

use super::machine::Machine;
use super::policy::Policy;
use super::{NEVER, Phase};
use crate::tcp::config::TcpConfig;
use crate::tcp::segment::Segment;
use slowpath_switch::Time;

impl<P: Policy> Machine<P> {
    /// RFC 8985 section 7.3: new data if there is, else the last segment again.
    pub fn send_probe(&mut self, config: &TcpConfig, now: Time) -> Option<Segment> {
        self.counts.probes += 1;
        let new = P::poll_probe(self, config, now);
        let was_new = new.is_some();
        let segment = match new {
            Some(segment) => segment,
            None => {
                let (end, len) = self.board.probe(now)?;
                self.send_again(config, now, end, len)
            }
        };
        self.probe.was_new = was_new;
        self.probe.end = Some(self.stream.next);
        self.timers.probe_at = NEVER;
        P::restart_timeout(self, config, now);
        Some(segment)
    }

    /// The retransmission timer expired.
    pub fn on_timeout(&mut self, config: &TcpConfig, now: Time) {
        self.counts.timeouts += 1;
        if self.retry_handshake() {
            return;
        }
        // RFC 5681 section 3.1: the threshold falls once for a flight, not for each expiry.
        // Linux leaves it too where a reduction is under way (tcp_enter_loss).
        let falls = matches!(self.phase, Phase::Open | Phase::Disorder)
            || self.stream.una >= self.recovery_point
            || self.phase == Phase::Loss && self.timers.backoff == 0;
        if falls {
            self.remember(false);
            self.congestion.on_loss();
        }
        // RFC 5682 section 3.1 step 1, and 3.2: not within another recovery, unless the same
        // segment timed out before.
        let recovering = matches!(self.phase, Phase::Recovery | Phase::Loss);
        let may_be_spurious = config.frto && (!recovering || self.timers.backoff > 0);
        self.spurious.begin(now, may_be_spurious);
        self.congestion.on_timeout();
        P::lose_after_timeout(self, config, now);
        self.dup_acks = 0;
        self.phase = Phase::Loss;
        self.recovery_point = self.stream.next;
        self.congestion.window = self.pipe() + 1;
        self.model_timeout(config);
        self.timers.backoff += 1;
        P::restart_timeout(self, config, now);
        self.timers.probe_at = NEVER;
        self.timers.reordering_at = NEVER;
        self.probe.due = false;
        self.probe.end = None;
    }
}
