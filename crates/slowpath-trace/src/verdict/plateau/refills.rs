// SPDX-License-Identifier: Apache-2.0
//! A send buffer that is filled again at once after part of it was acknowledged.
//!
//! Linux wakes a writer that waits for room when a third of what its buffer held is free
//! (`sk_stream_is_writeable`), not at each ACK: the ACKs before let nothing go although neither
//! window was full, then one lets a burst go. How much the buffer holds varies with how
//! segments lie in memory (`skb->truesize`), so that rounds may differ by half. A congestion window lets data go
//! with each ACK. It is a *refill* when all of these hold:
//!
//! 1. Captured at the sender: elsewhere whether an ACK let something go is known to a part of
//!    the turn only.
//! 2. When the sender fell silent, the advertised window had room for two segments more,
//!    nothing was being repaired, and the last loss was a round trip ago; none came since: a
//!    congestion window that was reduced lets nothing go until what is under way fits.
//! 3. ACKs of three full segments at least, more than one acknowledges (RFC 5681 section 4.2), let
//!    nothing go, the first of them 2 ms before the next data or earlier. A sender that waits
//!    until its congestion window has room for a larger segment does so within 1 ms of its last one
//!    (`tcp_tso_should_defer`).
//! 4. With the last ACK, a quarter of the most that was under way was acknowledged: a
//!    third of the buffer, less what its segments are uneven.
//! 5. The last ACK let a burst go ([`super::waits`]), something was still under way, and the receiver
//!    had sent no data: an application may have answered.
//! 6. The direction's bursts follow ACKs ([`super::waits`]).
//! 7. It is the third within [`NEAR`] round trips: BBR lets nothing go for once, when it probes for the
//!    path's RTT every ten seconds.
//!
//! From the last data before it to the burst, the buffer was the limit, as the kernel counts it
//! (`TCP_CHRONO_SNDBUF_LIMITED`).

use super::SentData;
use super::waits::Released;
use crate::tcp::Moment;

/// Full segments that ACKs did not let go.
const SEGMENTS: i64 = 3;

/// The shortest time that they let nothing go, ns.
const SILENT: i64 = 2_000_000;

/// Refills near each other.
pub(super) const REFILLS: usize = 3;

/// Round trips in which they come.
const NEAR: i64 = 8;

/// From the last data before a refill to the refill.
pub(in crate::verdict) type Stretch = (Moment, Moment);

#[derive(Clone, Copy, Debug)]
struct Refill {
    stretch: Stretch,
    reported: bool,
}

/// Follows the refills of one direction.
#[derive(Clone, Debug, Default)]
pub(super) struct Refills {
    /// Acknowledged when data was sent last.
    base: i64,
    /// Acknowledged before the last ACK, and by it.
    before: i64,
    acked: i64,
    /// When the first ACK after the last data came, ns.
    first: i64,
    /// Rule 2 held at the last data.
    unlimited: bool,
    /// A refill, if more than one segment was let go.
    perhaps: Option<Stretch>,
    recent: [Option<Refill>; REFILLS],
}

impl Refills {
    /// Everything before `acked` was acknowledged.
    pub(super) fn acknowledged(&mut self, now: i64, acked: i64) {
        if self.acked == self.base {
            self.first = now;
        }
        self.before = self.acked;
        self.acked = acked;
    }

    /// Data was sent; `released`: what an ACK let go with it, if rule 6 holds. The most that was
    /// under way recently is `most` bytes; `unlimited`: rule 2 holds from now on. Returns the
    /// stretches in which the buffer was the limit that were not reported yet.
    pub(super) fn sent(
        &mut self,
        data: &SentData,
        released: Option<Released>,
        most: i64,
        unlimited: bool,
    ) -> Option<[Option<Stretch>; REFILLS]> {
        let before = self.perhaps.take();
        let refill = (data.last, data.at);
        let found = match released {
            Some(Released::Burst) if self.is_refill(data, most) => Some(refill),
            Some(Released::Segment) if self.is_refill(data, most) => {
                self.perhaps = Some(refill);
                None
            }
            Some(Released::MoreThanThat) => before,
            _ => None,
        };
        self.base = data.acked;
        self.acked = data.acked;
        self.before = data.acked;
        self.unlimited = unlimited;
        found.map(|stretch| self.add(stretch, data.path.rtt()))
    }

    /// Rules 1 to 5, but for what let the data go.
    fn is_refill(&self, data: &SentData, most: i64) -> bool {
        let now = data.at.time.0;
        let nothing = self.before - self.base;
        let flight = data.next - data.acked;
        data.path.is_at_sender()
            && self.unlimited
            && nothing >= SEGMENTS * data.path.full
            && now.saturating_sub(self.first) >= SILENT
            && 4 * (self.acked - self.base) >= most
            && flight > data.length
            && !data.answered
    }

    /// Rule 7.
    #[cold]
    fn add(&mut self, stretch: Stretch, rtt: i64) -> [Option<Stretch>; REFILLS] {
        self.recent.rotate_left(1);
        self.recent[REFILLS - 1] = Some(Refill {
            stretch,
            reported: false,
        });
        let mut found = [None; REFILLS];
        if self.are_near(stretch.1.time.0, rtt) {
            for (found, refill) in found.iter_mut().zip(self.recent.iter_mut().flatten()) {
                if !refill.reported {
                    refill.reported = true;
                    *found = Some(refill.stretch);
                }
            }
        }
        found
    }

    /// Rule 7, of the last ones.
    pub(super) fn are_near(&self, now: i64, rtt: i64) -> bool {
        let since = now.saturating_sub(rtt.saturating_mul(NEAR));
        self.recent[0].is_some_and(|oldest| oldest.stretch.1.time.0 >= since)
    }

    /// Something was lost.
    pub(super) fn lost(&mut self) {
        self.unlimited = false;
    }
}
