// SPDX-License-Identifier: Apache-2.0
//! A spool that is read in pieces: its intact records as they stand, and the damage between them.

use super::{FRAME, MAX_RECORD, Payload, RecordStart, decode, record_at};
use std::io::{self, Read};

/// An intact record as it stands in a spool, not decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawRecord<'a> {
    bytes: &'a [u8],
    kind: u8,
}

impl<'a> RawRecord<'a> {
    /// The record at the beginning of `bytes`; `None` if none stands there whole and intact.
    pub fn at_start(bytes: &'a [u8]) -> Option<Self> {
        match record_at(bytes, &mut { usize::MAX }) {
            RecordStart::Record { kind, payload } => Some(RawRecord {
                bytes: &bytes[..FRAME + payload.len()],
                kind,
            }),
            RecordStart::Torn | RecordStart::Nothing => None,
        }
    }

    /// What it is of, see [`kind`](super::kind).
    pub fn kind(&self) -> u8 {
        self.kind
    }

    /// All its bytes, frame included.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Decodes it; `boot_id` is that of its spool's header, which records leave out.
    pub fn decode(&self, boot_id: u128) -> Payload {
        decode(self.kind, &self.bytes[FRAME..], boot_id)
    }
}

/// A stretch of a spool behind its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stretch<'a> {
    /// An intact record.
    Record(RawRecord<'a>),
    /// A number of bytes that are no record, before an intact one.
    Damage(u64),
}

impl Stretch<'_> {
    /// How many bytes of the spool it covers.
    pub fn length(&self) -> u64 {
        match self {
            Stretch::Record(record) => record.bytes.len() as u64,
            Stretch::Damage(length) => *length,
        }
    }
}

/// Goes through a spool from the end of its header, or of any stretch, on. It keeps some 128 KiB.
///
/// The end of damage depends on its bytes only, not on how long the file is: a file that grows gives
/// the same stretches again.
#[derive(Debug)]
pub struct Scan<R> {
    source: R,
    buffer: Vec<u8>,
    /// Where in `buffer` the next byte to look at is.
    start: usize,
    ended: bool,
    /// Bytes of the present damage.
    damage: u64,
    /// Bytes that may be checksummed in vain in the present damage.
    effort: i64,
}

/// Bytes read at once.
const PIECE: usize = 2 * MAX_RECORD;
/// The search for the next record checksums at most so many bytes for each byte of damage, and a
/// MiB more: it takes linear time, whatever the bytes.
const EFFORT_PER_BYTE: i64 = 16;
const FIRST_EFFORT: i64 = 1 << 20;

impl<R: Read> Scan<R> {
    /// Before the stretch that begins where `source` stands.
    pub fn new(source: R) -> Self {
        Scan {
            source,
            buffer: Vec::new(),
            start: 0,
            ended: false,
            damage: 0,
            effort: FIRST_EFFORT,
        }
    }

    /// The next stretch; `None` at the end of the source, behind which [`Scan::tail`] bytes may
    /// stand that are no record, or not yet.
    ///
    /// # Errors
    /// The source cannot be read.
    #[expect(
        clippy::should_implement_trait,
        reason = "a stretch borrows from the scan"
    )]
    pub fn next(&mut self) -> io::Result<Option<Stretch<'_>>> {
        loop {
            self.fill()?;
            if self.start == self.buffer.len() {
                return Ok(None);
            }
            let spent = match self.record_length() {
                Ok(_) if self.damage > 0 => {
                    self.effort = FIRST_EFFORT;
                    return Ok(Some(Stretch::Damage(std::mem::take(&mut self.damage))));
                }
                Ok(length) => {
                    let at = self.start;
                    self.start += length;
                    let bytes = &self.buffer[at..self.start];
                    let kind = bytes[FRAME - 1];
                    return Ok(Some(Stretch::Record(RawRecord { bytes, kind })));
                }
                Err(spent) => spent,
            };
            self.effort += EFFORT_PER_BYTE - spent;
            self.damage += 1;
            self.start += 1;
        }
    }

    /// The length of the intact record here, or how many bytes were checksummed in vain.
    fn record_length(&self) -> Result<usize, i64> {
        if self.effort <= 0 {
            return Err(0);
        }
        let mut left = usize::MAX;
        match record_at(&self.buffer[self.start..], &mut left) {
            RecordStart::Record { payload, .. } => Ok(FRAME + payload.len()),
            // At most the longest record.
            _ => Err((usize::MAX - left) as i64),
        }
    }

    /// Bytes at the end of the source that are no record: cut off, damaged, or still being written.
    pub fn tail(&self) -> u64 {
        self.damage
    }

    /// Has at least the longest record in the buffer, or all that is left.
    fn fill(&mut self) -> io::Result<()> {
        while !self.ended && self.buffer.len() - self.start < MAX_RECORD {
            self.buffer.drain(..self.start);
            self.start = 0;
            let wanted = (PIECE - self.buffer.len()) as u64;
            let read = (&mut self.source)
                .take(wanted)
                .read_to_end(&mut self.buffer)?;
            self.ended = (read as u64) < wanted;
        }
        Ok(())
    }
}
