// SPDX-License-Identifier: Apache-2.0
//! The captures to read: files, standard input, an interface. What flows by only once is kept
//! in a temporary file where it is needed twice.

use super::args::Trace;
use super::error::TraceError;
use slowpath_trace::filter::Filter;
use slowpath_trace::live::{self, Counters, Request};
use slowpath_trace::read::{Input, Inputs};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Where packets come from.
pub struct Source {
    /// What a person calls it.
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
    /// What the arguments name; `twice`: it will be read again.
    pub fn open(args: &Trace, filter: Option<&Filter>, twice: bool) -> Result<Self, TraceError> {
        if let Some(interface) = &args.interface {
            return Self::live(interface, filter, twice);
        }
        let name = match args.files.as_slice() {
            [one] if one.as_os_str() == "-" => "standard input".to_owned(),
            [one] => one.display().to_string(),
            [one, rest @ ..] => format!("{} and {} more", one.display(), rest.len()),
            [] => String::new(),
        };
        let flows = |path: &PathBuf| {
            path.as_os_str() == "-" || path.metadata().is_ok_and(|m| !m.is_file() && !m.is_dir())
        };
        let origin = if args.files.iter().any(flows) {
            let mut kept = Vec::new();
            let first: Result<Vec<Input>, TraceError> = (args.files.iter())
                .map(|path| match (path.as_os_str() == "-", twice) {
                    (true, false) => Ok(Input::Standard),
                    (true, true) => keep("standard input", Box::new(io::stdin()), &mut kept),
                    (false, false) => Ok(Input::File(path.clone())),
                    (false, true) => {
                        let name = path.display().to_string();
                        let file = File::open(path).map_err(|source| {
                            slowpath_trace::read::ReadError::Open {
                                what: name.clone(),
                                source,
                            }
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
            Origin::Files(args.files.clone())
        };
        Ok(Source {
            name,
            origin,
            counters: None,
            stop: None,
        })
    }

    /// One capture more.
    pub fn file(path: &Path) -> Result<Self, TraceError> {
        if path.as_os_str() == "-" {
            return Err(TraceError::PairIsStandardInput);
        }
        Ok(Source {
            name: path.display().to_string(),
            origin: Origin::Files(vec![path.to_owned()]),
            counters: None,
            stop: None,
        })
    }

    fn live(interface: &str, filter: Option<&Filter>, twice: bool) -> Result<Self, TraceError> {
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
    pub fn inputs(&mut self) -> Result<Inputs, TraceError> {
        let inputs = match &mut self.origin {
            Origin::Files(paths) => paths.iter().cloned().map(Input::File).collect(),
            Origin::Streams { first, kept } => match first.take() {
                Some(inputs) => inputs,
                None => again(kept)?,
            },
        };
        Ok(Inputs::new(inputs)?)
    }
}

fn again(kept: &[(String, File)]) -> Result<Vec<Input>, TraceError> {
    let rewound = |(name, file): &(String, File)| {
        let mut file = file.try_clone()?;
        file.rewind()?;
        Ok(Input::Stream(name.clone(), Box::new(file)))
    };
    let all: io::Result<Vec<Input>> = kept.iter().map(rewound).collect();
    all.map_err(|error| cannot_keep("the capture", error))
}

fn cannot_keep(what: &str, error: io::Error) -> TraceError {
    TraceError::Keep {
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
) -> Result<Input, TraceError> {
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

/// Stops a capture on an interface after `duration`, or by a signal.
pub fn stop_in_time(
    stop: &Arc<AtomicBool>,
    duration: Option<std::time::Duration>,
) -> io::Result<()> {
    let stop = Arc::clone(stop);
    let (sender, events) = crate::events::with_signals()?;
    std::thread::Builder::new()
        .name("stop".to_owned())
        .spawn(move || {
            // Held, so that without a duration only a signal ends the wait.
            let _sender = sender;
            let _ = match duration {
                Some(duration) => events.recv_timeout(duration).ok(),
                None => events.recv().ok(),
            };
            stop.store(true, Ordering::Relaxed);
        })?;
    Ok(())
}
