// SPDX-License-Identifier: Apache-2.0
//! The forms in which a segment lies on the disk, and its pieces in each of them.

use super::thinned;
use crate::batch::{Content, Gap, GapReason, Prefix};
use slowpath_store::spool::{HeaderError, MAX_HEADER, Scan, Stretch, header_of};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// What of a segment is on the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// A spool that still grows or waits to become Parquet.
    Live(PathBuf),
    /// A spool that ended.
    Whole(PathBuf),
    /// A spool of which some records gave way, and its length before, bytes.
    Thinned(PathBuf, u64),
    /// Nothing is left of it.
    Gone(Remains),
}

/// What is known of a segment that is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(super) struct Remains {
    /// Up to where it was acknowledged then, bytes.
    pub from: u64,
    /// How long it was, bytes.
    pub length: u64,
    /// How many of its records were between, if they were counted.
    pub records: Option<u32>,
    /// Why it is gone.
    pub reason: GapReason,
}

/// What a spool's header says that batches repeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(super) struct SpoolFacts {
    pub framing: u16,
    pub schema: u16,
    pub boot_id: u128,
    /// When the segment began, microseconds since 1970 by the host's clock.
    pub begun_us: i64,
    /// Length of the header, bytes.
    pub header: u64,
}

/// What the beginning of a spool is.
pub(super) enum SpoolStart {
    Header(SpoolFacts, Vec<u8>),
    /// It is being written, or its writer was killed before the first record.
    Torn,
    /// A newer slowpath wrote it.
    Newer,
    Damaged,
}

/// Reads the beginning of a spool, which stays the file's position.
pub(super) fn start_of(file: &mut File) -> io::Result<SpoolStart> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.take(MAX_HEADER as u64).read_to_end(&mut bytes)?;
    Ok(match header_of(&bytes) {
        Ok((header, length)) => {
            bytes.truncate(length);
            let facts = SpoolFacts {
                // Behind the magic of 8 bytes.
                framing: u16::from_le_bytes([bytes[8], bytes[9]]),
                schema: header.schema_version,
                boot_id: header.host.boot_id,
                begun_us: header.begun.0,
                header: length as u64,
            };
            SpoolStart::Header(facts, bytes)
        }
        Err(HeaderError::Torn) => SpoolStart::Torn,
        Err(HeaderError::Newer { .. }) => SpoolStart::Newer,
        Err(HeaderError::NotASpool | HeaderError::Damaged) => SpoolStart::Damaged,
    })
}

/// Where a walk over pieces ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Walk {
    /// Where the next piece begins, or will.
    pub offset: u64,
    /// It is the segment's end: nothing will follow.
    pub ended: bool,
    /// A damaged stretch was met.
    pub damage: bool,
}

/// What a walk calls for each piece: where it begins, and what it is.
pub(super) type Each<'a> = dyn FnMut(u64, Content<'_>) -> ControlFlow<()> + 'a;

impl Form {
    pub(super) fn path(&self) -> Option<&Path> {
        match self {
            Form::Live(path) | Form::Whole(path) | Form::Thinned(path, _) => Some(path),
            Form::Gone(_) => None,
        }
    }

    /// The segment's length, as far as it is written.
    pub(super) fn length(&self) -> io::Result<u64> {
        match self {
            Form::Live(path) | Form::Whole(path) => Ok(path.metadata()?.len()),
            Form::Thinned(_, length) | Form::Gone(Remains { length, .. }) => Ok(*length),
        }
    }

    /// Whether its bytes are still those that the writer wrote, so that a server which has others
    /// has another segment's.
    pub(super) fn is_original(&self) -> bool {
        matches!(self, Form::Live(_) | Form::Whole(_))
    }

    /// Gives the pieces from `from` on, where one begins or a gap is, until `each` breaks off;
    /// where that was, it is called again the next time. `known` is what an earlier look at the
    /// header found.
    pub(super) fn walk(
        &self,
        known: Option<&SpoolFacts>,
        from: u64,
        each: &mut Each<'_>,
    ) -> io::Result<Walk> {
        match self {
            Form::Live(path) => walk_spool(path, false, known, from, each),
            Form::Whole(path) => walk_spool(path, true, known, from, each),
            Form::Thinned(path, length) => thinned::walk(path, *length, from, each),
            Form::Gone(remains) => {
                let records = remains.records.filter(|_| from == remains.from);
                Ok(gap_to_end(
                    remains.length,
                    remains.reason,
                    records,
                    from,
                    each,
                ))
            }
        }
    }
}

/// One gap up to the end of the segment, if that is not reached.
pub(super) fn gap_to_end(
    length: u64,
    reason: GapReason,
    records: Option<u32>,
    from: u64,
    each: &mut Each<'_>,
) -> Walk {
    let gap = Gap {
        length: length.saturating_sub(from),
        reason,
        records,
    };
    let stopped = gap.length > 0 && each(from, Content::Gap(gap)).is_break();
    Walk {
        offset: if stopped { from } else { length },
        ended: !stopped,
        damage: reason == GapReason::Damaged,
    }
}

/// What the beginning of a walk over a spool gave.
enum Entry {
    /// The records follow from here on; whether the header was damaged.
    Records(u64, bool),
    /// The walk is over.
    Over(Walk),
}

/// Gives the header, or the gap in its place, where the walk begins before its end.
fn enter_spool(
    file: &mut File,
    (length, sealed): (u64, bool),
    known: Option<&SpoolFacts>,
    from: u64,
    each: &mut Each<'_>,
) -> io::Result<Entry> {
    let nothing = Entry::Over(Walk {
        offset: from,
        ended: false,
        damage: false,
    });
    if known.is_some_and(|facts| from >= facts.header) {
        return Ok(Entry::Records(from, false));
    }
    let readable = known.filter(|facts| facts.header <= length);
    Ok(match (start_of(file)?, readable) {
        (SpoolStart::Header(facts, header), _) => {
            if from == 0 && each(0, Content::Header(&header)).is_break() {
                return Ok(nothing);
            }
            Entry::Records(from.max(facts.header), false)
        }
        // It was read before: whatever it looks like now is damage, also a newer version.
        (_, Some(facts)) => {
            if each(from, damaged(facts.header - from)).is_break() {
                return Ok(nothing);
            }
            Entry::Records(facts.header, true)
        }
        (SpoolStart::Newer, None) => nothing,
        (SpoolStart::Torn | SpoolStart::Damaged, None) if !sealed => nothing,
        (SpoolStart::Torn | SpoolStart::Damaged, None) => {
            Entry::Over(gap_to_end(length, GapReason::Damaged, None, from, each))
        }
    })
}

fn walk_spool(
    path: &Path,
    sealed: bool,
    known: Option<&SpoolFacts>,
    from: u64,
    each: &mut Each<'_>,
) -> io::Result<Walk> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    let (mut offset, mut damage) =
        match enter_spool(&mut file, (length, sealed), known, from, each)? {
            Entry::Records(offset, damage) => (offset, damage),
            Entry::Over(walk) => return Ok(walk),
        };
    file.seek(SeekFrom::Start(offset))?;
    // What is written meanwhile is for the next time.
    let mut scan = Scan::new(file.take(length.saturating_sub(offset)));
    while let Some(stretch) = scan.next()? {
        let content = match stretch {
            Stretch::Record(record) => Content::Record(record),
            Stretch::Damage(length) => {
                damage = true;
                damaged(length)
            }
        };
        let end = offset + stretch.length();
        if each(offset, content).is_break() {
            return Ok(Walk {
                offset,
                ended: false,
                damage,
            });
        }
        offset = end;
    }
    let tail = scan.tail();
    if !sealed {
        return Ok(Walk {
            offset,
            ended: false,
            damage,
        });
    }
    if tail > 0 && each(offset, damaged(tail)).is_break() {
        return Ok(Walk {
            offset,
            ended: false,
            damage: true,
        });
    }
    Ok(Walk {
        offset: offset + tail,
        ended: true,
        damage: damage || tail > 0,
    })
}

fn damaged(length: u64) -> Content<'static> {
    Content::Gap(Gap {
        length,
        reason: GapReason::Damaged,
        records: None,
    })
}

/// The running CRC goes on over a piece.
pub(super) fn over(prefix: Prefix, content: &Content<'_>) -> Prefix {
    match content {
        Content::Header(bytes) => prefix.over(bytes),
        Content::Record(record) => prefix.over(record.bytes()),
        Content::Gap(gap) => prefix.over(&gap.bytes()),
    }
}

/// How many bytes of the segment a piece covers.
pub(super) fn covered(content: &Content<'_>) -> u64 {
    match content {
        Content::Header(bytes) => bytes.len() as u64,
        Content::Record(record) => record.bytes().len() as u64,
        Content::Gap(gap) => gap.length,
    }
}
