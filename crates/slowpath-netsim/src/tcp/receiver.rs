// SPDX-License-Identifier: Apache-2.0
//! The receiving end.

use super::config::{DelayedAck, Ecn, TcpConfig};
use super::reassembly::Reassembly;
use super::segment::{Ack, SackBlocks, Segment};
use super::window::Window;
use slowpath_switch::{Span, Time};

/// No deadline.
const NEVER: Time = Time::MAX;
/// `TCP_ATO_MIN` and `TCP_DELACK_MIN`.
const ATO_MIN: Span = Span::from_millis(40);
/// `TCP_DELACK_MAX`.
const ATO_MAX: Span = Span::from_millis(200);
/// `TCP_MAX_QUICKACKS`.
const MAX_QUICK_ACKS: u32 = 16;

/// What came of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// To be sent first: DCTCP acknowledges what came before a change of marks apart.
    pub before: Option<Ack>,
    /// To be sent.
    pub ack: Option<Ack>,
}

/// The receiving end of a connection. See the [module](super) for how it is driven.
#[derive(Clone, Debug)]
pub struct Receiver {
    next: u64,
    /// What the last ACK acknowledged.
    acked: u64,
    early: Reassembly,
    window: Window,
    ack_at: Time,
    /// Linux: ACKs that still go at once.
    quick: u32,
    /// Linux: the present delay, 0 before the first segment.
    ato: Span,
    last_data: Time,
    /// Classic: CE seen and CWR not; DCTCP: the last segment was marked.
    echo: bool,
    acks: u64,
}

impl Receiver {
    /// One that has received nothing.
    pub fn new(config: &TcpConfig) -> Self {
        Receiver {
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
        }
    }

    /// Becomes a new one and keeps its memory.
    pub fn reset(&mut self, config: &TcpConfig) {
        let mut early = core::mem::take(&mut self.early);
        early.clear();
        *self = Receiver::new(config);
        self.early = early;
    }

    /// What a sender may send before the first ACK.
    pub fn offered(config: &TcpConfig) -> u32 {
        Window::new(config).size()
    }

    /// A segment arrived, `marked` with CE or not.
    #[inline]
    pub fn on_data(
        &mut self,
        config: &TcpConfig,
        now: Time,
        segment: &Segment,
        marked: bool,
    ) -> Received {
        if segment.syn {
            let mut ack = self.acknowledge(config, now, None);
            ack.syn = true;
            return Received {
                before: None,
                ack: Some(ack),
            };
        }
        let mut received = Received::default();
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
        self.pace(config, now);
        // RFC 5681 section 4.2: at once when out of order, or when it fills a gap.
        // Linux also where the sender has just reduced its window (tcp_ecn_accept_cwr).
        let reduced = segment.cwr && config.kernel_tick.is_some();
        // And where an application's read finds the end of what was handed down at once
        // (tcp_measure_rcv_mss, tcp_cleanup_rbuf).
        let pushed = segment.push && end <= self.next && config.delayed_ack == DelayedAck::Linux;
        let at_once = flipped
            || reduced
            || pushed
            || duplicate.is_some()
            || had_early
            || !self.early.is_empty();
        let second = self.next - self.acked > u64::from(config.mss);
        if at_once || second || self.is_quick(config) {
            received.ack = Some(self.acknowledge(config, now, duplicate));
        } else if self.ack_at == NEVER {
            self.ack_at = config.expiry(now, self.delay(config));
        }
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

    /// Linux: how long to wait follows the gaps between segments (`tcp_event_data_recv`).
    #[inline]
    fn pace(&mut self, config: &TcpConfig, now: Time) {
        if config.delayed_ack != DelayedAck::Linux {
            return;
        }
        let gap = now.since(self.last_data);
        self.last_data = now;
        if self.ato == Span::ZERO {
            // The first segment: quick ACKs for half the window.
            let half = self.window.size() / (2 * u32::from(config.mss));
            self.quick = half.clamp(2, MAX_QUICK_ACKS);
            self.ato = ATO_MIN;
        } else if gap.0 <= ATO_MIN.0 / 2 {
            self.ato = Span(self.ato.0 / 2 + ATO_MIN.0 / 2);
        } else if gap < self.ato {
            self.ato = Span((self.ato.0 / 2 + gap.0).min(ATO_MAX.0));
        }
    }

    #[inline]
    fn is_quick(&self, config: &TcpConfig) -> bool {
        match config.delayed_ack {
            DelayedAck::Off => true,
            DelayedAck::Fixed(_) => false,
            DelayedAck::Linux => self.quick > 0,
        }
    }

    fn delay(&self, config: &TcpConfig) -> Span {
        match config.delayed_ack {
            DelayedAck::Off => Span::ZERO,
            DelayedAck::Fixed(span) => span,
            DelayedAck::Linux => Span(self.ato.0.clamp(ATO_MIN.0, ATO_MAX.0)),
        }
    }

    #[inline]
    fn acknowledge(&mut self, config: &TcpConfig, now: Time, duplicate: Option<(u64, u64)>) -> Ack {
        self.acked = self.next;
        self.ack_at = NEVER;
        self.quick = self.quick.saturating_sub(1);
        self.acks += 1;
        let mut sack = SackBlocks::default();
        if config.sack {
            if let Some((start, end)) = duplicate {
                // RFC 2883 section 4: first, and once.
                sack.duplicate = true;
                sack.push(start, end);
            }
            if !self.early.is_empty() {
                self.early.blocks(&mut sack);
            }
        }
        Ack {
            ack: self.next,
            window: self.window.size(),
            ece: self.echo,
            syn: false,
            stamp: now,
            sack,
        }
    }

    /// When [`Receiver::on_deadline`] is due.
    #[inline]
    pub fn deadline(&self) -> Option<Time> {
        (self.ack_at != NEVER).then_some(self.ack_at)
    }

    /// The time of [`Receiver::deadline`] has come.
    pub fn on_deadline(&mut self, config: &TcpConfig, now: Time) -> Option<Ack> {
        if self.ack_at > now {
            return None;
        }
        Some(self.acknowledge(config, now, None))
    }

    /// What arrived in order: the next expected offset.
    #[inline]
    pub fn next(&self) -> u64 {
        self.next
    }

    /// ACKs sent.
    pub fn acks(&self) -> u64 {
        self.acks
    }
}
