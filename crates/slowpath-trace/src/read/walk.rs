// SPDX-License-Identifier: Apache-2.0
//! From bytes to records, without I/O: the caller shows the bytes from where the walker
//! stands, and the walker says what is there.

use super::foreign::Foreign;
use super::notes::{Notes, SkipReason};
use super::{pcap, pcapng};
use crate::frame::Record;
use crate::segment::Timestamp;

/// What is at a place.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// A record of that many bytes; it was filled in.
    Record(usize),
    /// That many bytes that are no record.
    Pass(usize),
    /// The fewest bytes that are needed; at the end of the input: the end.
    More(usize),
}

#[derive(Clone, Debug)]
enum Format {
    Unknown,
    Pcap(pcap::Header),
    Pcapng(pcapng::Section),
    /// What began is no capture, but perhaps something known.
    Neither(Option<Foreign>),
}

/// What is needed to look for the next good record.
const SEARCH: usize = 64 << 10;

/// Reads the records of one file after the other.
#[derive(Clone, Debug)]
pub(crate) struct Walker {
    format: Format,
    frames: u64,
    time: i64,
    interfaces: u32,
    searching: bool,
    /// Frames before this file.
    before: u64,
    pub(crate) notes: Notes,
}

impl Walker {
    pub(crate) fn new() -> Self {
        Walker {
            format: Format::Unknown,
            frames: 0,
            time: i64::MIN,
            interfaces: 0,
            searching: false,
            before: 0,
            notes: Notes::default(),
        }
    }

    /// Another file follows; its frames are numbered on.
    pub(crate) fn next_file(&mut self) {
        if let Format::Pcapng(section) = &self.format {
            self.interfaces = section.next_interface();
        }
        self.format = Format::Unknown;
        self.searching = false;
        self.before = self.frames;
    }

    /// Frames so far.
    pub(crate) fn frames(&self) -> u64 {
        self.frames
    }

    /// Whether the file turned out to be no capture at all.
    pub(crate) fn is_no_capture(&self) -> bool {
        matches!(self.format, Format::Neither(_) | Format::Unknown)
    }

    /// What it is instead.
    pub(crate) fn foreign(&self) -> Option<Foreign> {
        match self.format {
            Format::Neither(foreign) => foreign,
            _ => None,
        }
    }

    /// What is at the beginning of `data`, which lies at `at` of the bytes that `record` will
    /// speak of; nothing follows `data` if `last`.
    #[inline]
    pub(crate) fn next(&mut self, data: &[u8], at: usize, last: bool, record: &mut Record) -> Step {
        // The common case at a stroke.
        if let Format::Pcap(header) = &self.format
            && !self.searching
            && let Some(bytes) = data.first_chunk()
            && let Some(found) = header.record(bytes)
            && data.len() >= header.record_header + found.captured as usize
        {
            let size = header.record_header;
            record.link = header.link;
            record.start = at + size;
            record.captured = found.captured;
            record.wire_length = found.wire_length;
            record.interface = 0;
            self.frames += 1;
            record.number = self.frames;
            record.time = self.at(found.time);
            return Step::Record(size + found.captured as usize);
        }
        self.next_uncommon(data, at, last, record)
    }

    fn next_uncommon(&mut self, data: &[u8], at: usize, last: bool, record: &mut Record) -> Step {
        let step = match &self.format {
            Format::Pcap(header) if !self.searching => {
                let header = *header;
                self.pcap(&header, data)
            }
            Format::Pcapng(_) if !self.searching => self.pcapng(data, at, record),
            _ => self.beside_records(data, last),
        };
        match step {
            Ok(step) => step,
            Err(needed) => self.needs(needed, data, last),
        }
    }

    #[cold]
    fn needs(&mut self, needed: usize, data: &[u8], last: bool) -> Step {
        if !last || data.is_empty() {
            return Step::More(needed);
        }
        self.notes.skip(SkipReason::CutShort, data.len() as u64);
        Step::Pass(data.len())
    }

    /// Where no whole record is.
    #[cold]
    fn pcap(&mut self, header: &pcap::Header, data: &[u8]) -> Result<Step, usize> {
        let size = header.record_header;
        let Some(bytes) = data.first_chunk() else {
            return Err(size);
        };
        match header.record(bytes) {
            Some(record) => Err(size + record.captured as usize),
            None => Ok(self.damaged()),
        }
    }

    #[inline]
    fn pcapng(&mut self, data: &[u8], at: usize, record: &mut Record) -> Result<Step, usize> {
        let Some(header) = data.first_chunk::<8>() else {
            return Err(12);
        };
        // A new section may have the other byte order: its length is read with its own.
        let section = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
        if section == pcapng::SECTION {
            return self.section(data);
        }
        let Format::Pcapng(section) = &mut self.format else {
            return Ok(Step::Pass(data.len()));
        };
        let Some(length) = section.length(header) else {
            return Ok(self.damaged());
        };
        let Some(block) = data.get(..length) else {
            return Err(length);
        };
        match section.block(block, self.frames + 1, &mut self.notes) {
            pcapng::Block::Packet {
                link,
                interface,
                time,
                wire_length,
                start,
                captured,
            } => {
                self.frames += 1;
                let time = match time {
                    Some(time) => self.at(time),
                    None => self.without_time(),
                };
                *record = Record {
                    number: self.frames,
                    time,
                    start: at + start,
                    captured: captured as u32,
                    wire_length,
                    interface,
                    link,
                };
                Ok(Step::Record(length))
            }
            pcapng::Block::Other => Ok(Step::Pass(length)),
            pcapng::Block::UnknownInterface => {
                self.notes.skip(SkipReason::UnknownInterface, length as u64);
                Ok(Step::Pass(length))
            }
            pcapng::Block::Damaged => Ok(self.damaged()),
        }
    }

    #[cold]
    fn section(&mut self, data: &[u8]) -> Result<Step, usize> {
        if data.len() < 12 {
            return Err(12);
        }
        let first = match &self.format {
            Format::Pcapng(section) => section.next_interface(),
            _ => self.interfaces,
        };
        let Some(section) = pcapng::Section::read(data, first) else {
            return Ok(self.damaged());
        };
        let length = data.first_chunk().and_then(|h| section.length(h));
        let Some(length) = length else {
            return Ok(self.damaged());
        };
        let Some(block) = data.get(..length) else {
            return Err(length);
        };
        let mut section = section;
        match section.block(block, self.frames + 1, &mut self.notes) {
            pcapng::Block::Damaged => Ok(self.damaged()),
            _ => {
                self.format = Format::Pcapng(section);
                Ok(Step::Pass(length))
            }
        }
    }

    #[inline]
    fn at(&mut self, time: i64) -> Timestamp {
        if time < self.time {
            self.notes.clock_back(self.time.saturating_sub(time));
        }
        self.time = time;
        Timestamp(time)
    }

    fn without_time(&mut self) -> Timestamp {
        self.notes.without_time += 1;
        self.time = self.time.max(0);
        Timestamp(self.time)
    }

    #[cold]
    fn damaged(&mut self) -> Step {
        self.searching = true;
        self.notes.skip(SkipReason::Damaged, 1);
        Step::Pass(1)
    }

    /// The beginning of a file, or the search after damage.
    #[cold]
    fn beside_records(&mut self, data: &[u8], last: bool) -> Result<Step, usize> {
        match &self.format {
            Format::Unknown => self.begin(data, last),
            Format::Neither(_) => Ok(self.pass_all(data)),
            Format::Pcap(_) | Format::Pcapng(_) => {
                if data.len() < SEARCH && !last {
                    return Err(SEARCH);
                }
                if data.is_empty() {
                    return Err(1);
                }
                // Before the first record nothing says when it was captured.
                let near = (self.frames > self.before).then_some(self.time);
                let found = match &self.format {
                    Format::Pcap(header) => {
                        (0..data.len()).find(|at| header.plausible(&data[*at..], near))
                    }
                    Format::Pcapng(section) => {
                        (0..data.len()).find(|at| section.plausible(&data[*at..]))
                    }
                    _ => None,
                };
                self.searching = found.is_none();
                // What lies at the end may begin a record that ends behind it.
                let all = if last {
                    data.len()
                } else {
                    data.len() - SEARCH / 2
                };
                let passed = found.unwrap_or(all);
                self.notes.skip_on(SkipReason::Damaged, passed as u64);
                Ok(Step::Pass(passed))
            }
        }
    }

    fn pass_all(&mut self, data: &[u8]) -> Step {
        if data.is_empty() {
            Step::More(1)
        } else {
            Step::Pass(data.len())
        }
    }

    fn begin(&mut self, data: &[u8], last: bool) -> Result<Step, usize> {
        let Some(bytes) = data.first_chunk::<{ pcap::FILE_HEADER }>() else {
            if last && !data.is_empty() {
                self.format = Format::Neither(Foreign::of(data));
            }
            return Err(pcap::FILE_HEADER);
        };
        if let Some(header) = pcap::Header::read(bytes) {
            self.format = Format::Pcap(header);
            return Ok(Step::Pass(bytes.len()));
        }
        if pcapng::Section::read(data, self.interfaces).is_some() {
            return match self.section(data) {
                Ok(Step::Pass(_)) if self.searching => {
                    self.format = Format::Neither(None);
                    Ok(Step::Pass(1))
                }
                other => other,
            };
        }
        self.format = Format::Neither(Foreign::of(data));
        Ok(Step::Pass(data.len()))
    }
}
