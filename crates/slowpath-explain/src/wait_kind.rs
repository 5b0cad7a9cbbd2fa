// SPDX-License-Identifier: Apache-2.0
//! The kinds of waits, by what ended them.

use std::time::Duration;

/// Shorter waits for the network are left out, as are delayed ACKs that cost less, and windows and the application where they cost less one after the other.
pub const PAUSE: Duration = Duration::from_millis(1);

/// What ended a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Waited {
    /// A retransmission timeout.
    Timeout,
    /// A tail loss probe (RFC 8985 section 7).
    LossProbe,
    /// RACK's timer (RFC 8985 section 6.3).
    ReorderingTimer,
    /// A fast retransmission.
    FastRetransmission,
    /// Room in the receive window.
    ReceiveWindow,
    /// Room in the congestion window.
    CongestionWindow,
    /// A delayed acknowledgment.
    DelayedAck,
    /// Anything else that came from the network.
    Network,
    /// An earlier message of the same stream: bytes before it were not there yet.
    EarlierMessage,
    /// The application: everything that it had written was sent.
    Application,
}

impl Waited {
    /// Whether such waits are one while they follow each other, and count by their whole length: those for room in a window, and for the application.
    pub fn is_continuous(self) -> bool {
        matches!(
            self,
            Waited::ReceiveWindow | Waited::CongestionWindow | Waited::Application
        )
    }

    /// Whether it ended with bytes sent again, or with a probe.
    pub fn is_repair(self) -> bool {
        matches!(
            self,
            Waited::Timeout
                | Waited::LossProbe
                | Waited::ReorderingTimer
                | Waited::FastRetransmission
        )
    }

    /// One name for each.
    pub fn name(self) -> &'static str {
        match self {
            Waited::Timeout => "timeout",
            Waited::LossProbe => "loss_probe",
            Waited::ReorderingTimer => "reordering_timer",
            Waited::FastRetransmission => "fast_retransmission",
            Waited::ReceiveWindow => "receive_window",
            Waited::CongestionWindow => "congestion_window",
            Waited::DelayedAck => "delayed_ack",
            Waited::Network => "network",
            Waited::EarlierMessage => "earlier_message",
            Waited::Application => "application",
        }
    }

    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Waited::Timeout => "a retransmission timeout",
            Waited::LossProbe => "a tail loss probe",
            Waited::ReorderingTimer => "RACK's reordering timer",
            Waited::FastRetransmission => "a fast retransmission",
            Waited::ReceiveWindow => "room in the receive window",
            Waited::CongestionWindow => "room in the congestion window",
            Waited::DelayedAck => "a delayed ACK",
            Waited::Network => "the network",
            Waited::EarlierMessage => "an earlier message",
            Waited::Application => "the application",
        }
    }
}
