// SPDX-License-Identifier: Apache-2.0
//! Which captures are read, and each reader's place in them.

use super::compressed::{Compression, Condition, Counting, MAGIC, decompress};
use super::foreign::Foreign;
use super::notes::{Notes, SkipReason};
use super::pcap::FILE_HEADER;
use super::tape::{Piece, Reel, Source, Tape};
use super::walk::{Step, Walker};
use crate::frame::Record;
use crate::segment::Timestamp;
use std::fmt;
use std::fs::File;
use std::io::{self, Cursor as Bytes, Read, Seek};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};

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
    Stream(Mutex<Option<Input>>),
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
                        (Opening::Stream(Mutex::new(Some(stream))), None)
                    }
                }
                input => {
                    total = None;
                    (Opening::Stream(Mutex::new(Some(input))), None)
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

    /// Readers that all see every record of every input. A stream can be read once only.
    pub(crate) fn cursors(self, readers: usize) -> Vec<Cursor> {
        let shared = Arc::new(Shared {
            streams: Mutex::new(vec![None; self.inputs.len()]),
            inputs: self,
            readers,
        });
        (0..readers).map(|n| Cursor::new(&shared, n)).collect()
    }
}

/// The time of a file's first frame.
fn first_time(path: &Path) -> Result<Option<Timestamp>, ReadError> {
    let inputs = Inputs::new(vec![Input::File(path.to_owned())])?;
    let mut cursors = inputs.cursors(1);
    match cursors.pop() {
        Some(mut cursor) => Ok(cursor.next()?.map(|record| record.time)),
        None => Ok(None),
    }
}

struct Shared {
    inputs: Inputs,
    /// The streams that are read now.
    streams: Mutex<Vec<Option<Stream>>>,
    readers: usize,
}

#[derive(Clone)]
struct Stream {
    tape: Arc<Tape>,
    condition: Condition,
    /// Readers that have not come to its end.
    readers: usize,
}

impl Shared {
    /// Reader `reader`'s beginning of the input with that number.
    fn begin(&self, number: usize, reader: usize) -> Result<Option<(Reel, Condition)>, ReadError> {
        let Some((name, opening)) = self.inputs.inputs.get(number) else {
            return Ok(None);
        };
        let reel = match opening {
            Opening::File(path) => self.file(path, number, reader),
            Opening::Stream(_) => self.stream(number, opening),
        };
        reel.map(Some).map_err(|source| ReadError::Open {
            what: name.clone(),
            source,
        })
    }

    /// A plain file is read by each reader for itself, a compressed one is a stream.
    fn file(&self, path: &Path, number: usize, reader: usize) -> io::Result<(Reel, Condition)> {
        let mut file = File::open(path)?;
        let mut begins = [0; MAGIC];
        let known = read_up_to(&mut file, &mut begins)?;
        file.rewind()?;
        if Compression::of(&begins[..known]) != Compression::None {
            return self.stream(number, &Opening::File(path.to_owned()));
        }
        let source: Source = if reader == 0 {
            Box::new(self.counting(file))
        } else {
            Box::new(file)
        };
        Ok((Reel::own(source), Condition::default()))
    }

    /// A stream is opened by whoever comes first.
    fn stream(&self, number: usize, opening: &Opening) -> io::Result<(Reel, Condition)> {
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        let stream = match streams.get(number) {
            Some(Some(stream)) => stream.clone(),
            _ => {
                let condition = Condition::default();
                let source = self.open_stream(opening, &condition)?;
                let stream = Stream {
                    tape: Arc::new(Tape::new(source, self.readers)),
                    condition,
                    readers: self.readers,
                };
                streams[number] = Some(stream.clone());
                stream
            }
        };
        Ok((Reel::shared(stream.tape), stream.condition))
    }

    fn open_stream(&self, opening: &Opening, condition: &Condition) -> io::Result<Source> {
        let mut source: Source = match opening {
            Opening::File(path) => Box::new(File::open(path)?),
            Opening::Stream(input) => {
                let mut input = input.lock().unwrap_or_else(PoisonError::into_inner);
                match input.take() {
                    Some(Input::Stream(_, stream)) => stream,
                    Some(Input::Standard) => Box::new(io::stdin()),
                    Some(Input::File(path)) => Box::new(File::open(path)?),
                    None => Box::new(io::empty()),
                }
            }
        };
        let mut begins = [0; MAGIC];
        let known = read_up_to(&mut source, &mut begins)?;
        let begins = begins[..known].to_vec();
        let compression = Compression::of(&begins);
        let whole = self.counting(Bytes::new(begins).chain(source));
        decompress(compression, whole, condition.clone())
    }

    fn counting<R: Read>(&self, inner: R) -> Counting<R> {
        Counting {
            inner,
            count: Arc::clone(&self.inputs.consumed),
        }
    }

    /// A reader has come to the input's end; with the last one it is closed.
    fn leave(&self, number: usize) {
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = streams.get_mut(number)
            && let Some(stream) = slot
        {
            stream.readers -= 1;
            if stream.readers == 0 {
                *slot = None;
            }
        }
    }
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

/// One reader's place in the inputs.
pub(crate) struct Cursor {
    shared: Arc<Shared>,
    /// Which reader it is.
    reader: usize,
    /// The number of the input that is read.
    input: usize,
    reel: Option<(Reel, Condition)>,
    piece: Arc<Piece>,
    at: usize,
    needed: usize,
    pub(crate) walker: Walker,
}

impl Cursor {
    fn new(shared: &Arc<Shared>, reader: usize) -> Self {
        Cursor {
            shared: Arc::clone(shared),
            reader,
            input: 0,
            reel: None,
            piece: Arc::default(),
            at: 0,
            needed: 0,
            walker: Walker::new(),
        }
    }

    /// The bytes in which the records lie that [`Cursor::next_here`] gives.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        self.piece.bytes()
    }

    /// The same, kept alive while the cursor goes on.
    pub(crate) fn piece(&self) -> Arc<Piece> {
        Arc::clone(&self.piece)
    }

    /// Bytes of all inputs that were read so far.
    pub(crate) fn consumed_counter(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.shared.inputs.consumed)
    }

    /// Frames so far.
    pub(crate) fn frames(&self) -> u64 {
        self.walker.frames()
    }

    /// Fills in the next record in the present bytes; `false`: there is none.
    #[inline]
    pub(crate) fn next_here(&mut self, record: &mut Record) -> bool {
        loop {
            let bytes = &self.piece.bytes()[self.at..];
            match self.walker.next(bytes, self.at, self.piece.last, record) {
                Step::Record(taken) => {
                    self.at += taken;
                    return true;
                }
                Step::Pass(count) => self.at += count,
                Step::More(needed) => {
                    self.needed = needed;
                    return false;
                }
            }
        }
    }

    /// Goes on to further bytes, perhaps of the next input. `false`: there are none.
    pub(crate) fn refill(&mut self) -> Result<bool, ReadError> {
        loop {
            if self.reel.is_some() && self.piece.last {
                self.end_input()?;
            }
            if self.reel.is_none() {
                let Some(begun) = self.shared.begin(self.input, self.reader)? else {
                    return Ok(false);
                };
                self.reel = Some(begun);
                self.piece = Arc::default();
                self.at = 0;
                // The first piece is one that shows what the input is, however little a
                // stream gives at once.
                self.needed = FILE_HEADER;
            }
            if let Some((reel, _)) = &mut self.reel {
                // The reel can use its memory again if no one else holds it.
                self.piece = Arc::default();
                let advanced = reel.advance(self.at, self.needed);
                self.piece = Arc::clone(&reel.piece);
                advanced.map_err(|source| ReadError::Read {
                    what: self.name(),
                    source,
                })?;
                self.at = 0;
                return Ok(true);
            }
        }
    }

    fn end_input(&mut self) -> Result<(), ReadError> {
        if let Some((_, condition)) = self.reel.take()
            && condition.broken()
        {
            self.walker.notes.skip(SkipReason::Compressed, 0);
        }
        if self.walker.is_no_capture() {
            let what = self.name();
            return Err(match self.walker.foreign() {
                Some(format) => ReadError::OtherFormat { what, format },
                None => ReadError::NotACapture { what },
            });
        }
        self.walker.next_file();
        self.shared.leave(self.input);
        self.input += 1;
        Ok(())
    }

    fn name(&self) -> String {
        self.shared
            .inputs
            .names()
            .nth(self.input)
            .unwrap_or_default()
            .to_owned()
    }

    /// The next record anywhere; it lies in [`Cursor::bytes`].
    pub(crate) fn next(&mut self) -> Result<Option<Record>, ReadError> {
        let mut record = Record::EMPTY;
        loop {
            if self.next_here(&mut record) {
                return Ok(Some(record));
            }
            if !self.refill()? {
                return Ok(None);
            }
        }
    }

    /// What the captures reported so far.
    pub(crate) fn notes(&self) -> &Notes {
        &self.walker.notes
    }
}
