// SPDX-License-Identifier: Apache-2.0
//! What a wait came from, link by link, each with its evidence.

use slowpath_recording::Moment;
use std::fmt;
use std::slice::from_ref;
use std::time::Duration;

/// A link of a cause chain. Packets are named by their number among those that their end sent, the SYN being 0. "Sender" is the end whose
/// message it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Link {
    /// Rule 1. The last packets before the timeout were lost and nothing that was sent behind them arrived, so that nothing reported the loss.
    /// DETER Table 3; RFC 8985 section 7 is about it.
    TailDrops {
        /// The sender's.
        packets: Vec<usize>,
    },
    /// Rule 2. Packets behind a lost one arrived, but fewer of them were reported than a fast retransmission needs (`tp->reordering`, 3 unless
    /// raised). DETER section 5.3, first cause; RFC 5681 section 3.2; `tcp_time_to_recover`.
    TooFewDuplicateAcks {
        /// The first lost one, the sender's.
        lost: usize,
        /// Duplicates that came, or packets that selective acknowledgments reported.
        duplicates: u32,
        /// How many would have been enough.
        needed: u32,
        /// The sender's run that sent the lost one.
        since: usize,
    },
    /// Rule 3. There were as many duplicates as make a fast retransmission by default, but the threshold had been raised by packets that came
    /// late. DETER section 5.2; `tcp_check_sack_reordering`.
    RaisedThreshold {
        /// The first lost one, the sender's.
        lost: usize,
        /// Duplicates that came before the wait ended.
        duplicates: u32,
        /// The threshold then.
        threshold: u32,
        /// The threshold that the connection began with.
        initial: u32,
        /// The sender's run that sent the lost one.
        since: usize,
        /// When it was raised last, by the sender's clock, and by which packet of the other end.
        raised: Option<(Moment, usize)>,
    },
    /// Rule 4. At least three acknowledgments said the same number, but each of them another window than the one before, and none was selective:
    /// `tcp_ack` takes such a one for a window update (`FLAG_WIN_UPDATE` is in `FLAG_NOT_DUP`). DETER section 5.3, second cause.
    WindowUpdates {
        /// The first lost one, the sender's.
        lost: usize,
        /// The acknowledgments, the receiver's.
        packets: Vec<usize>,
    },
    /// Rule 5. Data arrived, and each acknowledgment of it was lost. DETER Table 3.
    AckDrops {
        /// The receiver's.
        packets: Vec<usize>,
    },
    /// Rule 6. What a timeout had sent again arrived, and its acknowledgment was delayed, since one packet is less than two: the sender may send
    /// but one after a timeout. DETER section 2.1; `__tcp_ack_snd_check`, `tcp_send_delayed_ack`.
    DelayedAckAfterTimeout {
        /// The retransmission, the sender's.
        packet: usize,
        /// The receiver's run that got it and acknowledged nothing.
        run: usize,
        /// How long nothing was acknowledged, by the receiver's clock.
        held: Duration,
    },
    /// Rule 7. The acknowledgment was delayed.
    DelayedAck {
        /// The last packet that it is about, the sender's.
        packet: usize,
        /// The receiver's run that got that.
        run: usize,
        /// For how long, by the receiver's clock.
        held: Duration,
    },
    /// Rule 8. Two packets or more had come, and their acknowledgment was delayed, since it would have announced a smaller window: the receiver's
    /// application does not read. DETER section 5.2 (Spark); the condition on `__tcp_select_window` in `__tcp_ack_snd_check`.
    ShrinkingReceiveBuffer {
        /// The receiver's run that acknowledged nothing.
        run: usize,
        /// Bytes that waited for an acknowledgment.
        unacknowledged: u32,
        /// Bytes that the application had not read.
        unread: u32,
    },
    /// Rule 9. The window that the receiver announced was zero, or less than a segment, which a sender treats alike (`tcp_snd_wnd_test`): DETER
    /// section 5.1.
    ZeroWindow {
        /// The acknowledgment that announced it, or came last with it, the receiver's.
        packet: usize,
        /// The window, in bytes.
        window: u32,
    },
    /// Rule 13. The window that the receiver announced had room for segments, and what was on its way filled it up to less than one.
    FullWindow {
        /// The acknowledgment that announced it, or came last with it, the receiver's.
        packet: usize,
        /// The window, in bytes.
        window: u32,
        /// Bytes on their way.
        outstanding: u32,
    },
    /// Rule 14. The receiver's application had not read what was in its buffer: reading ended the wait, and for half of it or more nothing else was missing; or as much as the window that
    /// was left was unread (RFC 9293 section 3.8.6.2.2; `__tcp_select_window`).
    Unread {
        /// The acknowledgment that reading sent, or that announced the window, the receiver's.
        packet: usize,
        /// Bytes that were not read before.
        unread: u32,
    },
    /// Rule 10. The timeout was a multiple of itself: it followed another one. DETER section 2.1; RFC 6298 section 5.5.
    TimeoutBackoff {
        /// How often it had been doubled.
        doublings: u32,
    },
    /// Rule 11. What had been sent again was lost again.
    RetransmissionLost {
        /// The sender's.
        packet: usize,
    },
    /// Rule 12. The acknowledgment was on its way when the timeout came.
    TimeoutTooEarly {
        /// The acknowledgment, the receiver's.
        packet: usize,
    },
}

impl Link {
    /// One name for each.
    pub fn name(&self) -> &'static str {
        match self {
            Link::TailDrops { .. } => "tail_drops",
            Link::TooFewDuplicateAcks { .. } => "too_few_duplicate_acks",
            Link::RaisedThreshold { .. } => "raised_duplicate_ack_threshold",
            Link::WindowUpdates { .. } => "window_updates_in_duplicate_acks",
            Link::AckDrops { .. } => "ack_drops",
            Link::DelayedAckAfterTimeout { .. } => "delayed_ack_after_timeout",
            Link::DelayedAck { .. } => "delayed_ack",
            Link::ShrinkingReceiveBuffer { .. } => "shrinking_receive_buffer",
            Link::ZeroWindow { .. } => "zero_window",
            Link::FullWindow { .. } => "full_window",
            Link::Unread { .. } => "application_not_reading",
            Link::TimeoutBackoff { .. } => "timeout_backoff",
            Link::RetransmissionLost { .. } => "retransmission_lost",
            Link::TimeoutTooEarly { .. } => "timeout_too_early",
        }
    }

    /// The packets that it names, in the order of its words: the sender's, then the receiver's.
    pub fn packets(&self) -> [&[usize]; 2] {
        match self {
            Link::TailDrops { packets } => [packets, &[]],
            Link::AckDrops { packets } => [&[], packets],
            Link::WindowUpdates { lost, packets } => [from_ref(lost), packets],
            Link::TooFewDuplicateAcks { lost, .. } | Link::RaisedThreshold { lost, .. } => {
                [from_ref(lost), &[]]
            }
            Link::DelayedAckAfterTimeout { packet, .. }
            | Link::DelayedAck { packet, .. }
            | Link::RetransmissionLost { packet } => [from_ref(packet), &[]],
            Link::ZeroWindow { packet, .. }
            | Link::FullWindow { packet, .. }
            | Link::Unread { packet, .. }
            | Link::TimeoutTooEarly { packet } => [&[], from_ref(packet)],
            Link::ShrinkingReceiveBuffer { .. } | Link::TimeoutBackoff { .. } => [&[], &[]],
        }
    }
}

/// Numbers, long rows cut.
struct Numbers<'a>(&'a [usize]);

impl fmt::Display for Numbers<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 6;
        f.write_str(if self.0.len() == 1 {
            "packet"
        } else {
            "packets"
        })?;
        for (place, number) in self.0.iter().take(SHOWN).enumerate() {
            write!(f, "{} {number}", if place == 0 { "" } else { "," })?;
        }
        if self.0.len() > SHOWN {
            write!(f, " and {} more", self.0.len() - SHOWN)?;
        }
        Ok(())
    }
}

/// How many.
struct Timeouts(u32);

impl fmt::Display for Timeouts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ending = if self.0 == 1 { "" } else { "s" };
        write!(f, "{} timeout{ending}", self.0)
    }
}

/// In milliseconds.
pub(super) struct Ms(pub Duration);

impl fmt::Display for Ms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3} ms", self.0.as_secs_f64() * 1e3)
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Link::TailDrops { packets } => write!(
                f,
                "tail drops: {} lost, and nothing that was sent later arrived to report it",
                Numbers(packets)
            ),
            Link::TooFewDuplicateAcks { .. } | Link::RaisedThreshold { .. } => self.duplicates(f),
            Link::WindowUpdates { lost, packets } => write!(
                f,
                "duplicate ACKs not counted: packet {lost} was lost, and each of the {} ACKs that repeated its number announced another window ({})",
                packets.len(),
                Numbers(packets)
            ),
            Link::AckDrops { packets } => write!(
                f,
                "ACK drops: the data had arrived, its ACKs were lost ({} of the receiver)",
                Numbers(packets)
            ),
            Link::DelayedAckAfterTimeout { packet, held, .. } => write!(
                f,
                "delayed ACK after a timeout: retransmission {packet} arrived, and the receiver delayed its ACK, for {}",
                Ms(*held)
            ),
            Link::DelayedAck { packet, held, .. } => {
                write!(
                    f,
                    "delayed ACK: the receiver held back its ACK of packet {packet}, for {}",
                    Ms(*held)
                )
            }
            Link::ShrinkingReceiveBuffer {
                unacknowledged,
                unread,
                ..
            } => write!(
                f,
                "shrinking receive buffer: {unacknowledged} bytes waited for their ACK, which would have announced a smaller window; the application had not read {unread} bytes"
            ),
            Link::ZeroWindow { packet, window } => zero_window(*packet, *window, f),
            Link::FullWindow {
                packet,
                window,
                outstanding,
            } => write!(
                f,
                "full window: ACK {packet} of the receiver announced {window} bytes, of which {outstanding} were in flight"
            ),
            Link::Unread { packet, unread } => write!(
                f,
                "application not reading: {unread} bytes were unread at the receiver until it sent ACK {packet}"
            ),
            Link::TimeoutBackoff { doublings } => write!(
                f,
                "timeout backoff: {} right before it made it {} times as long",
                Timeouts(*doublings),
                1u64.checked_shl(*doublings).unwrap_or(u64::MAX)
            ),
            Link::RetransmissionLost { packet } => {
                write!(f, "the retransmission was lost too: packet {packet}")
            }
            Link::TimeoutTooEarly { packet } => write!(
                f,
                "the timeout was too early: ACK {packet} of the receiver was on its way"
            ),
        }
    }
}

impl Link {
    /// The two about duplicate ACKs.
    fn duplicates(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Link::TooFewDuplicateAcks {
                lost,
                duplicates,
                needed,
                ..
            } => write!(
                f,
                "too few duplicate ACKs: packet {lost} was lost; {duplicates} duplicate ACKs came, and a fast retransmission needs {needed}"
            ),
            Link::RaisedThreshold {
                lost,
                duplicates,
                threshold,
                initial,
                ..
            } => write!(
                f,
                "raised duplicate-ACK threshold: packet {lost} was lost; {duplicates} duplicate ACKs came, and after reordering {threshold} were needed instead of {initial}"
            ),
            _ => Ok(()),
        }
    }
}

fn zero_window(packet: usize, window: u32, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match window {
        0 => write!(f, "zero window: ACK {packet} of the receiver announced it"),
        _ => write!(
            f,
            "zero window, or nearly: ACK {packet} of the receiver announced {window} bytes, less than a segment"
        ),
    }
}
