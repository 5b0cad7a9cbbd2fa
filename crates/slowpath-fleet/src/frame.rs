// SPDX-License-Identifier: Apache-2.0
//! The frames of an intake file: batches of all hosts as they were taken, in order of arrival.
//!
//! A file is frames one after the other, numbers little-endian:
//!
//! | bytes | |
//! |---|---|
//! | 2 | `f1 ee`: where a frame may begin, to find the next one after damage |
//! | 4 | length of the payload, at most [`MAX_PAYLOAD`] |
//! | 4 | CRC-32 (IEEE 802.3) of length and payload |
//! | n | payload: kind, host, receipt; then of kind 1 what the batch's header says, and its items; of kind 2 how many requests of the host were refused |

use slowpath_model::WallMicros;
use slowpath_ship::batch::{ClockOffset, Header, Items, MAX_ITEMS, Prefix, SentClock};
use std::io::{self, Read};
use std::net::{IpAddr, Ipv6Addr};

pub(crate) const MARK: [u8; 2] = [0xf1, 0xee];
/// Bytes before the payload.
pub(crate) const HEAD: usize = 10;
/// The longest payload: the longest items, two names, and fewer than 200 bytes of numbers.
pub(crate) const MAX_PAYLOAD: usize = MAX_ITEMS + (2 << 10);
const BATCH: u8 = 1;
const REFUSALS: u8 = 2;
const NOT_MEASURED: u32 = u32::MAX;

/// A batch as it was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    pub host: String,
    /// The peer of the host's connection.
    pub address: IpAddr,
    pub received: WallMicros,
    /// The segment's last byte is in it or before it.
    pub last: bool,
    pub schema: u16,
    pub run: u128,
    pub number: u64,
    pub boot_id: u128,
    pub clock: SentClock,
    pub clock_offset: Option<ClockOffset>,
    pub segment: String,
    /// Where the items begin in the segment.
    pub offset: u64,
    /// The running CRC behind them.
    pub crc: Prefix,
    pub items: Items,
}

impl Taken {
    /// The part of a batch that is new.
    pub(crate) fn new(
        (host, address, received): (&str, IpAddr, WallMicros),
        header: &Header,
        (offset, crc, items): (u64, Prefix, Items),
    ) -> Self {
        Taken {
            host: host.to_owned(),
            address,
            received,
            last: header.last,
            schema: header.schema,
            run: header.run,
            number: header.number,
            boot_id: header.boot_id,
            clock: header.clock,
            clock_offset: header.clock_offset,
            segment: header.segment.clone(),
            offset,
            crc,
            items,
        }
    }

    /// Where the items end in the segment.
    pub(crate) fn end(&self) -> u64 {
        self.offset + self.items.covered()
    }

    /// Appends its frame.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend([0; HEAD]);
        put_origin(BATCH, (&self.host, self.received), out);
        out.extend((self.segment.len() as u16).to_le_bytes());
        out.extend(self.segment.as_bytes());
        let address = match self.address {
            IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            IpAddr::V6(v6) => v6,
        };
        out.extend(address.octets());
        out.push(u8::from(self.last));
        out.extend(self.schema.to_le_bytes());
        out.extend(self.run.to_le_bytes());
        out.extend(self.number.to_le_bytes());
        out.extend(self.boot_id.to_le_bytes());
        out.extend(self.clock.sent.0.to_le_bytes());
        out.push(self.clock.state);
        let max_error = self.clock.max_error_us.unwrap_or(NOT_MEASURED);
        out.extend(max_error.to_le_bytes());
        let (offset, error) = match self.clock_offset {
            Some(clock) => (clock.offset_us, clock.error_us.min(NOT_MEASURED - 1)),
            None => (0, NOT_MEASURED),
        };
        out.extend(offset.to_le_bytes());
        out.extend(error.to_le_bytes());
        out.extend(self.offset.to_le_bytes());
        out.extend(self.crc.0.to_le_bytes());
        out.extend(self.items.bytes());
        seal(&mut out[start..]);
    }

    /// Reads what follows the origin.
    fn read(mut fields: Fields<'_>, host: &str, received: WallMicros) -> Option<Taken> {
        let segment = fields.text()?.to_owned();
        let address = Ipv6Addr::from(fields.array::<16>()?).to_canonical();
        let [last] = fields.array()?;
        let schema = u16::from_le_bytes(fields.array()?);
        let run = u128::from_le_bytes(fields.array()?);
        let number = u64::from_le_bytes(fields.array()?);
        let boot_id = u128::from_le_bytes(fields.array()?);
        let sent = WallMicros(i64::from_le_bytes(fields.array()?));
        let [state] = fields.array()?;
        let max_error = u32::from_le_bytes(fields.array()?);
        let offset_us = i64::from_le_bytes(fields.array()?);
        let error_us = u32::from_le_bytes(fields.array()?);
        let offset = u64::from_le_bytes(fields.array()?);
        let crc = Prefix(u32::from_le_bytes(fields.array()?));
        Some(Taken {
            host: host.to_owned(),
            address,
            received,
            last: last != 0,
            schema,
            run,
            number,
            boot_id,
            clock: SentClock {
                sent,
                state,
                max_error_us: (max_error != NOT_MEASURED).then_some(max_error),
            },
            clock_offset: (error_us != NOT_MEASURED).then_some(ClockOffset {
                offset_us,
                error_us,
            }),
            segment,
            offset,
            crc,
            items: Items::read(fields.0.to_vec(), offset).ok()?,
        })
    }
}

/// What a frame holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    /// A batch.
    Batch(Box<Taken>),
    /// The number of requests of a host that were refused.
    Refusals {
        host: String,
        received: WallMicros,
        count: u64,
    },
}

impl Frame {
    /// Reads a payload; nothing of one that makes no sense to this version.
    pub(crate) fn read(payload: &[u8]) -> Option<Frame> {
        let (kind, host, received, mut fields) = take_origin(payload)?;
        match kind {
            BATCH => Some(Frame::Batch(Box::new(Taken::read(fields, host, received)?))),
            REFUSALS => Some(Frame::Refusals {
                host: host.to_owned(),
                received,
                count: u64::from_le_bytes(fields.array()?),
            }),
            _ => None,
        }
    }
}

/// Appends the frame of refusals.
pub(crate) fn write_refusals((host, received): (&str, WallMicros), count: u64, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend([0; HEAD]);
    put_origin(REFUSALS, (host, received), out);
    out.extend(count.to_le_bytes());
    seal(&mut out[start..]);
}

fn put_origin(kind: u8, (host, received): (&str, WallMicros), out: &mut Vec<u8>) {
    out.push(kind);
    out.extend((host.len() as u16).to_le_bytes());
    out.extend(host.as_bytes());
    out.extend(received.0.to_le_bytes());
}

fn take_origin(payload: &[u8]) -> Option<(u8, &str, WallMicros, Fields<'_>)> {
    let mut fields = Fields(payload);
    let [kind] = fields.array()?;
    let host = fields.text()?;
    let received = WallMicros(i64::from_le_bytes(fields.array()?));
    Some((kind, host, received, fields))
}

/// Whose a frame is, and when it was received.
pub(crate) fn origin(payload: &[u8]) -> Option<(&str, WallMicros)> {
    let (_, host, received, _) = take_origin(payload)?;
    Some((host, received))
}

/// Fills in the head of a frame.
pub(crate) fn seal(frame: &mut [u8]) {
    let length = ((frame.len() - HEAD) as u32).to_le_bytes();
    let crc = checksum(length, &frame[HEAD..]);
    frame[..2].copy_from_slice(&MARK);
    frame[2..6].copy_from_slice(&length);
    frame[6..HEAD].copy_from_slice(&crc.to_le_bytes());
}

fn checksum(length: [u8; 4], payload: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&length);
    crc.update(payload);
    crc.finalize()
}

/// Bytes yet to be read; every read checks first.
pub(crate) struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*taken)
    }

    pub(crate) fn text(&mut self) -> Option<&'a str> {
        let length = u16::from_le_bytes(self.array()?);
        let (taken, rest) = self.0.split_at_checked(usize::from(length))?;
        self.0 = rest;
        std::str::from_utf8(taken).ok()
    }
}

/// Goes through the frames of a file. It keeps one frame, at least 1 MiB.
pub(crate) struct Frames<R> {
    source: R,
    buffer: Vec<u8>,
    start: usize,
    /// Where in the file `buffer[start]` is.
    at: u64,
    ended: bool,
    /// Bytes that are no frame, so far, and those of them since the last frame.
    pub damaged: u64,
    pub tail: u64,
}

/// Bytes read at once.
const PIECE: usize = 1 << 20;

impl<R: Read> Frames<R> {
    pub(crate) fn new(source: R) -> Self {
        Frames {
            source,
            buffer: Vec::new(),
            start: 0,
            at: 0,
            ended: false,
            damaged: 0,
            tail: 0,
        }
    }

    /// Where the next frame begins, and its payload; `None` at the end.
    pub(crate) fn next_frame(&mut self) -> io::Result<Option<(u64, &[u8])>> {
        loop {
            if !self.fill(HEAD)? {
                let left = self.buffer.len() - self.start;
                self.skip(left);
                return Ok(None);
            }
            let Some(length) = self.length() else {
                self.skip(1);
                continue;
            };
            if self.fill(HEAD + length)? && self.is_intact(length) {
                let (at, payload) = (self.at, self.start + HEAD);
                self.start = payload + length;
                self.at += (HEAD + length) as u64;
                self.tail = 0;
                return Ok(Some((at, &self.buffer[payload..payload + length])));
            }
            self.skip(1);
        }
    }

    /// Where the frames read so far end.
    pub(crate) fn end(&self) -> u64 {
        self.at - self.tail
    }

    fn skip(&mut self, bytes: usize) {
        self.start += bytes;
        self.at += bytes as u64;
        self.damaged += bytes as u64;
        self.tail += bytes as u64;
    }

    /// The length that a frame here states, if one may begin here.
    fn length(&self) -> Option<usize> {
        let mut fields = Fields(&self.buffer[self.start..]);
        if fields.array()? != MARK {
            return None;
        }
        let length = u32::from_le_bytes(fields.array()?) as usize;
        (length <= MAX_PAYLOAD).then_some(length)
    }

    fn is_intact(&self, length: usize) -> bool {
        let frame = &self.buffer[self.start..self.start + HEAD + length];
        let mut fields = Fields(&frame[2..]);
        let stated = fields.array().zip(fields.array());
        stated.is_some_and(|(length, crc)| {
            checksum(length, &frame[HEAD..]) == u32::from_le_bytes(crc)
        })
    }

    /// Whether this number of bytes is there from the present one on.
    fn fill(&mut self, wanted: usize) -> io::Result<bool> {
        while self.buffer.len() - self.start < wanted && !self.ended {
            self.buffer.drain(..self.start);
            self.start = 0;
            let piece = PIECE.max(wanted) as u64;
            let read = (&mut self.source)
                .take(piece)
                .read_to_end(&mut self.buffer)?;
            self.ended = read == 0;
        }
        Ok(self.buffer.len() - self.start >= wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(crate) fn taken(host: &str, gaps: u64) -> Taken {
        let mut items = Items::default();
        for n in 0..gaps {
            items.push_gap(slowpath_ship::batch::Gap {
                length: n + 1,
                reason: slowpath_ship::batch::GapReason::Dropped,
                records: None,
            });
        }
        Taken {
            host: host.to_owned(),
            address: IpAddr::from([10, 0, 0, 7]),
            received: WallMicros(5),
            last: gaps % 2 == 1,
            schema: 2,
            run: 1 << 100,
            number: gaps,
            boot_id: 7,
            clock: SentClock {
                sent: WallMicros(-1),
                state: 255,
                max_error_us: None,
            },
            clock_offset: (gaps > 3).then_some(ClockOffset {
                offset_us: -17,
                error_us: 3,
            }),
            segment: "b007-1-0001".to_owned(),
            offset: 1 << 40,
            crc: Prefix(9),
            items,
        }
    }

    fn all(file: &[u8]) -> (Vec<Taken>, u64, u64) {
        let mut frames = Frames::new(file);
        let mut found = Vec::new();
        while let Some((_, payload)) = frames.next_frame().expect("a slice can be read") {
            if let Some(Frame::Batch(taken)) = Frame::read(payload) {
                found.push(*taken);
            }
        }
        (found, frames.end(), frames.damaged)
    }

    proptest! {
        #[test]
        fn frames_come_back_and_damage_costs_only_the_frames_it_is_in(
            counts in proptest::collection::vec(0u64..30, 1..8),
            flip in any::<proptest::sample::Index>(),
            cut in any::<proptest::sample::Index>(),
        ) {
            let mut file = Vec::new();
            let mut ends = vec![0];
            let mut given = Vec::new();
            for count in counts {
                given.push(taken(&format!("host{count}"), count));
                given[given.len() - 1].write(&mut file);
                ends.push(file.len());
            }
            let (found, end, damaged) = all(&file);
            prop_assert_eq!(&found, &given);
            prop_assert_eq!((end, damaged), (file.len() as u64, 0));

            let cut = cut.index(file.len());
            let whole = ends.iter().rposition(|end| *end <= cut).expect("0 is an end");
            let (found, end, damaged) = all(&file[..cut]);
            prop_assert_eq!(&found[..], &given[..whole]);
            prop_assert_eq!(end, ends[whole] as u64);
            prop_assert_eq!(damaged, (cut - ends[whole]) as u64);

            let flip = flip.index(file.len());
            let hit = ends.iter().rposition(|end| *end <= flip).expect("0 is an end");
            file[flip] ^= 1 << (flip % 8);
            given.remove(hit);
            prop_assert_eq!(all(&file).0, given);
        }
    }
}
