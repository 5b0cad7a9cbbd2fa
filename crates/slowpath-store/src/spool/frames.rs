// SPDX-License-Identifier: Apache-2.0
//! The intact records of a spool one after the other, decoded only where they are wanted.

use super::{
    Bytes, FRAME, Header, HeaderError, INTERVAL, MARK, Parsed, Payload, Record, RecordStart,
    SEARCH_EFFORT, decode, decode_row, header_of, own, record_at,
};
use crate::cells::Flat;
use crate::rows::IDENTITY;
use slowpath_model::{ConnectionId, Micros, WallMicros};

/// An intact record that is not decoded yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame<'a> {
    /// Where it begins in the file.
    pub at: usize,
    pub kind: u8,
    payload: &'a [u8],
}

/// The kinds of records.
pub mod kind {
    /// A problem interval.
    pub const PROBLEM: u8 = 1;
    /// A connection's summary.
    pub const SUMMARY: u8 = 2;
    /// A coverage record.
    pub const COVERAGE: u8 = 3;
    /// A listener's interval.
    pub const LISTENER: u8 = 4;
    /// An interaction.
    pub const INTERACTION: u8 = 5;
    /// What a connection carried.
    pub const TRAFFIC: u8 = 6;
    /// A router on a connection's path.
    pub const HOP: u8 = 7;
    /// The last one that this version knows.
    pub const LAST: u8 = HOP;
}

impl Frame<'_> {
    /// The connection of an interval, its end and its duration.
    pub(crate) fn interval_key(
        &self,
        header: &Header,
    ) -> Option<(ConnectionId, WallMicros, Micros)> {
        let columns = &INTERVAL[..IDENTITY.len() + 2];
        let mut cells = decode_row(columns, self.payload)?;
        let row = &mut own(&mut cells, header.host.boot_id);
        Some((Flat::take(row)?, Flat::take(row)?, Flat::take(row)?))
    }
}

/// Goes through the intact records of a spool.
pub(crate) struct Frames<'a> {
    file: &'a [u8],
    at: usize,
    effort: usize,
    /// Bytes of the present damage.
    damage: usize,
    /// The first place in it that could be a record cut off by the end.
    torn: Option<usize>,
    parsed: Parsed,
}

impl<'a> Frames<'a> {
    /// Before the first record.
    pub(crate) fn new(file: &'a [u8]) -> Result<Self, HeaderError> {
        let (header, at) = header_of(file)?;
        Ok(Frames {
            file,
            at,
            effort: file.len().saturating_mul(SEARCH_EFFORT),
            damage: 0,
            torn: None,
            parsed: Parsed {
                header,
                records: Vec::new(),
                torn_tail: 0,
                corrupt: 0,
                corrupt_bytes: 0,
                unknown: 0,
                invalid: 0,
            },
        })
    }

    /// Whose spool it is.
    pub(crate) fn header(&self) -> &Header {
        &self.parsed.header
    }

    /// The next intact record; `None` at the end.
    pub(crate) fn next(&mut self) -> Option<Frame<'a>> {
        while self.at < self.file.len() {
            match record_at(&self.file[self.at..], &mut self.effort) {
                RecordStart::Record { kind, payload } => {
                    self.end_damage();
                    let at = self.at;
                    self.at += FRAME + payload.len();
                    return Some(Frame { at, kind, payload });
                }
                other => {
                    if matches!(other, RecordStart::Torn) && self.torn.is_none() {
                        self.torn = Some(self.at);
                    }
                    let skipped = match self.effort {
                        0 => self.file.len() - self.at,
                        _ => 1,
                    };
                    self.damage += skipped;
                    self.at += skipped;
                }
            }
        }
        None
    }

    fn end_damage(&mut self) {
        if self.damage > 0 {
            self.parsed.corrupt += 1;
            self.parsed.corrupt_bytes += self.damage;
        }
        self.damage = 0;
        self.torn = None;
    }

    /// The record of a frame; counts one that is not understood.
    pub(crate) fn decode(&mut self, frame: &Frame<'_>) -> Option<Record> {
        match decode(frame.kind, frame.payload, self.parsed.header.host.boot_id) {
            Payload::Record(record) => return Some(record),
            Payload::Unknown => self.parsed.unknown += 1,
            Payload::Invalid => self.parsed.invalid += 1,
        }
        None
    }

    /// What the file holds besides the records, after the last of them.
    pub(crate) fn end(mut self) -> Parsed {
        // A cut-off record counts as torn only where it begins the damage: else it is one
        // more chance pair of bytes in it.
        if self.damage > 0 && self.torn == Some(self.file.len() - self.damage) {
            self.parsed.torn_tail = self.damage;
            self.damage = 0;
        }
        self.end_damage();
        self.parsed
    }
}

/// The record at a place where [`Frames`] found one.
pub(crate) fn record_again(file: &[u8], at: usize, header: &Header) -> Option<Record> {
    let mut bytes = Bytes(file.get(at + MARK.len()..)?);
    let length = u16::from_le_bytes(bytes.array()?);
    let _checksum: [u8; 4] = bytes.array()?;
    let [kind] = bytes.array()?;
    match decode(kind, bytes.take(usize::from(length))?, header.host.boot_id) {
        Payload::Record(record) => Some(record),
        Payload::Unknown | Payload::Invalid => None,
    }
}
