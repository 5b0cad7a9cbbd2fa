// SPDX-License-Identifier: Apache-2.0
//! Polled series of one connection as m-lab's `tcp-info` saves them: JSON lines, plain,
//! gzip or zstd.
//!
//! The first line is `{"Timestamp", "Metadata": {"UUID", "Sequence", "StartTime"}}`; every
//! other one `{"Timestamp", "RawIDM", "Attributes"}`: base64 of `struct inet_diag_msg`, and
//! an array of base64 or null, indexed by `INET_DIAG_*` number. Lines that give no
//! statistics are counted with their reason and left out; nothing here panics, and no line
//! or series makes it use memory without bound.

use crate::inet_diag::wire::{
    CongestionName, DiagHeader, INET_DIAG_CONG, INET_DIAG_INFO, INET_DIAG_SKMEMINFO, SocketRecord,
    WireError,
};
use crate::tcp_info::{SocketMemory, TcpInfoError};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde::Deserialize;
use slowpath_model::{
    ConnectionId, MonoNanos, Origin, Snapshot, TcpState, TcpStats, Tier, WallMicros,
};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Longest line read, in bytes; the tool writes about 600.
pub const MAX_LINE: usize = 1 << 20;

/// Most snapshots that [`read_series`] keeps (about 0.8 KiB each): nearly three hours at
/// the tool's shortest interval of 10 ms.
pub const MAX_SNAPSHOTS: usize = 1 << 20;

/// Why no series was read.
#[derive(Debug, Error)]
pub enum SeriesError {
    /// The file cannot be opened or its beginning not be read.
    #[error("reading the series {}: {source}", path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The first line is not a series' metadata.
    #[error("reading the series {}: the first line is no metadata ({reason}); \
             is it a file of m-lab's tcp-info?", path.display())]
    NotASeries {
        /// Which file.
        path: PathBuf,
        /// What the first line is.
        reason: SkipReason,
    },
}

/// Why a line gives no snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Error)]
pub enum SkipReason {
    /// Longer than [`MAX_LINE`].
    #[error("longer than {MAX_LINE} bytes")]
    TooLong,
    /// Not JSON, or not of this shape.
    #[error("not a JSON object of this format")]
    NotJson,
    /// The time is not RFC 3339.
    #[error("its time is not RFC 3339")]
    BadTime,
    /// `RawIDM` is missing or not base64 of a `struct inet_diag_msg`.
    #[error("its RawIDM is no inet_diag_msg")]
    BadHeader,
    /// An attribute is not base64, or `tcp_info` is cut or nonsense.
    #[error("its tcp_info cannot be read")]
    BadStatistics,
    /// There is no `tcp_info`: the tool's last line of a connection in TIME_WAIT.
    #[error("it carries no tcp_info")]
    NoStatistics,
    /// A listening socket.
    #[error("it is of a listening socket")]
    Listening,
    /// The cookie differs from the first line's.
    #[error("it is of another connection")]
    OtherConnection,
    /// Earlier than the line before or than the start.
    #[error("its time goes backwards")]
    OutOfOrder,
    /// A second metadata line.
    #[error("it is metadata")]
    Metadata,
    /// A line where metadata was wanted, but the file ended.
    #[error("it is missing")]
    Missing,
    /// Beyond [`MAX_SNAPSHOTS`].
    #[error("beyond the first {MAX_SNAPSHOTS} snapshots")]
    BeyondLimit,
}

/// Lines left out, by reason.
pub type Skipped = BTreeMap<SkipReason, u64>;

/// A whole series.
#[derive(Debug)]
pub struct Series {
    /// The tool's name for the connection: `HOST_BOOTTIME_unsafe_COOKIE`.
    pub uuid: String,
    /// Number of this file among those of the connection.
    pub sequence: u64,
    /// When the tool first saw the connection.
    pub start: WallMicros,
    /// Every snapshot with its wall-clock time, in order. [`Snapshot::at`] counts from
    /// `start`; the id's boot id is a hash of the UUID's host and boot time.
    pub snapshots: Vec<(WallMicros, Snapshot)>,
    /// Lines left out, by reason.
    pub skipped: Skipped,
    /// What ended the reading before the file's end, if anything did: a cut or damaged
    /// compressed file. What came before is good.
    pub cut: Option<io::Error>,
}

impl Series {
    /// How many lines were left out.
    pub fn skipped_lines(&self) -> u64 {
        self.skipped.values().sum()
    }
}

/// Reads a whole series; the file's first bytes show its compression.
///
/// # Errors
/// See [`SeriesError`]. Lines that cannot be read are no error, nor is a file that breaks
/// off after its first line.
pub fn read_series(path: impl AsRef<Path>) -> Result<Series, SeriesError> {
    let path = path.as_ref();
    let failed = |source| SeriesError::Read {
        path: path.to_owned(),
        source,
    };
    let lines = decompress(File::open(path).map_err(failed)?).map_err(failed)?;
    let mut reader = SeriesReader::new(lines).map_err(|error| match error {
        StartError::Read(source) => failed(source),
        StartError::NotASeries(reason) => SeriesError::NotASeries {
            path: path.to_owned(),
            reason,
        },
    })?;
    let mut snapshots = Vec::new();
    while let Some(row) = reader.next() {
        if snapshots.len() < MAX_SNAPSHOTS {
            snapshots.push(row);
        } else {
            reader.leave_out(SkipReason::BeyondLimit);
        }
    }
    Ok(Series {
        uuid: reader.metadata.uuid,
        sequence: reader.metadata.sequence,
        start: wall(reader.metadata.start),
        snapshots,
        skipped: reader.skipped,
        cut: reader.cut,
    })
}

fn decompress(file: File) -> io::Result<Box<dyn BufRead>> {
    const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
    const GZIP: &[u8] = &[0x1f, 0x8b];
    let mut file = BufReader::new(file);
    let head = file.fill_buf()?;
    Ok(if head.starts_with(ZSTD) {
        Box::new(BufReader::new(zstd::Decoder::with_buffer(file)?))
    } else if head.starts_with(GZIP) {
        Box::new(BufReader::new(flate2::bufread::MultiGzDecoder::new(file)))
    } else {
        Box::new(file)
    })
}

/// Why a [`SeriesReader`] cannot start.
#[derive(Debug, Error)]
pub enum StartError {
    /// The first line cannot be read.
    #[error("reading a series: {0}")]
    Read(#[from] io::Error),
    /// The first line is not metadata.
    #[error("reading a series: the first line is no metadata ({0})")]
    NotASeries(SkipReason),
}

/// Reads a series line by line, in bounded memory.
#[derive(Debug)]
pub struct SeriesReader<R> {
    lines: R,
    metadata: Metadata,
    cookie: Option<u64>,
    last: Timestamp,
    skipped: Skipped,
    cut: Option<io::Error>,
    ended: bool,
}

impl<R: BufRead> SeriesReader<R> {
    /// Reads the metadata.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn new(mut lines: R) -> Result<Self, StartError> {
        let first = next_line(&mut lines)?.ok_or(StartError::NotASeries(SkipReason::Missing))?;
        match first.and_then(|line| parse_line(&line)) {
            Ok(Line::Metadata(metadata)) => Ok(SeriesReader {
                lines,
                last: metadata.start,
                metadata,
                cookie: None,
                skipped: Skipped::new(),
                cut: None,
                ended: false,
            }),
            Ok(Line::Row(_)) => Err(StartError::NotASeries(SkipReason::Missing)),
            Err(reason) => Err(StartError::NotASeries(reason)),
        }
    }

    /// What the first line said.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Lines left out so far, by reason.
    pub fn skipped(&self) -> &Skipped {
        &self.skipped
    }

    /// What ended the reading before the end, if anything did.
    pub fn cut(&self) -> Option<&io::Error> {
        self.cut.as_ref()
    }

    fn leave_out(&mut self, reason: SkipReason) {
        *self.skipped.entry(reason).or_default() += 1;
    }

    fn accept(&mut self, line: Line) -> Result<(WallMicros, Snapshot), SkipReason> {
        let Line::Row(row) = line else {
            return Err(SkipReason::Metadata);
        };
        let cookie = row.header.id.cookie();
        if *self.cookie.get_or_insert(cookie) != cookie {
            return Err(SkipReason::OtherConnection);
        }
        if row.time < self.last {
            return Err(SkipReason::OutOfOrder);
        }
        self.last = row.time;
        // Not negative, `last` having begun at `start`; 64 bits last for 584 years.
        let since_start = row.time.as_nanosecond() - self.metadata.start.as_nanosecond();
        let snapshot = Snapshot {
            id: ConnectionId {
                boot_id: self.metadata.boot_id(),
                netns: 0,
                cookie,
                start: MonoNanos(0),
            },
            tuple: row.header.id.tuple(),
            at: MonoNanos(u64::try_from(since_start).unwrap_or(u64::MAX)),
            origin: Origin::Unknown,
            closed: false,
            tier: Tier::Imported,
            owner: None,
            stats: row.stats,
            sends: None,
            receives: None,
            waits: slowpath_model::Waits::UNOBSERVED,
            facts: slowpath_model::SocketFacts::default(),
            turns: slowpath_model::Turns::UNOBSERVED,
        };
        Ok((wall(row.time), snapshot))
    }
}

impl<R: BufRead> Iterator for SeriesReader<R> {
    type Item = (WallMicros, Snapshot);

    fn next(&mut self) -> Option<Self::Item> {
        while !self.ended {
            match next_line(&mut self.lines) {
                Ok(Some(line)) => {
                    let parsed = line.and_then(|line| parse_line(&line));
                    match parsed.and_then(|line| self.accept(line)) {
                        Ok(row) => return Some(row),
                        Err(reason) => self.leave_out(reason),
                    }
                }
                Ok(None) => self.ended = true,
                Err(error) => {
                    self.cut = Some(error);
                    self.ended = true;
                }
            }
        }
        None
    }
}

/// The next line that is not empty; the rest of one that is too long is passed over.
fn next_line(lines: &mut impl BufRead) -> io::Result<Option<Result<Vec<u8>, SkipReason>>> {
    loop {
        let mut line = Vec::new();
        let read = lines
            .take(MAX_LINE as u64 + 1)
            .read_until(b'\n', &mut line)?;
        if read == 0 {
            return Ok(None);
        }
        if line.last() != Some(&b'\n') && line.len() > MAX_LINE {
            lines.skip_until(b'\n')?;
            return Ok(Some(Err(SkipReason::TooLong)));
        }
        if !line.trim_ascii().is_empty() {
            return Ok(Some(Ok(line)));
        }
    }
}

/// One line, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// The first line of a series.
    Metadata(Metadata),
    /// One poll.
    Row(Box<Row>),
}

/// What the first line says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// The tool's name for the connection: `HOST_BOOTTIME_unsafe_COOKIE`.
    pub uuid: String,
    /// Number of this file among those of the connection.
    pub sequence: u64,
    /// When the tool first saw the connection.
    pub start: Timestamp,
}

impl Metadata {
    /// Stands for the host and its boot: the 128-bit FNV-1a hash (RFC 9923) of the UUID up
    /// to its last underscore.
    pub fn boot_id(&self) -> u128 {
        const OFFSET: u128 = 0x6c62272e07bb014262b821756295c58d;
        const PRIME: u128 = 0x0000000001000000000000000000013b;
        let boot = self.uuid.rsplit_once('_').map_or("", |(boot, _)| boot);
        boot.bytes().fold(OFFSET, |hash, byte| {
            (hash ^ u128::from(byte)).wrapping_mul(PRIME)
        })
    }
}

/// One poll of the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// When.
    pub time: Timestamp,
    /// Identity and queues.
    pub header: DiagHeader,
    /// Statistics.
    pub stats: TcpStats,
}

#[derive(Deserialize)]
struct RawLine<'a> {
    #[serde(rename = "Timestamp", borrow)]
    time: Cow<'a, str>,
    #[serde(rename = "Metadata")]
    metadata: Option<RawMetadata>,
    #[serde(rename = "RawIDM", borrow)]
    header: Option<Cow<'a, str>>,
    #[serde(rename = "Attributes", borrow, default)]
    attributes: Option<Vec<Option<Cow<'a, str>>>>,
}

#[derive(Deserialize)]
struct RawMetadata {
    #[serde(rename = "UUID")]
    uuid: String,
    #[serde(rename = "Sequence", default)]
    sequence: u64,
    #[serde(rename = "StartTime")]
    start: String,
}

/// Reads one line.
///
/// # Errors
/// Why it gives no snapshot.
pub fn parse_line(line: &[u8]) -> Result<Line, SkipReason> {
    let line: RawLine = serde_json::from_slice(line).map_err(|_| SkipReason::NotJson)?;
    if let Some(metadata) = line.metadata {
        return Ok(Line::Metadata(Metadata {
            uuid: metadata.uuid,
            sequence: metadata.sequence,
            start: time(&metadata.start)?,
        }));
    }
    let header = line.header.ok_or(SkipReason::BadHeader)?;
    let header = STANDARD
        .decode(header.as_bytes())
        .map_err(|_| SkipReason::BadHeader)?;
    let header = DiagHeader::read(&header).map_err(|_: WireError| SkipReason::BadHeader)?;
    let attribute = |number: u16| {
        let encoded = line
            .attributes
            .as_ref()?
            .get(usize::from(number))?
            .as_ref()?;
        Some(STANDARD.decode(encoded.as_bytes()))
    };
    let attribute = |number| {
        attribute(number)
            .transpose()
            .map_err(|_| SkipReason::BadStatistics)
    };
    let info = attribute(INET_DIAG_INFO)?;
    let memory = attribute(INET_DIAG_SKMEMINFO)?;
    let congestion = attribute(INET_DIAG_CONG)?;
    let record = SocketRecord {
        header,
        info: info.as_deref(),
        drops: None,
        memory: memory.as_deref().and_then(SocketMemory::read),
        congestion: CongestionName::read(congestion.as_deref().unwrap_or_default()),
    };
    let stats = record
        .stats()
        .ok_or(SkipReason::NoStatistics)?
        .map_err(|_: TcpInfoError| SkipReason::BadStatistics)?;
    if stats.state == TcpState::Listen {
        return Err(SkipReason::Listening);
    }
    Ok(Line::Row(Box::new(Row {
        time: time(&line.time)?,
        header,
        stats,
    })))
}

fn time(text: &str) -> Result<Timestamp, SkipReason> {
    text.parse().map_err(|_| SkipReason::BadTime)
}

fn wall(time: Timestamp) -> WallMicros {
    WallMicros(time.as_microsecond())
}
