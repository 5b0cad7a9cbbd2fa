// SPDX-License-Identifier: Apache-2.0
//! The items of a batch: whole records as they stand in the spool, and gaps.
//!
//! | bytes | |
//! |---|---|
//! | 1, 4, n | 0, length, whole records; at the segment's start the spool's header before them |
//! | 1, 8, 1, 4 | 1, length in the segment, reason, records (0xffffffff: not known) |

use super::fields::Fields;
use super::{Prefix, ReadError, malformed};
use slowpath_store::spool::{self, RawRecord};

const RECORDS: u8 = 0;
const GAP: u8 = 1;
/// Bytes of an item of records before its data.
const BEFORE_RECORDS: usize = 5;
/// Bytes of a gap, and those of them that the running CRC covers.
const GAP_BYTES: usize = 14;
const FIELD: &str = "items";

/// Why records are missing.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "kebab-case")]
#[repr(u8)]
pub enum GapReason {
    /// The bytes were damaged on the agent's disk.
    Damaged = 1,
    /// They gave way to others, because `ship-limit` was reached or the disk was full.
    Dropped = 2,
    /// The server refused them as malformed.
    Refused = 3,
}

impl GapReason {
    /// All reasons.
    pub const ALL: [GapReason; 3] = [GapReason::Damaged, GapReason::Dropped, GapReason::Refused];

    /// As the label of a metric.
    pub fn as_str(self) -> &'static str {
        match self {
            GapReason::Damaged => "damaged",
            GapReason::Dropped => "dropped",
            GapReason::Refused => "refused",
        }
    }

    /// By its number.
    pub fn from_number(number: u8) -> Option<Self> {
        GapReason::ALL.into_iter().find(|r| *r as u8 == number)
    }
}

/// Bytes of a segment that the server does not get.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Gap {
    /// How many bytes of the segment; at least one.
    pub length: u64,
    /// Why.
    pub reason: GapReason,
    /// How many records were in them; `None` if that is not known.
    pub records: Option<u32>,
}

impl Gap {
    /// The 13 bytes that stand for it in the running CRC.
    pub fn bytes(&self) -> [u8; GAP_BYTES - 1] {
        let mut bytes = [0; GAP_BYTES - 1];
        bytes[..8].copy_from_slice(&self.length.to_le_bytes());
        bytes[8] = self.reason as u8;
        let records = self.records.map_or(u32::MAX, |n| n.min(u32::MAX - 1));
        bytes[9..].copy_from_slice(&records.to_le_bytes());
        bytes
    }

    /// From its 13 bytes.
    ///
    /// # Errors
    /// It covers nothing, or its reason is unknown.
    pub fn read(bytes: [u8; GAP_BYTES - 1]) -> Result<Self, ReadError> {
        let mut fields = Fields::new(&bytes);
        let length = fields.u64("length of a gap")?;
        if length == 0 {
            return Err(malformed("length of a gap", "it is zero"));
        }
        let reason = GapReason::from_number(fields.u8("reason of a gap")?)
            .ok_or_else(|| malformed("reason of a gap", "it is unknown"))?;
        let records = fields.u32("records of a gap")?;
        Ok(Gap {
            length,
            reason,
            records: (records != u32::MAX).then_some(records),
        })
    }
}

/// Records and gaps in their encoded form. Whatever made it: every record is whole and intact,
/// and the spool's header stands at the segment's start only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Items {
    bytes: Vec<u8>,
    /// Bytes of the segment that they cover.
    covered: u64,
    /// Where the length of the last item stands, if it is of records.
    open: Option<usize>,
}

/// What a [`Piece`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content<'a> {
    /// The spool's header, at the segment's start.
    Header(&'a [u8]),
    /// A record.
    Record(RawRecord<'a>),
    /// A gap.
    Gap(Gap),
}

/// A record, a gap or the spool's header at its place in the segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece<'a> {
    /// Where it begins in the segment, bytes.
    pub offset: u64,
    /// Where it ends.
    pub end: u64,
    /// The running CRC behind it.
    pub prefix: Prefix,
    /// What it is.
    pub content: Content<'a>,
}

impl Items {
    /// Reads encoded items that begin at `offset` of their segment.
    ///
    /// # Errors
    /// See [`ReadError`]: an item is cut off, a record in it is not intact, a header is missing or
    /// out of place, or the items end past 2^64.
    pub fn read(bytes: Vec<u8>, offset: u64) -> Result<Items, ReadError> {
        let mut pieces = Pieces::new(&bytes, offset, Prefix::default());
        while pieces.next_piece()?.is_some() {}
        let covered = pieces.offset - offset;
        Ok(Items {
            bytes,
            covered,
            open: None,
        })
    }

    /// The encoded form, to be stored and given to [`Items::read`] again.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// How many bytes of the segment they cover.
    pub fn covered(&self) -> u64 {
        self.covered
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The items one after the other; they begin at `offset` of the segment, before which the
    /// running CRC is `prefix`.
    pub fn pieces(&self, offset: u64, prefix: Prefix) -> Pieces<'_> {
        Pieces::new(&self.bytes, offset, prefix)
    }

    /// The running CRC at `at` and the items from there on, of items as in [`Items::pieces`];
    /// `None` unless a piece begins or ends there.
    pub fn from_offset(&self, offset: u64, prefix: Prefix, at: u64) -> Option<(Prefix, Items)> {
        if at == offset {
            let rest = Items {
                open: None,
                ..self.clone()
            };
            return Some((prefix, rest));
        }
        let mut pieces = self.pieces(offset, prefix);
        while pieces.offset < at {
            pieces.next()?;
        }
        (pieces.offset == at).then(|| (pieces.prefix, pieces.rest()))
    }

    /// Adds the spool's header, which belongs at the segment's start.
    pub fn push_header(&mut self, header: &[u8]) {
        self.push_data(header);
    }

    /// Adds a record.
    pub fn push_record(&mut self, record: RawRecord<'_>) {
        self.push_data(record.bytes());
    }

    /// Adds a gap; one without a length is left out.
    pub fn push_gap(&mut self, gap: Gap) {
        if gap.length > 0 {
            self.open = None;
            self.bytes.push(GAP);
            self.bytes.extend(gap.bytes());
            self.covered += gap.length;
        }
    }

    /// Adds a piece of other items.
    pub fn push(&mut self, piece: &Piece<'_>) {
        match piece.content {
            Content::Header(header) => self.push_header(header),
            Content::Record(record) => self.push_record(record),
            Content::Gap(gap) => self.push_gap(gap),
        }
    }

    fn push_data(&mut self, data: &[u8]) {
        let at = *self.open.get_or_insert_with(|| {
            self.bytes.push(RECORDS);
            self.bytes.extend([0; 4]);
            self.bytes.len() - 4
        });
        self.bytes.extend(data);
        let length = (self.bytes.len() - at - 4) as u32;
        self.bytes[at..at + 4].copy_from_slice(&length.to_le_bytes());
        self.covered += data.len() as u64;
    }
}

/// Goes through items.
#[derive(Clone, Debug)]
pub struct Pieces<'a> {
    bytes: &'a [u8],
    /// Where in `bytes` the next piece begins, and where the present item of records ends.
    at: usize,
    records_end: usize,
    offset: u64,
    prefix: Prefix,
}

impl<'a> Pieces<'a> {
    fn new(bytes: &'a [u8], offset: u64, prefix: Prefix) -> Self {
        Pieces {
            bytes,
            at: 0,
            records_end: 0,
            offset,
            prefix,
        }
    }

    /// Where in the segment the next piece begins.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The running CRC before the next piece.
    pub fn prefix(&self) -> Prefix {
        self.prefix
    }

    /// The items that follow.
    fn rest(&self) -> Items {
        let mut rest = Items::default();
        if self.at < self.records_end {
            rest.push_data(&self.bytes[self.at..self.records_end]);
        }
        rest.open = None;
        let behind = &self.bytes[self.at.max(self.records_end)..];
        rest.bytes.extend(behind);
        let mut pieces = self.clone();
        while pieces.next().is_some() {}
        rest.covered = pieces.offset - self.offset;
        rest
    }

    /// The next piece, checked.
    fn next_piece(&mut self) -> Result<Option<Piece<'a>>, ReadError> {
        if self.at >= self.records_end {
            let mut fields = Fields::new(&self.bytes[self.at..]);
            if fields.is_empty() {
                return Ok(None);
            }
            match fields.u8(FIELD)? {
                RECORDS => {
                    let length = fields.u32("length of records")? as usize;
                    if length == 0 {
                        return Err(malformed("length of records", "it is zero"));
                    }
                    fields.take(length, "records")?;
                    self.records_end = self.at + fields.at();
                    self.at += BEFORE_RECORDS;
                }
                GAP => {
                    let gap = Gap::read(fields.array("gap")?)?;
                    self.at += GAP_BYTES;
                    let bytes = gap.bytes();
                    return self.piece(gap.length, &bytes, Content::Gap(gap)).map(Some);
                }
                _ => return Err(malformed(FIELD, "an item's kind is unknown")),
            }
        }
        let bytes = &self.bytes[self.at..self.records_end];
        let content = if self.offset == 0 {
            let (_, length) = spool::header_of(bytes)
                .map_err(|_| malformed("records", "the segment's start is no header of a spool"))?;
            Content::Header(&bytes[..length])
        } else {
            RawRecord::at_start(bytes)
                .map(Content::Record)
                .ok_or_else(|| malformed("records", "a record is not whole or not intact"))?
        };
        let data = match content {
            Content::Header(header) => header,
            Content::Record(record) => record.bytes(),
            Content::Gap(_) => &[],
        };
        self.at += data.len();
        self.piece(data.len() as u64, data, content).map(Some)
    }

    fn piece(
        &mut self,
        length: u64,
        crc_over: &[u8],
        content: Content<'a>,
    ) -> Result<Piece<'a>, ReadError> {
        let offset = self.offset;
        self.offset = offset
            .checked_add(length)
            .ok_or_else(|| malformed(FIELD, "they end past 2^64"))?;
        self.prefix = self.prefix.over(crc_over);
        Ok(Piece {
            offset,
            end: self.offset,
            prefix: self.prefix,
            content,
        })
    }
}

impl<'a> Iterator for Pieces<'a> {
    type Item = Piece<'a>;

    fn next(&mut self) -> Option<Piece<'a>> {
        // Items were checked when they were made.
        self.next_piece().ok().flatten()
    }
}
