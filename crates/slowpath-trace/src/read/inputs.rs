// SPDX-License-Identifier: Apache-2.0
//! Which captures are read, and each reader's place in them.

use super::compressed::{Compression, Condition, Counting, MAGIC, decompress};
use super::foreign::Foreign;
use super::notes::{Notes, SkipReason};
use super::pcap::FILE_HEADER;
use super::piece::{Piece, Source};
use super::walk::{Step, Walker};
use crate::frame::Record;
use crate::segment::Timestamp;
use std::fmt;
use std::fs::File;
use std::io::{self, Cursor as Bytes, Read, Seek};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Why a capture cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It cannot be opened.
    #[error("cannot open {what}: {source}")]
    Open {
        /// Which input.
        what: String,
        /// Why.
        source: io::Error,
    },
    /// Reading fails in the middle.
    #[error("cannot read {what}: {source}")]
    Read {
        /// Which input.
        what: String,
        /// Why.
        source: io::Error,
    },
    /// It is something else.
    #[error("{what} is neither a pcap nor a pcapng capture, plain or compressed with gzip or zstd")]
    NotACapture {
        /// Which input.
        what: String,
    },
    /// It is compressed with a window that takes more memory than a reader gives it.
    #[error(
        "{what} is compressed with a zstd window of more than 128 MiB; decompress it first, with zstd -d --long=31"
    )]
    LargeWindow {
        /// Which input.
        what: String,
    },
    /// It is something else that can be converted.
    #[error("{what} is {format}")]
    OtherFormat {
        /// Which input.
        what: String,
        /// What it is, and what converts it.
        format: Foreign,
    },
    /// Nothing to read.
    #[error("no capture was given")]
    Nothing,
}

/// One capture to read.
pub enum Input {
    /// A file.
    File(PathBuf),
    /// Standard input.
    Standard,
    /// The bytes of a capture from anywhere: a name for messages, and where they come from.
    Stream(String, Box<dyn Read + Send>),
}

impl Input {
    fn name(&self) -> String {
        match self {
            Input::File(path) => path.display().to_string(),
            Input::Standard => "standard input".to_owned(),
            Input::Stream(name, _) => name.clone(),
        }
    }
}

impl fmt::Debug for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Input({})", self.name())
    }
}

/// The captures to read, in order.
#[derive(Debug)]
pub struct Inputs {
    inputs: Vec<(String, Opening)>,
    total: Option<u64>,
    consumed: Arc<AtomicU64>,
}

#[derive(Debug)]
enum Opening {
    File(PathBuf),
    /// `None`: it was read.
    Stream(Option<Input>),
}

impl Inputs {
    /// Brings files into the order of their first frames; what is no file comes last.
    ///
    /// # Errors
    /// A file cannot be opened, is no capture, or there is none.
    pub fn new(inputs: Vec<Input>) -> Result<Self, ReadError> {
        let mut ordered = Vec::new();
        let mut total = Some(0);
        let several = inputs.len() > 1;
        for (place, input) in inputs.into_iter().enumerate() {
            let name = input.name();
            let (opening, first) = match input {
                Input::File(path) => {
                    let open = |source| ReadError::Open {
                        what: name.clone(),
                        source,
                    };
                    let file = File::open(&path).map_err(open)?;
                    let metadata = file.metadata().map_err(open)?;
                    if metadata.is_dir() {
                        return Err(open(io::ErrorKind::IsADirectory.into()));
                    }
                    // A pipe or device has no length and cannot be looked into twice.
                    if metadata.is_file() {
                        total = total.map(|sum: u64| sum.saturating_add(metadata.len()));
                        let first = if several { first_time(&path)? } else { None };
                        (Opening::File(path), first)
                    } else {
                        total = None;
                        let stream = Input::Stream(name.clone(), Box::new(file));
                        (Opening::Stream(Some(stream)), None)
                    }
                }
                input => {
                    total = None;
                    (Opening::Stream(Some(input)), None)
                }
            };
            let key = (first.unwrap_or(Timestamp(i64::MAX)), place);
            ordered.push((key, name, opening));
        }
        if ordered.is_empty() {
            return Err(ReadError::Nothing);
        }
        ordered.sort_by_key(|(key, ..)| *key);
        Ok(Inputs {
            inputs: ordered.into_iter().map(|(_, name, o)| (name, o)).collect(),
            total,
            consumed: Arc::default(),
        })
    }

    /// The files' names, in the order in which they are read.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.inputs.iter().map(|(name, _)| name.as_str())
    }

    /// Bytes of all files as they lie on disk; `None` where something is no file.
    #[must_use]
    pub fn total_bytes(&self) -> Option<u64> {
        self.total
    }

    /// Bytes of all inputs that were read so far.
    pub(crate) fn consumed_counter(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.consumed)
    }

    /// Reads all records of all inputs, in order.
    pub(crate) fn cursor(self) -> Cursor {
        Cursor {
            inputs: self,
            input: 0,
            open: None,
            last: false,
            rest: Vec::new(),
            at: 0,
            needed: 0,
            walker: Walker::new(),
        }
    }

    /// The beginning of the input with that number; `None`: there is none.
    fn begin(&mut self, number: usize) -> Result<Option<(Source, Condition)>, ReadError> {
        let consumed = self.consumed_counter();
        let Some((name, opening)) = self.inputs.get_mut(number) else {
            return Ok(None);
        };
        let condition = Condition::default();
        let source = match opening {
            Opening::File(path) => open_file(path, consumed, &condition),
            Opening::Stream(input) => open_stream(input.take(), consumed, &condition),
        };
        match source {
            Ok(source) => Ok(Some((source, condition))),
            Err(source) => Err(ReadError::Open {
                what: name.clone(),
                source,
            }),
        }
    }
}

/// The time of a file's first frame.
fn first_time(path: &Path) -> Result<Option<Timestamp>, ReadError> {
    let inputs = Inputs::new(vec![Input::File(path.to_owned())])?;
    let mut piece = Piece::default();
    let first = inputs.cursor().next(&mut piece)?;
    Ok(first.map(|record| record.time))
}

/// A file, decompressed.
fn open_file(path: &Path, consumed: Arc<AtomicU64>, condition: &Condition) -> io::Result<Source> {
    let mut file = File::open(path)?;
    let mut begins = [0; MAGIC];
    let known = read_up_to(&mut file, &mut begins)?;
    file.rewind()?;
    let compression = Compression::of(&begins[..known]);
    let whole = Counting {
        inner: file,
        count: consumed,
    };
    decompress(compression, whole, condition.clone())
}

/// A stream, decompressed; `None`: it was read.
fn open_stream(
    input: Option<Input>,
    consumed: Arc<AtomicU64>,
    condition: &Condition,
) -> io::Result<Source> {
    let mut source: Source = match input {
        Some(Input::Stream(_, stream)) => stream,
        Some(Input::Standard) => Box::new(io::stdin()),
        Some(Input::File(path)) => Box::new(File::open(path)?),
        None => Box::new(io::empty()),
    };
    let mut begins = [0; MAGIC];
    let known = read_up_to(&mut source, &mut begins)?;
    let begins = begins[..known].to_vec();
    let compression = Compression::of(&begins);
    let whole = Counting {
        inner: Bytes::new(begins).chain(source),
        count: consumed,
    };
    decompress(compression, whole, condition.clone())
}

/// Fills the buffer as far as the input goes.
fn read_up_to(input: &mut dyn Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match input.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// A place in the inputs. The bytes are in a [`Piece`], which the caller brings: several can
/// take turns.
pub(crate) struct Cursor {
    inputs: Inputs,
    /// The number of the input that is read.
    input: usize,
    open: Option<(Source, Condition)>,
    /// Nothing of that input follows the last piece.
    last: bool,
    /// What the last piece left: the beginning of a record.
    rest: Vec<u8>,
    /// How far the present piece was walked.
    at: usize,
    needed: usize,
    walker: Walker,
}

impl Cursor {
    /// Frames so far.
    pub(crate) fn frames(&self) -> u64 {
        self.walker.frames()
    }

    /// Fills in the next record in the piece that was filled last; `false`: there is no other.
    #[inline]
    pub(crate) fn next_here(&mut self, piece: &Piece, record: &mut Record) -> bool {
        loop {
            let bytes = &piece.bytes()[self.at..];
            match self.walker.next(bytes, self.at, piece.last, record) {
                Step::Record(taken) => {
                    self.at += taken;
                    return true;
                }
                Step::Pass(count) => self.at += count,
                Step::More(needed) => {
                    self.needed = needed;
                    self.rest.clear();
                    self.rest.extend_from_slice(bytes);
                    return false;
                }
            }
        }
    }

    /// Fills the piece with further bytes, perhaps of the next input. `false`: there are none.
    pub(crate) fn refill(&mut self, piece: &mut Piece) -> Result<bool, ReadError> {
        if self.open.is_some() && self.last {
            self.end_input()?;
        }
        if self.open.is_none() {
            self.open = self.inputs.begin(self.input)?;
            self.rest.clear();
            // The first piece is one that shows what the input is, however little a
            // stream gives at once.
            self.needed = FILE_HEADER;
        }
        let Some((source, _)) = &mut self.open else {
            return Ok(false);
        };
        let read = piece.follow(&self.rest, self.needed, source);
        read.map_err(|source| ReadError::Read {
            what: self.name(),
            source,
        })?;
        self.last = piece.last;
        self.at = 0;
        Ok(true)
    }

    fn end_input(&mut self) -> Result<(), ReadError> {
        let condition = self.open.take().map(|(_, condition)| condition);
        if condition.as_ref().is_some_and(Condition::broken) {
            self.walker.notes.skip(SkipReason::Compressed, 0);
        }
        if self.walker.is_no_capture() {
            let what = self.name();
            if condition.is_some_and(|it| it.needs_large_window()) {
                return Err(ReadError::LargeWindow { what });
            }
            return Err(match self.walker.foreign() {
                Some(format) => ReadError::OtherFormat { what, format },
                None => ReadError::NotACapture { what },
            });
        }
        self.walker.next_file();
        self.input += 1;
        Ok(())
    }

    fn name(&self) -> String {
        let name = self.inputs.names().nth(self.input);
        name.unwrap_or_default().to_owned()
    }

    /// The next record anywhere; it lies in the piece.
    pub(crate) fn next(&mut self, piece: &mut Piece) -> Result<Option<Record>, ReadError> {
        let mut record = Record::EMPTY;
        loop {
            if self.next_here(piece, &mut record) {
                return Ok(Some(record));
            }
            if !self.refill(piece)? {
                return Ok(None);
            }
        }
    }

    /// What the captures reported so far.
    pub(crate) fn notes(&self) -> &Notes {
        &self.walker.notes
    }
}
