// SPDX-License-Identifier: Apache-2.0
//! The spool: a checksummed, append-only file that holds records until they are in Parquet.
//!
//! A file is a header and then records, all numbers little-endian:
//!
//! | bytes | header |
//! |---|---|
//! | 8 | magic `slowspol` |
//! | 2 | version of the framing, [`SPOOL_VERSION`] |
//! | 2 | version of the records' schema, [`SCHEMA_VERSION`] |
//! | 4 | length of the rest of the header, at most 1,024 |
//! | 16 | boot id |
//! | 8 | wall time at which the segment began, microseconds since 1970 |
//! | 2 + n | segment id, UTF-8 |
//! | 2 + n | host, UTF-8 |
//! | 4 | CRC-32 (IEEE 802.3) of all the above |
//!
//! | bytes | record |
//! |---|---|
//! | 2 | `b7 1e`: where a record may begin, to find the next one after damage |
//! | 2 | payload length |
//! | 4 | CRC-32 of kind, length and payload |
//! | 1 | kind: 1 interval, 2 summary, 3 coverage, 4 listener, 5 interaction, 6 traffic, 7 hop; others are skipped and counted |
//! | n | payload: number of columns, presence bits, one value for each present column |
//!
//! A payload has the columns of its table in their order (`docs/reference/log-format.md`), exact:
//! numbers as LEB128, times zigzag, strings with their length. Columns appended by a later
//! version are ignored, columns that an earlier version lacks are null.

mod frames;
mod scan;

use crate::cells::{CellValue, Flat, Row, columns_of};
use crate::column::{Column, Kind};
use crate::interval::{self, Logged};
use crate::rows::{IDENTITY, SummaryBody};
use crate::{HostIdentity, SCHEMA_VERSION};
use crate::{hops, interaction, listener, traffic};
use slowpath_model::{
    ConnectionId, ConnectionSummary, Coverage, InteractionInterval, ListenerInterval, PathHop,
    ProblemInterval, TrafficInterval, WallMicros,
};
use std::sync::LazyLock;

pub use frames::kind;
pub(crate) use frames::{Frame, Frames, record_again};
pub use scan::{RawRecord, Scan, Stretch};

/// Version of the framing that this crate writes.
pub const SPOOL_VERSION: u16 = 1;
const MAGIC: [u8; 8] = *b"slowspol";
const FIXED_HEADER: usize = 16;
const MAX_REST: usize = 1024;
/// The longest header, in bytes.
pub const MAX_HEADER: usize = FIXED_HEADER + MAX_REST + 4;
/// The longest record with its frame, in bytes.
pub const MAX_RECORD: usize = FRAME + u16::MAX as usize;
const MARK: [u8; 2] = [0xb7, 0x1e];
const FRAME: usize = 9;
/// Parsing gives up looking for records once it has checksummed this many times the
/// file's length in vain: damage costs linear time, whatever the bytes.
const SEARCH_EFFORT: usize = 16;

/// A record of the log.
#[derive(Clone, Debug, PartialEq)]
pub enum Record {
    /// An interval with a problem.
    Problem(Box<ProblemInterval>),
    /// A connection's summary or checkpoint.
    Summary(Box<ConnectionSummary>),
    /// What was looked at.
    Coverage(Box<Coverage>),
    /// An interval in which a listener had a problem.
    Listener(Box<ListenerInterval>),
    /// An interaction over a stretch of time.
    Interaction(Box<InteractionInterval>),
    /// What a connection carried.
    Traffic(Box<TrafficInterval>),
    /// A router on a connection's path.
    Hop(Box<PathHop>),
}

/// Whose spool it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Version of the records' schema.
    pub schema_version: u16,
    /// The host that wrote it.
    pub host: HostIdentity,
    /// The segment.
    pub segment: String,
    /// When the segment began, by the wall clock of that moment.
    pub begun: WallMicros,
}

/// What a spool holds, and what could not be read of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Parsed {
    /// The header.
    pub header: Header,
    /// The records, in the order written.
    pub records: Vec<Record>,
    /// Bytes at the end that are the beginning of a record: a writer was killed, or is
    /// writing.
    pub torn_tail: usize,
    /// Stretches of bytes that are no record, between records or at the end.
    pub corrupt: usize,
    /// Bytes in those stretches.
    pub corrupt_bytes: usize,
    /// Intact records of a kind this version does not know.
    pub unknown: usize,
    /// Intact records whose payload makes no sense.
    pub invalid: usize,
}

/// Why a spool cannot be read at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// The file ends within its header: its writer was killed before the first record.
    #[error("it ends within its header, before the first record")]
    Torn,
    /// It does not begin with the magic.
    #[error("it is not a slowpath spool")]
    NotASpool,
    /// The header's checksum is wrong.
    #[error("its header is damaged")]
    Damaged,
    /// A newer slowpath wrote it.
    #[error(
        "it has framing version {framing} and schema version {schema}, this slowpath reads up to \
         {SPOOL_VERSION} and {SCHEMA_VERSION}; read it with the slowpath that wrote it"
    )]
    Newer {
        /// Its framing version.
        framing: u16,
        /// Its schema version.
        schema: u16,
    },
}

static INTERVAL: LazyLock<Vec<Column>> =
    LazyLock::new(|| [IDENTITY.to_vec(), interval::columns()].concat());
static SUMMARY: LazyLock<Vec<Column>> =
    LazyLock::new(|| [IDENTITY.to_vec(), SummaryBody::columns()].concat());
static TRAFFIC: LazyLock<Vec<Column>> =
    LazyLock::new(|| [&IDENTITY[..], &traffic::COLUMNS].concat());
static HOP: LazyLock<Vec<Column>> = LazyLock::new(|| [&IDENTITY[..], &hops::COLUMNS].concat());
static COVERAGE: LazyLock<Vec<Column>> = LazyLock::new(columns_of::<Coverage>);

/// Encodes a file's header.
pub fn encode_header(header: &Header) -> Vec<u8> {
    let mut rest = Vec::new();
    rest.extend(header.host.boot_id.to_le_bytes());
    rest.extend(header.begun.0.to_le_bytes());
    for text in [&header.segment, &header.host.host] {
        let text = clip(text, 255);
        rest.extend((text.len() as u16).to_le_bytes());
        rest.extend(text.as_bytes());
    }
    let mut out = MAGIC.to_vec();
    out.extend(SPOOL_VERSION.to_le_bytes());
    out.extend(header.schema_version.to_le_bytes());
    out.extend((rest.len() as u32).to_le_bytes());
    out.extend(rest);
    out.extend(crc32fast::hash(&out).to_le_bytes());
    out
}

/// The longest beginning of `text` of at most `bytes` bytes.
fn clip(text: &str, bytes: usize) -> &str {
    let end = (0..=bytes.min(text.len()))
        .rev()
        .find(|end| text.is_char_boundary(*end))
        .unwrap_or(0);
    &text[..end]
}

/// Encodes records for one host; keeps its scratch space.
pub(crate) struct Encoder {
    boot: CellValue,
    row: Vec<CellValue>,
    payload: Vec<u8>,
}

impl Encoder {
    pub(crate) fn new(boot_id: u128) -> Self {
        Encoder {
            boot: CellValue::Text(format!("{boot_id:032x}")),
            row: Vec::new(),
            payload: Vec::new(),
        }
    }

    /// Appends an interval.
    pub(crate) fn problem(&mut self, interval: &ProblemInterval, out: &mut Vec<u8>) {
        self.identity(&interval.connection);
        let logged = Logged {
            interval: interval.clone(),
            polls: 1,
        };
        logged.put(&mut self.row);
        self.frame(1, &INTERVAL, out);
    }

    /// Appends a summary.
    pub(crate) fn summary(&mut self, summary: &ConnectionSummary, out: &mut Vec<u8>) {
        self.identity(&summary.connection);
        SummaryBody::put(summary, &mut self.row);
        self.frame(2, &SUMMARY, out);
    }

    /// Appends a coverage record.
    pub(crate) fn coverage(&mut self, coverage: &Coverage, out: &mut Vec<u8>) {
        self.row.clear();
        coverage.put(&mut self.row);
        self.frame(3, &COVERAGE, out);
    }

    /// Appends a listener's interval.
    pub(crate) fn listener(&mut self, interval: &ListenerInterval, out: &mut Vec<u8>) {
        self.row.clear();
        interval.put(&mut self.row);
        self.leave_out_boot();
        self.frame(4, &listener::COLUMNS, out);
    }

    /// Appends an interaction.
    pub(crate) fn interaction(&mut self, interval: &InteractionInterval, out: &mut Vec<u8>) {
        self.row.clear();
        interval.put(&mut self.row);
        self.leave_out_boot();
        self.frame(5, &interaction::COLUMNS, out);
    }

    /// Appends what a connection carried.
    pub(crate) fn traffic(&mut self, interval: &TrafficInterval, out: &mut Vec<u8>) {
        self.identity(&interval.connection);
        traffic::put(interval, &mut self.row);
        self.frame(6, &TRAFFIC, out);
    }

    /// Appends a router on a connection's path.
    pub(crate) fn hop(&mut self, hop: &PathHop, out: &mut Vec<u8>) {
        self.identity(&hop.connection);
        hops::put(hop, &mut self.row);
        self.frame(7, &HOP, out);
    }

    fn identity(&mut self, id: &ConnectionId) {
        self.row.clear();
        id.put(&mut self.row);
        self.leave_out_boot();
    }

    /// The header has the host's own boot id.
    fn leave_out_boot(&mut self) {
        if self.row[0] == self.boot {
            self.row[0] = CellValue::Null;
        }
    }

    fn frame(&mut self, kind: u8, columns: &[Column], out: &mut Vec<u8>) {
        debug_assert_eq!(columns.len(), self.row.len());
        self.payload.clear();
        encode_row(columns, &self.row, &mut self.payload);
        // The longest row is a summary: about 110 numbers of up to 10 bytes and four strings
        // of up to 1 KiB.
        encode_raw(kind, &self.payload, out);
    }
}

/// Appends a record of any kind and payload, of which the first 65,535 bytes are taken.
pub fn encode_raw(kind: u8, payload: &[u8], out: &mut Vec<u8>) {
    let payload = &payload[..payload.len().min(usize::from(u16::MAX))];
    let length = (payload.len() as u16).to_le_bytes();
    out.extend(MARK);
    out.extend(length);
    out.extend(checksum(kind, length, payload).to_le_bytes());
    out.push(kind);
    out.extend(payload);
}

fn checksum(kind: u8, length: [u8; 2], payload: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&[kind, length[0], length[1]]);
    crc.update(payload);
    crc.finalize()
}

fn encode_row(columns: &[Column], row: &[CellValue], out: &mut Vec<u8>) {
    leb128(row.len() as u64, out);
    let bits = out.len();
    out.resize(bits + row.len().div_ceil(8), 0);
    for (i, (cell, column)) in row.iter().zip(columns).enumerate() {
        match cell {
            CellValue::Null => continue,
            CellValue::Int(n) if column.kind == Kind::Time => {
                let n = n.cast_signed();
                leb128(((n << 1) ^ (n >> 63)).cast_unsigned(), out);
            }
            CellValue::Int(n) => leb128(*n, out),
            CellValue::Text(text) => {
                let text = clip(text, 1024);
                leb128(text.len() as u64, out);
                out.extend(text.as_bytes());
            }
        }
        out[bits + i / 8] |= 1 << (i % 8);
    }
}

fn leb128(mut n: u64, out: &mut Vec<u8>) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

/// Bytes yet to be read; every read checks first.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*taken)
    }

    fn leb128(&mut self) -> Option<u64> {
        let mut n = 0u64;
        for shift in (0..64).step_by(7) {
            let [byte] = self.array()?;
            let part = u64::from(byte & 0x7f);
            if part << shift >> shift != part {
                return None;
            }
            n |= part << shift;
            if byte < 0x80 {
                return Some(n);
            }
        }
        None
    }

    fn text(&mut self, length: usize) -> Option<String> {
        String::from_utf8(self.take(length)?.to_vec()).ok()
    }

    fn short_text(&mut self) -> Option<String> {
        let length = u16::from_le_bytes(self.array()?);
        self.text(usize::from(length))
    }
}

fn decode_row(columns: &[Column], payload: &[u8]) -> Option<Vec<CellValue>> {
    let mut bytes = Bytes(payload);
    let count = usize::try_from(bytes.leb128()?).ok()?;
    let present = bytes.take(count.div_ceil(8))?;
    let mut row = vec![CellValue::Null; columns.len()];
    for (i, (cell, column)) in row.iter_mut().zip(columns).enumerate().take(count) {
        if present[i / 8] & 1 << (i % 8) == 0 {
            continue;
        }
        let n = bytes.leb128()?;
        *cell = match column.kind {
            Kind::Text => CellValue::Text(bytes.text(usize::try_from(n).ok()?)?),
            Kind::Time => CellValue::Int((n >> 1) ^ (n & 1).wrapping_neg()),
            _ => CellValue::Int(n),
        };
    }
    Some(row)
}

/// What the payload of an intact record is.
#[derive(Clone, Debug, PartialEq)]
pub enum Payload {
    /// A record of the log.
    Record(Record),
    /// A record of a kind that this version does not know.
    Unknown,
    /// It makes no sense.
    Invalid,
}

fn decode(kind: u8, payload: &[u8], boot_id: u128) -> Payload {
    let record = match kind {
        1 => decode_row(&INTERVAL, payload).and_then(|mut cells| {
            let mut row = own(&mut cells, boot_id);
            let id = ConnectionId::take(&mut row)?;
            let logged = Logged::take(id, &mut row)?;
            Some(Record::Problem(Box::new(logged.interval)))
        }),
        2 => decode_row(&SUMMARY, payload).and_then(|mut cells| {
            let mut row = own(&mut cells, boot_id);
            let id = ConnectionId::take(&mut row)?;
            let summary = SummaryBody::take(id, &mut row)?;
            Some(Record::Summary(Box::new(summary)))
        }),
        3 => decode_row(&COVERAGE, payload).and_then(|cells| {
            Some(Record::Coverage(Box::new(Coverage::take(&mut Row::new(
                &cells,
            ))?)))
        }),
        4 => decode_row(&listener::COLUMNS, payload).and_then(|mut cells| {
            let interval = ListenerInterval::take(&mut own(&mut cells, boot_id))?;
            Some(Record::Listener(Box::new(interval)))
        }),
        5 => decode_row(&interaction::COLUMNS, payload).and_then(|mut cells| {
            let interval = InteractionInterval::take(&mut own(&mut cells, boot_id))?;
            Some(Record::Interaction(Box::new(interval)))
        }),
        6 => decode_row(&TRAFFIC, payload).and_then(|mut cells| {
            let mut row = own(&mut cells, boot_id);
            let id = ConnectionId::take(&mut row)?;
            Some(Record::Traffic(Box::new(traffic::take(id, &mut row)?)))
        }),
        7 => decode_row(&HOP, payload).and_then(|mut cells| {
            let mut row = own(&mut cells, boot_id);
            let id = ConnectionId::take(&mut row)?;
            Some(Record::Hop(Box::new(hops::take(id, &mut row)?)))
        }),
        _ => return Payload::Unknown,
    };
    record.map_or(Payload::Invalid, Payload::Record)
}

/// Puts the host's boot id where the record left it out.
fn own(cells: &mut [CellValue], boot_id: u128) -> Row<'_> {
    if let Some(boot @ CellValue::Null) = cells.first_mut() {
        *boot = CellValue::Text(format!("{boot_id:032x}"));
    }
    Row::new(cells)
}

/// Reads a header; also gives its length.
fn parse_header(file: &[u8]) -> Result<(Header, usize), HeaderError> {
    let known = file.len().min(MAGIC.len());
    if file[..known] != MAGIC[..known] {
        return Err(HeaderError::NotASpool);
    }
    let mut bytes = Bytes(&file[known..]);
    let framing = u16::from_le_bytes(bytes.array().ok_or(HeaderError::Torn)?);
    let schema = u16::from_le_bytes(bytes.array().ok_or(HeaderError::Torn)?);
    let rest = u32::from_le_bytes(bytes.array().ok_or(HeaderError::Torn)?) as usize;
    if framing > SPOOL_VERSION || schema > SCHEMA_VERSION {
        return Err(HeaderError::Newer { framing, schema });
    }
    if rest > MAX_REST {
        return Err(HeaderError::Damaged);
    }
    let mut rest_bytes = Bytes(bytes.take(rest).ok_or(HeaderError::Torn)?);
    let crc = u32::from_le_bytes(bytes.array().ok_or(HeaderError::Torn)?);
    if !cfg!(fuzzing) && crc32fast::hash(&file[..FIXED_HEADER + rest]) != crc {
        return Err(HeaderError::Damaged);
    }
    let mut header = || {
        Some(Header {
            schema_version: schema,
            host: HostIdentity {
                boot_id: u128::from_le_bytes(rest_bytes.array()?),
                host: String::new(),
            },
            begun: WallMicros(i64::from_le_bytes(rest_bytes.array()?)),
            segment: rest_bytes.short_text()?,
        })
    };
    let mut header = header().ok_or(HeaderError::Damaged)?;
    header.host.host = rest_bytes.short_text().ok_or(HeaderError::Damaged)?;
    Ok((header, FIXED_HEADER + rest + 4))
}

/// Reads the header at the beginning of a spool, of which `file` has the first [`MAX_HEADER`] bytes or all;
/// also gives its length.
///
/// # Errors
/// See [`HeaderError`].
pub fn header_of(file: &[u8]) -> Result<(Header, usize), HeaderError> {
    match parse_header(file) {
        // Records follow a whole header only: a length in it is damaged.
        Err(HeaderError::Torn) if holds_record(file) => Err(HeaderError::Damaged),
        result => result,
    }
}

fn holds_record(file: &[u8]) -> bool {
    let mut effort = file.len().saturating_mul(SEARCH_EFFORT);
    (0..file.len()).any(|at| {
        let start = record_at(&file[at..], &mut effort);
        effort > 0 && matches!(start, RecordStart::Record { .. })
    })
}

/// Whether a record stands at the beginning of `bytes`.
enum RecordStart<'a> {
    Record {
        kind: u8,
        payload: &'a [u8],
    },
    /// Its beginning does, and the file ends.
    Torn,
    Nothing,
}

fn record_at<'a>(file: &'a [u8], effort: &mut usize) -> RecordStart<'a> {
    let mut bytes = Bytes(file);
    let marked = file.len().min(MARK.len());
    if file[..marked] != MARK[..marked] {
        return RecordStart::Nothing;
    }
    let mut frame = || {
        let _mark: [u8; 2] = bytes.array()?;
        let length: [u8; 2] = bytes.array()?;
        let crc = u32::from_le_bytes(bytes.array()?);
        let [kind] = bytes.array()?;
        let payload = bytes.take(usize::from(u16::from_le_bytes(length)))?;
        Some((length, crc, kind, payload))
    };
    let Some((length, crc, kind, payload)) = frame() else {
        return RecordStart::Torn;
    };
    // A fuzzer cannot make checksums: it tries what lies behind them.
    if cfg!(fuzzing) || checksum(kind, length, payload) == crc {
        RecordStart::Record { kind, payload }
    } else {
        *effort = effort.saturating_sub(payload.len());
        RecordStart::Nothing
    }
}

/// Reads a spool. Never panics and takes time and memory proportional to the bytes given,
/// whatever they are.
///
/// # Errors
/// Only if the header is unusable; damage after it is counted in [`Parsed`].
pub fn parse(file: &[u8]) -> Result<Parsed, HeaderError> {
    let mut records = Vec::new();
    let mut parsed = parse_each(file, |record| records.push(record))?;
    parsed.records = records;
    Ok(parsed)
}

/// As [`parse`], but gives the records to `each` and leaves [`Parsed::records`] empty.
///
/// # Errors
/// As [`parse`].
pub fn parse_each(file: &[u8], mut each: impl FnMut(Record)) -> Result<Parsed, HeaderError> {
    let mut frames = Frames::new(file)?;
    while let Some(frame) = frames.next() {
        if let Some(record) = frames.decode(&frame) {
            each(record);
        }
    }
    Ok(frames.end())
}

#[cfg(test)]
#[path = "spool_tests.rs"]
mod tests;
