// SPDX-License-Identifier: Apache-2.0
//! What a port has done since it was made.

/// What a port has done since it was made. A packet that took a detour counts as enqueued
/// where it went, and as detoured where it should have gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Counters {
    /// Packets that joined a queue.
    pub enqueued: u64,
    /// Their bytes.
    pub enqueued_bytes: u64,
    /// Packets that left for the line.
    pub dequeued: u64,
    /// Their bytes.
    pub dequeued_bytes: u64,
    /// Packets marked.
    pub marked: u64,
    /// Packets dropped for want of room.
    pub dropped: u64,
    /// Their bytes.
    pub dropped_bytes: u64,
    /// Packets that should have gone here and went elsewhere.
    pub detoured: u64,
}
