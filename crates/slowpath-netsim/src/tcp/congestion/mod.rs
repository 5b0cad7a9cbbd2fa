// SPDX-License-Identifier: Apache-2.0
//! The congestion window: how it grows on ACKs and what a loss or a mark leaves of it.

mod bbr;
mod cubic;
mod dctcp;
mod hystart;
mod linux_cubic;

use super::config::{Algorithm, MAX_WINDOW, TcpConfig};
use bbr::Bbr;
pub use bbr::Mode;
pub(in crate::tcp) use bbr::{Repair, Report};
use cubic::Cubic;
use dctcp::Dctcp;
use linux_cubic::LinuxCubic;
use slowpath_switch::{Span, Time};

/// RFC 5681 section 3.1: never below 2 segments.
const MIN_SSTHRESH: u32 = 2;
/// Picoseconds.
const MICROSECOND: u64 = 1_000_000;

/// What an ACK gives the growth law.
#[derive(Clone, Copy, Debug)]
pub struct Growth {
    /// When it came.
    pub now: Time,
    /// How many segments it acknowledged.
    pub acked: u32,
    /// The round-trip time it measured.
    pub rtt: Option<Span>,
    /// The least round-trip time so far.
    pub min_rtt: Option<Span>,
    /// First unacknowledged offset.
    pub una: u64,
    /// Next offset to be sent.
    pub next: u64,
    /// Whether the window, and nothing else, held the sender back.
    pub limited: bool,
    /// The most segments that were out in the last round trip.
    pub most_out: u32,
}

/// Congestion window and threshold, in segments, and the algorithm that moves them.
#[derive(Clone, Debug)]
pub struct Congestion {
    /// The window.
    pub window: u32,
    /// Slow start ends here.
    pub ssthresh: u32,
    /// Segments acknowledged towards the next increase.
    count: u32,
    law: Law,
}

/// What each algorithm remembers.
#[derive(Clone, Debug)]
enum Law {
    Fixed,
    NewReno,
    Cubic(Cubic),
    LinuxCubic(Box<LinuxCubic>),
    Dctcp(Dctcp),
    Bbr(Box<Bbr>),
}

impl Congestion {
    /// At the start of a connection.
    pub fn new(config: &TcpConfig) -> Self {
        Congestion {
            window: config.initial_window,
            ssthresh: config.initial_ssthresh.max(MIN_SSTHRESH),
            count: 0,
            law: match config.algorithm {
                Algorithm::Fixed => Law::Fixed,
                Algorithm::NewReno => Law::NewReno,
                Algorithm::Cubic { hystart } => match config.kernel_tick {
                    Some(tick) => Law::LinuxCubic(Box::new(LinuxCubic::new(tick, hystart))),
                    None => Law::Cubic(Cubic::new(hystart)),
                },
                Algorithm::Dctcp => Law::Dctcp(Dctcp::new()),
                Algorithm::Bbr => {
                    let tick = config.kernel_tick.map_or(1, |tick| tick.0 / MICROSECOND);
                    Law::Bbr(Box::new(Bbr::new(tick)))
                }
            },
        }
    }

    /// Whether in slow start.
    #[inline]
    pub fn in_slow_start(&self) -> bool {
        self.window < self.ssthresh
    }

    /// DCTCP's estimate of how much is marked, of 1024; `None` for the others.
    pub fn alpha(&self) -> Option<u32> {
        match &self.law {
            Law::Dctcp(dctcp) => Some(dctcp.alpha()),
            _ => None,
        }
    }

    /// What BBR probes for; `None` for the others.
    pub fn mode(&self) -> Option<Mode> {
        match &self.law {
            Law::Bbr(bbr) => Some(bbr.mode()),
            _ => None,
        }
    }

    /// The model of the path, of an algorithm that has one: that decides about the window at each ACK,
    /// and losses and marks do not.
    #[inline]
    pub(super) fn model(&mut self) -> Option<&mut Bbr> {
        match &mut self.law {
            Law::Bbr(bbr) => Some(bbr),
            _ => None,
        }
    }

    /// Whether a model of the path decides about the window.
    #[inline]
    pub(super) fn is_modelled(&self) -> bool {
        matches!(self.law, Law::Bbr(_))
    }

    /// Segments were delivered, with or without ECN-Echo: before anything else about an
    /// ACK, as its reaction needs what it says.
    #[inline]
    pub fn delivered(&mut self, segments: u32, echo: bool, una: u64, next: u64) {
        if let Law::Dctcp(dctcp) = &mut self.law {
            dctcp.delivered(segments, echo, una, next);
        }
    }

    /// An acknowledgment measured a round trip.
    #[inline]
    pub fn measured(&mut self, now: Time, rtt: Span) {
        if let Law::LinuxCubic(cubic) = &mut self.law {
            cubic.measured(now, rtt);
        }
    }

    /// An ACK outside recovery that may raise the window.
    #[inline]
    pub fn grow(&mut self, config: &TcpConfig, growth: &Growth) {
        let mut acked = growth.acked;
        if let (Law::Cubic(cubic), Some(rtt)) = (&mut self.law, growth.rtt)
            && self.window < self.ssthresh
            && cubic.end_slow_start(self.window, growth, rtt)
        {
            self.ssthresh = self.window;
        }
        if let (Law::LinuxCubic(cubic), Some(rtt)) = (&mut self.law, growth.rtt)
            && self.window < self.ssthresh
            && cubic.end_slow_start(self.window, growth, rtt)
        {
            self.ssthresh = self.window;
        }
        if matches!(self.law, Law::Fixed | Law::Bbr(_)) {
            return;
        }
        if self.window < self.ssthresh {
            // Linux (tcp_is_cwnd_limited): while slow start uses at least half of the
            // window it may grow.
            if !growth.limited && self.window >= growth.most_out.saturating_mul(2) {
                return;
            }
            let most = config.slow_start_limit.unwrap_or(u32::MAX);
            let step = acked.min(most).min(self.ssthresh - self.window);
            self.window = (self.window + step).min(MAX_WINDOW);
            // What goes beyond the threshold counts there. With a limit it does not.
            acked = if step < acked && most == u32::MAX {
                acked - step
            } else {
                0
            };
            if acked == 0 {
                return;
            }
        } else if !growth.limited {
            return;
        }
        let per_segment = match &mut self.law {
            Law::Cubic(cubic) => cubic.acks_per_segment(self.window, acked, growth),
            Law::LinuxCubic(cubic) => cubic.acks_per_segment(self.window, acked, growth),
            _ => self.window,
        };
        self.additive(per_segment, acked);
    }

    /// One segment more for every `per_segment` acknowledged. Where the rate has just
    /// fallen, what was counted under the old one gives one segment, not many
    /// (`tcp_cong_avoid_ai`).
    #[inline]
    fn additive(&mut self, per_segment: u32, acked: u32) {
        if self.count >= per_segment {
            self.count = 0;
            self.window += 1;
        }
        self.count += acked;
        if self.count >= per_segment {
            let step = self.count / per_segment;
            self.count -= step * per_segment;
            self.window += step;
        }
        self.window = self.window.min(MAX_WINDOW);
    }

    /// Segments were lost: the threshold falls. The window is the caller's to move.
    pub fn on_loss(&mut self) {
        let window = self.window;
        self.ssthresh = match &mut self.law {
            Law::Fixed => return,
            Law::Bbr(bbr) => return bbr.save_window(window),
            Law::Cubic(cubic) => cubic.reduced(window),
            Law::LinuxCubic(cubic) => cubic.reduced(window),
            // RFC 8257 section 3.4: to a loss DCTCP reacts like any other.
            Law::NewReno | Law::Dctcp(_) => window / 2,
        }
        .max(MIN_SSTHRESH);
        self.count = 0;
    }

    /// A window with marks in it: the threshold falls.
    pub fn on_mark(&mut self) {
        match &self.law {
            Law::Dctcp(dctcp) => {
                self.ssthresh = dctcp.reduced(self.window).max(MIN_SSTHRESH);
                self.count = 0;
            }
            _ => self.on_loss(),
        }
    }

    /// The retransmission timer expired; [`Congestion::on_loss`] came before.
    pub fn on_timeout(&mut self) {
        self.count = 0;
        match &mut self.law {
            Law::Cubic(cubic) => cubic.forget(),
            Law::LinuxCubic(cubic) => cubic.forget(),
            _ => {}
        }
    }

    /// The sender had nothing to send for `idle` and begins again.
    pub fn on_restart(&mut self, config: &TcpConfig, now: Time, idle: Span, timeout: Span) {
        match &mut self.law {
            Law::Cubic(cubic) => cubic.shift(idle),
            Law::LinuxCubic(cubic) => cubic.shift(now, idle),
            _ => {}
        }
        if !config.slow_start_after_idle
            || idle <= timeout
            || matches!(self.law, Law::Fixed | Law::Bbr(_))
        {
            return;
        }
        // tcp_cwnd_restart, RFC 2861: half for each timeout that passed; the threshold
        // remembers three quarters of what was.
        let restart = config.initial_window.min(self.window);
        self.ssthresh = self.ssthresh.max(self.window / 4 * 3);
        let halvings = (idle.0 / timeout.0.max(1)).min(31);
        self.window = (self.window >> halvings).max(restart);
        self.count = 0;
    }
}
