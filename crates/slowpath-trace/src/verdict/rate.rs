// SPDX-License-Identifier: Apache-2.0
//! What a path delivered: the highest delivery rate of a direction, and the RTT without and with
//! queues.
//!
//! After draft-cheng-iccrg-delivery-rate-estimation: what ACKs acknowledged, over the time in which they
//! did, unless the application had left the path idle.
//!
//! 1. A sample runs from one ACK of new data to another, a round trip later at least (section 2.1:
//!    "the volume of data delivered over the interval"). It has [`SEGMENTS`] full segments
//!    at least: an ACK acknowledges two, so that its ends are uncertain by two.
//! 2. *Application-limited* (section 3.3): a small segment with PSH emptied the queue of the sender, nothing
//!    followed within a quarter of a round trip, and no ACK let go what followed; or data began when nothing was under way and no
//!    ACK had let it go. Samples in which that happened do not count.
//! 3. Nor do those with a retransmission, a duplicate ACK or SACK: the ACK that fills a hole acknowledges
//!    what had arrived long before.
//! 4. What was sent is counted in the same way. ACKs that a queue on their way back joins show a rate that
//!    nothing was sent with: the lesser of both counts (section 2.2).

use super::sender::{Sender, Sent};
use super::spread::Spread;
use super::vantage::{Vantage, VantagePoint};
use crate::segment::Flags;
use crate::tcp::{Event, Moment, Side};
use std::time::Duration;

/// Full segments of a sample.
const SEGMENTS: i64 = 8;

/// No sample is shorter, ns: a host's own time.
const SHORTEST: i64 = 1_000_000;

/// RTT samples of which the 95th percentile is not the largest.
const FEWEST_SAMPLES: u64 = 21;

/// What the path of a direction delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathRate {
    /// The highest delivery rate over a round trip, while the application did not limit it.
    pub bytes_per_second: Option<u64>,
    /// The shortest RTT of the whole path.
    pub least_rtt: Option<Duration>,
    /// The 95th percentile of its RTT, to an eighth; unknown at the receiver, where one half of the path
    /// is unknown, and of fewer than 21 samples.
    pub high_rtt: Option<Duration>,
}

impl PathRate {
    /// The longest that most segments waited in queues.
    #[must_use]
    pub fn queue(&self) -> Option<Duration> {
        Some(self.high_rtt?.saturating_sub(self.least_rtt?))
    }

    /// The bytes of that queue, at the delivery rate.
    #[must_use]
    pub fn queued_bytes(&self) -> Option<u64> {
        let bytes = self.bytes_per_second? as f64 * self.queue()?.as_secs_f64();
        Some(bytes as u64)
    }
}

/// Bytes over time, one sample after the other.
#[derive(Clone, Copy, Debug, Default)]
struct Meter {
    /// When the sample began, ns, and at which number.
    began: Option<(i64, i64)>,
    /// Bytes a second, the highest.
    best: f64,
}

impl Meter {
    #[inline]
    fn reached(&mut self, now: i64, number: i64, least: (i64, i64)) {
        let Some((since, from)) = self.began else {
            self.began = Some((now, number));
            return;
        };
        let (time, bytes) = (now.saturating_sub(since), number.saturating_sub(from));
        if time >= least.0 && bytes >= least.1 {
            self.best = self.best.max(bytes as f64 * 1e9 / time as f64);
            self.began = Some((now, number));
        }
    }
}

/// Follows one direction.
#[derive(Clone, Debug, Default)]
pub(super) struct Delivery {
    acked: Meter,
    sent: Meter,
    /// The highest acknowledged number.
    reached: i64,
    /// When something was acknowledged last, ns.
    answered: i64,
    /// One past the highest that was sent.
    next: i64,
    /// The next ACK that begins a sample is above this.
    resume: i64,
    /// The last RTT from here, ns.
    rtt: i64,
    /// When a small segment emptied the sender's queue.
    emptied: Option<i64>,
}

impl Delivery {
    /// The side sent a segment, new data if `sent`.
    #[inline]
    pub(super) fn sent(
        &mut self,
        event: &Event<'_>,
        now: Moment,
        sent: Option<Sent>,
        sender: &Sender,
    ) {
        if event.length == 0 {
            return;
        }
        self.next = self.next.max(event.end);
        let now = now.time.0;
        let late = self
            .emptied
            .take()
            .is_some_and(|at| now.saturating_sub(at) > self.least(sender).0 / 4)
            && now.saturating_sub(self.answered) > sender.turn() + sender.turn() / 4 + SHORTEST;
        if late || sent.is_none_or(|sent| sent.begins) {
            self.interrupt(event.sequence);
        }
        if sent.is_some() {
            let least = self.least(sender);
            self.sent.reached(now, event.end, least);
            if i64::from(event.length) < sender.full_segment() && event.flags.any(Flags::PSH) {
                self.emptied = Some(now);
            }
        }
    }

    /// Whether data is under way after what this acknowledges.
    pub(super) fn is_more_under_way(&self, event: &Event<'_>) -> bool {
        event.acknowledgement.is_some_and(|ack| ack < self.next)
    }

    /// The other side acknowledged.
    #[inline]
    pub(super) fn received(&mut self, event: &Event<'_>, now: Moment, sender: &Sender) {
        if let Some(rtt) = event.rtt {
            self.rtt = i64::try_from(rtt.as_nanos()).unwrap_or(i64::MAX);
        }
        if event.duplicate > 0 || !event.sack.is_empty() {
            self.interrupt(self.reached);
        }
        if let Some(ack) = event.acknowledgement
            && ack > self.reached
        {
            self.reached = ack;
            self.answered = now.time.0;
            if ack > self.resume {
                let least = self.least(sender);
                self.acked.reached(now.time.0, ack, least);
            }
        }
    }

    /// What a sample takes at least: time, ns, and bytes.
    #[inline]
    fn least(&self, sender: &Sender) -> (i64, i64) {
        let round = self.rtt.saturating_add(sender.turn());
        (round.max(SHORTEST), SEGMENTS * sender.full_segment())
    }

    /// Samples do not go on over what happens at this number.
    fn interrupt(&mut self, number: i64) {
        self.acked.began = None;
        self.sent.began = None;
        self.resume = self.resume.max(number);
    }

    /// The path of what `side` sent.
    pub(super) fn finish(&self, side: Side, vantage: &Vantage, spread: &Spread) -> PathRate {
        let rate = self.acked.best.min(self.sent.best);
        let at_receiver = vantage.place == VantagePoint::At(side.peer());
        // Without the other half this one may be a host's own time.
        let is_path = vantage.path().is_some() && !at_receiver;
        let known = spread.count() >= FEWEST_SAMPLES && is_path;
        let high = spread.percentile(95).filter(|_| known);
        PathRate {
            bytes_per_second: (rate > 0.0).then_some(rate as u64),
            least_rtt: vantage.of_path(side, spread.least()),
            high_rtt: vantage.of_path(side, high),
        }
    }
}
