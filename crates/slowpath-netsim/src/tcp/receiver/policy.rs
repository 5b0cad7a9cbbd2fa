// SPDX-License-Identifier: Apache-2.0
//! Where Linux's receiver does something else than the RFCs say.

use super::Arrival;
use super::machine::Machine;
use crate::tcp::config::TcpConfig;
use crate::tcp::segment::{Ack, SackBlocks};
use slowpath_switch::{Span, Time};

/// A kind of receiver: [`Rfc`](super::rfc::Rfc) or [`Linux`](super::linux::Linux).
pub(super) trait Policy: Sized {
    /// When a timer expires that is set now.
    fn expiry(&self, now: Time, wait: Span) -> Time;

    /// How long an adaptive delayed ACK (`DelayedAck::Linux`) may wait.
    fn delay(&self, config: &TcpConfig, wait: Span) -> Span;

    /// How many ACKs go at once at the start of a connection, where half a window holds `half_window`.
    fn first_quick(half_window: u32) -> u32;

    /// A SYN was answered.
    fn answered_syn(&mut self, _now: Time) {}

    /// The handshake ended.
    fn established(&mut self, _now: Time) {}

    /// Data came and was noted; the ACK that goes at once, if one does.
    fn respond(
        receiver: &mut Machine<Self>,
        config: &TcpConfig,
        now: Time,
        arrival: &Arrival,
    ) -> Option<Ack>;

    /// The blocks of an ACK that is made now; `duplicate` comes first.
    fn blocks(
        receiver: &Machine<Self>,
        config: &TcpConfig,
        duplicate: Option<(u64, u64)>,
    ) -> SackBlocks;

    /// An ACK is made, and none waits any more.
    fn acknowledged(&mut self) {}

    /// When an ACK goes beside the delayed one; `Time::MAX` if none waits.
    fn deadline(&self) -> Time {
        Time::MAX
    }

    /// The delayed ACK's time is over.
    fn delay_expired(_receiver: &mut Machine<Self>) {}
}
