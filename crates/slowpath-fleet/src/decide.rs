// SPDX-License-Identifier: Apache-2.0
//! What becomes of a batch, from what is flushed of its segment: rules 1 to 3 of
//! `docs/decisions/0044-fleet.md`.

use slowpath_ship::batch::{Batch, Content, Items, Prefix};

/// Up to where a segment is taken, and the running CRC up to there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// Bytes of the segment.
    pub offset: u64,
    /// The running CRC of its items up to there.
    pub crc: Prefix,
    /// The segment ended there: no more of it is expected.
    pub ended: bool,
}

/// What becomes of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// These items, which begin at the known offset, are new.
    Take {
        /// The items to be stored; none where only the end of the segment is new.
        items: Items,
        /// Where they begin in the segment, bytes.
        from: u64,
        /// The position behind them.
        then: Position,
        /// Records among them.
        records: u64,
        /// Bytes of the segment that gaps among them stand for.
        gap_bytes: u64,
    },
    /// All of it was taken before; nothing is written.
    Known,
    /// It begins behind the known offset.
    Behind,
    /// Other bytes were taken at its place, or the known offset is not where a record or gap begins.
    OtherBytes,
}

/// Decides on a batch of a segment that was taken up to `known`; [`Position::default`] of one that
/// was not met before.
///
/// 1. It begins behind the known offset: [`Decision::Behind`].
/// 2. It begins at or before the known offset and ends behind it: its running CRC there must be the
///    known one, else [`Decision::OtherBytes`]. What follows is taken.
/// 3. It ends at or before the known offset: [`Decision::Known`]. Where it ends at the offset its
///    CRC is compared, too: nothing may follow by which other bytes were noticed.
pub fn decide(known: Position, batch: &Batch) -> Decision {
    let header = &batch.header;
    let end = batch.end();
    if header.offset > known.offset {
        return Decision::Behind;
    }
    if end < known.offset {
        return Decision::Known;
    }
    let Some((crc, items)) = batch.from_offset(known.offset) else {
        return Decision::OtherBytes;
    };
    if crc != known.crc {
        return Decision::OtherBytes;
    }
    let ends = header.last && !known.ended;
    if items.is_empty() && !ends {
        return Decision::Known;
    }
    let mut pieces = items.pieces(known.offset, crc);
    let (mut records, mut gap_bytes) = (0, 0);
    for piece in pieces.by_ref() {
        match piece.content {
            Content::Record(_) => records += 1,
            Content::Gap(gap) => gap_bytes += gap.length,
            Content::Header(_) => {}
        }
    }
    Decision::Take {
        from: known.offset,
        records,
        gap_bytes,
        then: Position {
            offset: end,
            crc: pieces.prefix(),
            ended: known.ended || header.last,
        },
        items,
    }
}
