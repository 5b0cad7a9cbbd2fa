// SPDX-License-Identifier: Apache-2.0
//! What a capture shows beside its frames, and what could not be read of it.

use std::fmt;

/// Bytes of comments that are kept.
const COMMENT_BYTES: usize = 1 << 20;

/// Gaps that are kept one by one.
const GAPS: usize = 4096;

/// Interfaces whose descriptions are kept.
const INTERFACES: usize = 4096;

/// Why bytes of a capture were skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SkipReason {
    /// The file ends within a record.
    CutShort,
    /// A record header that cannot be right; what follows was searched for the next good one.
    Damaged,
    /// A pcapng block that names an interface no one described.
    UnknownInterface,
    /// The compressed data end early or are damaged.
    Compressed,
}

impl SkipReason {
    /// All reasons.
    pub const ALL: [SkipReason; 4] = [
        SkipReason::CutShort,
        SkipReason::Damaged,
        SkipReason::UnknownInterface,
        SkipReason::Compressed,
    ];
}

impl fmt::Display for SkipReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SkipReason::CutShort => "the file ends within a record",
            SkipReason::Damaged => "damaged record",
            SkipReason::UnknownInterface => "block of an unknown interface",
            SkipReason::Compressed => "compressed data damaged or cut short",
        })
    }
}

/// How often, and how many bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Skip {
    /// Places.
    pub times: u64,
    /// Bytes there, as far as known.
    pub bytes: u64,
}

/// Whose comment it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommentOn {
    /// The capture, or a section of it.
    Section,
    /// The interface with that number.
    Interface(u32),
    /// The frame with that number.
    Frame(u64),
    /// The statistics of the interface with that number.
    Statistics(u32),
}

/// A comment of a pcapng file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Comment {
    /// What it is about.
    pub on: CommentOn,
    /// What it says.
    pub text: String,
}

/// An interface of a pcapng file, numbered over all sections and files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    /// Its name, if stated.
    pub name: Option<String>,
    /// The capture filter, if stated.
    pub filter: Option<String>,
    /// Bytes captured of a frame at most; 0: no limit.
    pub snap_length: u32,
    /// Frames the interface or the system lost, by its latest statistics.
    pub dropped: Option<u64>,
}

/// Frames lost before a frame, as the capturing program noted it there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The frame after the gap.
    pub before: u64,
    /// How many were lost.
    pub lost: u64,
}

/// What a capture shows beside its frames.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Notes {
    skipped: [Skip; SkipReason::ALL.len()],
    /// Comments, in the order of the file; about 1 MiB of them at most.
    pub comments: Vec<Comment>,
    /// Comments that were not kept.
    pub comments_dropped: u64,
    comment_bytes: usize,
    /// The interfaces of pcapng files.
    pub interfaces: Vec<Interface>,
    /// Where the capturing program lost frames, if it said so; the first 4,096.
    pub gaps: Vec<Gap>,
    /// Frames lost by those notes, all of them.
    pub lost_in_gaps: u64,
    /// How often a frame was older than the one before it.
    pub clock_went_back: u64,
    /// By how much at most, in nanoseconds.
    pub clock_back_max: u64,
    /// Frames without a time of their own (pcapng's simple packets): they got the time before.
    pub without_time: u64,
}

impl Notes {
    /// What was skipped for that reason.
    #[must_use]
    pub fn skipped(&self, reason: SkipReason) -> Skip {
        self.skipped[reason as usize]
    }

    /// Frames that the capture lost by its own account: `None` if it gives none.
    #[must_use]
    pub fn capture_drops(&self) -> Option<u64> {
        let reported = self.interfaces.iter().filter_map(|i| i.dropped);
        let statistics = reported.fold(None, |sum: Option<u64>, n| {
            Some(sum.unwrap_or(0).saturating_add(n))
        });
        let gaps = (self.lost_in_gaps > 0).then_some(self.lost_in_gaps);
        statistics.max(gaps)
    }

    pub(crate) fn skip(&mut self, reason: SkipReason, bytes: u64) {
        let skip = &mut self.skipped[reason as usize];
        skip.times += 1;
        skip.bytes += bytes;
    }

    /// More bytes of the skip before.
    pub(crate) fn skip_on(&mut self, reason: SkipReason, bytes: u64) {
        self.skipped[reason as usize].bytes += bytes;
    }

    pub(crate) fn comment(&mut self, on: CommentOn, text: &[u8]) {
        if self.comment_bytes + text.len() > COMMENT_BYTES {
            self.comments_dropped += 1;
            return;
        }
        // Empty ones cost memory too.
        self.comment_bytes += text.len() + size_of::<Comment>();
        self.comments.push(Comment {
            on,
            text: String::from_utf8_lossy(text).into_owned(),
        });
    }

    pub(crate) fn gap(&mut self, before: u64, lost: u64) {
        if lost == 0 {
            return;
        }
        self.lost_in_gaps = self.lost_in_gaps.saturating_add(lost);
        if self.gaps.len() < GAPS {
            self.gaps.push(Gap { before, lost });
        }
    }

    pub(crate) fn interface(&mut self, interface: Interface) {
        if self.interfaces.len() < INTERFACES {
            self.interfaces.push(interface);
        }
    }

    #[cold]
    pub(crate) fn clock_back(&mut self, by: i64) {
        self.clock_went_back += 1;
        self.clock_back_max = self.clock_back_max.max(by.unsigned_abs());
    }
}
