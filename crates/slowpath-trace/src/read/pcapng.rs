// SPDX-License-Identifier: Apache-2.0
//! The pcapng format (draft-ietf-opsawg-pcapng): sections of blocks.

use super::notes::{CommentOn, Interface, Notes};
use crate::frame::Link;

/// Section Header Block; the same in both byte orders.
pub(super) const SECTION: u32 = 0x0a0d_0d0a;
const BYTE_ORDER: u32 = 0x1a2b_3c4d;

const INTERFACE: u32 = 1;
const OLD_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const STATISTICS: u32 = 5;
const ENHANCED_PACKET: u32 = 6;

/// Longer blocks are taken for damage.
pub(super) const LONGEST: usize = 16 << 20;

const OPTION_COMMENT: u16 = 1;

/// How an interface counts time.
#[derive(Clone, Copy, Debug)]
enum Resolution {
    /// Nanoseconds a unit.
    Multiply(i64),
    /// Units a nanosecond.
    Divide(i64),
    /// Units a second are two to the power of this.
    Binary(u32),
}

impl Resolution {
    /// Of option if_tsresol.
    fn new(option: u8) -> Self {
        let exponent = u32::from(option & 0x7f);
        if option & 0x80 != 0 {
            return Resolution::Binary(exponent);
        }
        match exponent {
            0..=9 => Resolution::Multiply(10i64.pow(9 - exponent)),
            // Finer than 10^-27 s: nothing but zero comes of 64 bits of it.
            _ => Resolution::Divide(10i64.checked_pow(exponent - 9).unwrap_or(i64::MAX)),
        }
    }

    #[inline]
    fn nanoseconds(self, units: u64) -> i64 {
        match self {
            Resolution::Multiply(by) => (units as i64).saturating_mul(by),
            Resolution::Divide(by) => (units / by.unsigned_abs()) as i64,
            Resolution::Binary(exponent) => {
                ((u128::from(units) * 1_000_000_000) >> exponent.min(127)) as i64
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Described {
    link: Link,
    snap_length: u32,
    resolution: Resolution,
    /// Nanoseconds to add.
    offset: i64,
}

/// What is known of the section that is read.
#[derive(Clone, Debug)]
pub(super) struct Section {
    swapped: bool,
    interfaces: Vec<Described>,
    /// The number, over all sections, of the section's first interface.
    first_interface: u32,
}

/// A block's content.
#[derive(Clone, Copy, Debug)]
pub(super) enum Block {
    Packet {
        link: Link,
        /// Over all sections.
        interface: u32,
        /// `None`: it has none.
        time: Option<i64>,
        wire_length: u32,
        /// Where the frame is in the block.
        start: usize,
        captured: usize,
    },
    /// Read or skipped; no packet.
    Other,
    /// It names an interface that no one described.
    UnknownInterface,
    /// It contradicts itself.
    Damaged,
}

impl Section {
    /// `None`: not a section header. `bytes` begin with the block's type.
    pub(super) fn read(bytes: &[u8], first_interface: u32) -> Option<Self> {
        let kind = u32::from_le_bytes(*bytes.first_chunk()?);
        let mark = u32::from_le_bytes(*bytes.get(8..)?.first_chunk()?);
        let swapped = match mark {
            BYTE_ORDER => false,
            mark if mark.swap_bytes() == BYTE_ORDER => true,
            _ => return None,
        };
        (kind == SECTION).then(|| Section {
            swapped,
            interfaces: Vec::new(),
            first_interface,
        })
    }

    /// The number that the next section's first interface gets.
    pub(super) fn next_interface(&self) -> u32 {
        self.first_interface
            .saturating_add(self.interfaces.len() as u32)
    }

    #[inline]
    fn word(&self, bytes: &[u8], at: usize) -> Option<u32> {
        let word = u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?);
        Some(if self.swapped {
            word.swap_bytes()
        } else {
            word
        })
    }

    fn half(&self, bytes: &[u8], at: usize) -> Option<u16> {
        let half = u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?);
        Some(if self.swapped {
            half.swap_bytes()
        } else {
            half
        })
    }

    fn long(&self, bytes: &[u8]) -> Option<u64> {
        let long = u64::from_le_bytes(*bytes.first_chunk()?);
        Some(if self.swapped {
            long.swap_bytes()
        } else {
            long
        })
    }

    /// The length of the block that begins here; `None`: it cannot be right.
    #[inline]
    pub(super) fn length(&self, header: &[u8; 8]) -> Option<usize> {
        let length = self.word(header, 4)? as usize;
        (length >= 12 && length.is_multiple_of(4) && length <= LONGEST).then_some(length)
    }

    /// Whether a block of a known kind begins here and its two lengths agree: used to find the
    /// next one after damage.
    pub(super) fn plausible(&self, data: &[u8]) -> bool {
        let Some(header) = data.first_chunk() else {
            return false;
        };
        let kind = self.word(header, 0);
        let known = matches!(kind, Some(INTERFACE..=ENHANCED_PACKET | SECTION));
        let length = self.length(header);
        known && length.is_some_and(|n| self.word(data, n - 4) == Some(n as u32))
    }

    /// Reads a whole block. `frame` is the number that a packet in it gets.
    #[inline]
    pub(super) fn block(&mut self, block: &[u8], frame: u64, notes: &mut Notes) -> Block {
        if self.word(block, block.len() - 4) != Some(block.len() as u32) {
            return Block::Damaged;
        }
        let body = &block[..block.len() - 4];
        match self.word(body, 0) {
            Some(ENHANCED_PACKET) => self.enhanced(body, frame, notes),
            Some(OLD_PACKET) => self.old(body, frame, notes),
            Some(SIMPLE_PACKET) => self.simple(body),
            Some(SECTION) => {
                let Some(next) = Section::read(body, self.next_interface()) else {
                    return Block::Damaged;
                };
                *self = next;
                self.comments(body, 24, CommentOn::Section, notes);
                Block::Other
            }
            Some(INTERFACE) => self.interface(body, notes).unwrap_or(Block::Damaged),
            Some(STATISTICS) => self.statistics(body, notes).unwrap_or(Block::Damaged),
            _ => Block::Other,
        }
    }

    #[inline]
    fn enhanced(&self, body: &[u8], frame: u64, notes: &mut Notes) -> Block {
        const DATA: usize = 28;
        let Some(fields) = body.first_chunk::<DATA>() else {
            return Block::Damaged;
        };
        let word = |at| self.word(fields, at).unwrap_or(0);
        let units = u64::from(word(12)) << 32 | u64::from(word(16));
        let captured = word(20) as usize;
        let options = DATA + captured.next_multiple_of(4);
        if options > body.len() {
            return Block::Damaged;
        }
        if options < body.len() {
            self.packet_options(body, options, frame, notes);
        }
        self.packet(word(8), Some(units), word(24), DATA, captured)
    }

    #[cold]
    fn packet_options(&self, body: &[u8], from: usize, frame: u64, notes: &mut Notes) {
        const DROP_COUNT: u16 = 4;
        for (code, value) in self.options(body, from) {
            match code {
                OPTION_COMMENT => notes.comment(CommentOn::Frame(frame), value),
                DROP_COUNT => notes.gap(frame, self.long(value).unwrap_or(0)),
                _ => {}
            }
        }
    }

    fn old(&self, body: &[u8], frame: u64, notes: &mut Notes) -> Block {
        const DATA: usize = 28;
        /// "If unknown, all bits are set".
        const UNKNOWN: u16 = u16::MAX;
        let Some(fields) = body.first_chunk::<DATA>() else {
            return Block::Damaged;
        };
        let word = |at| self.word(fields, at).unwrap_or(0);
        let half = |at| self.half(fields, at).unwrap_or(0);
        let units = u64::from(word(12)) << 32 | u64::from(word(16));
        let captured = word(20) as usize;
        let options = DATA + captured.next_multiple_of(4);
        if options > body.len() {
            return Block::Damaged;
        }
        if half(10) != UNKNOWN {
            notes.gap(frame, half(10).into());
        }
        self.comments(body, options, CommentOn::Frame(frame), notes);
        self.packet(half(8).into(), Some(units), word(24), DATA, captured)
    }

    fn simple(&self, body: &[u8]) -> Block {
        const DATA: usize = 12;
        let (Some(wire_length), Some(interface)) = (self.word(body, 8), self.interfaces.first())
        else {
            return Block::UnknownInterface;
        };
        let limit = match interface.snap_length {
            0 => u32::MAX,
            limit => limit,
        };
        let captured = (wire_length.min(limit) as usize).min(body.len() - DATA);
        self.packet(0, None, wire_length, DATA, captured)
    }

    #[inline]
    fn packet(
        &self,
        interface: u32,
        units: Option<u64>,
        wire_length: u32,
        start: usize,
        captured: usize,
    ) -> Block {
        let Some(described) = self.interfaces.get(interface as usize) else {
            return Block::UnknownInterface;
        };
        let time = units.map(|units| {
            let since = described.resolution.nanoseconds(units);
            since.saturating_add(described.offset)
        });
        Block::Packet {
            link: described.link,
            interface: self.first_interface.saturating_add(interface),
            time,
            wire_length: wire_length.max(captured as u32),
            start,
            captured,
        }
    }

    fn interface(&mut self, body: &[u8], notes: &mut Notes) -> Option<Block> {
        const NAME: u16 = 2;
        const RESOLUTION: u16 = 9;
        const FILTER: u16 = 11;
        const OFFSET: u16 = 14;
        /// A section with more is not one that was captured in earnest.
        const INTERFACES: usize = 1 << 16;
        if self.interfaces.len() >= INTERFACES {
            return None;
        }
        let number = self.next_interface();
        let mut described = Described {
            link: Link::from_number(self.half(body, 8)?.into()),
            snap_length: self.word(body, 12)?,
            resolution: Resolution::Multiply(1_000),
            offset: 0,
        };
        let mut reported = Interface {
            snap_length: described.snap_length,
            ..Interface::default()
        };
        let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
        for (code, value) in self.options(body, 16) {
            match (code, value) {
                (OPTION_COMMENT, _) => notes.comment(CommentOn::Interface(number), value),
                (NAME, _) => reported.name = Some(text(value)),
                // The first byte says what kind of filter; 0 is text.
                (FILTER, [0, expression @ ..]) => reported.filter = Some(text(expression)),
                (RESOLUTION, [resolution, ..]) => {
                    described.resolution = Resolution::new(*resolution);
                }
                (OFFSET, _) => {
                    let seconds = self.long(value).unwrap_or(0) as i64;
                    described.offset = seconds.saturating_mul(1_000_000_000);
                }
                _ => {}
            }
        }
        self.interfaces.push(described);
        notes.interface(reported);
        Some(Block::Other)
    }

    fn statistics(&self, body: &[u8], notes: &mut Notes) -> Option<Block> {
        const INTERFACE_DROPPED: u16 = 5;
        const SYSTEM_DROPPED: u16 = 7;
        let interface = self.word(body, 8)?;
        if interface as usize >= self.interfaces.len() {
            return Some(Block::UnknownInterface);
        }
        let number = self.first_interface.saturating_add(interface);
        let mut dropped = None;
        for (code, value) in self.options(body, 20) {
            match code {
                OPTION_COMMENT => notes.comment(CommentOn::Statistics(number), value),
                INTERFACE_DROPPED | SYSTEM_DROPPED => {
                    if let Some(count) = self.long(value) {
                        dropped = Some(count.saturating_add(dropped.unwrap_or(0)));
                    }
                }
                _ => {}
            }
        }
        if let (Some(reported), Some(_)) = (notes.interfaces.get_mut(number as usize), dropped) {
            reported.dropped = dropped;
        }
        Some(Block::Other)
    }

    fn comments(&self, body: &[u8], from: usize, on: CommentOn, notes: &mut Notes) {
        for (code, value) in self.options(body, from) {
            if code == OPTION_COMMENT {
                notes.comment(on, value);
            }
        }
    }

    /// The options from that place on, up to the end or what cannot be one.
    fn options<'a>(&self, body: &'a [u8], from: usize) -> impl Iterator<Item = (u16, &'a [u8])> {
        let (swapped, mut at) = (self.swapped, from);
        let half = move |at: usize| {
            let half = u16::from_le_bytes(*body.get(at..)?.first_chunk()?);
            Some(if swapped { half.swap_bytes() } else { half })
        };
        std::iter::from_fn(move || {
            const END: u16 = 0;
            let (code, length) = (half(at)?, usize::from(half(at + 2)?));
            let value = body.get(at + 4..at + 4 + length)?;
            at += 4 + length.next_multiple_of(4);
            (code != END).then_some((code, value))
        })
    }
}
