// SPDX-License-Identifier: Apache-2.0
//! Captures out: the packets that were read, as pcapng, with comments on some, or some only.
//!
//! What enters: [`Inputs`], the frames that are wanted, comments by frame number.
//!
//! What leaves: a pcapng file (draft-ietf-opsawg-pcapng). What was pcapng stays as it was,
//! block for block: interfaces with their options, packets with theirs, comments, names,
//! statistics, blocks that no one here knows; comments are added behind those that are there. What
//! was pcap gets a section and an interface; times keep their resolution.
//!
//! What is promised: a packet's bytes, time, length and interface do not change; what the
//! reader skips as damaged is left out and counted; memory does not grow with the capture.

mod block;

use crate::frame::Record;
use crate::read::{Inputs, Piece, ReadError};
use block::{Order, PCAP_HEADER, PcapHeader, Section};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Why no capture was written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The capture cannot be read.
    #[error("{0}")]
    Read(#[from] ReadError),
    /// The output refuses.
    #[error("{0}")]
    Output(#[from] io::Error),
}

/// What was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Packets.
    pub packets: u64,
    /// Packets that got comments.
    pub commented: u64,
    /// Packets that should have got comments and can have none: simple packets, and those
    /// whose options are damaged.
    pub uncommentable: u64,
}

/// Comments by frame number.
pub type Comments = BTreeMap<u64, Vec<String>>;

/// Copies the frames that `wanted` says, with the comments.
///
/// # Errors
/// An input cannot be read, or `out` refuses.
pub fn copy(
    inputs: Inputs,
    mut wanted: impl FnMut(u64) -> bool,
    comments: &Comments,
    out: &mut dyn Write,
) -> Result<Written, WriteError> {
    let mut cursor = inputs.cursor();
    let mut piece = Piece::default();
    let mut copier = Copier {
        out,
        comments,
        format: Format::Unknown,
        at: 0,
        written: Written::default(),
    };
    let mut record = Record::EMPTY;
    let mut begins = true;
    while cursor.refill(&mut piece)? {
        copier.at = 0;
        if std::mem::take(&mut begins) {
            copier.begin(piece.bytes())?;
        }
        while cursor.next_here(&piece, &mut record) {
            let wanted = wanted(record.number);
            copier.record(piece.bytes(), &record, wanted)?;
        }
        copier.between(piece.bytes(), piece.bytes().len())?;
        begins = piece.last;
    }
    copier.out.flush()?;
    Ok(copier.written)
}

enum Format {
    Unknown,
    Pcap(PcapHeader),
    Pcapng(Section),
}

struct Copier<'a> {
    out: &'a mut dyn Write,
    comments: &'a Comments,
    format: Format,
    /// How far the present piece was copied.
    at: usize,
    written: Written,
}

impl Copier<'_> {
    /// The first bytes of a file.
    fn begin(&mut self, bytes: &[u8]) -> io::Result<()> {
        let header = bytes.first_chunk().and_then(PcapHeader::read);
        self.format = match header {
            Some(header) => {
                self.at = PCAP_HEADER;
                header.describe(self.out)?;
                Format::Pcap(header)
            }
            // Its section header is a block like the others.
            None => Format::Pcapng(Section::new(Order::Little)),
        };
        Ok(())
    }

    /// A record that the reader found.
    fn record(&mut self, bytes: &[u8], record: &Record, wanted: bool) -> io::Result<()> {
        let texts = self
            .comments
            .get(&record.number)
            .map_or(&[][..], Vec::as_slice);
        let (begin, end) = match &self.format {
            Format::Unknown => return Ok(()),
            Format::Pcap(header) => {
                if wanted {
                    header.packet(record, bytes, texts, self.out)?;
                    self.written.packets += 1;
                    self.written.commented += u64::from(!texts.is_empty());
                }
                self.at = record.start + record.captured as usize;
                return Ok(());
            }
            Format::Pcapng(section) => match section.around(bytes, record.start) {
                Some(block) => block,
                None => return Ok(()),
            },
        };
        self.between(bytes, begin)?;
        self.at = end;
        let Format::Pcapng(section) = &self.format else {
            return Ok(());
        };
        if !wanted {
            return Ok(());
        }
        self.written.packets += 1;
        let block = &bytes[begin..end];
        if texts.is_empty() {
            return self.out.write_all(block);
        }
        match section.with_comments(block, texts) {
            Some(commented) => {
                self.written.commented += 1;
                self.out.write_all(&commented)
            }
            None => {
                self.written.uncommentable += 1;
                self.out.write_all(block)
            }
        }
    }

    /// Whole blocks that are no packets, up to `end`; what is damaged ends it.
    fn between(&mut self, bytes: &[u8], end: usize) -> io::Result<()> {
        let Format::Pcapng(section) = &mut self.format else {
            return Ok(());
        };
        while let Some(length) = section.block(&bytes[self.at.min(end)..end]) {
            let block = &bytes[self.at..self.at + length];
            if !section.is_packet(block) {
                self.out.write_all(block)?;
            }
            self.at += length;
        }
        Ok(())
    }
}
