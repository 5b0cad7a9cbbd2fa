// SPDX-License-Identifier: Apache-2.0
//! Congestion or a fault: what the losses of a direction come from.
//!
//! Step 5 of the Fermilab methodology: "If many packets are retransmitted or RTO happens
//! frequently, it means that the packet drop rate is high. If RTT variance is also high,
//! there is high probability that somewhere along the path there is high congestion. If
//! the packet drop rate is high, and the RTT variance is low, network faults are more
//! likely." It has no numbers for *high*. Here they are, and where they come from:
//!
//! 1. *Lost*: segments sent again, less those proved needless, SYNs left out. *Before here*: of
//!    these, those that left a gap here, which a later copy filled. *After here*: the others,
//!    whose first copy was captured; it, or the ACK for it, was lost on its way from here.
//! 2. *None*: nothing was lost. *Too few losses*: less than [`FEWEST_LOSSES`]. *Too few
//!    samples*: less than [`FEWEST_SAMPLES`] RTTs, of which the largest would be the 95th
//!    percentile.
//! 3. *Variation*: (95th percentile − least) ÷ least of the RTT samples, without those of
//!    ACKs that were kept back.
//! 4. [`HIGH`] or more, and 1 ms at least: *congestion*. [`LOW`] or less: *suspect a fault*.
//!    Between them: *cannot decide*.
//!
//! The thresholds are those that divide the paper's own Table 4: one-way delays whose
//! losses it puts down to congestion have (95th percentile − least) ÷ least of 0.97 and 2.23, those
//! without losses 0.32 and 0.47. An RTT has the same variation over twice the delay: half
//! of 0.9 and of 0.5. *Very lossy* is 0.5 % (step 4).

use super::spread::Spread;
use crate::tcp::Direction;
use std::time::Duration;

/// Losses that are no accident of one moment.
const FEWEST_LOSSES: u64 = 3;

/// Samples of which the 95th percentile is not the largest.
const FEWEST_SAMPLES: u64 = 21;

/// Variation that is high.
const HIGH: f64 = 0.45;

/// Variation that is low.
const LOW: f64 = 0.25;

/// A queue shorter than this is a host's own.
const SHORTEST_QUEUE: Duration = Duration::from_millis(1);

/// "≥ 0.5 % considered very lossy" (step 4 of the methodology).
const VERY_LOSSY: f64 = 0.005;

/// Where losses come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Nothing was lost.
    NoLoss,
    /// The RTT varies much: queues overflow.
    Congestion,
    /// The RTT varies little: dirty fibre, a bad card, a policer without a queue.
    Fault,
    /// The variation is neither high nor low.
    Unclear,
    /// Less than three losses.
    TooFewLosses,
    /// Too few RTT samples.
    TooFewSamples,
}

/// What a direction's losses say.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Losses {
    /// Where they come from.
    pub origin: Origin,
    /// Segments lost, as far as retransmissions show.
    pub lost: u64,
    /// Of these, lost before the place of capture.
    pub before: u64,
    /// And after it, or their ACKs.
    pub after: u64,
    /// Segments with payload sent, lost ones included.
    pub sent: u64,
    /// RTT samples.
    pub samples: u64,
    /// The shortest RTT, from the place of capture.
    pub least_rtt: Option<Duration>,
    /// The 95th percentile, to an eighth.
    pub high_rtt: Option<Duration>,
}

impl Losses {
    pub(super) fn judge(direction: &Direction, spread: &Spread) -> Self {
        let resent = &direction.retransmitted;
        let control = resent.syns + resent.fins + resent.spurious;
        let lost = resent.packets.saturating_sub(control);
        let before = resent.lost_before_here.min(lost);
        let mut losses = Losses {
            origin: Origin::NoLoss,
            lost,
            before,
            after: lost - before,
            sent: direction.data.packets,
            samples: spread.count(),
            least_rtt: spread.least(),
            high_rtt: spread.percentile(95),
        };
        losses.origin = losses.judged();
        losses
    }

    fn judged(&self) -> Origin {
        if self.lost == 0 {
            return Origin::NoLoss;
        }
        if self.lost < FEWEST_LOSSES {
            return Origin::TooFewLosses;
        }
        let (Some(least), Some(high)) = (self.least_rtt, self.high_rtt) else {
            return Origin::TooFewSamples;
        };
        if self.samples < FEWEST_SAMPLES {
            return Origin::TooFewSamples;
        }
        match self.variation() {
            Some(v) if is_queue(v, least, high) => Origin::Congestion,
            Some(v) if v <= LOW => Origin::Fault,
            _ => Origin::Unclear,
        }
    }

    /// The part of the segments that was lost; 0 of none.
    #[must_use]
    pub fn rate(&self) -> f64 {
        if self.sent == 0 {
            return 0.0;
        }
        self.lost as f64 / self.sent as f64
    }

    /// Whether the path is very lossy: 0.5 %, step 4.
    #[must_use]
    pub fn is_very_lossy(&self) -> bool {
        self.rate() >= VERY_LOSSY
    }

    /// Whether the RTT varies as queues make it vary (rule 4), losses or not.
    #[must_use]
    pub fn is_queueing(&self) -> bool {
        let (Some(least), Some(high)) = (self.least_rtt, self.high_rtt) else {
            return false;
        };
        let variation = self.variation();
        self.samples >= FEWEST_SAMPLES && variation.is_some_and(|v| is_queue(v, least, high))
    }

    /// (95th percentile − least) ÷ least of the RTT; `None` without samples.
    #[must_use]
    pub fn variation(&self) -> Option<f64> {
        let (least, high) = (self.least_rtt?.as_secs_f64(), self.high_rtt?.as_secs_f64());
        (least > 0.0).then(|| (high - least) / least)
    }
}

/// Rule 4's congestion.
fn is_queue(variation: f64, least: Duration, high: Duration) -> bool {
    variation >= HIGH && high.saturating_sub(least) >= SHORTEST_QUEUE
}
