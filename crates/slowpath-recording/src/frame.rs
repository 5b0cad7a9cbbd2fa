// SPDX-License-Identifier: Apache-2.0
//! The frames of a recording's file: what is whole in it, whatever has become of the rest.
//!
//! All numbers of the framing are little-endian:
//!
//! | bytes | header |
//! |---|---|
//! | 8 | magic `slowreco` |
//! | 2 | version, [`VERSION`] |
//! | 2 | length of the rest |
//! | n | the origin |
//! | 4 | CRC-32 (IEEE 802.3) of all the above |
//!
//! | bytes | frame |
//! |---|---|
//! | 2 | `b7 2d`: where a frame may begin, to find the next one after damage |
//! | 1 | kind |
//! | 4 | its number, from 0 |
//! | 4 | length of the payload |
//! | 4 | CRC-32 of the header's CRC-32, kind, number, length and payload |
//! | n | payload |
//!
//! The header's checksum within each frame's ties the frames to it: a frame of another recording is damage.

use super::error::{DecodeError, VERSION};

const MAGIC: [u8; 8] = *b"slowreco";
const FIXED_HEADER: usize = 12;
const MARK: [u8; 2] = [0xb7, 0x2d];
/// Bytes of a frame before its payload.
const FRAME: usize = 15;
/// Bytes of payload that a frame has at most.
const MAX_PAYLOAD: usize = 1 << 24;
/// Looking for frames ends once this many times the file's length has been checksummed in vain: damage costs linear time, whatever the bytes.
const SEARCH_EFFORT: usize = 16;

/// What a frame holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    /// Connections: addresses and settings.
    Connections = 1,
    /// Runs of handlers.
    Runs = 2,
    /// How much there was of an end that is complete.
    Totals = 3,
    /// One-sided ends: addresses and settings.
    OneSided = 4,
    /// Their packets.
    Packets = 5,
    /// How connections were joined from one-sided ends.
    Joints = 6,
}

impl Kind {
    fn of(byte: u8) -> Option<Kind> {
        let all = [
            Kind::Connections,
            Kind::Runs,
            Kind::Totals,
            Kind::OneSided,
            Kind::Packets,
            Kind::Joints,
        ];
        all.into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// Writes the framing.
#[derive(Clone, Debug)]
pub(super) struct Framer {
    seed: u32,
    next: u32,
}

impl Framer {
    /// The header, and the framer of what comes after it; `None` if the origin is too long for one.
    pub(super) fn new(origin: &[u8]) -> Option<(Framer, Vec<u8>)> {
        let mut header = MAGIC.to_vec();
        header.extend(VERSION.to_le_bytes());
        header.extend(u16::try_from(origin.len()).ok()?.to_le_bytes());
        header.extend(origin);
        let seed = crc32fast::hash(&header);
        header.extend(seed.to_le_bytes());
        Some((Framer { seed, next: 0 }, header))
    }

    /// Appends a frame; false if the payload is too long for one.
    #[must_use]
    pub(super) fn frame(&mut self, kind: Kind, payload: &[u8], out: &mut Vec<u8>) -> bool {
        let length = match u32::try_from(payload.len()) {
            Ok(length) if payload.len() <= MAX_PAYLOAD => length,
            _ => return false,
        };
        let mut fields = [0; 9];
        fields[0] = kind as u8;
        fields[1..5].copy_from_slice(&self.next.to_le_bytes());
        fields[5..].copy_from_slice(&length.to_le_bytes());
        out.extend(MARK);
        out.extend(fields);
        out.extend(checksum(self.seed, &fields, payload).to_le_bytes());
        out.extend(payload);
        // Past 2^32 frames numbers begin again; their order is all that they are for.
        self.next = self.next.wrapping_add(1);
        true
    }
}

fn checksum(seed: u32, fields: &[u8], payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&seed.to_le_bytes());
    hasher.update(fields);
    hasher.update(payload);
    hasher.finalize()
}

/// An intact frame.
#[derive(Clone, Debug)]
pub(super) struct Frame<'a> {
    /// Its first byte in the file.
    pub(super) offset: usize,
    pub(super) kind: Kind,
    pub(super) payload: &'a [u8],
}

/// What of a file could not be used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Damage {
    /// The file ends without saying that the recording does: the recorder was killed, or still writes, or the file was cut.
    pub cut: bool,
    /// Stretches of bytes that are no frame.
    pub stretches: u64,
    /// Bytes in them.
    pub bytes: u64,
    /// Frames that are missing by their numbers; those before the first are not (a ring drops the oldest).
    pub missing: u64,
    /// Frames that stand there a second time, or late. They are left out.
    pub repeated: u64,
    /// Intact frames of a kind that this version does not know.
    pub unknown: u64,
    /// Ends whose connection was in a frame that is lost: their runs are left out.
    pub orphans: u64,
}

impl Damage {
    /// Nothing is wrong.
    pub fn is_none(&self) -> bool {
        *self == Damage::default()
    }
}

/// Walks over the frames of a file.
#[derive(Clone, Debug)]
pub(super) struct Frames<'a> {
    file: &'a [u8],
    at: usize,
    seed: u32,
    next: Option<u32>,
    effort: usize,
    pub(super) damage: Damage,
}

/// The origin of a file, and its frames.
pub(super) fn open(file: &[u8]) -> Result<(&[u8], Frames<'_>), DecodeError> {
    let magic = &file[..file.len().min(MAGIC.len())];
    if !MAGIC.starts_with(magic) {
        return Err(DecodeError::NotARecording);
    }
    let Some(fixed) = file.first_chunk::<FIXED_HEADER>() else {
        return Err(DecodeError::Torn);
    };
    let version = u16::from_le_bytes([fixed[8], fixed[9]]);
    if version != VERSION {
        return Err(DecodeError::Version { version });
    }
    let length = usize::from(u16::from_le_bytes([fixed[10], fixed[11]]));
    let end = FIXED_HEADER + length;
    let Some(sum) = file.get(end..).and_then(|rest| rest.first_chunk()) else {
        return Err(DecodeError::Torn);
    };
    let seed = u32::from_le_bytes(*sum);
    if crc32fast::hash(&file[..end]) != seed && !cfg!(fuzzing) {
        return Err(DecodeError::Damaged);
    }
    let frames = Frames {
        file,
        at: end + 4,
        seed,
        next: None,
        effort: file.len().saturating_mul(SEARCH_EFFORT),
        damage: Damage::default(),
    };
    Ok((&file[FIXED_HEADER..end], frames))
}

/// What stands at some place.
enum Candidate<'a> {
    Frame(u8, u32, &'a [u8]),
    /// No frame, or a damaged one.
    Nothing,
}

impl<'a> Frames<'a> {
    fn look(&mut self, at: usize) -> Candidate<'a> {
        let Some(head) = self
            .file
            .get(at..)
            .and_then(|rest| rest.first_chunk::<FRAME>())
        else {
            return Candidate::Nothing;
        };
        let [m0, m1, kind, n0, n1, n2, n3, l0, l1, l2, l3, c0, c1, c2, c3] = *head;
        let length = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
        if [m0, m1] != MARK || length > MAX_PAYLOAD {
            return Candidate::Nothing;
        }
        let start = at + FRAME;
        let Some(payload) = self.file.get(start..start + length) else {
            return Candidate::Nothing;
        };
        let expected = u32::from_le_bytes([c0, c1, c2, c3]);
        if !cfg!(fuzzing) && checksum(self.seed, &head[2..11], payload) != expected {
            self.effort = self.effort.saturating_sub(length + FRAME);
            return Candidate::Nothing;
        }
        Candidate::Frame(kind, u32::from_le_bytes([n0, n1, n2, n3]), payload)
    }

    /// Where the next frame may begin, after `at`.
    fn mark_after(&self, at: usize) -> Option<usize> {
        let rest = self.file.get(at + 1..)?;
        let found = rest.windows(2).position(|pair| pair == MARK)?;
        Some(at + 1 + found)
    }
}

impl<'a> Iterator for Frames<'a> {
    type Item = Frame<'a>;

    fn next(&mut self) -> Option<Frame<'a>> {
        let mut damaged_since = None;
        loop {
            if self.at >= self.file.len() {
                break;
            }
            let offset = self.at;
            let Candidate::Frame(kind, number, payload) = self.look(offset) else {
                damaged_since.get_or_insert(offset);
                let more = self.effort > 0;
                self.at = match self.mark_after(offset) {
                    Some(at) if more => at,
                    _ => self.file.len(),
                };
                continue;
            };
            if let Some(since) = damaged_since.take() {
                self.damage.stretches += 1;
                self.damage.bytes += (offset - since) as u64;
            }
            self.at = offset + FRAME + payload.len();
            let ahead = self.next.map_or(0, |next| number.wrapping_sub(next));
            if ahead > u32::MAX / 2 {
                self.damage.repeated += 1;
                continue;
            }
            self.damage.missing += u64::from(ahead);
            self.next = Some(number.wrapping_add(1));
            match Kind::of(kind) {
                Some(kind) => {
                    return Some(Frame {
                        offset,
                        kind,
                        payload,
                    });
                }
                None => self.damage.unknown += 1,
            }
        }
        if let Some(since) = damaged_since {
            self.damage.stretches += 1;
            self.damage.bytes += (self.file.len() - since) as u64;
        }
        None
    }
}
