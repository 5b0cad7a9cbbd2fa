// SPDX-License-Identifier: Apache-2.0
//! Segments of data and acknowledgments.

use slowpath_switch::Time;

/// Blocks of a SACK option beside timestamps: 40 bytes of options less 12, less 2, by 8
/// (RFC 2018 section 3).
pub const SACK_BLOCKS: usize = 3;
/// The same without timestamps.
pub const MAX_SACK_BLOCKS: usize = 4;

/// Data on its way to the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Offset of its first byte in the stream.
    pub seq: u64,
    /// Bytes of payload. 0 for a SYN.
    pub len: u32,
    /// Sent before.
    pub retransmission: bool,
    /// Congestion Window Reduced (RFC 3168 section 6.1.2).
    pub cwr: bool,
    /// The last of what was handed down at once (PSH). Linux's senders set it.
    pub push: bool,
    /// Opens the connection.
    pub syn: bool,
    /// [`Ack::stamp`] of the last ACK that arrived (RFC 7323's TSecr); zero without one.
    pub echo: Time,
}

/// An acknowledgment on its way to the sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ack {
    /// Every byte before this offset has arrived.
    pub ack: u64,
    /// How many bytes from `ack` on the receiver takes.
    pub window: u32,
    /// ECN-Echo.
    pub ece: bool,
    /// Answers a SYN.
    pub syn: bool,
    /// When it was made (RFC 7323's TSval).
    pub stamp: Time,
    /// What has arrived beyond `ack`.
    pub sack: SackBlocks,
}

/// Ranges of the stream that have arrived out of order, by the low 32 bits of their offsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SackBlocks {
    blocks: [(u32, u32); MAX_SACK_BLOCKS],
    count: u8,
    capacity: u8,
    /// Whether the first block reports a duplicate (RFC 2883).
    pub duplicate: bool,
}

impl Default for SackBlocks {
    #[inline]
    fn default() -> Self {
        Self::with_capacity(SACK_BLOCKS)
    }
}

impl SackBlocks {
    /// None, with room for `most`, which is [`MAX_SACK_BLOCKS`] at most.
    #[inline]
    pub fn with_capacity(capacity: usize) -> Self {
        SackBlocks {
            blocks: Default::default(),
            count: 0,
            capacity: capacity.min(MAX_SACK_BLOCKS) as u8,
            duplicate: false,
        }
    }

    /// How many there may be.
    pub fn capacity(&self) -> usize {
        usize::from(self.capacity)
    }

    /// The duplicate that is reported: first, and once (RFC 2883 section 4).
    pub(super) fn report_duplicate(&mut self, range: Option<(u64, u64)>) {
        if let Some((start, end)) = range {
            self.duplicate = true;
            self.push(start, end);
        }
    }

    /// Adds a block `[start, end)`; ignored when there are as many as may be.
    pub fn push(&mut self, start: u64, end: u64) {
        if self.count < self.capacity
            && let Some(block) = self.blocks.get_mut(usize::from(self.count))
        {
            // The low 32 bits: no window is longer than 2^31.
            *block = (start as u32, end as u32);
            self.count += 1;
        }
    }

    /// The blocks in order.
    #[inline]
    pub fn as_slice(&self) -> &[(u32, u32)] {
        &self.blocks[..usize::from(self.count)]
    }

    /// Whether there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}
