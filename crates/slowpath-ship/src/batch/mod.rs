// SPDX-License-Identifier: Apache-2.0
//! A batch: records of one segment, from an offset on, with what the server needs to place them.
//!
//! `docs/decisions/0044-fleet.md` has the layout. A batch is read in two steps: [`Header::read`]
//! checks lengths and the header's checksum and gives a typed header, by which a server may
//! already refuse; [`Reader::read`] then decompresses the items, within the stated length, and
//! checks every record of them.

mod fields;
mod frame;
mod items;

pub use items::{Content, Gap, GapReason, Items, Piece, Pieces};

use fields::Fields;
use slowpath_model::WallMicros;

/// The version of the protocol that this crate speaks.
pub const PROTOCOL: u16 = 1;
/// The most bytes of items in a batch, before compression.
pub const MAX_ITEMS: usize = (1 << 20) + (64 << 10);
/// The most bytes of a batch as it travels: an incompressible one, and its header.
pub const MAX_BATCH: usize = (1 << 20) + (128 << 10);
/// The largest window of a zstd frame that is read, in bytes.
pub const MAX_WINDOW: u64 = 2 << 20;
/// The longest id of a segment, in bytes.
pub const MAX_SEGMENT_ID: usize = 255;

const MAGIC: [u8; 4] = *b"slb1";
/// Bytes of the header before the segment's id.
const FIXED: usize = 99;
/// The only flag: the segment ends with this batch.
const LAST: u16 = 1;
/// What stands for an error of the clock that was not measured.
const NO_ERROR: u32 = u32::MAX;

/// The running CRC-32 (IEEE 802.3) of a segment's items up to an offset: over the data of records
/// and the 13 bytes of gaps. Client and server keep one each; equal ones mean equal bytes.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(transparent)]
pub struct Prefix(pub u32);

impl Prefix {
    /// Goes on over the next bytes.
    #[must_use]
    pub fn over(self, bytes: &[u8]) -> Self {
        let mut crc = crc32fast::Hasher::new_with_initial(self.0);
        crc.update(bytes);
        Prefix(crc.finalize())
    }
}

/// The clock of a host when it sent a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentClock {
    /// Its wall clock.
    pub sent: WallMicros,
    /// What adjtimex(2) returned: `TIME_OK` (0) … `TIME_ERROR` (5, not synchronised); 255 if it
    /// could not be asked.
    pub state: u8,
    /// `maxerror` of adjtimex(2), microseconds; `None` if it could not be asked.
    pub max_error_us: Option<u32>,
}

/// How far a host's clock is ahead of the server's, from the exchange before: the four timestamps
/// of RFC 5905 section 8.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ClockOffset {
    /// The server's clock less the host's, microseconds.
    pub offset_us: i64,
    /// Half of the time under way, microseconds: the offset is at most so far off.
    pub error_us: u32,
}

/// What a batch says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Version of the spool's framing, as in the spool's header.
    pub framing: u16,
    /// Version of the records' schema, as in the spool's header.
    pub schema: u16,
    /// The segment ends with this batch.
    pub last: bool,
    /// The agent's run: random, drawn when it starts.
    pub run: u128,
    /// Number of the batch in the run.
    pub number: u64,
    /// The boot id in the segment's spool header, which its records leave out. Of a live
    /// segment it is the host's.
    pub boot_id: u128,
    /// The agent's clock when it sent the batch.
    pub clock: SentClock,
    /// How far its clock is from the server's.
    pub clock_offset: Option<ClockOffset>,
    /// Where in the segment the items begin, bytes.
    pub offset: u64,
    /// The running CRC of all before.
    pub prefix: Prefix,
    /// The segment's id: letters, digits, `-`, `_` and `.`, at least one and at most
    /// [`MAX_SEGMENT_ID`] bytes, not beginning with `.`.
    pub segment: String,
    /// Bytes of the items before compression; set by [`Encoder::encode`].
    pub items_length: u32,
    /// CRC-32 of the items before compression; set by [`Encoder::encode`].
    pub items_crc: u32,
}

/// Why a batch cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// A field is wrong: 400 `malformed`.
    #[error("{field}: {reason}")]
    Malformed {
        /// Which field, by its name in the table of `docs/decisions/0044-fleet.md`.
        field: &'static str,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// It speaks a newer protocol: 426 `newer`.
    #[error("its protocol has version {protocol}, this slowpath reads up to {PROTOCOL}")]
    Newer {
        /// The version.
        protocol: u16,
    },
}

fn malformed(field: &'static str, reason: &'static str) -> ReadError {
    ReadError::Malformed { field, reason }
}

impl Header {
    /// Whether its records are of a framing or schema that this version does not read: 426 `newer`.
    pub fn is_newer(&self) -> bool {
        self.framing > slowpath_store::spool::SPOOL_VERSION
            || self.schema > slowpath_store::SCHEMA_VERSION
    }

    /// Reads the header of a batch; also gives its length: the compressed items follow.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn read(body: &[u8]) -> Result<(Header, usize), ReadError> {
        let mut fields = Fields::new(body);
        if fields.array("magic")? != MAGIC {
            return Err(malformed("magic", "it is no batch"));
        }
        let protocol = fields.u16("protocol version")?;
        if protocol > PROTOCOL {
            return Err(ReadError::Newer { protocol });
        }
        if protocol == 0 {
            return Err(malformed("protocol version", "it is zero"));
        }
        let framing = fields.u16("framing")?;
        let schema = fields.u16("schema")?;
        let flags = fields.u16("flags")?;
        if flags & !LAST != 0 {
            return Err(malformed("flags", "an unknown one is set"));
        }
        let run = fields.u128("run")?;
        let number = fields.u64("number")?;
        let boot_id = fields.u128("boot id")?;
        let clock = SentClock {
            sent: WallMicros(fields.i64("clock")?),
            state: fields.u8("clock state")?,
            max_error_us: known(fields.u32("maximal error")?),
        };
        let offset_us = fields.i64("clock offset")?;
        let clock_offset =
            known(fields.u32("error of the clock offset")?).map(|error_us| ClockOffset {
                offset_us,
                error_us,
            });
        let offset = fields.u64("offset")?;
        let prefix = Prefix(fields.u32("prefix")?);
        let items_length = fields.u32("length of the items")?;
        if items_length as usize > MAX_ITEMS {
            return Err(malformed("length of the items", "it is over the limit"));
        }
        let items_crc = fields.u32("CRC of the items")?;
        let id = fields.text("segment id", MAX_SEGMENT_ID)?;
        let length = fields.at();
        let crc = fields.u32("CRC of the header")?;
        if !cfg!(fuzzing) && crc != crc32fast::hash(&body[..length]) {
            return Err(malformed("CRC of the header", "it is another"));
        }
        if !is_segment_id(id) {
            return Err(malformed("segment id", "no segment is called so"));
        }
        if offset == 0 && prefix != Prefix::default() {
            return Err(malformed("prefix", "nothing is before the segment's start"));
        }
        let header = Header {
            framing,
            schema,
            last: flags & LAST != 0,
            run,
            number,
            boot_id,
            clock,
            clock_offset,
            offset,
            prefix,
            segment: id.to_owned(),
            items_length,
            items_crc,
        };
        Ok((header, length + 4))
    }

    fn write(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend(MAGIC);
        out.extend(PROTOCOL.to_le_bytes());
        out.extend(self.framing.to_le_bytes());
        out.extend(self.schema.to_le_bytes());
        out.extend((u16::from(self.last) * LAST).to_le_bytes());
        out.extend(self.run.to_le_bytes());
        out.extend(self.number.to_le_bytes());
        out.extend(self.boot_id.to_le_bytes());
        out.extend(self.clock.sent.0.to_le_bytes());
        out.push(self.clock.state);
        out.extend(self.clock.max_error_us.unwrap_or(NO_ERROR).to_le_bytes());
        let (offset, error) = match self.clock_offset {
            Some(measured) => (measured.offset_us, measured.error_us.min(NO_ERROR - 1)),
            None => (0, NO_ERROR),
        };
        out.extend(offset.to_le_bytes());
        out.extend(error.to_le_bytes());
        out.extend(self.offset.to_le_bytes());
        out.extend(self.prefix.0.to_le_bytes());
        out.extend(self.items_length.to_le_bytes());
        out.extend(self.items_crc.to_le_bytes());
        out.extend((self.segment.len() as u16).to_le_bytes());
        debug_assert_eq!(out.len() - start, FIXED);
        out.extend(self.segment.as_bytes());
        out.extend(crc32fast::hash(&out[start..]).to_le_bytes());
    }
}

fn known(error: u32) -> Option<u32> {
    (error != NO_ERROR).then_some(error)
}

/// Whether a segment may have this id, which is part of files' names.
pub fn is_segment_id(id: &str) -> bool {
    let of_id = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_');
    !id.is_empty() && id.len() <= MAX_SEGMENT_ID && !id.starts_with('.') && id.bytes().all(of_id)
}

/// A batch that was read: its items are as its header says, every record in them whole and intact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// What it says of itself.
    pub header: Header,
    /// Its records and gaps.
    pub items: Items,
}

impl Batch {
    /// Where in the segment the batch ends, bytes.
    pub fn end(&self) -> u64 {
        // Readers refuse batches that end past 2^64.
        self.header.offset + self.items.covered()
    }

    /// Its records and gaps one after the other, with their offsets and running CRCs.
    pub fn pieces(&self) -> Pieces<'_> {
        self.items.pieces(self.header.offset, self.header.prefix)
    }

    /// The running CRC at `offset`, and the items from there on. `None` unless a record, the
    /// spool's header or a gap begins or ends there.
    pub fn from_offset(&self, offset: u64) -> Option<(Prefix, Items)> {
        self.items
            .from_offset(self.header.offset, self.header.prefix, offset)
    }
}

/// Encodes batches; keeps its compressor.
pub struct Encoder {
    compressor: zstd::bulk::Compressor<'static>,
}

/// Its window at most 2 MiB whatever the size; 1 MiB of records takes 5 ms, 1/6 of it is left.
const LEVEL: i32 = 3;

impl Encoder {
    /// An encoder.
    ///
    /// # Errors
    /// There is no memory for it.
    pub fn new() -> std::io::Result<Self> {
        Ok(Encoder {
            compressor: zstd::bulk::Compressor::new(LEVEL)?,
        })
    }

    /// A batch of these items; the lengths and checksums in `header` are set.
    ///
    /// # Errors
    /// There is no memory to compress in.
    pub fn encode(&mut self, header: &Header, items: &Items) -> std::io::Result<Vec<u8>> {
        let bytes = items.bytes();
        let header = Header {
            items_length: bytes.len() as u32,
            items_crc: crc32fast::hash(bytes),
            ..header.clone()
        };
        let compressed = self.compressor.compress(bytes)?;
        let mut out = Vec::with_capacity(FIXED + header.segment.len() + 4 + compressed.len());
        header.write(&mut out);
        out.extend(compressed);
        Ok(out)
    }
}

/// Reads batches; keeps its decompressor.
pub struct Reader {
    decompressor: zstd::bulk::Decompressor<'static>,
}

impl Reader {
    /// A reader.
    ///
    /// # Errors
    /// There is no memory for it.
    pub fn new() -> std::io::Result<Self> {
        Ok(Reader {
            decompressor: zstd::bulk::Decompressor::new()?,
        })
    }

    /// Reads a batch. It takes memory of the stated length of the items, at most [`MAX_ITEMS`],
    /// and time in proportion to that and to the body, whatever the bytes are.
    ///
    /// # Errors
    /// See [`ReadError`]. Of a newer framing or schema ([`Header::is_newer`]) the items cannot be
    /// checked: `framing` is malformed then; ask the header first.
    pub fn read(&mut self, body: &[u8]) -> Result<Batch, ReadError> {
        let (header, length) = Header::read(body)?;
        if header.is_newer() {
            return Err(malformed("framing", "it is newer"));
        }
        let compressed = &body[length..];
        frame::check(compressed, header.items_length)?;
        let mut bytes = Vec::with_capacity(header.items_length as usize);
        self.decompressor
            .decompress_to_buffer(compressed, &mut bytes)
            .map_err(|_| malformed("items", "the zstd frame is damaged or longer than stated"))?;
        if bytes.len() != header.items_length as usize {
            return Err(malformed("length of the items", "it is another"));
        }
        if !cfg!(fuzzing) && crc32fast::hash(&bytes) != header.items_crc {
            return Err(malformed("CRC of the items", "it is another"));
        }
        let items = Items::read(bytes, header.offset)?;
        Ok(Batch { header, items })
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
