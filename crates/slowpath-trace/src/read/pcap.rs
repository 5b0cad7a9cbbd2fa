// SPDX-License-Identifier: Apache-2.0
//! The pcap format (draft-ietf-opsawg-pcap): a file header, then records.

use crate::frame::Link;

/// Microseconds, as written by a machine of the other byte order or not.
const MICROSECONDS: u32 = 0xa1b2_c3d4;
/// Nanoseconds.
const NANOSECONDS: u32 = 0xa1b2_3c4d;
/// Kuznetzov's variant of Linux 2.x: eight more bytes in each record header.
const KUZNETZOV: u32 = 0xa1b2_cd34;

/// libpcap's MAXIMUM_SNAPLEN: longer frames are taken for damage unless the header announces
/// them. BIG TCP super-segments go up to 512 KiB.
const LONGEST: u32 = 1 << 20;
/// What a header may announce at most.
const LONGEST_ANNOUNCED: u32 = 8 << 20;

pub(super) const FILE_HEADER: usize = 24;

/// What a file's header says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    swapped: bool,
    /// Nanoseconds in the unit of the fraction.
    unit: u32,
    pub(super) record_header: usize,
    longest: u32,
    lengths: Lengths,
    pub(super) link: Link,
}

/// Which of a record's two lengths comes first. Version 2.3 swapped them, and some programs
/// wrote 2.3 in the old order (libpcap, sf-pcap.c).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lengths {
    CapturedFirst,
    WireFirst,
    LesserCaptured,
}

/// A record's header, undone of byte order and unit.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecordHeader {
    pub(super) time: i64,
    pub(super) captured: u32,
    pub(super) wire_length: u32,
    seconds: u32,
}

impl Header {
    /// `None`: these bytes do not begin a pcap file.
    pub(super) fn read(bytes: &[u8; FILE_HEADER]) -> Option<Self> {
        let word = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let known = |magic| matches!(magic, MICROSECONDS | NANOSECONDS | KUZNETZOV);
        let swapped = match word(0) {
            magic if known(magic) => false,
            magic if known(magic.swap_bytes()) => true,
            _ => return None,
        };
        let ordered = |at| {
            if swapped {
                word(at).swap_bytes()
            } else {
                word(at)
            }
        };
        let magic = ordered(0);
        let halves = ordered(4);
        let version = if swapped {
            (halves >> 16, halves & 0xffff)
        } else {
            (halves & 0xffff, halves >> 16)
        };
        let snap_length = ordered(16);
        Some(Header {
            swapped,
            unit: if magic == NANOSECONDS { 1 } else { 1_000 },
            record_header: if magic == KUZNETZOV { 24 } else { 16 },
            lengths: match version {
                (2, 3) => Lengths::LesserCaptured,
                version if version < (2, 3) => Lengths::WireFirst,
                _ => Lengths::CapturedFirst,
            },
            longest: snap_length.clamp(LONGEST, LONGEST_ANNOUNCED),
            // The upper bits describe a frame check sequence (libpcap's LT_LINKTYPE).
            link: Link::from_number(ordered(20) & 0x03ff_ffff),
        })
    }

    /// `None`: not a record of this file.
    #[inline]
    pub(super) fn record(&self, bytes: &[u8; 16]) -> Option<RecordHeader> {
        let word = |at: usize| {
            let word = u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
            if self.swapped {
                word.swap_bytes()
            } else {
                word
            }
        };
        let (seconds, fraction) = (word(0), word(4));
        let (captured, length) = match self.lengths {
            Lengths::CapturedFirst => (word(8), word(12)),
            Lengths::WireFirst => (word(12), word(8)),
            Lengths::LesserCaptured => (word(8).min(word(12)), word(8).max(word(12))),
        };
        if captured > self.longest {
            return None;
        }
        Some(RecordHeader {
            time: i64::from(seconds) * 1_000_000_000 + i64::from(fraction) * i64::from(self.unit),
            captured,
            wire_length: length.max(captured),
            seconds,
        })
    }

    /// Whether a record may begin here, as far as the bytes show: used to find the next one
    /// after damage. Three headers in a row must make sense, near each other in time and near the
    /// last record before, if there was one.
    pub(super) fn plausible(&self, data: &[u8], last_time: Option<i64>) -> bool {
        const IN_A_ROW: usize = 3;
        /// Seconds between records beside damage.
        const NEAR: i64 = 86_400;
        let mut near = last_time.map(|time| time / 1_000_000_000);
        let mut rest = data;
        for found in 0..IN_A_ROW {
            let Some(bytes) = rest.first_chunk() else {
                return found > 0;
            };
            let Some(header) = self.record(bytes) else {
                return false;
            };
            let seconds = i64::from(header.seconds);
            let fraction = header.time - seconds * 1_000_000_000;
            if fraction >= 1_000_000_000
                || near.is_some_and(|near| (seconds - near).abs() > NEAR)
                || header.captured == 0
                || header.wire_length > LONGEST
            {
                return false;
            }
            near = Some(seconds);
            let Some(after) = rest.get(self.record_header + header.captured as usize..) else {
                return found > 0;
            };
            rest = after;
        }
        true
    }
}
