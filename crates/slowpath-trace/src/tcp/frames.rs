// SPDX-License-Identifier: Apache-2.0
//! The last frames of one direction: whether one was captured twice, and whether the sender's IP
//! identification counts.

use super::options::Parsed;
use crate::segment::Segment;
use std::collections::VecDeque;

/// Frames compared for hardware duplicates, as many as tcptrace remembers.
const FRAMES: usize = 8;

/// Frames compared where one was captured twice: a burst may pass before its first copy comes.
const MORE_FRAMES: usize = 256;

/// No copy comes later, in units of times: Linux's TCP_RTO_MIN.
const LATEST: i32 = 200_000_000 >> TIME_SHIFT;

/// Times are kept in units of 2^10 ns and wrap after 73 minutes, in which more than eight frames pass
/// or other numbers.
const TIME_SHIFT: u32 = 10;

/// Identifications from this on are at most 64 behind the last one's.
const OVERTAKEN: u16 = u16::MAX - 63;

/// Steps of one after which a sender counts its frames of this connection, as Linux does (RFC 6864
/// allows anything).
const ONE_BY_ONE: u8 = 8;

/// Steps up to this are frames that did not come here; larger ones are another counter.
const FEW: u16 = 16;

/// The last frames that a side sent.
#[derive(Clone, Debug, Default)]
pub(super) struct FrameHistory {
    recent: [u64; FRAMES],
    times: [u32; FRAMES],
    index: u8,
    /// How far this side's IP identification can be trusted to count.
    pub id_trust: u8,
    /// IP identification of the last segment.
    id: u16,
    /// Frames whose identification was one more than that of the frame before, in a row.
    one_by_one: u8,
    /// Identifications left out before the last frame by a sender that counts one by one.
    pub missing: u16,
    /// More frames, since one was captured twice.
    more: Option<Box<Frames>>,
}

/// Frames and when they came, the oldest first, none twice.
#[derive(Clone, Debug, Default)]
struct Frames(VecDeque<(u64, u32)>);

/// A frame that repeats one of the last in what TCP's header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Repeat {
    /// Its IP identification, not zero, is the same as well, and no other frame has that one.
    pub identified: bool,
    /// Nanoseconds since the first, to a microsecond.
    pub elapsed: i64,
    /// It is one of the last that tcptrace remembers.
    pub recent: bool,
}

impl FrameHistory {
    /// The last frame's IP identification.
    pub(super) fn last_id(&self) -> u16 {
        self.id
    }

    /// Whether the frame repeats one of the last; remembers it. A sender that gives other
    /// frames the same identification does not distinguish frames by it: what it sends again
    /// is no duplicate.
    #[inline]
    pub(super) fn repeats(&mut self, s: &Segment<'_>, options: &Parsed) -> Option<Repeat> {
        let key = frame_key(s, options);
        let now = (s.time.0 >> TIME_SHIFT) as u32;
        if self.recent.contains(&key) {
            return self.repeated(key, now);
        }
        let index = usize::from(self.index) % FRAMES;
        self.recent[index] = key;
        self.times[index] = now;
        self.index = self.index.wrapping_add(1);
        self.more.as_mut().and_then(|more| more.repeats(key, now))
    }

    /// One was captured twice: others may be, after more frames.
    #[cold]
    pub(super) fn remember_more(&mut self) {
        if self.more.is_none() {
            let known = self.recent.iter().zip(&self.times);
            let known = known.filter(|(key, _)| **key != 0);
            let mut known: VecDeque<_> = known.map(|(key, time)| (*key, *time)).collect();
            known.rotate_left(usize::from(self.index) % FRAMES % known.len().max(1));
            self.more = Some(Box::new(Frames(known)));
        }
    }

    #[cold]
    fn repeated(&self, key: u64, now: u32) -> Option<Repeat> {
        let id = key >> 48;
        if id != 0 && (self.recent.iter()).any(|f| *f != key && f >> 48 == id) {
            return None;
        }
        let index = self.recent.iter().position(|f| *f == key)?;
        let elapsed = now.wrapping_sub(self.times[index]) as i32;
        Some(Repeat {
            identified: id != 0,
            elapsed: i64::from(elapsed).abs() << TIME_SHIFT,
            recent: true,
        })
    }

    /// The frame was sent again: its next copy is compared with this one.
    #[cold]
    pub(super) fn sent_again(&mut self, s: &Segment<'_>, options: &Parsed) {
        let key = frame_key(s, options);
        let now = (s.time.0 >> TIME_SHIFT) as u32;
        if let Some(index) = self.recent.iter().position(|f| *f == key) {
            self.times[index] = now;
        }
        let more = self.more.iter_mut().flat_map(|more| more.0.iter_mut());
        more.filter(|(other, _)| *other == key)
            .for_each(|(_, time)| *time = now);
    }

    /// Follows the IP identification of a frame that was not captured twice.
    #[inline]
    pub(super) fn follow(&mut self, id: u16) {
        // A counter steps forward, by few; a frame that was overtaken is a few steps back.
        let step = id.wrapping_sub(self.id);
        self.missing = 0;
        if step == 1 {
            self.one_by_one = self.one_by_one.saturating_add(1);
        } else {
            if self.one_by_one >= ONE_BY_ONE && (2..=FEW).contains(&step) {
                self.missing = step - 1;
            }
            self.one_by_one = 0;
        }
        self.id_trust = match step {
            1..=1024 => self.id_trust.saturating_add(1),
            OVERTAKEN.. => return,
            _ => self.id_trust / 4,
        };
        self.id = id;
    }
}

impl Frames {
    /// Whether the frame repeats one of these; remembers it if not.
    fn repeats(&mut self, key: u64, now: u32) -> Option<Repeat> {
        while let Some((_, time)) = self.0.front()
            && now.wrapping_sub(*time) as i32 > LATEST
        {
            self.0.pop_front();
        }
        let Some((_, time)) = self.0.iter().find(|f| f.0 == key).copied() else {
            if self.0.len() >= MORE_FRAMES {
                self.0.pop_front();
            }
            self.0.push_back((key, now));
            return None;
        };
        let id = key >> 48;
        let ambiguous = id != 0 && (self.0.iter()).any(|f| f.0 != key && f.0 >> 48 == id);
        let elapsed = now.wrapping_sub(time) as i32;
        (!ambiguous).then_some(Repeat {
            identified: id != 0,
            elapsed: i64::from(elapsed).abs() << TIME_SHIFT,
            recent: false,
        })
    }
}

/// A frame's identification, and 48 bits of a hash of its numbers, flags, window and length;
/// without an identification, of its timestamps and SACK blocks as well.
#[inline]
fn frame_key(s: &Segment<'_>, options: &Parsed) -> u64 {
    let numbers = u64::from(s.sequence) << 32 | u64::from(s.acknowledgement);
    let rest = u64::from(s.length) << 32 | u64::from(s.flags.0) << 16 | u64::from(s.window);
    let mut hash = mix(numbers, rest);
    let id = s.ip_id.unwrap_or(0);
    if id == 0 {
        if let Some((value, echo)) = options.timestamps {
            hash ^= mix(u64::from(value) << 32 | u64::from(echo), rest);
        }
        for (left, right) in options.sack() {
            hash = mix(hash, u64::from(*left) << 32 | u64::from(*right));
        }
    }
    u64::from(id) << 48 | hash >> 16
}

#[inline]
fn mix(a: u64, b: u64) -> u64 {
    // The first digits of pi and of e: any odd numbers do.
    const SALTS: [u64; 2] = [0x243f_6a88_85a3_08d3, 0xadf8_5458_a2bb_4a9b];
    let product = u128::from(a ^ SALTS[0]) * u128::from(b ^ SALTS[1]);
    (product >> 64) as u64 ^ product as u64
}
