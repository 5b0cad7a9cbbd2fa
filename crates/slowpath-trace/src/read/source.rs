// SPDX-License-Identifier: Apache-2.0
//! Captures that can be read several times: files, standard input, an interface. A stream
//! that is needed twice is copied to a temporary file while it is read.

use super::{Input, Inputs, ReadError};
use crate::filter::Filter;
use crate::live::{self, Counters, LiveError, Request};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Why a source cannot be opened or read again.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// A capture cannot be read.
    #[error("{0}")]
    Read(#[from] ReadError),
    /// An interface cannot be captured on.
    #[error("{0}; capturing needs root, or CAP_NET_RAW")]
    Live(#[from] LiveError),
    /// A stream cannot be copied.
    #[error(
        "cannot keep {what} in {folder} for reading it twice: {error}; set TMPDIR to a folder with room"
    )]
    Keep {
        /// Which input.
        what: String,
        /// Where.
        folder: PathBuf,
        /// Why.
        error: io::Error,
    },
}

/// Where packets come from.
pub struct Source {
    /// Its name for messages.
    pub name: String,
    origin: Origin,
    /// Of a capture on an interface: what the kernel took and lost.
    pub counters: Option<Arc<Counters>>,
    /// Ends a capture on an interface.
    pub stop: Option<Arc<AtomicBool>>,
}

enum Origin {
    Files(Vec<PathBuf>),
    Streams {
        first: Option<Vec<Input>>,
        kept: Vec<(String, File)>,
    },
}

impl Source {
    /// Several files as one capture; `-` is standard input. `twice`: it will be read again.
    ///
    /// # Errors
    /// A stream that will be read again cannot be opened or copied.
    pub fn files(files: &[PathBuf], twice: bool) -> Result<Self, SourceError> {
        let name = match files {
            [one] if one.as_os_str() == "-" => "standard input".to_owned(),
            [one] => one.display().to_string(),
            [one, rest @ ..] => format!("{} and {} more", one.display(), rest.len()),
            [] => String::new(),
        };
        let flows = |path: &PathBuf| {
            path.as_os_str() == "-" || path.metadata().is_ok_and(|m| !m.is_file() && !m.is_dir())
        };
        let origin = if files.iter().any(flows) {
            let mut kept = Vec::new();
            let first: Result<Vec<Input>, SourceError> = (files.iter())
                .map(|path| match (path.as_os_str() == "-", twice) {
                    (true, false) => Ok(Input::Standard),
                    (true, true) => keep("standard input", Box::new(io::stdin()), &mut kept),
                    (false, false) => Ok(Input::File(path.clone())),
                    (false, true) => {
                        let name = path.display().to_string();
                        let file = File::open(path).map_err(|source| ReadError::Open {
                            what: name.clone(),
                            source,
                        })?;
                        keep(&name, Box::new(file), &mut kept)
                    }
                })
                .collect();
            Origin::Streams {
                first: Some(first?),
                kept,
            }
        } else {
            Origin::Files(files.to_vec())
        };
        Ok(Source {
            name,
            origin,
            counters: None,
            stop: None,
        })
    }

    /// A capture on an interface, which runs until [`Source::stop`] is set.
    ///
    /// # Errors
    /// The interface cannot be captured on.
    pub fn live(
        interface: &str,
        filter: Option<&Filter>,
        twice: bool,
    ) -> Result<Self, SourceError> {
        let stop = Arc::new(AtomicBool::new(false));
        let request = Request {
            filter: filter.cloned(),
            ..Request::new(interface)
        };
        let (input, counters) = live::capture(&request, Arc::clone(&stop))?;
        let mut kept = Vec::new();
        let input = match input {
            Input::Stream(name, stream) if twice => keep(&name, stream, &mut kept)?,
            input => input,
        };
        Ok(Source {
            name: format!("interface {interface}"),
            origin: Origin::Streams {
                first: Some(vec![input]),
                kept,
            },
            counters: Some(counters),
            stop: Some(stop),
        })
    }

    /// The packets, from the beginning.
    ///
    /// # Errors
    /// A capture cannot be opened or read again.
    pub fn inputs(&mut self) -> Result<Inputs, SourceError> {
        let inputs = match &mut self.origin {
            Origin::Files(paths) => paths.iter().cloned().map(Input::File).collect(),
            Origin::Streams { first, kept } => match first.take() {
                Some(inputs) => inputs,
                None => rewind(kept)?,
            },
        };
        Ok(Inputs::new(inputs)?)
    }
}

fn rewind(kept: &[(String, File)]) -> Result<Vec<Input>, SourceError> {
    let rewound = |(name, file): &(String, File)| {
        let mut file = file.try_clone()?;
        file.rewind()?;
        Ok(Input::Stream(name.clone(), Box::new(file)))
    };
    let all: io::Result<Vec<Input>> = kept.iter().map(rewound).collect();
    all.map_err(|error| cannot_keep("the capture", error))
}

fn cannot_keep(what: &str, error: io::Error) -> SourceError {
    SourceError::Keep {
        what: what.to_owned(),
        folder: std::env::temp_dir(),
        error,
    }
}

/// A stream whose bytes go to a temporary file as they are read.
fn keep(
    name: &str,
    stream: Box<dyn Read + Send>,
    kept: &mut Vec<(String, File)>,
) -> Result<Input, SourceError> {
    let file = temporary(kept.len()).map_err(|error| cannot_keep(name, error))?;
    let copy = file.try_clone().map_err(|e| cannot_keep(name, e))?;
    kept.push((name.to_owned(), file));
    let stream = Copying { stream, copy };
    Ok(Input::Stream(name.to_owned(), Box::new(stream)))
}

/// A file without a name.
fn temporary(number: usize) -> io::Result<File> {
    let name = format!("slowpath-trace-{}-{number}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

struct Copying {
    stream: Box<dyn Read + Send>,
    copy: File,
}

impl Read for Copying {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.stream.read(buffer)?;
        self.copy.write_all(&buffer[..read])?;
        Ok(read)
    }
}
