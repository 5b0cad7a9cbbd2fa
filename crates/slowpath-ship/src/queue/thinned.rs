// SPDX-License-Identifier: Apache-2.0
//! A segment of which some records gave way: a file framed as a spool, in which a record of a kind
//! of its own stands where others were.
//!
//! That record states where in the segment it begins, so that damage costs what lies between two
//! of them at most. The last one of a file has no length.

use super::form::{Each, Walk, covered, gap_to_end, start_of};
use crate::batch::{Content, Gap, GapReason};
use slowpath_store::spool::{RawRecord, Scan, Stretch, encode_raw, kind};
use std::fs::File;
use std::io::{self, Seek as _, SeekFrom, Write};
use std::ops::ControlFlow;
use std::path::Path;

/// The kind of the record that stands for a gap: no spool has it.
const GAP_KIND: u8 = 0xff;
/// Bytes before its payload: mark, length, checksum, kind.
const FRAME: usize = 9;

/// Whether a record gives way before the segment as a whole does.
pub(super) fn gives_way(record: &RawRecord<'_>) -> bool {
    matches!(
        record.kind(),
        kind::PROBLEM | kind::LISTENER | kind::INTERACTION
    )
}

/// Writes a segment's pieces, those left out that may give way.
pub(super) struct Thinning<W> {
    out: W,
    /// The gap that is not written yet, and where it begins.
    gap: Option<(u64, Gap)>,
    buffer: Vec<u8>,
}

impl<W: Write> Thinning<W> {
    pub(super) fn new(out: W) -> Self {
        Thinning {
            out,
            gap: None,
            buffer: Vec::new(),
        }
    }

    /// The next piece; those that begin before `kept` stay as they are.
    pub(super) fn piece(&mut self, offset: u64, content: Content<'_>, kept: u64) -> io::Result<()> {
        match content {
            Content::Record(record) if offset >= kept && gives_way(&record) => {
                self.add(offset, record.bytes().len() as u64, 1)
            }
            Content::Gap(gap) => {
                self.end_gap()?;
                self.write_gap(offset, Some(gap))
            }
            Content::Header(bytes) => self.out.write_all(bytes),
            Content::Record(record) => {
                self.end_gap()?;
                self.out.write_all(record.bytes())
            }
        }
    }

    /// The segment's end.
    pub(super) fn end(mut self, length: u64) -> io::Result<()> {
        self.end_gap()?;
        self.write_gap(length, None)?;
        self.out.flush()
    }

    fn add(&mut self, offset: u64, length: u64, records: u32) -> io::Result<()> {
        let (_, gap) = self.gap.get_or_insert((
            offset,
            Gap {
                length: 0,
                reason: GapReason::Dropped,
                records: Some(0),
            },
        ));
        gap.length += length;
        gap.records = gap.records.map(|n| n + records);
        Ok(())
    }

    fn end_gap(&mut self) -> io::Result<()> {
        match self.gap.take() {
            Some((offset, gap)) => self.write_gap(offset, Some(gap)),
            None => Ok(()),
        }
    }

    fn write_gap(&mut self, offset: u64, gap: Option<Gap>) -> io::Result<()> {
        let mut payload = offset.to_le_bytes().to_vec();
        payload.extend(gap.iter().flat_map(Gap::bytes));
        self.buffer.clear();
        encode_raw(GAP_KIND, &payload, &mut self.buffer);
        self.out.write_all(&self.buffer)
    }
}

/// A gap that a record stands for, with its offset; the segment's end without a gap.
fn gap_of(record: &RawRecord<'_>) -> Option<(u64, Option<Gap>)> {
    let payload = &record.bytes()[FRAME..];
    let (offset, rest) = payload.split_first_chunk::<8>()?;
    let offset = u64::from_le_bytes(*offset);
    match <[u8; 13]>::try_from(rest) {
        Ok(bytes) => Some((offset, Some(Gap::read(bytes).ok()?))),
        Err(_) => rest.is_empty().then_some((offset, None)),
    }
}

/// Gives the pieces that end behind `from`; see [`Form::walk`](super::form::Form::walk).
pub(super) fn walk(path: &Path, length: u64, from: u64, each: &mut Each<'_>) -> io::Result<Walk> {
    let mut walker = Walker {
        from,
        offset: 0,
        lost: false,
        damage: false,
        each,
    };
    let mut file = File::open(path)?;
    let super::form::SpoolStart::Header(facts, header) = start_of(&mut file)? else {
        return Ok(gap_to_end(
            length,
            GapReason::Damaged,
            None,
            from,
            walker.each,
        ));
    };
    if walker.piece(Content::Header(&header)).is_break() {
        return Ok(walker.stopped());
    }
    file.seek(SeekFrom::Start(facts.header))?;
    let mut scan = Scan::new(file);
    while let Some(stretch) = scan.next()? {
        let flow = match stretch {
            Stretch::Damage(_) => {
                walker.lost = true;
                ControlFlow::Continue(())
            }
            Stretch::Record(record) if record.kind() == GAP_KIND => walker.gap(&record),
            // Where it stood in the segment is not known behind damage.
            Stretch::Record(_) if walker.lost => ControlFlow::Continue(()),
            Stretch::Record(record) => walker.piece(Content::Record(record)),
        };
        if flow.is_break() {
            return Ok(walker.stopped());
        }
    }
    if walker.up_to(length).is_break() {
        return Ok(walker.stopped());
    }
    Ok(Walk {
        offset: length,
        ended: true,
        damage: walker.damage,
    })
}

struct Walker<'a, 'b> {
    from: u64,
    offset: u64,
    /// Damage was met, and no gap since.
    lost: bool,
    damage: bool,
    each: &'a mut Each<'b>,
}

impl Walker<'_, '_> {
    fn stopped(&self) -> Walk {
        Walk {
            offset: self.offset.max(self.from),
            ended: false,
            damage: self.damage,
        }
    }

    /// A gap at its stated place.
    fn gap(&mut self, record: &RawRecord<'_>) -> ControlFlow<()> {
        let Some((offset, gap)) = gap_of(record).filter(|(offset, _)| *offset >= self.offset)
        else {
            self.lost = true;
            return ControlFlow::Continue(());
        };
        self.up_to(offset)?;
        self.lost = false;
        match gap {
            Some(gap) => self.piece(Content::Gap(gap)),
            None => ControlFlow::Continue(()),
        }
    }

    /// What was lost by damage before `offset`.
    fn up_to(&mut self, offset: u64) -> ControlFlow<()> {
        let length = offset.saturating_sub(self.offset);
        if length == 0 {
            return ControlFlow::Continue(());
        }
        self.damage = true;
        self.piece(Content::Gap(Gap {
            length,
            reason: GapReason::Damaged,
            records: None,
        }))
    }

    fn piece(&mut self, content: Content<'_>) -> ControlFlow<()> {
        let end = self.offset + covered(&content);
        if end > self.from {
            match content {
                // The server has the beginning of it.
                Content::Gap(gap) if self.offset < self.from => {
                    let rest = Gap {
                        length: end - self.from,
                        records: None,
                        ..gap
                    };
                    (self.each)(self.from, Content::Gap(rest))?;
                }
                content => (self.each)(self.offset, content)?,
            }
        }
        self.offset = end;
        ControlFlow::Continue(())
    }
}
