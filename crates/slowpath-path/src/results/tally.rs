// SPDX-License-Identifier: Apache-2.0
//! Counts packets as they arrive, in rows of time, with memory for the open rows only.
//!
//! A packet belongs to the row in which it was to be sent, so that it is in exactly one, whenever it comes and
//! whether it comes at all. A row is closed once the timeout has passed since its end; what comes later is late.

use super::loss::LossPattern;
use super::reordering::{Arrivals, MOST_REORDERING, Reordering};
use super::summary::{HopChange, Hops, Summary, delays};
use crate::record::{Record, SkipRange};
use std::collections::VecDeque;

/// Delays kept of a row: 8 MiB.
const MOST_DELAYS: usize = 1 << 20;

/// Changes of hops that are listed of a row.
const MOST_CHANGES: usize = 64;

/// What does not change while packets come.
#[derive(Clone, Debug)]
pub struct Plan {
    /// From when on a packet is lost, ns.
    pub timeout: i64,
    /// Percentiles to report besides the median.
    pub percents: Vec<f64>,
}

/// Packets of one row.
#[derive(Clone, Debug)]
struct Row {
    first: u32,
    packets: u32,
    /// One bit a packet: it came in time.
    arrived: Vec<u64>,
    skips: Vec<SkipRange>,
    delays: Vec<i64>,
    not_kept: u64,
    received: u64,
    duplicates: u64,
    late: u64,
    extents: Vec<u64>,
    hop_values: [u64; 4],
    changes: u64,
    first_changes: Vec<HopChange>,
}

impl Row {
    fn new(first: u32, packets: u32) -> Self {
        Row {
            first,
            packets,
            arrived: vec![0; (packets as usize).div_ceil(64)],
            skips: Vec::new(),
            delays: Vec::new(),
            not_kept: 0,
            received: 0,
            duplicates: 0,
            late: 0,
            extents: Vec::new(),
            hop_values: [0; 4],
            changes: 0,
            first_changes: Vec::new(),
        }
    }

    fn holds(&self, sequence: u32) -> bool {
        sequence >= self.first && sequence - self.first < self.packets
    }

    fn bit(&self, sequence: u32) -> (usize, u64) {
        let index = sequence - self.first;
        (index as usize / 64, 1 << (index % 64))
    }

    fn has(&self, sequence: u32) -> bool {
        let (word, bit) = self.bit(sequence);
        self.arrived[word] & bit != 0
    }

    fn summary(mut self, percents: &[f64], sent_before: u32, dropped: u64) -> Summary {
        // Packets from `sent_before` on were never sent.
        let end = (u64::from(self.first) + u64::from(self.packets)).min(u64::from(sent_before));
        let planned = end.saturating_sub(u64::from(self.first));
        self.skips.sort_unstable_by_key(|skip| skip.first);
        let skips = std::mem::take(&mut self.skips);
        let mut next_skip = skips.iter().peekable();
        let mut lost = Vec::new();
        let mut skipped = 0;
        for sequence in u64::from(self.first)..end {
            let sequence = sequence as u32;
            while next_skip.peek().is_some_and(|skip| skip.last < sequence) {
                next_skip.next();
            }
            let is_skipped = next_skip.peek().is_some_and(|skip| skip.first <= sequence);
            if self.has(sequence) {
                continue;
            }
            if is_skipped {
                skipped += 1;
            } else {
                lost.push(sequence);
            }
        }
        let all_lost = lost.len() as u64;
        let lost_here = dropped.min(all_lost);
        let reordering = self
            .extents
            .iter()
            .enumerate()
            .map(|(index, &packets)| Reordering::new(index + 1, packets, self.received));
        Summary {
            first: self.first,
            sent: planned - skipped,
            lost: all_lost - lost_here,
            lost_here,
            skipped,
            late: self.late,
            duplicates: self.duplicates,
            reordering: reordering.collect(),
            hops: self.hops(),
            delay: delays(&mut self.delays, percents, self.not_kept),
            loss_pattern: LossPattern::of(lost.into_iter()),
        }
    }

    fn hops(&mut self) -> Hops {
        let values = (0..=255u8)
            .filter(|&hops| self.hop_values[usize::from(hops) / 64] >> (hops % 64) & 1 != 0);
        let values: Vec<u8> = values.collect();
        Hops {
            least: values.first().copied(),
            most: values.last().copied(),
            values: values.len() as u64,
            changes: self.changes,
            first_changes: std::mem::take(&mut self.first_changes),
        }
    }
}

/// One direction.
#[derive(Clone, Debug)]
pub struct Tally {
    plan: Plan,
    rows: VecDeque<Row>,
    arrivals: Arrivals,
    least: Option<i64>,
    hops: Option<u8>,
    /// Packets of rows that are closed, or of none: counted, in no row.
    strays: u64,
}

impl Tally {
    /// An empty one: rows are opened by [`Tally::open`].
    #[must_use]
    pub fn new(plan: Plan) -> Self {
        Tally {
            plan,
            rows: VecDeque::new(),
            arrivals: Arrivals::new(),
            least: None,
            hops: None,
            strays: 0,
        }
    }

    /// One row with a whole session's records.
    #[must_use]
    pub fn of(plan: Plan, packets: u32, records: &[Record], skips: &[SkipRange]) -> Self {
        let mut tally = Tally::new(plan);
        tally.open(0, packets);
        for record in records {
            tally.arrive(record);
        }
        for skip in skips {
            tally.skip(*skip);
        }
        tally
    }

    /// Opens the row of packets from `first` on.
    pub fn open(&mut self, first: u32, packets: u32) {
        self.rows.push_back(Row::new(first, packets));
    }

    /// Rows that are open.
    #[must_use]
    pub fn open_rows(&self) -> usize {
        self.rows.len()
    }

    /// Packets that belong to no open row.
    #[must_use]
    pub fn strays(&self) -> u64 {
        self.strays
    }

    /// Counts a packet, in the order of arrival. Lost records say nothing that is not known.
    pub fn arrive(&mut self, record: &Record) {
        let Some(delay) = record.delay() else { return };
        let Some(row) = self.rows.iter_mut().find(|row| row.holds(record.sequence)) else {
            self.strays += 1;
            return;
        };
        if row.has(record.sequence) {
            row.duplicates += 1;
            return;
        }
        let least = self.least.map_or(delay, |least| least.min(delay));
        self.least = Some(least);
        if delay - least > self.plan.timeout {
            row.late += 1;
            return;
        }
        let (word, bit) = row.bit(record.sequence);
        row.arrived[word] |= bit;
        row.received += 1;
        if row.delays.len() < MOST_DELAYS {
            row.delays.push(delay);
        } else {
            row.not_kept += 1;
        }
        let extent = self.arrivals.arrive(record.sequence).min(MOST_REORDERING);
        if row.extents.len() < extent {
            row.extents.resize(extent, 0);
        }
        for packets in &mut row.extents[..extent] {
            *packets += 1;
        }
        // Nothing arrives with 0: such a record has no TTL.
        if record.ttl == 0 {
            return;
        }
        let hops = 255 - record.ttl;
        row.hop_values[usize::from(hops) / 64] |= 1 << (hops % 64);
        if let Some(before) = self.hops.replace(hops).filter(|&before| before != hops) {
            row.changes += 1;
            if row.first_changes.len() < MOST_CHANGES {
                row.first_changes.push(HopChange {
                    sequence: record.sequence,
                    from: before,
                    to: hops,
                });
            }
        }
    }

    /// Notes packets that the sender left out. A packet that came all the same counts as sent.
    pub fn skip(&mut self, range: SkipRange) {
        for row in &mut self.rows {
            let end = row.first.saturating_add(row.packets.saturating_sub(1));
            let (first, last) = (range.first.max(row.first), range.last.min(end));
            if first <= last && row.packets > 0 {
                row.skips.push(SkipRange { first, last });
            }
        }
    }

    /// Closes the oldest row. `dropped` is what this host lost of it; `sent_before`: one more than the last packet
    /// that was sent.
    pub fn close(&mut self, sent_before: u32, dropped: u64) -> Option<Summary> {
        let row = self.rows.pop_front()?;
        Some(row.summary(&self.plan.percents, sent_before, dropped))
    }
}

#[cfg(test)]
mod tests;
