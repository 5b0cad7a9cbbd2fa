// SPDX-License-Identifier: Apache-2.0
//! Reads recordings from files, with bounds and checks.

use slowpath_recording::{DecodeError, Invalid, Recording, Selection, decode, decode_with};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// A larger file is not read: 64 bytes for each event that a reader takes at most ([`MAX_EVENTS`](slowpath_recording::MAX_EVENTS)).
const LARGEST: u64 = 1 << 30;

/// Why a recording cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// The file cannot be opened or read.
    #[error("cannot read the recording {}: {error}", file.display())]
    Read {
        /// Which.
        file: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// It is none, or one that makes no sense.
    #[error("cannot read the recording {}: {reason}", file.display())]
    Decode {
        /// Which.
        file: PathBuf,
        /// Why.
        reason: DecodeError,
    },
    /// It is something else.
    #[error("cannot read the recording {}: it is not a slowpath recording but {what}", file.display())]
    Other {
        /// Which.
        file: PathBuf,
        /// What it looks like, and what to do with such a file.
        what: &'static str,
    },
    /// It is too large.
    #[error("cannot read the recording {}: it is larger than {LARGEST} bytes; record for a shorter time, or fewer ports", file.display())]
    Large {
        /// Which.
        file: PathBuf,
    },
    /// It is intact, and says what cannot be.
    #[error("cannot read the recording {}: {reason}", file.display())]
    Invalid {
        /// Which.
        file: PathBuf,
        /// What.
        reason: Invalid,
    },
    /// It has no such connection.
    #[error("the recording {} has no connection {wanted}: it has {count}, counted from 0", file.display())]
    NoConnection {
        /// Which.
        file: PathBuf,
        /// Asked for.
        wanted: u32,
        /// There are.
        count: usize,
    },
}

/// The bytes of a file that begins as a recording does and is not too large.
///
/// # Errors
/// What is wrong with the file.
pub fn read(file: &Path) -> Result<Vec<u8>, RecordingError> {
    let failed = |error| RecordingError::Read {
        file: file.to_owned(),
        error,
    };
    let mut from = File::open(file).map_err(failed)?;
    let mut bytes = Vec::new();
    let mut head = (&mut from).take(HEAD);
    head.read_to_end(&mut bytes).map_err(failed)?;
    if decode(&bytes) == Err(DecodeError::NotARecording) {
        return Err(match other(&bytes) {
            Some(what) => RecordingError::Other {
                file: file.to_owned(),
                what,
            },
            None => RecordingError::Decode {
                file: file.to_owned(),
                reason: DecodeError::NotARecording,
            },
        });
    }
    // What is no regular file has no length.
    let large = from.metadata().map_err(failed)?.len() > LARGEST || {
        let mut rest = from.take(LARGEST);
        rest.read_to_end(&mut bytes).map_err(failed)?;
        bytes.len() as u64 > LARGEST
    };
    match large {
        true => Err(RecordingError::Large {
            file: file.to_owned(),
        }),
        false => Ok(bytes),
    }
}

/// The first bytes of a file, which show what it is.
const HEAD: u64 = 8;

/// What a file is whose first bytes are these.
fn other(head: &[u8]) -> Option<&'static str> {
    let capture = "a packet capture: slowpath trace reads those";
    let begins = [
        // pcap in either order of bytes, with microseconds or nanoseconds; pcapng's section header.
        (&[0xd4, 0xc3, 0xb2, 0xa1][..], capture),
        (&[0xa1, 0xb2, 0xc3, 0xd4], capture),
        (&[0x4d, 0x3c, 0xb2, 0xa1], capture),
        (&[0xa1, 0xb2, 0x3c, 0x4d], capture),
        (&[0x0a, 0x0d, 0x0d, 0x0a], capture),
        // RFC 1952 section 2.3.1; RFC 8878 section 3.1.1.
        (&[0x1f, 0x8b], "compressed: gunzip it first"),
        (&[0x28, 0xb5, 0x2f, 0xfd], "compressed: unzstd it first"),
    ];
    let found = begins.iter().find(|(begin, _)| head.starts_with(begin));
    found.map(|(_, what)| *what)
}

/// Reads a valid recording. Where it is more than a reader takes at once and only some connections are wanted, these are read one by one: of the others there are no runs.
///
/// # Errors
/// What is wrong with the file.
pub fn load(file: &Path, wanted: &[usize]) -> Result<Recording, RecordingError> {
    let bytes = read(file)?;
    let recording = match decode(&bytes) {
        Err(DecodeError::TooMany { .. }) if !wanted.is_empty() => some(&bytes, wanted),
        whole => whole,
    };
    let recording = decoded(file, recording)?;
    match recording.validate() {
        Ok(()) => Ok(recording),
        Err(reason) => Err(RecordingError::Invalid {
            file: file.to_owned(),
            reason,
        }),
    }
}

/// Only the runs of those connections.
fn some(bytes: &[u8], wanted: &[usize]) -> Result<Recording, DecodeError> {
    let mut all: Option<Recording> = None;
    for number in wanted {
        let one = Selection {
            connection: u32::try_from(*number).ok(),
            ..Selection::default()
        };
        let mut read = decode_with(bytes, one)?.recording;
        match &mut all {
            None => all = Some(read),
            Some(all) => {
                let pair = all.connections.get_mut(*number);
                if let (Some(to), Some(from)) = (pair, read.connections.get_mut(*number)) {
                    std::mem::swap(to, from);
                }
            }
        }
    }
    Ok(all.unwrap_or_default())
}

/// Names the file in a decoding error.
///
/// # Errors
/// The decoding error.
pub fn decoded<T>(file: &Path, result: Result<T, DecodeError>) -> Result<T, RecordingError> {
    result.map_err(|reason| RecordingError::Decode {
        file: file.to_owned(),
        reason,
    })
}
