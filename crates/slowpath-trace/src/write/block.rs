// SPDX-License-Identifier: Apache-2.0
//! Blocks of pcapng files (draft-ietf-opsawg-pcapng section 3), and pcap's records made into
//! such.

use crate::frame::Record;
use std::io::{self, Write};

const SECTION: u32 = 0x0a0d_0d0a;
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
const INTERFACE: u32 = 1;
const OLD_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;
/// The reader takes longer blocks for damage.
const LONGEST: u32 = 16 << 20;
/// Where the data begin in enhanced and old packets, and in simple ones.
const DATA: usize = 28;
const SIMPLE_DATA: usize = 12;

const OPTION_END: u16 = 0;
const OPTION_COMMENT: u16 = 1;
const OPTION_APPLICATION: u16 = 4;
const OPTION_RESOLUTION: u16 = 9;
const OPTION_FCS_LENGTH: u16 = 13;

/// A pcap file's header.
pub(super) const PCAP_HEADER: usize = 24;

/// Byte order of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Little,
    Big,
}

impl Order {
    fn word(self, bytes: &[u8], at: usize) -> Option<u32> {
        let four = *bytes.get(at..)?.first_chunk()?;
        Some(match self {
            Order::Little => u32::from_le_bytes(four),
            Order::Big => u32::from_be_bytes(four),
        })
    }

    fn half(self, bytes: &[u8], at: usize) -> Option<u16> {
        let two = *bytes.get(at..)?.first_chunk()?;
        Some(match self {
            Order::Little => u16::from_le_bytes(two),
            Order::Big => u16::from_be_bytes(two),
        })
    }

    fn put_word(self, out: &mut Vec<u8>, word: u32) {
        out.extend(match self {
            Order::Little => word.to_le_bytes(),
            Order::Big => word.to_be_bytes(),
        });
    }

    fn put_option(self, out: &mut Vec<u8>, code: u16, value: &[u8]) {
        // The callers' values are short; a comment was cut to fit.
        for half in [code, value.len() as u16] {
            out.extend(match self {
                Order::Little => half.to_le_bytes(),
                Order::Big => half.to_be_bytes(),
            });
        }
        out.extend(value);
        pad(out);
    }

    fn put_comments(self, out: &mut Vec<u8>, comments: &[String]) {
        for comment in comments {
            let mut end = comment.len().min(usize::from(u16::MAX));
            while !comment.is_char_boundary(end) {
                end -= 1;
            }
            self.put_option(out, OPTION_COMMENT, &comment.as_bytes()[..end]);
        }
        self.put_option(out, OPTION_END, &[]);
    }

    /// Type, length, body, length.
    fn finish(self, kind: u32, body: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(body.len() + 12);
        let length = body.len() as u32 + 12;
        self.put_word(&mut out, kind);
        self.put_word(&mut out, length);
        out.extend(body);
        self.put_word(&mut out, length);
        out
    }
}

/// Fills up to a multiple of four.
fn pad(out: &mut Vec<u8>) {
    out.resize(out.len().next_multiple_of(4), 0);
}

/// The section that is copied.
pub(super) struct Section {
    order: Order,
}

impl Section {
    pub(super) fn new(order: Order) -> Self {
        Section { order }
    }

    /// The length of the block that begins here, if it is whole; a section header sets the
    /// byte order.
    pub(super) fn block(&mut self, bytes: &[u8]) -> Option<usize> {
        if Order::Little.word(bytes, 0)? == SECTION {
            self.order = match Order::Little.word(bytes, 8)? {
                BYTE_ORDER => Order::Little,
                mark if mark.swap_bytes() == BYTE_ORDER => Order::Big,
                _ => return None,
            };
        }
        self.whole(bytes)
    }

    fn whole(&self, bytes: &[u8]) -> Option<usize> {
        let length = self.order.word(bytes, 4)?;
        if !(12..=LONGEST).contains(&length) || length % 4 != 0 {
            return None;
        }
        let length = length as usize;
        let again = self.order.word(bytes.get(..length)?, length - 4)?;
        (again as usize == length).then_some(length)
    }

    pub(super) fn is_packet(&self, block: &[u8]) -> bool {
        let kind = self.order.word(block, 0);
        matches!(kind, Some(OLD_PACKET | SIMPLE_PACKET | ENHANCED_PACKET))
    }

    /// The block whose packet's data begin at `data`.
    pub(super) fn around(&self, bytes: &[u8], data: usize) -> Option<(usize, usize)> {
        let candidates = [
            (DATA, ENHANCED_PACKET),
            (DATA, OLD_PACKET),
            (SIMPLE_DATA, SIMPLE_PACKET),
        ];
        candidates.into_iter().find_map(|(header, kind)| {
            let begin = data.checked_sub(header)?;
            let block = bytes.get(begin..)?;
            if self.order.word(block, 0)? != kind {
                return None;
            }
            Some((begin, begin + self.whole(block)?))
        })
    }

    /// The packet's block with comments behind its other options; `None`: it can have none.
    pub(super) fn with_comments(&self, block: &[u8], comments: &[String]) -> Option<Vec<u8>> {
        let kind = self.order.word(block, 0)?;
        if kind == SIMPLE_PACKET {
            return None;
        }
        let captured = self.order.word(block, 20)? as usize;
        let options = DATA.checked_add(captured.next_multiple_of(4))?;
        let body_end = block.len().checked_sub(4)?;
        let mut end = options;
        // Up to the end of the options, or of the block where that is not marked.
        while end < body_end {
            let (code, length) = (
                self.order.half(block, end)?,
                self.order.half(block, end + 2)?,
            );
            if code == OPTION_END {
                break;
            }
            end += 4 + usize::from(length).next_multiple_of(4);
        }
        let mut body = block.get(8..end)?.to_vec();
        if end > body_end {
            return None;
        }
        self.order.put_comments(&mut body, comments);
        Some(self.order.finish(kind, &body))
    }
}

/// What a pcap file's header says of its records.
#[derive(Clone, Copy, Debug)]
pub(super) struct PcapHeader {
    order: Order,
    record_header: usize,
    link: u16,
    /// Of the frame check sequence, in units of 16 bits.
    fcs: u8,
    snap_length: u32,
    nanoseconds: bool,
}

impl PcapHeader {
    /// `None`: not a pcap file. The magic numbers are the reader's.
    pub(super) fn read(bytes: &[u8; PCAP_HEADER]) -> Option<Self> {
        const KUZNETZOV: u32 = 0xa1b2_cd34;
        const MICROSECONDS: [u32; 2] = [0xa1b2_c3d4, KUZNETZOV];
        const NANOSECONDS: u32 = 0xa1b2_3c4d;
        let known = |magic| magic == NANOSECONDS || MICROSECONDS.contains(&magic);
        let order = [Order::Little, Order::Big]
            .into_iter()
            .find(|order| order.word(bytes, 0).is_some_and(known))?;
        let link = order.word(bytes, 20)?;
        let long = order.word(bytes, 0)? == KUZNETZOV;
        Some(PcapHeader {
            order,
            record_header: if long { 24 } else { 16 },
            link: link as u16,
            fcs: if link & 1 << 26 != 0 {
                (link >> 28) as u8
            } else {
                0
            },
            snap_length: order.word(bytes, 16)?,
            nanoseconds: order.word(bytes, 0)? == NANOSECONDS,
        })
    }

    /// A section and its interface.
    pub(super) fn describe(&self, out: &mut dyn Write) -> io::Result<()> {
        let order = Order::Little;
        let mut body = Vec::new();
        order.put_word(&mut body, BYTE_ORDER);
        // Version 1.0; the section's length is not known.
        body.extend([1, 0, 0, 0]);
        body.extend([0xff; 8]);
        let application = concat!("slowpath ", env!("CARGO_PKG_VERSION"));
        order.put_option(&mut body, OPTION_APPLICATION, application.as_bytes());
        order.put_option(&mut body, OPTION_END, &[]);
        out.write_all(&order.finish(SECTION, &body))?;
        let mut body = Vec::new();
        body.extend(self.link.to_le_bytes());
        body.extend([0, 0]);
        order.put_word(&mut body, self.snap_length);
        if self.nanoseconds {
            order.put_option(&mut body, OPTION_RESOLUTION, &[9]);
        }
        if self.fcs > 0 {
            order.put_option(&mut body, OPTION_FCS_LENGTH, &[self.fcs * 16]);
        }
        order.put_option(&mut body, OPTION_END, &[]);
        out.write_all(&order.finish(INTERFACE, &body))
    }

    /// The length on the wire as the record says it, even if less than what was captured.
    fn wire_length(&self, record: &Record, bytes: &[u8]) -> u32 {
        let header = record.start.checked_sub(self.record_header);
        let length = |at| self.order.word(bytes, header? + at);
        // The two come in the other order in old files.
        match (length(8), length(12)) {
            (Some(first), Some(second)) if first == record.captured => second,
            (Some(first), Some(_)) => first,
            _ => record.wire_length,
        }
    }

    /// A record as an enhanced packet; it lies in these bytes.
    pub(super) fn packet(
        &self,
        record: &Record,
        bytes: &[u8],
        comments: &[String],
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let order = Order::Little;
        let nanos = record.time.0 as u64;
        let time = if self.nanoseconds {
            nanos
        } else {
            nanos / 1000
        };
        let mut body = Vec::with_capacity(record.captured as usize + 32);
        let wire_length = self.wire_length(record, bytes);
        let times = [(time >> 32) as u32, time as u32];
        for word in [0, times[0], times[1], record.captured, wire_length] {
            order.put_word(&mut body, word);
        }
        body.extend(&bytes[record.start..][..record.captured as usize]);
        pad(&mut body);
        if !comments.is_empty() {
            order.put_comments(&mut body, comments);
        }
        out.write_all(&order.finish(ENHANCED_PACKET, &body))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An enhanced packet with these options, in big endian: the draft's figure 10.
    fn packet(options: &[u8]) -> Vec<u8> {
        let mut body = Vec::new();
        for word in [0u32, 1, 2, 5, 60] {
            body.extend(word.to_be_bytes());
        }
        body.extend([1, 2, 3, 4, 5, 0, 0, 0]);
        body.extend(options);
        Order::Big.finish(ENHANCED_PACKET, &body)
    }

    #[test]
    fn a_comment_comes_behind_the_other_options() {
        let section = Section::new(Order::Big);
        // epb_flags (2), then the end; and without the end.
        let flags = [0, 2, 0, 4, 0, 0, 0, 1];
        let ended = [&flags[..], &[0, 0, 0, 0]].concat();
        let comment = b"\0\x01\0\x02hi\0\0\0\0\0\0";
        for options in [&flags[..], &ended] {
            let wanted = packet(&[&flags[..], comment].concat());
            let texts = ["hi".to_owned()];
            assert_eq!(
                section.with_comments(&packet(options), &texts),
                Some(wanted)
            );
        }
        let wanted = packet(comment);
        assert_eq!(
            section.with_comments(&packet(&[]), &["hi".to_owned()]),
            Some(wanted)
        );
    }

    #[test]
    fn options_that_do_not_fit_are_left_as_they_are() {
        let section = Section::new(Order::Big);
        for options in [&[0, 2, 0, 200][..], &[0, 2, 255, 255]] {
            assert_eq!(
                section.with_comments(&packet(options), &[String::new()]),
                None
            );
        }
    }

    #[test]
    fn long_comments_are_cut_between_characters() {
        let long = "\u{20ac}".repeat(30_000);
        let commented = Section::new(Order::Big).with_comments(&packet(&[]), &[long]);
        let block = commented.unwrap();
        let length = usize::from(Order::Big.half(&block, 38).unwrap());
        assert_eq!(length, 65_535);
        assert!(std::str::from_utf8(&block[40..40 + length]).is_ok());
    }
}
