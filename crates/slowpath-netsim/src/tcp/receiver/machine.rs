// SPDX-License-Identifier: Apache-2.0
//! What both receivers have in common.

use super::policy::Policy;
use super::{ATO_MAX, ATO_MIN, Arrival, MAX_QUICK_ACKS, NEVER, Received};
use crate::tcp::config::{DelayedAck, Ecn, TcpConfig};
use crate::tcp::reassembly::Reassembly;
use crate::tcp::segment::{Ack, Segment};
use crate::tcp::window::Window;
use slowpath_switch::{Span, Time};

/// One end of a connection, as far as a [`Policy`] does not decide.
#[derive(Clone, Debug)]
pub(super) struct Machine<P> {
    /// What is expected next.
    pub next: u64,
    /// What the last ACK acknowledged.
    acked: u64,
    /// What came before its turn.
    pub early: Reassembly,
    pub window: Window,
    /// When the delayed ACK goes.
    ack_at: Time,
    /// ACKs that still go at once: with [`DelayedAck::Linux`], like the two after it.
    pub quick: u32,
    /// The present delay, 0 before the first segment.
    pub ato: Span,
    last_data: Time,
    /// Classic: CE arrived and CWR has not; DCTCP: the last segment was marked.
    echo: bool,
    /// ACKs made.
    pub acks: u64,
    pub policy: P,
}

impl<P: Policy> Machine<P> {
    /// One that has received nothing.
    pub fn new(config: &TcpConfig, policy: P) -> Self {
        Machine {
            next: 0,
            acked: 0,
            early: Reassembly::default(),
            window: Window::new(config),
            ack_at: NEVER,
            quick: 0,
            ato: Span::ZERO,
            last_data: Time::ZERO,
            echo: false,
            acks: 0,
            policy,
        }
    }

    /// Becomes a new one and keeps its memory.
    pub fn reset(&mut self, config: &TcpConfig, policy: P) {
        let mut early = core::mem::take(&mut self.early);
        early.clear();
        *self = Self::new(config, policy);
        self.early = early;
    }

    #[inline]
    pub fn on_data(
        &mut self,
        config: &TcpConfig,
        now: Time,
        segment: &Segment,
        marked: bool,
    ) -> Received {
        let mut received = Received::default();
        if segment.syn {
            let mut ack = self.acknowledge(config, now, None);
            self.policy.answered_syn(now);
            ack.syn = true;
            received.ack = Some(ack);
            return received;
        }
        if segment.len == 0 {
            // The end of a handshake.
            self.policy.established(now);
            return received;
        }
        let flipped = self.note_mark(config, now, segment, marked, &mut received);
        let start = segment.seq;
        let end = start + u64::from(segment.len);
        let had_early = !self.early.is_empty();
        let mut duplicate = None;
        if start > self.next {
            if self.early.insert(start, end) {
                duplicate = Some((start, end));
            }
        } else if end <= self.next {
            duplicate = Some((start, end));
        } else {
            self.next = end;
            if had_early {
                self.next = self.early.advance(end);
            }
            self.window.on_read(config, now, segment.echo, self.next);
        }
        let arrival = Arrival {
            start,
            end,
            push: segment.push,
            cwr: segment.cwr,
            flipped,
            had_early,
            duplicate,
        };
        received.ack = P::respond(self, config, now, &arrival);
        received
    }

    /// Notes CE; true if DCTCP's echo changed (RFC 8257 section 3.2).
    #[inline]
    fn note_mark(
        &mut self,
        config: &TcpConfig,
        now: Time,
        segment: &Segment,
        marked: bool,
        received: &mut Received,
    ) -> bool {
        match config.ecn {
            Ecn::Off => false,
            Ecn::Classic => {
                if segment.cwr {
                    self.echo = false;
                }
                self.echo |= marked;
                false
            }
            Ecn::Dctcp => {
                let flipped = marked != self.echo;
                if flipped {
                    if self.next > self.acked {
                        received.before = Some(self.acknowledge(config, now, None));
                    }
                    self.echo = marked;
                }
                flipped
            }
        }
    }

    /// Half the window in segments, the number of quick ACKs (`tcp_incr_quickack`).
    pub fn half_window(&self, config: &TcpConfig) -> u32 {
        let half = self.window.size() / (2 * u32::from(config.mss));
        half.clamp(2, MAX_QUICK_ACKS)
    }

    /// Linux: how long to wait follows the gaps between segments (`tcp_event_data_recv`).
    #[inline]
    pub fn pace(&mut self, config: &TcpConfig, now: Time) {
        if config.delayed_ack != DelayedAck::Linux {
            return;
        }
        let gap = now.since(self.last_data);
        self.last_data = now;
        if self.ato == Span::ZERO {
            // The first segment: quick ACKs for half the window.
            self.quick = P::first_quick(self.half_window(config));
            self.ato = ATO_MIN;
        } else if gap.0 <= ATO_MIN.0 / 2 {
            self.ato = Span(self.ato.0 / 2 + ATO_MIN.0 / 2);
        } else if gap < self.ato {
            self.ato = Span((self.ato.0 / 2 + gap.0).min(ATO_MAX.0));
        }
    }

    /// Whether an ACK is due though nothing is out of order: of more than a full segment, or a
    /// quick one.
    #[inline]
    pub fn owes_ack(&self, config: &TcpConfig) -> bool {
        self.next - self.acked > u64::from(config.mss)
            || match config.delayed_ack {
                DelayedAck::Off => true,
                DelayedAck::Fixed(_) => false,
                DelayedAck::Linux => self.quick > 0,
            }
    }

    /// The ACK may wait.
    #[inline]
    pub fn delay_ack(&mut self, config: &TcpConfig, now: Time) {
        if self.ack_at != NEVER {
            return;
        }
        let wait = match config.delayed_ack {
            DelayedAck::Off => Span::ZERO,
            DelayedAck::Fixed(span) => span,
            DelayedAck::Linux => {
                let wait = Span(self.ato.0.clamp(ATO_MIN.0, ATO_MAX.0));
                self.policy.delay(config, wait)
            }
        };
        self.ack_at = self.policy.expiry(now, wait);
    }

    #[inline]
    pub fn acknowledge(
        &mut self,
        config: &TcpConfig,
        now: Time,
        duplicate: Option<(u64, u64)>,
    ) -> Ack {
        self.acked = self.next;
        self.ack_at = NEVER;
        self.quick = self.quick.saturating_sub(1);
        self.acks += 1;
        self.policy.acknowledged();
        Ack {
            ack: self.next,
            window: self.window.size(),
            ece: self.echo,
            syn: false,
            stamp: now,
            sack: P::blocks(self, config, duplicate),
        }
    }

    #[inline]
    pub fn deadline(&self) -> Option<Time> {
        let at = self.ack_at.min(self.policy.deadline());
        (at != NEVER).then_some(at)
    }

    pub fn on_deadline(&mut self, config: &TcpConfig, now: Time) -> Option<Ack> {
        if self.deadline().is_none_or(|at| at > now) {
            return None;
        }
        if self.ack_at <= now {
            P::delay_expired(self);
        }
        Some(self.acknowledge(config, now, None))
    }
}
