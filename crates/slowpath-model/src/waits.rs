// SPDX-License-Identifier: Apache-2.0
//! What a connection waited for, and what went wrong, beyond SNAP's six problems: sums over
//! its life as far as observed, kept by the probes.
//!
//! Most connections never have any of it, so a [`Waits`] without any takes one word more
//! than nothing. What a tier or kernel cannot see is `None`, never zero.

use crate::Micros;
use serde::{Deserialize, Serialize};

/// What data waited for, at either end (segments received and socket calls); times have the
/// grain of the kernel's timer tick.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueWaits {
    /// Unsent data waited although the announced window had room, nothing was being
    /// repaired and Nagle did not hold it: for the congestion window, for pacing or for the
    /// device.
    pub congestion_window: Micros,
    /// Less than a segment waited for an acknowledgement (Nagle) or for more (TCP_CORK).
    pub nagle: Micros,
    /// Unsent data waited because the announced window was zero, or too small for a segment
    /// with nothing in flight.
    pub zero_window: Micros,
    /// How many times such a wait began.
    pub zero_windows: u64,
    /// What had arrived and was not read was more than three times what the peer was still
    /// allowed to send.
    pub unread: Micros,
    /// A writer waited for room in the send buffer although everything in it was under way,
    /// and neither window was full, and the kernel's own clock of that stood still.
    pub send_buffer: Micros,
}

/// Episodes of congestion avoidance (tracepoint `tcp_cong_state_set`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EpisodeWaits {
    /// Time in `TCP_CA_Disorder` and `TCP_CA_Recovery` in episodes during which segments
    /// turned out to have overtaken each other.
    pub reordering: Micros,
    /// Recoveries in which something was acknowledged, and that were undone (nothing had been
    /// lost) although the kernel counted no reordering.
    pub spurious_recoveries: u64,
    /// Time in `TCP_CA_CWR` in episodes with marked segments.
    pub marked: Micros,
    /// Losses in the first window sent after an idle time.
    pub burst_losses: u64,
    /// Time spent on their repair, the wait for a timer included.
    pub burst: Micros,
    /// Losses found by the retransmission timer with fewer segments in flight than raise three
    /// duplicate ACKs, while the application had nothing more to send.
    pub thin_timeouts: u64,
    /// Delayed ACKs of a segment that the retransmission timer had sent again by itself.
    pub acks_after_timeout: u64,
}

/// The opening of the connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpeningWaits {
    /// How often its SYN, or at the accepting end its SYN-ACK, was sent again.
    pub syn_retransmits: u64,
    /// From the first SYN to its answer, or until now, if it was sent again. Zero at the
    /// accepting end, where the connection begins only afterwards.
    pub syn_wait: Micros,
}

/// Everything there may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitSums {
    /// Of data.
    pub queues: QueueWaits,
    /// Of congestion avoidance.
    pub episodes: EpisodeWaits,
    /// Of the opening.
    pub opening: OpeningWaits,
}

/// What the MPTCP connection that a socket is a subflow of waits for, at the moment of the snapshot. It has
/// a window and a receive queue of its own: what it holds back never reaches the subflow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Multipath {
    /// It holds data, and its window has no room for the next segment (`mptcp_check_allow_tx`).
    pub window_full: bool,
    /// More than three times as much is unread as its peer may still send.
    pub unread: bool,
}

/// What is watched, and what there was of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waits {
    watched: u8,
    sums: Option<Box<WaitSums>>,
}

const QUEUES: u8 = 1;
const EPISODES: u8 = 2;
const OPENING: u8 = 4;
const MULTIPATH_WINDOW: u8 = 8;
const MULTIPATH_UNREAD: u8 = 16;

impl Waits {
    /// Nothing is watched.
    pub const UNOBSERVED: Waits = Waits {
        watched: 0,
        sums: None,
    };

    /// That is watched, and there was nothing so far.
    #[inline]
    pub const fn watched(queues: bool, episodes: bool, opening: bool) -> Self {
        Waits {
            watched: (queues as u8) * QUEUES
                + (episodes as u8) * EPISODES
                + (opening as u8) * OPENING,
            sums: None,
        }
    }

    /// The same of a subflow whose MPTCP connection waits for that.
    #[inline]
    #[must_use]
    pub fn with_multipath(mut self, state: Multipath) -> Self {
        self.watched |= u8::from(state.window_full) * MULTIPATH_WINDOW;
        self.watched |= u8::from(state.unread) * MULTIPATH_UNREAD;
        self
    }

    /// What the MPTCP connection that it is a subflow of waits for; nothing of any other, or where that is not
    /// observed.
    #[inline]
    pub const fn multipath(&self) -> Multipath {
        Multipath {
            window_full: self.watched & MULTIPATH_WINDOW != 0,
            unread: self.watched & MULTIPATH_UNREAD != 0,
        }
    }

    /// The same, with those sums.
    #[must_use]
    pub fn with(&self, sums: WaitSums) -> Self {
        Waits {
            watched: self.watched,
            sums: (sums != WaitSums::default()).then(|| Box::new(sums)),
        }
    }

    /// The same, with nothing so far.
    #[must_use]
    pub const fn at_birth(&self) -> Self {
        Waits {
            watched: self.watched & (QUEUES | EPISODES | OPENING),
            sums: None,
        }
    }

    /// Whether there was anything so far.
    #[inline]
    pub const fn any(&self) -> bool {
        self.sums.is_some()
    }

    /// Whether all of it is watched and there was nothing so far.
    #[inline]
    pub const fn quiet(&self) -> bool {
        self.watched == QUEUES | EPISODES | OPENING && self.sums.is_none()
    }

    #[inline]
    fn of<T: Default>(&self, group: u8, pick: impl FnOnce(&WaitSums) -> T) -> Option<T> {
        (self.watched & group != 0).then(|| self.sums.as_deref().map(pick).unwrap_or_default())
    }

    /// Of data; `None` if not watched.
    #[inline]
    pub fn queues(&self) -> Option<QueueWaits> {
        self.of(QUEUES, |s| s.queues)
    }

    /// Of congestion avoidance; `None` if not watched.
    #[inline]
    pub fn episodes(&self) -> Option<EpisodeWaits> {
        self.of(EPISODES, |s| s.episodes)
    }

    /// Of the opening; `None` if not watched.
    #[inline]
    pub fn opening(&self) -> Option<OpeningWaits> {
        self.of(OPENING, |s| s.opening)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_watched_is_not_zero() {
        let waits = Waits::watched(true, false, true);
        assert_eq!(waits.queues(), Some(QueueWaits::default()));
        assert_eq!(waits.episodes(), None);
        assert_eq!(Waits::UNOBSERVED.opening(), None);
        let sums = WaitSums {
            queues: QueueWaits {
                zero_windows: 2,
                ..QueueWaits::default()
            },
            ..WaitSums::default()
        };
        let waits = waits.with(sums);
        assert_eq!(waits.queues(), Some(sums.queues));
        assert_eq!(waits.episodes(), None);
        assert_eq!(waits.at_birth().queues(), Some(QueueWaits::default()));
        assert!(waits.any() && !waits.with(WaitSums::default()).any());
    }
}
