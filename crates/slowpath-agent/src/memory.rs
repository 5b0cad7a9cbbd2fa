// SPDX-License-Identifier: Apache-2.0
//! What was freed goes back to the system.
//!
//! glibc keeps freed memory for the next allocation: each thread's arena keeps its own, and a
//! block that was once mapped on its own and freed raises the size up to which blocks are kept, up to
//! 32 MiB (mallopt(3), `M_MMAP_THRESHOLD`). A daemon that converts a segment of its log once an
//! hour, or had a storm of connections, would hold that memory for good. Other C libraries are
//! left as they are.

/// Blocks from this size on have a mapping of their own, which goes when they are freed. A
/// poll allocates none of them again and again; a conversion's columns and a table of 10,000
/// entries are such blocks.
#[cfg(target_env = "gnu")]
const MAPPED: libc::c_int = 1 << 20;

/// Free memory at the end of the heap that is kept: what the bursts of one poll take.
#[cfg(target_env = "gnu")]
const KEPT: libc::c_int = 4 << 20;

/// One for the polls, one for all threads that write, convert, serve and record: they hold no
/// lock for long, and each further arena keeps its own free memory.
#[cfg(target_env = "gnu")]
const ARENAS: libc::c_int = 2;

/// Limits what the allocator keeps; once, before there are threads.
pub(crate) fn limit_kept() {
    #[cfg(target_env = "gnu")]
    for (parameter, value) in [
        (libc::M_MMAP_THRESHOLD, MAPPED),
        (libc::M_TRIM_THRESHOLD, KEPT),
        (libc::M_ARENA_MAX, ARENAS),
    ] {
        // SAFETY: sets a number of the allocator. Refused, it stays as it was.
        unsafe { libc::mallopt(parameter, value) };
    }
}

/// Gives back the whole pages that are free in every arena.
pub(crate) fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: takes the allocator's own locks and moves nothing that is in use.
    unsafe {
        libc::malloc_trim(0)
    };
}

/// The fewest slots of the connection table without a connection that, if they are also more than a quarter
/// of all, are worth a walk over table and heap.
const FREE_SLOTS: u64 = 1_000;

/// Says when giving back is worth its walk over the heap.
#[derive(Debug, Default)]
pub(crate) struct Released {
    /// Segments of the log that had been converted.
    segments: u64,
}

impl Released {
    /// Whether memory of connections or of conversions was freed since. Slots stay until they
    /// are given back, so a storm that came and went between two questions is noticed.
    pub(crate) fn is_due(&mut self, slots: u64, living: u64, segments: u64) -> bool {
        let free = slots.saturating_sub(living);
        let converted = std::mem::replace(&mut self.segments, segments) != segments;
        converted || (free >= FREE_SLOTS && free > slots / 4)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_given_back_after_conversions_and_storms_only() {
        let mut released = Released::default();
        assert!(!released.is_due(0, 0, 0));
        assert!(!released.is_due(100_000, 100_000, 0));
        assert!(!released.is_due(100_000, 75_000, 0));
        assert!(released.is_due(100_000, 74_999, 0), "a quarter");
        assert!(!released.is_due(74_999, 74_999, 0), "once");
        assert!(released.is_due(74_999, 74_999, 1), "a conversion");
        assert!(!released.is_due(74_999, 74_999, 1));
        assert!(!released.is_due(1_009, 10, 1), "few");
        assert!(released.is_due(1_010, 10, 1));
    }
}
