// SPDX-License-Identifier: Apache-2.0
//! What the guest's first process and the machine outside say to each other.
//!
//! One stream each way over a virtio serial port. A frame is its kind (1 byte), its length
//! (4 bytes, little-endian) and that many bytes: raw for streams and files, JSON for the
//! few words with structure. A file is an [`Entry`], its bytes, and an [`EntryEnd`] with
//! length and CRC-32 of what was read inside.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The name of the port.
pub const PORT: &str = "slowpath";
/// Where the first process finds its [`Order`].
pub const ORDER: &str = "/etc/slowpath-guest.json";
/// Where the command leaves its results.
pub const RESULTS: &str = "/out";
/// Changes when the two ends would no longer understand each other.
pub const VERSION: u32 = 1;
/// The longest frame that is accepted; ours are shorter.
const LONGEST: usize = 1 << 20;
/// Bytes before the payload.
const HEADER: usize = 5;

/// What the first process has to do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// The version of these messages.
    pub version: u32,
    /// The command and its arguments.
    pub command: Vec<String>,
    /// Its whole environment.
    pub environment: BTreeMap<String, String>,
    /// Modules to load before it runs.
    pub load: Vec<String>,
    /// Every module at hand, by name.
    pub modules: BTreeMap<String, ModuleFile>,
    /// Other names that the kernel asks for modules by.
    pub aliases: BTreeMap<String, String>,
    /// On a terminal of its own (columns, rows).
    pub terminal: Option<(u16, u16)>,
    /// Whether files of `/out` are wanted.
    pub results: bool,
}

/// A module at hand.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModuleFile {
    /// Its file in the guest.
    pub file: String,
    /// The modules that it needs, in the order in which they have to be loaded.
    pub needs: Vec<String>,
}

/// How the command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It exited.
    Exited(i32),
    /// A signal ended it.
    Signalled(i32),
}

impl Status {
    /// One number, as shells make it: the exit code, or 128 and the signal.
    pub fn code(self) -> u8 {
        match self {
            Status::Exited(code) => (code & 0xff) as u8,
            Status::Signalled(signal) => 128 | (signal & 0x7f) as u8,
        }
    }

    /// Exited with 0.
    pub fn success(self) -> bool {
        self == Status::Exited(0)
    }
}

/// First words of the guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The version of these messages.
    pub version: u32,
    /// The kernel's release.
    pub release: String,
    /// Milliseconds since the guest's kernel started.
    pub uptime_ms: u64,
}

/// Something of `/out`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Relative to `/out`.
    pub path: String,
    /// Permission bits.
    pub mode: u32,
    /// What it is.
    pub kind: EntryKind,
}

/// What an [`Entry`] is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EntryKind {
    /// A folder.
    Folder,
    /// A file; its bytes follow, then [`EntryEnd`].
    File,
    /// A symbolic link.
    Link(String),
}

/// The end of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntryEnd {
    /// How many bytes were sent.
    pub length: u64,
    /// Their CRC-32 (IEEE).
    pub crc32: u32,
}

/// Last words of the guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    /// How the command ended.
    pub status: Status,
    /// Things in `/out` that are neither file, folder nor link, or whose names are not UTF-8.
    pub left_out: u64,
}

/// From the guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromGuest {
    /// The kernel is up and the command about to run.
    Hello(Hello),
    /// Nothing new, and alive.
    Beat,
    /// The command's standard output.
    Stdout(Vec<u8>),
    /// The command's standard error.
    Stderr(Vec<u8>),
    /// A result begins.
    Entry(Entry),
    /// Bytes of it.
    Data(Vec<u8>),
    /// It is complete.
    EntryEnd(EntryEnd),
    /// All is said.
    Done(Done),
    /// The first process cannot go on.
    Trouble(String),
}

/// To the guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToGuest {
    /// What was typed; empty: no more will come.
    Input(Vec<u8>),
    /// Stop the command, then send what there is.
    Stop,
}

/// Why bytes are no message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// A length that is never sent.
    #[error("a frame of {length} bytes")]
    TooLong {
        /// What it said.
        length: usize,
    },
    /// A kind that is never sent.
    #[error("a frame of kind {kind}")]
    Kind {
        /// What it said.
        kind: u8,
    },
    /// A payload without the structure of its kind.
    #[error("a frame of kind {kind} that says nothing: {reason}")]
    Payload {
        /// Its kind.
        kind: u8,
        /// What is wrong.
        reason: String,
    },
    /// A message in the wrong place.
    #[error("{what} came unexpectedly")]
    Order {
        /// Which.
        what: &'static str,
    },
    /// The two ends are of different versions.
    #[error("the guest speaks version {theirs}, this is version {VERSION}; rebuild")]
    Version {
        /// What it speaks.
        theirs: u32,
    },
}

fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
    debug_assert!(payload.len() <= LONGEST, "frames of ours are short");
    let mut bytes = Vec::with_capacity(HEADER + payload.len());
    bytes.push(kind);
    bytes.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

fn json(value: &impl Serialize) -> Vec<u8> {
    // Strings and numbers only: nothing that JSON could refuse.
    serde_json::to_vec(value).unwrap_or_default()
}

fn parsed<'a, T: Deserialize<'a>>(kind: u8, payload: &'a [u8]) -> Result<T, WireError> {
    serde_json::from_slice(payload).map_err(|error| WireError::Payload {
        kind,
        reason: error.to_string(),
    })
}

impl FromGuest {
    /// As bytes.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            FromGuest::Hello(hello) => frame(1, &json(hello)),
            FromGuest::Beat => frame(2, &[]),
            FromGuest::Stdout(bytes) => frame(3, bytes),
            FromGuest::Stderr(bytes) => frame(4, bytes),
            FromGuest::Entry(entry) => frame(5, &json(entry)),
            FromGuest::Data(bytes) => frame(6, bytes),
            FromGuest::EntryEnd(end) => frame(7, &json(end)),
            FromGuest::Done(done) => frame(8, &json(done)),
            FromGuest::Trouble(reason) => frame(9, reason.as_bytes()),
        }
    }

    /// From a frame.
    ///
    /// # Errors
    /// An unknown kind, or a payload of another kind.
    pub fn decode((kind, payload): (u8, Vec<u8>)) -> Result<Self, WireError> {
        Ok(match kind {
            1 => FromGuest::Hello(parsed(kind, &payload)?),
            2 => FromGuest::Beat,
            3 => FromGuest::Stdout(payload),
            4 => FromGuest::Stderr(payload),
            5 => FromGuest::Entry(parsed(kind, &payload)?),
            6 => FromGuest::Data(payload),
            7 => FromGuest::EntryEnd(parsed(kind, &payload)?),
            8 => FromGuest::Done(parsed(kind, &payload)?),
            9 => FromGuest::Trouble(String::from_utf8_lossy(&payload).into_owned()),
            kind => return Err(WireError::Kind { kind }),
        })
    }
}

impl ToGuest {
    /// As bytes.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            ToGuest::Input(bytes) => frame(1, bytes),
            ToGuest::Stop => frame(2, &[]),
        }
    }

    /// From a frame.
    ///
    /// # Errors
    /// An unknown kind.
    pub fn decode((kind, payload): (u8, Vec<u8>)) -> Result<Self, WireError> {
        match kind {
            1 => Ok(ToGuest::Input(payload)),
            2 => Ok(ToGuest::Stop),
            kind => Err(WireError::Kind { kind }),
        }
    }
}

/// Cuts a stream into frames. Holds at most one frame and what was pushed last.
#[derive(Debug, Default)]
pub struct Frames {
    bytes: Vec<u8>,
    at: usize,
}

impl Frames {
    /// More of the stream.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.at);
        self.at = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// The next whole frame, as kind and payload.
    ///
    /// # Errors
    /// Its length is impossible; nothing after it can be read.
    pub fn next_frame(&mut self) -> Result<Option<(u8, Vec<u8>)>, WireError> {
        let rest = &self.bytes[self.at..];
        let [kind, l0, l1, l2, l3, payload @ ..] = rest else {
            return Ok(None);
        };
        let length = u32::from_le_bytes([*l0, *l1, *l2, *l3]) as usize;
        if length > LONGEST {
            return Err(WireError::TooLong { length });
        }
        let Some(payload) = payload.get(..length) else {
            return Ok(None);
        };
        let frame = (*kind, payload.to_vec());
        self.at += HEADER + length;
        Ok(Some(frame))
    }
}
