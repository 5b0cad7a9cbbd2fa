// SPDX-License-Identifier: Apache-2.0
//! The receiver of a Linux host ([`TcpConfig::kernel_tick`]): timers that count ticks, ACKs held
//! back while something is missing, and remembered SACK blocks.

use super::machine::Machine;
use super::policy::Policy;
use super::{ATO_MAX, ATO_MIN, Arrival, NEVER};
use crate::tcp::config::{DelayedAck, TcpConfig};
use crate::tcp::options;
use crate::tcp::segment::{Ack, MAX_SACK_BLOCKS, SackBlocks};
use crate::tcp::tick::Tick;
use slowpath_switch::{Span, Time};

/// The first acknowledgments of a gap all go (`TCP_FASTRETRANS_THRESH`).
const HELD_AFTER: u32 = 3;
/// `tcp_comp_sack_nr`.
const HELD_COUNT: u32 = 44;
/// `tcp_comp_sack_delay_ns`.
const HELD_MOST: Span = Span::from_millis(1);
const HELD_SHARE: u64 = 20;

/// What a Linux receiver has beside the common state.
#[derive(Clone, Debug)]
pub(super) struct Linux {
    tick: Tick,
    held: AckCompression,
    reported: Reported,
}

/// Acknowledgments that Linux holds back while something is missing, as many say the same
/// (`__tcp_ack_snd_check`).
#[derive(Clone, Copy, Debug)]
struct AckCompression {
    /// How many are held back, and when they go as one.
    count: u32,
    at: Time,
    /// What was expected next when the first of [`AckCompression::sent`] went.
    next: u64,
    sent: u32,
    /// When the SYN was answered, and how long the answer to that took.
    answered: Time,
    handshake: Option<Span>,
    /// When [`AckCompression::window_end`] became a window from what was expected next then, and how
    /// long a window took (`tcp_rcv_rtt_measure`).
    window_start: Time,
    window_end: u64,
    window_time: Option<Span>,
}

impl AckCompression {
    const NONE: Self = AckCompression {
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

    /// Holds one more back, while `next` is expected; false if it goes.
    fn hold(&mut self, now: Time, next: u64) -> bool {
        if self.count >= HELD_COUNT {
            return false;
        }
        if self.next != next {
            self.next = next;
            self.sent = 0;
        }
        if self.sent < HELD_AFTER {
            self.sent += 1;
            return false;
        }
        let delay = self.delay();
        if delay == Span::ZERO {
            return false;
        }
        self.count += 1;
        self.at = self.at.min(now + delay);
        true
    }
}

/// The ranges beyond the next expected offset that Linux reports, the latest first
/// (`tp->selective_acks`).
#[derive(Clone, Debug, Default)]
struct Reported(Vec<(u64, u64)>);

impl Reported {
    /// Adds a range (`tcp_sack_new_ofo_skb`): four are kept, and one that grows becomes the
    /// latest.
    fn add(&mut self, start: u64, end: u64) {
        let touches = |range: &(u64, u64)| start <= range.1 && range.0 <= end;
        let mut latest = (start, end);
        if let Some(at) = self.0.iter().position(touches) {
            let known = self.0.remove(at);
            latest = (known.0.min(start), known.1.max(end));
            // tcp_sack_maybe_coalesce.
            self.0.retain(|range| {
                let disjoint = latest.1 < range.0 || range.1 < latest.0;
                if !disjoint {
                    latest = (latest.0.min(range.0), latest.1.max(range.1));
                }
                disjoint
            });
        } else if self.0.len() == MAX_SACK_BLOCKS {
            self.0.pop();
        }
        self.0.insert(0, latest);
    }

    /// Drops what `next` covers (`tcp_sack_remove`).
    fn drop_covered(&mut self, next: u64) {
        self.0.retain(|range| next < range.0);
    }
}

impl Linux {
    /// One of a host with that tick.
    pub fn new(tick: Tick) -> Self {
        Linux {
            tick,
            held: AckCompression::NONE,
            reported: Reported::default(),
        }
    }
}

impl Policy for Linux {
    fn expiry(&self, now: Time, wait: Span) -> Time {
        self.tick.expiry(now, wait)
    }

    /// A tick less than the least timeout (`tcp_delack_max`).
    fn delay(&self, config: &TcpConfig, wait: Span) -> Span {
        let tick = self.tick.0.0;
        let ticks = (config.rto_min.0 / tick).max(2) - 1;
        wait.min(Span(ticks * tick))
    }

    /// The first segment finds that its buffer holds more than it thought (`tcp_grow_window`).
    fn first_quick(half_window: u32) -> u32 {
        half_window | 1
    }

    fn answered_syn(&mut self, now: Time) {
        self.held.answered = now;
    }

    fn established(&mut self, now: Time) {
        self.held.handshake = Some(now.since(self.held.answered));
    }

    fn respond(
        receiver: &mut Machine<Self>,
        config: &TcpConfig,
        now: Time,
        arrival: &Arrival,
    ) -> Option<Ack> {
        let next = receiver.next;
        let old = arrival.duplicate.is_some() && arrival.end <= next;
        let has_early = !receiver.early.is_empty();
        if arrival.start > next {
            receiver.policy.reported.add(arrival.start, arrival.end);
            receiver.note_early_start();
        } else if old {
            // tcp_data_queue: tcp_enter_quickack_mode.
            receiver.quick = receiver.quick.max(receiver.half_window(config));
            receiver.ato = ATO_MIN;
        } else {
            let window = receiver.window.size();
            receiver.policy.reported.drop_covered(next);
            receiver.policy.held.note_window(now, next, window);
            receiver.pace(config, now);
        }
        // Where an application's read finds the end of what was handed down at once
        // (tcp_measure_rcv_mss, tcp_cleanup_rbuf).
        let pushed = arrival.push
            && arrival.end <= next
            && !has_early
            && config.delayed_ack == DelayedAck::Linux;
        let at_once = arrival.flipped
            || old
            || pushed
            // Where the sender has just reduced its window (tcp_ecn_accept_cwr).
            || arrival.cwr
            || arrival.had_early && !has_early
            || receiver.owes_ack(config);
        if !at_once && !has_early {
            receiver.delay_ack(config, now);
            return None;
        }
        if !at_once && receiver.policy.held.hold(now, next) {
            return None;
        }
        Some(receiver.acknowledge(config, now, arrival.duplicate))
    }

    fn blocks(
        receiver: &Machine<Self>,
        config: &TcpConfig,
        duplicate: Option<(u64, u64)>,
    ) -> SackBlocks {
        let mut sack = SackBlocks::with_capacity(options::sack_blocks(config));
        if config.sack {
            sack.report_duplicate(duplicate);
            for range in &receiver.policy.reported.0 {
                sack.push(range.0, range.1);
            }
        }
        sack
    }

    fn acknowledged(&mut self) {
        self.held.count = 0;
        self.held.at = NEVER;
    }

    fn deadline(&self) -> Time {
        self.held.at
    }

    /// `tcp_delack_timer_handler`.
    fn delay_expired(receiver: &mut Machine<Self>) {
        receiver.ato = Span((receiver.ato.0 * 2).min(ATO_MAX.0));
    }
}

impl Machine<Linux> {
    /// Where the very first segment comes out of order, the one quick ACK of the window that grows
    /// for it (`tcp_grow_window`) is the last: `tcp_event_data_recv` no longer takes the first in
    /// order for the first (`tcp_dec_quickack_mode` has set the delay).
    fn note_early_start(&mut self) {
        if self.ato == Span::ZERO {
            self.ato = ATO_MIN;
        }
    }
}
