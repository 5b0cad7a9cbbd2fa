// SPDX-License-Identifier: Apache-2.0
//! Where Linux's sender does something else than the RFCs say.
//!
//! [`Machine`] is what both have in common. It asks its policy at each point where they differ;
//! the compiler makes one machine of each policy, so that no test of the kind remains in it.

use super::machine::{Machine, Setup};
use crate::tcp::config::TcpConfig;
use crate::tcp::scoreboard::Delivered;
use crate::tcp::segment::Segment;
use slowpath_switch::{Span, Time};

/// A kind of sender: [`Rfc`](super::rfc::Rfc) or [`Linux`](super::linux::Linux).
pub(super) trait Policy: Sized {
    /// What round-trip times are counted in, picoseconds.
    const RTT_UNIT: u64;
    /// What an ACK acknowledges in order and by SACK at once came in order (`prior_fack`).
    const JUDGES_ORDER_BY_EARLIER_ACKS: bool;

    /// A recovery that begins while the window falls for a mark ends where that would have ended
    /// (`tcp_enter_recovery` leaves `high_seq` as it is).
    const RECOVERY_KEEPS_POINT: bool;
    /// A recovery that ends before anything was sent again was needless (`tcp_try_undo_recovery`).
    const NEEDLESS_WITHOUT_RETRANSMISSION: bool;

    /// How long ago that was, by the sender's clock.
    fn elapsed(since: Time, now: Time) -> Span;

    /// When a timer expires that is set now.
    fn expiry(&self, now: Time, wait: Span) -> Time;

    /// A retransmission timeout as long as a timer can count.
    fn timer_wait(&self, wait: Span) -> Span;

    /// Starts the retransmission timer anew, with the timeout after the expiries so far.
    fn restart_timeout(sender: &mut Machine<Self>, config: &TcpConfig, now: Time);

    /// How often the timeout of a SYN has been doubled after `expiries` of them.
    fn syn_doublings(expiries: u32) -> u32;

    /// The SYN's answer came, after `expiries` timeouts of the SYN; what is to be done before data.
    fn handshake_answered(sender: &mut Machine<Self>, config: &TcpConfig, expiries: u32) -> Setup;

    /// The application has written.
    fn written(sender: &mut Machine<Self>);

    /// Whether something of it waits between TCP and the link.
    fn has_waiting(&self) -> bool;

    /// The next segment, if one may leave now, after the handshake and no probe being due.
    fn poll(sender: &mut Machine<Self>, config: &TcpConfig, now: Time) -> Option<Segment>;

    /// New data for a probe, whatever the congestion window.
    fn poll_probe(sender: &mut Machine<Self>, config: &TcpConfig, now: Time) -> Option<Segment>;

    /// New data left; `out_before` segments were out before it.
    fn sent_new(sender: &mut Machine<Self>, config: &TcpConfig, now: Time, out_before: u32);

    /// That segment left once more.
    fn sent_again(sender: &mut Machine<Self>, config: &TcpConfig, now: Time, segment: &mut Segment);

    /// Takes the round trip that an ACK shows; the one that congestion control looks at.
    fn measure(
        sender: &mut Machine<Self>,
        config: &TcpConfig,
        now: Time,
        delivered: &Delivered,
    ) -> Option<Span>;

    /// What an ACK says of the probe that left when `end` was the next new offset.
    fn judge_probe(
        sender: &mut Machine<Self>,
        config: &TcpConfig,
        end: u64,
        ack: u64,
        duplicate: bool,
        delivered: &Delivered,
    );

    /// RACK: marks segments lost by time; how many.
    fn find_lost_by_time(sender: &mut Machine<Self>, config: &TcpConfig, now: Time) -> u32;

    /// The window begins to fall, for a loss or a mark.
    fn reduction_began(sender: &mut Machine<Self>, config: &TcpConfig);

    /// A loss is being repaired from now on; the window may have been falling for a mark.
    fn recovery_began(sender: &mut Machine<Self>);

    /// The last step of an ACK: its timers.
    fn after_ack(
        sender: &mut Machine<Self>,
        config: &TcpConfig,
        now: Time,
        advanced: bool,
        delivered: &Delivered,
    );

    /// The time of the earliest timer has come.
    fn on_deadline(sender: &mut Machine<Self>, config: &TcpConfig, now: Time);

    /// The retransmission timer expired: marks what counts as lost.
    fn lose_after_timeout(sender: &mut Machine<Self>, config: &TcpConfig, now: Time);
}
