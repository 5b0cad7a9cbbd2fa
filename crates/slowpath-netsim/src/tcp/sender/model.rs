// SPDX-License-Identifier: Apache-2.0
//! What a congestion control that models the path learns and decides: only BBR does.

use super::Phase;
use super::machine::Machine;
use super::pacing::MICROSECOND;
use super::policy::Policy;
use crate::tcp::config::TcpConfig;
use crate::tcp::congestion::{Repair, Report};
use crate::tcp::delivery_rate::micros;
use crate::tcp::scoreboard::Delivered;
use slowpath_switch::Time;

/// What was so before an ACK.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Before {
    /// Segments in the network.
    pub in_flight: u32,
    /// The first unacknowledged offset.
    pub una: u64,
}

impl<P: Policy> Machine<P> {
    /// The application is about to write: what leaves is limited by it if all before has left and there
    /// is room for more (`tcp_rate_check_app_limited`).
    pub fn check_limited(&mut self, config: &TcpConfig) {
        let unsent = self.stream.written - self.stream.next;
        let out = self.pipe();
        let more = unsent >= u64::from(config.mss)
            || self.policy.has_waiting()
            || out >= self.congestion.window
            || self.board.to_resend() > 0;
        if !more && let Some(rates) = self.board.rates() {
            rates.limit(out);
        }
    }

    /// The first segment leaves after none was out (`tcp_event_data_sent`).
    pub fn model_start(&mut self, config: &TcpConfig, now: Time) {
        let limited = self.board.rates().is_some_and(|rates| rates.is_limited());
        let (window, mss) = (self.congestion.window, u64::from(config.mss));
        if let Some(model) = self.congestion.model() {
            self.congestion.window = model.on_start(micros(now), limited, window, mss);
        }
    }

    /// The end of an ACK (`tcp_rate_gen`, `tcp_cong_control`); `lost` segments were newly taken for lost.
    pub fn model_ack(
        &mut self,
        config: &TcpConfig,
        now: Time,
        before: Before,
        lost: u32,
        delivered: &Delivered,
    ) {
        let whole = |span: slowpath_switch::Span| span.0 / MICROSECOND;
        let (min_rtt, srtt) = (self.rtt.min().map(whole), self.rtt.smoothed().map(whole));
        let Some(rates) = self.board.rates() else {
            return;
        };
        let sample = rates.sample(now, delivered.segments > 0, min_rtt);
        let in_order = delivered.acked_sent.filter(|_| !delivered.resent);
        let rtt = delivered.sacked_sent.or(in_order);
        let in_flight = self.pipe();
        let report = Report {
            now: micros(now),
            sample,
            acked: delivered.segments,
            losses: lost,
            in_flight,
            prior_in_flight: before.in_flight,
            rtt: rtt.map(|(_, last)| whole(P::elapsed(last, now))),
            // FLAG_ACK_MAYBE_DELAYED: of one short segment with nothing behind it.
            delayed: delivered.segments == 1
                && self.board.out() == 0
                && self.stream.una - before.una < u64::from(config.mss),
            srtt,
            held: whole(self.timers.pacing.wait(now)),
            repair: match self.phase {
                Phase::Recovery => Repair::Recovery,
                Phase::Loss => Repair::Loss,
                Phase::Open | Phase::Disorder | Phase::Reduced => Repair::None,
            },
            mss: u64::from(config.mss),
        };
        let window = self.congestion.window;
        let Some(model) = self.congestion.model() else {
            return;
        };
        self.congestion.window = model.on_ack(window, &report);
        let limits = self
            .congestion
            .model()
            .is_some_and(|model| model.limits_itself());
        if limits && let Some(rates) = self.board.rates() {
            rates.limit(in_flight);
        }
    }

    /// The retransmission timer expired.
    pub fn model_timeout(&mut self, config: &TcpConfig) {
        let totals = self.board.rates().map(|rates| rates.totals());
        if let (Some(totals), Some(model)) = (totals, self.congestion.model()) {
            model.on_timeout(totals, u64::from(config.mss));
        }
    }

    /// Losses turned out to be none.
    pub fn model_undo(&mut self) {
        let totals = self.board.rates().map(|rates| rates.totals());
        if let (Some(totals), Some(model)) = (totals, self.congestion.model()) {
            model.on_undo(totals);
        }
    }
}
