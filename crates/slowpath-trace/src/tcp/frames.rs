// SPDX-License-Identifier: Apache-2.0
//! The last frames of one direction: whether one was captured twice, and whether the sender's IP
//! identification counts.

use crate::segment::Segment;

/// Frames compared for hardware duplicates, as many as tcptrace remembers.
const FRAMES: usize = 8;

/// The last frames that a side sent.
#[derive(Clone, Debug, Default)]
pub(super) struct FrameHistory {
    recent: [u64; FRAMES],
    index: u8,
    /// How far this side's IP identification can be trusted to count.
    pub id_trust: u8,
    /// IP identification of the last segment.
    id: u16,
}

impl FrameHistory {
    /// Whether the frame was among the last ones already, the same in its identification and
    /// in what TCP's header says; remembers it. A sender that gives other frames the same identification
    /// does not distinguish frames by it: what it sends again is no duplicate.
    #[inline]
    pub(super) fn captured_twice(&mut self, s: &Segment<'_>, id: u16) -> bool {
        if id == 0 || s.sequence == 0 {
            return false;
        }
        let key = frame_key(s, id);
        if self.recent.contains(&key) {
            return self.distinguishes(key);
        }
        self.recent[usize::from(self.index) % FRAMES] = key;
        self.index = self.index.wrapping_add(1);
        false
    }

    #[cold]
    fn distinguishes(&self, key: u64) -> bool {
        (self.recent.iter()).all(|frame| *frame == key || frame >> 48 != key >> 48)
    }

    /// Follows the IP identification of a frame that was not captured twice.
    #[inline]
    pub(super) fn follow(&mut self, id: u16) {
        // A counter steps forward, by few.
        let step = id.wrapping_sub(self.id);
        self.id_trust = match step {
            1..=1024 => self.id_trust.saturating_add(1),
            _ => self.id_trust / 4,
        };
        self.id = id;
    }
}

/// A frame's identification, and 48 bits of a hash of its numbers, flags, window and length.
#[inline]
fn frame_key(s: &Segment<'_>, id: u16) -> u64 {
    // The first digits of pi and of e: any odd numbers do.
    const SALTS: [u64; 2] = [0x243f_6a88_85a3_08d3, 0xadf8_5458_a2bb_4a9b];
    let numbers = u64::from(s.sequence) << 32 | u64::from(s.acknowledgement);
    let rest = u64::from(s.length) << 32 | u64::from(s.flags.0) << 16 | u64::from(s.window);
    let product = u128::from(numbers ^ SALTS[0]) * u128::from(rest ^ SALTS[1]);
    let hash = (product >> 64) as u64 ^ product as u64;
    u64::from(id) << 48 | hash >> 16
}
