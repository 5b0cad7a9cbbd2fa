// SPDX-License-Identifier: Apache-2.0
//! The delayed-ACK oracle: which segments of a direction waited for a delayed ACK, from
//! packets only. It is what estimates from counters are compared with (SNAP section 4.2).
//!
//! **The rule.** A *sample* is a data segment sent once, the only one under way, that a pure
//! ACK (no payload, SYN, FIN or RST) acknowledges exactly. Its wait is from the
//! segment to that ACK, both as captured. The *baseline* is the connection's shortest RTT from here,
//! the SYN's included. The ACK was *delayed* if the wait exceeds the baseline by 25 ms or more: half
//! way, and more, to the shortest delayed-ACK timer in use (Linux, 40 ms), and above
//! any queue of a data centre (SNAP's MaxQueuingDelay, 10 ms). Samples are judged at the
//! end, when the baseline is known.
//!
//! Of an ACK captured away from the receiver the wait counts the way there and back twice:
//! in the baseline and in the sample. It makes no difference.

use crate::segment::{Flags, Timestamp};
use crate::tcp::{Event, Kind, Moment};
use std::time::Duration;

/// An ACK is delayed from this above the baseline on.
const DELAYED: Duration = Duration::from_millis(25);

/// A segment and its ACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The segment.
    pub sent: Moment,
    /// The ACK.
    pub acked: Moment,
    /// The ACK was delayed.
    pub delayed: bool,
}

impl Wait {
    /// From segment to ACK.
    #[must_use]
    pub fn duration(&self) -> Duration {
        Duration::from_nanos(super::limit::between(self.sent.time, self.acked.time))
    }
}

/// A direction's delayed ACKs, as its packets show them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DelayedAcks {
    /// The samples, oldest first.
    pub waits: Vec<Wait>,
    /// The shortest RTT; `None`: no sample at all.
    pub baseline: Option<Duration>,
    /// Samples that were forgotten for want of room: the latest.
    pub dropped: u64,
}

impl DelayedAcks {
    /// Delayed ACKs and samples whose ACK came within a stretch of time.
    #[must_use]
    pub fn within(&self, from: Timestamp, to: Timestamp) -> (u64, u64) {
        let start = self.waits.partition_point(|w| w.acked.time <= from);
        let end = self.waits.partition_point(|w| w.acked.time <= to);
        let waits = self.waits.get(start..end).unwrap_or(&[]);
        let delayed = waits.iter().filter(|w| w.delayed).count();
        (delayed as u64, waits.len() as u64)
    }

    /// The part of the samples that was delayed; `None` without samples.
    #[must_use]
    pub fn share(&self) -> Option<f64> {
        let delayed = self.waits.iter().filter(|w| w.delayed).count();
        (!self.waits.is_empty()).then(|| delayed as f64 / self.waits.len() as f64)
    }
}

/// Follows a direction.
#[derive(Clone, Debug)]
pub(super) struct Oracle {
    keep: usize,
    found: DelayedAcks,
    /// The only segment under way, and its end.
    lone: Option<(Moment, i64)>,
    /// Data was sent up to here, and acknowledged.
    next: i64,
    acked: i64,
    begun: bool,
}

impl Oracle {
    pub(super) fn new(keep: usize) -> Self {
        Oracle {
            keep,
            found: DelayedAcks::default(),
            lone: None,
            next: 0,
            acked: 0,
            begun: false,
        }
    }

    /// The direction's side sent a segment.
    pub(super) fn sent(&mut self, event: &Event<'_>, now: Moment) {
        if event.end <= event.sequence {
            return;
        }
        if !self.begun {
            self.begun = true;
            self.acked = self.acked.max(event.sequence);
            self.next = event.sequence;
        }
        let single = self.acked >= self.next && event.kind == Kind::Data;
        self.lone = single.then_some((now, event.end));
        self.next = self.next.max(event.end);
    }

    /// The other side sent a segment.
    pub(super) fn received(&mut self, event: &Event<'_>, now: Moment) {
        if let Some(rtt) = event.rtt {
            let baseline = &mut self.found.baseline;
            *baseline = Some(baseline.map_or(rtt, |b| b.min(rtt)));
        }
        let Some(ack) = event.acknowledgement else {
            return;
        };
        let pure = event.length == 0 && !event.flags.any(Flags::SYN | Flags::FIN | Flags::RST);
        if let Some((sent, end)) = self.lone
            && ack >= end
        {
            self.lone = None;
            if pure && ack == end {
                self.keep(Wait {
                    sent,
                    acked: now,
                    delayed: false,
                });
            }
        }
        self.acked = self.acked.max(ack);
        self.next = self.next.max(ack);
    }

    fn keep(&mut self, wait: Wait) {
        if self.found.waits.len() < self.keep {
            self.found.waits.push(wait);
        } else {
            self.found.dropped += 1;
        }
    }

    pub(super) fn finish(mut self) -> DelayedAcks {
        if let Some(baseline) = self.found.baseline {
            for wait in &mut self.found.waits {
                wait.delayed = wait.duration() >= baseline.saturating_add(DELAYED);
            }
        }
        self.found
    }
}
