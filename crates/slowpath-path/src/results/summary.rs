// SPDX-License-Identifier: Apache-2.0
//! What a direction, or a row of time of it, comes to.

use super::{LossPattern, Reordering};
use serde::Serialize;

/// One-way delays by the two clocks as they are, ns; negative where the clocks differ by more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Delays {
    /// The shortest.
    pub min_ns: i64,
    /// Half are no longer.
    pub median_ns: i64,
    /// Those asked for: percent and ns.
    pub percentiles: Vec<Percentile>,
    /// The longest.
    pub max_ns: i64,
    /// P95 − P50: owamp's jitter. Drift and steps of the clocks are taken out of it where both directions show them.
    pub jitter_ns: i64,
    /// Packets beyond those whose delays are kept; percentiles leave them out.
    pub not_kept: u64,
}

/// A percentile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Percentile {
    /// Which, in thousandths of a percent.
    pub millipercent: u32,
    /// The delay that this part does not exceed.
    pub ns: i64,
}

/// A change of the number of hops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct HopChange {
    /// The first packet with the new number, in the order of arrival.
    pub sequence: u32,
    /// Hops before.
    pub from: u8,
    /// Hops now.
    pub to: u8,
}

/// Hops, 255 − TTL: senders of these protocols set 255 (RFC 4656 section 4.1.1).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Hops {
    /// The fewest; `None`: no packet came with a TTL.
    pub least: Option<u8>,
    /// The most.
    pub most: Option<u8>,
    /// How many values there were.
    pub values: u64,
    /// How often it changed from packet to packet.
    pub changes: u64,
    /// The first of these changes.
    pub first_changes: Vec<HopChange>,
}

/// One direction, or a row of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// The first packet.
    pub first: u32,
    /// Packets that were sent.
    pub sent: u64,
    /// Of these, lost on the path, by all that is known.
    pub lost: u64,
    /// Of [`sent`](Self::sent), lost in the ends' own buffers (SO_RXQ_OVFL): no loss of the path.
    pub lost_here: u64,
    /// Packets that the sender left out because it had fallen behind; they are not in [`sent`](Self::sent).
    pub skipped: u64,
    /// Packets that came after the timeout; they are in [`lost`](Self::lost).
    pub late: u64,
    /// Further copies of packets.
    pub duplicates: u64,
    /// Delays; `None`: nothing came.
    pub delay: Option<Delays>,
    /// Hops.
    pub hops: Hops,
    /// n-reordering from n = 1 on, as far as there is any.
    pub reordering: Vec<Reordering>,
    /// How losses follow each other.
    pub loss_pattern: LossPattern,
}

impl Summary {
    /// The part that the path lost, in percent; 0 of nothing.
    #[must_use]
    pub fn lost_percent(&self) -> f64 {
        match self.sent {
            0 => 0.0,
            sent => 100.0 * self.lost as f64 / sent as f64,
        }
    }
}

/// Delays of values, `percents` of them named.
pub(super) fn delays(values: &mut [i64], percents: &[f64], not_kept: u64) -> Option<Delays> {
    values.sort_unstable();
    let (&min, &max) = (values.first()?, values.last()?);
    let at = |percent: f64| {
        // The nearest rank: the least value that this part does not exceed.
        let rank = (percent / 100.0 * values.len() as f64).ceil() as usize;
        values[rank.clamp(1, values.len()) - 1]
    };
    Some(Delays {
        min_ns: min,
        median_ns: at(50.0),
        percentiles: percents
            .iter()
            .map(|&percent| Percentile {
                millipercent: (percent * 1_000.0).round() as u32,
                ns: at(percent),
            })
            .collect(),
        max_ns: max,
        jitter_ns: at(95.0) - at(50.0),
        not_kept,
    })
}

/// P95 − P50 of values; `None` of none.
pub(crate) fn jitter(values: &mut [i64]) -> Option<i64> {
    delays(values, &[], 0).map(|delays| delays.jitter_ns)
}
