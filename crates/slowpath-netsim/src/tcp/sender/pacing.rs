// SPDX-License-Identifier: Apache-2.0
//! Pacing: what may leave is spread over time, as Linux does without a queueing discipline that does it
//! (`tcp_pacing_check`, `tcp_update_skb_after_send`).

use super::machine::Machine;
use super::policy::Policy;
use crate::tcp::config::TcpConfig;
use slowpath_switch::{Span, Time};

const PER_SECOND: u128 = 1_000_000_000_000;
/// Picoseconds of a microsecond.
pub(super) const MICROSECOND: u64 = 1_000_000;
/// So many segments leave unpaced, as `sch_fq` did it first.
const UNPACED: u64 = 10;

/// When the next segment may leave.
#[derive(Clone, Debug)]
pub(super) struct Pacing {
    is_on: bool,
    /// When (`tcp_wstamp_ns`).
    next: Time,
    /// Something waits for that, and for nothing else.
    held: bool,
}

impl Pacing {
    pub fn new(config: &TcpConfig) -> Self {
        Pacing {
            is_on: config.paces(),
            next: Time::ZERO,
            held: false,
        }
    }

    pub fn is_on(&self) -> bool {
        self.is_on
    }

    /// Whether nothing may leave yet; it is noted that something would.
    #[inline]
    pub fn holds(&mut self, now: Time) -> bool {
        self.held = now < self.next;
        self.held
    }

    #[inline]
    pub fn is_held(&self) -> bool {
        self.held
    }

    /// When what is held may leave; `None` if nothing is.
    pub fn held_until(&self) -> Option<Time> {
        self.held.then_some(self.next)
    }

    /// The time has come.
    pub fn release(&mut self) {
        self.held = false;
    }

    /// How long nothing may leave yet.
    pub fn wait(&self, now: Time) -> Span {
        if self.next > now {
            self.next - now
        } else {
            Span::ZERO
        }
    }
}

impl<P: Policy> Machine<P> {
    /// Bytes a second; `None` before the first round trip, without a greatest rate.
    pub fn pacing_rate(&mut self, config: &TcpConfig) -> Option<u64> {
        let most = config
            .max_pacing_rate
            .map(|rate| rate.bits_per_second() / 8);
        let (window, mss) = (self.congestion.window, u64::from(config.mss));
        let srtt = self.rtt.precise();
        let rate = if let Some(model) = self.congestion.model() {
            let micros = srtt.map(|srtt| srtt.0 / MICROSECOND);
            Some(model.pacing_rate(window, micros, mss))
        } else {
            srtt.map(|srtt| self.window_rate(config, srtt))
        };
        match (rate, most) {
            (Some(rate), Some(most)) => Some(rate.min(most)),
            (rate, most) => rate.or(most),
        }
    }

    /// `tcp_update_pacing_rate`: twice the window a round trip in slow start, 1.2 times later.
    fn window_rate(&self, config: &TcpConfig, srtt: Span) -> u64 {
        let window = self.congestion.window;
        let percent = if window < self.congestion.ssthresh / 2 {
            200
        } else {
            120
        };
        let out = u128::from(window.max(self.board.out()));
        let srtt = u128::from(srtt.0.max(1));
        let rate = out * u128::from(config.mss) * percent * PER_SECOND / (100 * srtt);
        rate.min(u128::from(u64::MAX)) as u64
    }

    /// That much left in one piece: the next waits for as long as the rate says, less what the last
    /// one came late.
    pub fn pace(&mut self, config: &TcpConfig, now: Time, bytes: u64) {
        if !self.timers.pacing.is_on {
            return;
        }
        let before = self.timers.pacing.next;
        self.timers.pacing.next = before.max(now);
        let Some(rate) = self.pacing_rate(config).filter(|rate| *rate > 0) else {
            return;
        };
        if self.counts.segments < UNPACED {
            return;
        }
        let wait = u128::from(bytes) * PER_SECOND / u128::from(rate);
        let wait = wait.min(u128::from(u64::MAX / 2)) as u64;
        let late = (self.timers.pacing.next - before).0;
        self.timers.pacing.next += Span(wait - late.min(wait / 2));
    }
}
