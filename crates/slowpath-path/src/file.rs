// SPDX-License-Identifier: Apache-2.0
//! Session files of owamp, version 3: what `owping -T`, owampd and powstream write and owstats reads.
//!
//! ```text
//!   0 "OwA\0"   4 version   8 finished   12 next sequence number   16 skips   20 records
//!  24 offset of the skips (0: none)      32 offset of the records
//!  40 request of the session: 96 octets, 16 of zeros, 16 a slot, 16 of zeros
//!     records of 25 octets and skips of 8, in either order
//! ```
//!
//! All numbers are big-endian. The layout was read in owamp 5.2.3 (api.c), which documents it.

use crate::control::{Direction, SessionRequest};
use crate::record::{RECORD, Record, SkipRange};
use std::io::{self, Write};

const MAGIC: [u8; 4] = *b"OwA\0";
const VERSION: u32 = 3;
const HEADER: usize = 40;
const PREAMBLE: usize = 112;

/// How a session ended, as the file has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finished {
    /// It broke off.
    Broken,
    /// It ended, and what the sender said of it is in the file.
    Normal,
    /// It goes on.
    Running,
}

/// A session with its packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionFile {
    /// How it ended.
    pub finished: Finished,
    /// One more than the last packet that was sent; 0 where that is not known.
    pub next_sequence: u32,
    /// The session.
    pub request: SessionRequest,
    /// Packets that were never sent.
    pub skips: Vec<SkipRange>,
    /// Every packet, in the order of arrival, lost ones where they were given up.
    pub records: Vec<Record>,
    /// Where the skips stand.
    pub skips_place: SkipsPlace,
}

/// Where a file has its skips.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SkipsPlace {
    /// Nowhere: the offset is 0, as a receiver of owamp leaves it that learnt of none.
    Unset,
    /// Before the records: skips that were fetched.
    Before,
    /// After the records.
    After,
}

/// Why octets are no session file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    /// It does not begin with `OwA`.
    #[error("it is no session file of owamp (it does not begin with OwA)")]
    NotOwamp,
    /// Another version.
    #[error("its version is {0}; only version 3, of owamp 3 and later, is read")]
    Version(u32),
    /// It ends too early, or offsets point beyond its end.
    #[error("it ends before its {0}")]
    Cut(&'static str),
    /// Something in it cannot be.
    #[error("its {0} is not what the format allows")]
    Malformed(&'static str),
}

impl SessionFile {
    /// Writes the file as owamp does.
    ///
    /// # Errors
    /// The output refuses.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let slots = self.request.slots();
        let begin = HEADER + PREAMBLE + 16 * (slots.len() + 1);
        let skips_length = 8 * self.skips.len();
        let (skips_at, records_at) = match self.skips_place {
            SkipsPlace::Unset => (0, begin),
            SkipsPlace::Before => (begin, begin + skips_length),
            SkipsPlace::After => (begin + RECORD * self.records.len(), begin),
        };
        let finished: u32 = match self.finished {
            Finished::Broken => 0,
            Finished::Normal => 1,
            Finished::Running => 2,
        };
        out.write_all(&MAGIC)?;
        let counts = [self.skips.len() as u32, self.records.len() as u32];
        for number in [VERSION, finished, self.next_sequence, counts[0], counts[1]] {
            out.write_all(&number.to_be_bytes())?;
        }
        out.write_all(&(skips_at as u64).to_be_bytes())?;
        out.write_all(&(records_at as u64).to_be_bytes())?;
        out.write_all(&self.request.preamble())?;
        out.write_all(&[0; 16])?;
        for slot in slots {
            out.write_all(&slot.to_wire())?;
        }
        out.write_all(&[0; 16])?;
        if self.skips_place == SkipsPlace::Before {
            self.write_skips(out)?;
        }
        for record in &self.records {
            out.write_all(&record.to_wire())?;
        }
        if self.skips_place == SkipsPlace::After {
            self.write_skips(out)?;
        }
        Ok(())
    }

    fn write_skips(&self, out: &mut dyn Write) -> io::Result<()> {
        for skip in &self.skips {
            out.write_all(&skip.to_wire())?;
        }
        Ok(())
    }

    /// Reads a file.
    ///
    /// # Errors
    /// It is none, or damaged.
    pub fn read(bytes: &[u8]) -> Result<Self, FileError> {
        if bytes.get(..4) != Some(&MAGIC) {
            return Err(FileError::NotOwamp);
        }
        let header = part(bytes, 0, HEADER + PREAMBLE, "request")?;
        let word = |at: usize| u32::from_be_bytes([0, 1, 2, 3].map(|i| header[at + i]));
        let long = |at: usize| (u64::from(word(at)) << 32) | u64::from(word(at + 4));
        if word(4) != VERSION {
            return Err(FileError::Version(word(4)));
        }
        let finished = match word(8) {
            0 => Finished::Broken,
            1 => Finished::Normal,
            2 => Finished::Running,
            _ => return Err(FileError::Malformed("state")),
        };
        let (mut request, slots) = SessionRequest::from_preamble(&header[HEADER..])
            .map_err(|_| FileError::Malformed("request"))?;
        if !matches!(request.direction, Direction::OneWay { .. }) {
            return Err(FileError::Malformed("request"));
        }
        let slots = part(bytes, HEADER + PREAMBLE, 16 * slots as usize, "slots")?;
        for slot in slots.chunks_exact(16) {
            request
                .add_slot(slot.try_into().expect("16 octets"))
                .map_err(|_| FileError::Malformed("slot"))?;
        }
        let (skips_at, records_at) = (offset(long(24))?, offset(long(32))?);
        let skips = part(bytes, skips_at, 8 * word(16) as usize, "skips")?
            .chunks_exact(8)
            .map(|chunk| SkipRange::from_wire(chunk.try_into().expect("eight octets")))
            .collect::<Option<Vec<_>>>()
            .ok_or(FileError::Malformed("skipped range"))?;
        let records = part(bytes, records_at, RECORD * word(20) as usize, "records")?
            .chunks_exact(RECORD)
            .map(|chunk| Record::from_wire(chunk.try_into().expect("25 octets")))
            .collect::<Option<Vec<_>>>()
            .ok_or(FileError::Malformed("record's error estimate"))?;
        Ok(SessionFile {
            finished,
            next_sequence: word(12),
            request,
            skips_place: match skips_at {
                0 => SkipsPlace::Unset,
                at if at < records_at => SkipsPlace::Before,
                _ => SkipsPlace::After,
            },
            skips,
            records,
        })
    }
}

fn offset(value: u64) -> Result<usize, FileError> {
    usize::try_from(value).map_err(|_| FileError::Malformed("offset"))
}

/// A part of the file; the bounds are the peer's and may be anything.
fn part<'a>(
    bytes: &'a [u8],
    at: usize,
    length: usize,
    what: &'static str,
) -> Result<&'a [u8], FileError> {
    at.checked_add(length)
        .and_then(|end| bytes.get(at..end))
        .ok_or(FileError::Cut(what))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::Slot;
    use crate::time::{ErrorEstimate, Span, Timestamp};
    use proptest::prelude::*;
    use std::time::Duration;

    fn file(records: u32, skips: u32, skips_place: SkipsPlace) -> SessionFile {
        let error = ErrorEstimate::new(Duration::from_micros(3), true);
        SessionFile {
            finished: Finished::Normal,
            next_sequence: records,
            request: SessionRequest {
                direction: Direction::OneWay {
                    server_sends: false,
                    server_receives: true,
                    packets: 100,
                    slots: vec![Slot::Exponential(Span(1 << 30)), Slot::Fixed(Span(0))],
                },
                sender: "192.0.2.1:8760".parse().expect("an address"),
                receiver: "192.0.2.2:8761".parse().expect("an address"),
                session: [6; 16],
                padding: 0,
                start: Timestamp(1 << 40),
                timeout: Span(10 << 32),
                type_p: 0,
            },
            skips: (0..skips)
                .map(|i| SkipRange {
                    first: 9 * i,
                    last: 9 * i + 1,
                })
                .collect(),
            records: (0..records)
                .map(|sequence| Record {
                    sequence,
                    sent: Timestamp(5 + u64::from(sequence)),
                    sent_error: error,
                    received: Timestamp(if sequence % 7 == 3 { 0 } else { 99 }),
                    received_error: error,
                    ttl: 241,
                })
                .collect(),
            skips_place,
        }
    }

    /// Every offset by hand, from the layout above.
    #[test]
    fn fields_stand_where_owamp_has_them() {
        let mut bytes = Vec::new();
        file(2, 1, SkipsPlace::After)
            .write(&mut bytes)
            .expect("memory");
        let begin = 40 + 112 + 3 * 16;
        assert_eq!(bytes.len(), begin + 2 * 25 + 8);
        assert_eq!(
            bytes[..24],
            [
                b'O', b'w', b'A', 0, 0, 0, 0, 3, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2
            ]
        );
        assert_eq!(bytes[24..32], (begin as u64 + 50).to_be_bytes());
        assert_eq!(bytes[32..40], (begin as u64).to_be_bytes());
        // Request: command 1, IPv4, the server receives, two slots.
        assert_eq!(bytes[40..48], [1, 4, 0, 1, 0, 0, 0, 2]);
        assert_eq!(bytes[begin + 8..begin + 16], 5u64.to_be_bytes());
        assert_eq!(bytes[begin + 24], 241);
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(records in 0u32..40, skips in 1u32..4, before: bool) {
            let place = if before { SkipsPlace::Before } else { SkipsPlace::After };
            let file = file(records, skips, place);
            let mut bytes = Vec::new();
            file.write(&mut bytes).expect("memory");
            let read = SessionFile::read(&bytes).expect("ours");
            prop_assert_eq!(&read.records, &file.records);
            prop_assert_eq!(&read.skips, &file.skips);
            prop_assert_eq!(&read.request, &file.request);
            // To the bit.
            let mut again = Vec::new();
            read.write(&mut again).expect("memory");
            prop_assert_eq!(again, bytes);
        }

        #[test]
        fn any_octets_are_read_or_refused(mut bytes in proptest::collection::vec(any::<u8>(), 0..400), valid: bool) {
            if valid {
                let mut whole = Vec::new();
                file(3, 1, SkipsPlace::Before).write(&mut whole).expect("memory");
                for (at, byte) in bytes.iter().take(60).enumerate() {
                    let place = usize::from(*byte) * 3 % whole.len();
                    whole[place] ^= at as u8;
                }
                bytes = whole;
            }
            let _ = SessionFile::read(&bytes);
        }
    }
}
