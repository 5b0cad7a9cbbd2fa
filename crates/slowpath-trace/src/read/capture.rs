// SPDX-License-Identifier: Apache-2.0
//! Frames one after the other.

use super::inputs::{Cursor, Input, Inputs, ReadError};
use super::notes::Notes;
use super::piece::Piece;
use crate::decode::{DecodeOptions, NotTcp, TcpLocation, locate};
use crate::frame::{Link, Record};
use crate::segment::{Segment, Timestamp};
use crate::totals::Totals;
use std::path::Path;

/// Opens one capture; `-` is standard input.
///
/// # Errors
/// It cannot be opened.
pub fn open(path: impl AsRef<Path>) -> Result<Capture, ReadError> {
    let path = path.as_ref();
    let input = if path.as_os_str() == "-" {
        Input::Standard
    } else {
        Input::File(path.to_owned())
    };
    Capture::new(Inputs::new(vec![input])?, DecodeOptions::default())
}

/// The frames of a capture, one after the other.
pub struct Capture {
    cursor: Cursor,
    piece: Piece,
    options: DecodeOptions,
    totals: Totals,
}

/// A frame.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    record: Record,
    data: &'a [u8],
    found: Result<TcpLocation, NotTcp>,
    options: DecodeOptions,
}

impl Capture {
    /// The frames of all inputs.
    ///
    /// # Errors
    /// There is no input.
    pub fn new(inputs: Inputs, options: DecodeOptions) -> Result<Self, ReadError> {
        Ok(Capture {
            cursor: inputs.cursor(),
            piece: Piece::default(),
            options,
            totals: Totals::default(),
        })
    }

    /// The next frame; `None` after the last.
    ///
    /// # Errors
    /// An input cannot be read, or is no capture. Damage is no error: see [`Capture::notes`].
    #[expect(
        clippy::should_implement_trait,
        reason = "a frame borrows from the capture, which Iterator cannot say"
    )]
    pub fn next(&mut self) -> Result<Option<Packet<'_>>, ReadError> {
        let Some(record) = self.cursor.next(&mut self.piece)? else {
            return Ok(None);
        };
        let data = &self.piece.bytes()[record.start..][..record.captured as usize];
        let found = locate(record.link, data, record.wire_length, self.options);
        match found {
            Ok(_) => self.totals.tcp_frame(record.wire_length),
            Err(other) => self.totals.other(other, record.wire_length),
        }
        Ok(Some(Packet {
            record,
            data,
            found,
            options: self.options,
        }))
    }

    /// What was counted so far.
    #[must_use]
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// What the capture reported beside its frames so far.
    #[must_use]
    pub fn notes(&self) -> &Notes {
        self.cursor.notes()
    }
}

impl<'a> Packet<'a> {
    /// Its number in the capture, from 1.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.record.number
    }

    /// When it was captured.
    #[must_use]
    pub fn time(&self) -> Timestamp {
        self.record.time
    }

    /// What was captured of it.
    #[must_use]
    pub fn data(&self) -> &'a [u8] {
        self.data
    }

    /// Its bytes on the wire.
    #[must_use]
    pub fn wire_length(&self) -> u32 {
        self.record.wire_length
    }

    /// How it begins.
    #[must_use]
    pub fn link(&self) -> Link {
        self.record.link
    }

    /// The number of the interface that saw it, over all sections; 0 in pcap files.
    #[must_use]
    pub fn interface(&self) -> u32 {
        self.record.interface
    }

    /// The TCP segment in it.
    ///
    /// # Errors
    /// What it is instead.
    pub fn segment(&self) -> Result<Segment<'a>, NotTcp> {
        let place = self.found?;
        Ok(place.segment(&self.record, self.data, self.options))
    }
}
