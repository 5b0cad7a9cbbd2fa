// SPDX-License-Identifier: Apache-2.0
//! Why a recording cannot be written or read.

/// Version of the format.
pub const VERSION: u16 = 2;

/// Why a recording cannot be read at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The file ends within its header: its writer was killed before the first frame.
    #[error("it ends within its header, before the first frame: nothing was recorded")]
    Torn,
    /// It does not begin with the magic.
    #[error("it is not a slowpath recording")]
    NotARecording,
    /// The header's checksum is wrong.
    #[error("its header is damaged")]
    Damaged,
    /// Another version of the format.
    #[error(
        "it has version {version} of the format, this slowpath reads version {VERSION}; read it with the slowpath that wrote it"
    )]
    Version {
        /// Its version.
        version: u16,
    },
    /// A part whose checksum is right makes no sense: whoever wrote it is wrong, or wants harm.
    #[error("its {part}, at byte {offset}, is intact but makes no sense: {reason}")]
    Nonsense {
        /// What it is.
        part: &'static str,
        /// Where it begins.
        offset: usize,
        /// What is wrong.
        reason: Nonsense,
    },
    /// It says more than a reader has to take.
    #[error("it holds more than {limit} events; read single connections of it")]
    TooMany {
        /// The limit, in runs, outcomes and samples.
        limit: u64,
    },
}

/// What makes no sense in an intact part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Nonsense {
    /// It ends too soon.
    #[error("{what} end before they are complete")]
    Short {
        /// What.
        what: &'static str,
    },
    /// It goes on after its end.
    #[error("{what} go on after their end")]
    Left {
        /// What.
        what: &'static str,
    },
    /// A number does not fit.
    #[error("a number in {what} is too large")]
    Large {
        /// What.
        what: &'static str,
    },
    /// A text is not UTF-8.
    #[error("a text in {what} is not UTF-8")]
    Text {
        /// What.
        what: &'static str,
    },
    /// A number stands for nothing that this version knows.
    #[error("{what} {number} means nothing")]
    Unknown {
        /// What.
        what: &'static str,
        /// The number.
        number: u64,
    },
    /// A part says again, or otherwise, what an earlier one said.
    #[error("{what} contradict what an earlier frame says")]
    Contradiction {
        /// What.
        what: &'static str,
    },
    /// It cannot be decompressed, or not to the length that it says.
    #[error("{what} cannot be decompressed to the length they say")]
    Compression {
        /// What.
        what: &'static str,
    },
    /// Too much in one frame.
    #[error("it says more than a frame may")]
    Frame,
}

/// Why a recording cannot be written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// More decisions than a frame takes.
    #[error(
        "recording connection {connection}: run {run} of its end {end} has {outcomes} outcomes, more than a frame takes"
    )]
    Outcomes {
        /// The connection's place.
        connection: u32,
        /// 0 or 1.
        end: usize,
        /// The run's place.
        run: u64,
        /// How many.
        outcomes: usize,
    },
    /// Settings or origin longer than a frame.
    #[error("recording {what}: its texts are longer than a frame takes")]
    Long {
        /// What.
        what: String,
    },
    /// More connections than numbers for them.
    #[error("a recording takes at most 2^32 connections")]
    Connections,
    /// Something happened at an end that is not open, or a sample came of one whose runs have their times.
    #[error(
        "recording connection {connection}: its end {end} does not take that, it is not open or keeps times otherwise"
    )]
    Closed {
        /// The connection's number.
        connection: u32,
        /// 0 or 1.
        end: usize,
    },
    /// The compression library refuses (memory).
    #[error("compressing a recording's frame failed")]
    Compression,
}
