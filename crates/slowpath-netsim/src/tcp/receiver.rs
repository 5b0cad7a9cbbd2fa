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
    /// With a kernel's tick.
    held: Held,
}

/// Acknowledgments that Linux holds back while something is missing, as many say the same
/// (`__tcp_ack_snd_check`).
#[derive(Clone, Copy, Debug)]
struct Held {
    /// How many are held back, and when they go as one.
    count: u32,
    at: Time,
    /// What was expected next when the first of [`Held::sent`] went.
    next: u64,
    sent: u32,
    /// When the SYN was answered, and how long the answer to that took.
    answered: Time,
    handshake: Option<Span>,
    /// When [`Held::window_end`] became a window from what was expected next then, and how
    /// long a window took (`tcp_rcv_rtt_measure`).
    window_start: Time,
    window_end: u64,
    window_time: Option<Span>,
}

impl Held {
    const NONE: Self = Held {
        count: 0,
        at: NEVER,
        next: 0,
        sent: 0,
        answered: Time::ZERO,
        handshake: None,
        window_start: Time::ZERO,
        window_end: 0,
        window_time: None,
    };

    /// A window's time is what Linux takes for a round trip without timestamps.
    fn note_window(&mut self, now: Time, next: u64, window: u32) {
        if self.window_end == 0 || next >= self.window_end {
            if self.window_end > 0 {
                self.window_time = Some(now.since(self.window_start));
            }
            self.window_start = now;
            self.window_end = next + u64::from(window);
        }
    }

    /// How long acknowledgments are held back: a twentieth of a round trip, if one is known.
    fn delay(&self) -> Span {
        let Some(window) = self.window_time else {
            return Span::ZERO;
        };
        let rtt = self.handshake.map_or(window, |rtt| rtt.min(window));
        Span(rtt.0 / HELD_SHARE).min(HELD_MOST)
    }
}

/// The first acknowledgments of a gap all go (`TCP_FASTRETRANS_THRESH`).
const HELD_AFTER: u32 = 3;
/// `tcp_comp_sack_nr`.
const HELD_COUNT: u32 = 44;
/// `tcp_comp_sack_delay_ns`.
const HELD_MOST: Span = Span::from_millis(1);
const HELD_SHARE: u64 = 20;

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
            held: Held::NONE,
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
            self.held.answered = now;
            ack.syn = true;
            return Received {
                before: None,
                ack: Some(ack),
            };
        }
        let mut received = Received::default();
        if segment.len == 0 {
            // The end of a handshake.
            self.held.handshake = Some(now.since(self.held.answered));
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
        if config.kernel_tick.is_some() {
            received.ack = self.as_linux(config, now, segment, flipped, had_early, duplicate);
            return received;
        }
        self.pace(config, now);
        // RFC 5681 section 4.2: at once when out of order, or when it fills a gap.
        let at_once = flipped || duplicate.is_some() || had_early || !self.early.is_empty();
        let second = self.next - self.acked > u64::from(config.mss);
        if at_once || second || self.is_quick(config) {
            received.ack = Some(self.acknowledge(config, now, duplicate));
        } else if self.ack_at == NEVER {
            self.ack_at = config.expiry(now, self.delay(config));
        }
        received
    }

    /// Whether Linux acknowledges a segment, which was noted, at once.
    fn as_linux(
        &mut self,
        config: &TcpConfig,
        now: Time,
        segment: &Segment,
        flipped: bool,
        had_early: bool,
        duplicate: Option<(u64, u64)>,
    ) -> Option<Ack> {
        let end = segment.seq + u64::from(segment.len);
        let old = duplicate.is_some() && end <= self.next;
        let has_early = !self.early.is_empty();
        if segment.seq > self.next {
            self.early.remember(segment.seq, end);
        } else if old {
            // tcp_data_queue: tcp_enter_quickack_mode.
            self.quick = self.quick.max(self.most_quick(config));
            self.ato = ATO_MIN;
        } else {
            self.early.forget(self.next);
            self.held.note_window(now, self.next, self.window.size());
            self.pace(config, now);
        }
        // Where an application's read finds the end of what was handed down at once
        // (tcp_measure_rcv_mss, tcp_cleanup_rbuf).
        let pushed = segment.push
            && end <= self.next
            && !has_early
            && config.delayed_ack == DelayedAck::Linux;
        let at_once = flipped
            || old
            || pushed
            // Where the sender has just reduced its window (tcp_ecn_accept_cwr).
            || segment.cwr
            || had_early && !has_early
            || self.next - self.acked > u64::from(config.mss)
            || self.is_quick(config);
        if !at_once && !has_early {
            if self.ack_at == NEVER {
                self.ack_at = config.expiry(now, self.delay(config));
            }
            return None;
        }
        if !at_once && self.held.count < HELD_COUNT {
            if self.held.next != self.next {
                self.held.next = self.next;
                self.held.sent = 0;
            }
            if self.held.sent < HELD_AFTER {
                self.held.sent += 1;
            } else if self.held.delay() > Span::ZERO {
                self.held.count += 1;
                self.held.at = self.held.at.min(now + self.held.delay());
                return None;
            }
        }
        Some(self.acknowledge(config, now, duplicate))
    }

    /// Quick acknowledgments: for half the window (`tcp_incr_quickack`).
    fn most_quick(&self, config: &TcpConfig) -> u32 {
        let half = self.window.size() / (2 * u32::from(config.mss));
        half.clamp(2, MAX_QUICK_ACKS)
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
            self.quick = self.most_quick(config);
            if config.kernel_tick.is_some() {
                // It finds that its buffer holds more than it thought (tcp_grow_window).
                self.quick |= 1;
            }
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
            DelayedAck::Linux => {
                let wait = Span(self.ato.0.clamp(ATO_MIN.0, ATO_MAX.0));
                match config.kernel_tick {
                    // A tick less than the least timeout (tcp_delack_max).
                    Some(tick) => {
                        let ticks = (config.rto_min.0 / tick.0).max(2) - 1;
                        wait.min(Span(ticks * tick.0))
                    }
                    None => wait,
                }
            }
        }
    }

    #[inline]
    fn acknowledge(&mut self, config: &TcpConfig, now: Time, duplicate: Option<(u64, u64)>) -> Ack {
        self.acked = self.next;
        self.ack_at = NEVER;
        self.quick = self.quick.saturating_sub(1);
        self.acks += 1;
        self.held.count = 0;
        self.held.at = NEVER;
        let kernel = config.kernel_tick.is_some();
        let mut sack = SackBlocks::with_room(config.sack_blocks());
        if config.sack {
            if let Some((start, end)) = duplicate {
                // RFC 2883 section 4: first, and once.
                sack.duplicate = true;
                sack.push(start, end);
            }
            if kernel {
                self.early.remembered(&mut sack);
            } else if !self.early.is_empty() {
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
        let at = self.ack_at.min(self.held.at);
        (at != NEVER).then_some(at)
    }

    /// The time of [`Receiver::deadline`] has come.
    pub fn on_deadline(&mut self, config: &TcpConfig, now: Time) -> Option<Ack> {
        if self.ack_at.min(self.held.at) > now {
            return None;
        }
        if self.ack_at <= now && config.kernel_tick.is_some() {
            // tcp_delack_timer_handler.
            self.ato = Span((self.ato.0 * 2).min(ATO_MAX.0));
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
