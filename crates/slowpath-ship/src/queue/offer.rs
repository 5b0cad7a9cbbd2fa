// SPDX-License-Identifier: Apache-2.0
//! The next items of a segment.

use super::form::{SpoolFacts, covered, over};
use super::state::SegmentState;
use crate::batch::{Content, Gap, GapReason, Header, Items, Prefix, SentClock};
use slowpath_store::SCHEMA_VERSION;
use slowpath_store::spool::SPOOL_VERSION;
use std::ops::ControlFlow;

/// A gap that is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SentGap {
    pub reason: GapReason,
    /// Where it ends, and how long it is, bytes.
    pub end: u64,
    pub length: u64,
}

/// Items to be sent, and what they are of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The segment.
    pub segment: String,
    /// Where in it the items begin, bytes.
    pub offset: u64,
    /// The running CRC before them.
    pub prefix: Prefix,
    /// The records and gaps.
    pub items: Items,
    /// Where they end.
    pub end: u64,
    /// The running CRC behind them.
    pub end_prefix: Prefix,
    /// The segment ends with them.
    pub last: bool,
    /// More of the segment waits behind them.
    pub more: bool,
    pub(super) facts: Option<SpoolFacts>,
    pub(super) gaps: Vec<SentGap>,
    /// Items that are no gaps.
    pub(super) records: u32,
}

impl Offer {
    /// The header of its batch.
    pub fn header(&self, run: u128, number: u64, clock: SentClock) -> Header {
        let facts = self.facts;
        Header {
            framing: facts.map_or(SPOOL_VERSION, |f| f.framing),
            schema: facts.map_or(SCHEMA_VERSION, |f| f.schema),
            last: self.last,
            run,
            number,
            boot_id: facts.map_or(0, |f| f.boot_id),
            clock,
            clock_offset: None,
            offset: self.offset,
            prefix: self.prefix,
            segment: self.segment.clone(),
            items_length: 0,
            items_crc: 0,
        }
    }
}

/// Collects pieces into items, those that the server refused as gaps.
pub(super) struct Collector<'a> {
    kept: &'a SegmentState,
    most: usize,
    items: Items,
    end: u64,
    prefix: Prefix,
    gaps: Vec<SentGap>,
    records: u32,
    more: bool,
    /// The end of the refused stretch that is being left out, its begin, and records in it.
    refused: Option<(u64, u64, u32)>,
}

/// Bytes of an item beside its data, at most.
const AROUND: usize = 14;

impl<'a> Collector<'a> {
    pub(super) fn new(kept: &'a SegmentState, most: usize) -> Self {
        Collector {
            kept,
            most,
            items: Items::default(),
            end: kept.acknowledged,
            prefix: kept.prefix,
            gaps: Vec::new(),
            records: 0,
            more: false,
            refused: None,
        }
    }

    /// The next piece; breaks off where there is no more room.
    pub(super) fn piece(&mut self, offset: u64, content: Content<'_>) -> ControlFlow<()> {
        let mut pieces = Refusals {
            refused: &self.kept.refused,
            open: &mut self.refused,
        };
        let (items, end, prefix) = (&mut self.items, &mut self.end, &mut self.prefix);
        let (gaps, records, more, most) =
            (&mut self.gaps, &mut self.records, &mut self.more, self.most);
        pieces.piece(offset, content, &mut |offset, content| {
            let data = match content {
                Content::Gap(_) => 0,
                _ => covered(content) as usize,
            };
            if !items.is_empty() && items.bytes().len() + data + AROUND > most {
                *more = true;
                return ControlFlow::Break(());
            }
            match content {
                Content::Header(header) => items.push_header(header),
                Content::Record(record) => items.push_record(*record),
                Content::Gap(gap) => {
                    items.push_gap(*gap);
                    gaps.push(SentGap {
                        reason: gap.reason,
                        end: offset + gap.length,
                        length: gap.length,
                    });
                }
            }
            *records += u32::from(!matches!(content, Content::Gap(_)));
            *end = offset + covered(content);
            *prefix = over(*prefix, content);
            ControlFlow::Continue(())
        })
    }

    /// The same pieces with refused ones as gaps, for another purpose than sending.
    pub(super) fn refined(
        &mut self,
        offset: u64,
        content: Content<'_>,
        each: &mut dyn FnMut(u64, &Content<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let mut pieces = Refusals {
            refused: &self.kept.refused,
            open: &mut self.refused,
        };
        pieces.piece(offset, content, each)
    }

    /// What was collected; `ended`: nothing follows in the segment. `None` if there is nothing to
    /// say.
    pub(super) fn offer(self, segment: &str, ended: bool) -> Option<Offer> {
        let last = ended && !self.more;
        if self.items.is_empty() && !last {
            return None;
        }
        Some(Offer {
            segment: segment.to_owned(),
            offset: self.kept.acknowledged,
            prefix: self.kept.prefix,
            items: self.items,
            end: self.end,
            end_prefix: self.prefix,
            last,
            more: self.more,
            facts: self.kept.facts,
            gaps: self.gaps,
            records: self.records,
        })
    }
}

/// Puts gaps where the server could not read what was sent.
struct Refusals<'a> {
    refused: &'a [(u64, u64)],
    open: &'a mut Option<(u64, u64, u32)>,
}

impl Refusals<'_> {
    fn piece(
        &mut self,
        offset: u64,
        content: Content<'_>,
        each: &mut dyn FnMut(u64, &Content<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let end = offset + covered(&content);
        let stretch = self
            .refused
            .iter()
            .find(|(a, b)| (*a..*b).contains(&offset));
        if self.open.is_none()
            && let Some((_, stretch_end)) = stretch
        {
            *self.open = Some((*stretch_end, offset, 0));
        }
        let Some((stretch_end, begin, records)) = *self.open else {
            return each(offset, &content);
        };
        let records = records + u32::from(matches!(content, Content::Record(_)));
        if end < stretch_end {
            *self.open = Some((stretch_end, begin, records));
            return ControlFlow::Continue(());
        }
        *self.open = None;
        each(
            begin,
            &Content::Gap(Gap {
                length: stretch_end - begin,
                reason: GapReason::Refused,
                records: Some(records),
            }),
        )?;
        match content {
            Content::Gap(gap) if end > stretch_end => each(
                stretch_end,
                &Content::Gap(Gap {
                    length: end - stretch_end,
                    records: None,
                    ..gap
                }),
            ),
            _ => ControlFlow::Continue(()),
        }
    }
}
