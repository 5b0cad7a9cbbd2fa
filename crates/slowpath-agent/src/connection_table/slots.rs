// SPDX-License-Identifier: Apache-2.0
//! Room for connections, by the thousand: growing moves nothing.
//!
//! The room lies on huge pages: with 100,000 connections nearly every one visited is on another
//! small page, and finding out where that lies costs as much as the visit, in a virtual machine
//! twice.

use crate::live_connection::LiveConnection;
use std::mem::MaybeUninit;
use std::ptr;

/// Size and alignment of a huge page (x86-64; elsewhere a multiple of the page size as well).
const HUGE: usize = 2 << 20;

/// Slots in a chunk: what three huge pages hold.
pub(super) const CHUNK: usize = 3 * HUGE / size_of::<Option<LiveConnection>>();

/// `MADV_COLLAPSE`, include/uapi/asm-generic/mman-common.h (Linux 6.1).
const MADV_COLLAPSE: i32 = 25;

/// Memory of a chunk.
#[repr(C, align(2_097_152))]
struct Pages([MaybeUninit<Option<LiveConnection>>; CHUNK]);

/// A chunk: its first `used` slots have a value.
struct Chunk {
    pages: Box<Pages>,
    used: usize,
}

impl Chunk {
    fn new() -> Self {
        // SAFETY: `Pages` is made of `MaybeUninit` only, for which no value is no fault.
        let pages = unsafe { Box::<Pages>::new_uninit().assume_init() };
        Chunk { pages, used: 0 }
    }

    fn slots(&self) -> &[Option<LiveConnection>] {
        // SAFETY: the first `used` slots have been written, and `MaybeUninit` has the layout
        // of what it holds.
        unsafe { std::slice::from_raw_parts(self.pages.0.as_ptr().cast(), self.used) }
    }

    fn slots_mut(&mut self) -> &mut [Option<LiveConnection>] {
        // SAFETY: as above, and `self` is borrowed for as long.
        unsafe { std::slice::from_raw_parts_mut(self.pages.0.as_mut_ptr().cast(), self.used) }
    }

    /// Takes the slots from `length` on away; those before stay.
    fn truncate(&mut self, length: usize) {
        while self.used > length {
            self.used -= 1;
            // SAFETY: the slot was written, and no longer counts as one with a value.
            unsafe { self.pages.0[self.used].assume_init_drop() };
        }
    }

    fn advise(&mut self, advice: i32) {
        let start = ptr::from_mut(&mut *self.pages).cast();
        // SAFETY: the range is the chunk's own memory; neither advice changes a byte of it. A
        // kernel that does not take it changes nothing else either.
        unsafe { libc::madvise(start, size_of::<Pages>(), advice) };
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        // SAFETY: each of these values was written, and none is used again.
        unsafe { ptr::drop_in_place(self.slots_mut()) }
    }
}

/// The slots.
#[derive(Default)]
pub(super) struct Slots {
    chunks: Vec<Chunk>,
}

impl Slots {
    pub fn get(&self, slot: u32) -> Option<&Option<LiveConnection>> {
        let slot = slot as usize;
        self.chunks.get(slot / CHUNK)?.slots().get(slot % CHUNK)
    }

    pub fn get_mut(&mut self, slot: u32) -> Option<&mut Option<LiveConnection>> {
        let slot = slot as usize;
        let chunk = self.chunks.get_mut(slot / CHUNK)?;
        chunk.slots_mut().get_mut(slot % CHUNK)
    }

    /// Adds a slot and gives its number.
    pub fn push(&mut self, connection: Option<LiveConnection>) -> u32 {
        if self.chunks.last().is_none_or(|c| c.used == CHUNK) {
            let mut chunk = Chunk::new();
            // The first chunk serves hosts with few connections: it takes pages as needed,
            // until there is a second one.
            if let [first] = &mut self.chunks[..] {
                first.advise(libc::MADV_HUGEPAGE);
                first.advise(MADV_COLLAPSE);
            }
            if !self.chunks.is_empty() {
                chunk.advise(libc::MADV_HUGEPAGE);
            }
            self.chunks.push(chunk);
        }
        let number = self.len();
        let last = self.chunks.last_mut().expect("a chunk was just added");
        last.pages.0[last.used].write(connection);
        last.used += 1;
        number
    }

    /// Takes the slots from `length` on away, and gives the memory of whole chunks back.
    pub fn truncate(&mut self, length: u32) {
        let length = length as usize;
        self.chunks.truncate(length.div_ceil(CHUNK));
        let before = CHUNK * self.chunks.len().saturating_sub(1);
        if let Some(last) = self.chunks.last_mut() {
            last.truncate(length - before);
        }
    }

    /// How many there are, with a connection or without.
    pub fn len(&self) -> u32 {
        let Some(last) = self.chunks.last() else {
            return 0;
        };
        ((self.chunks.len() - 1) * CHUNK + last.used) as u32
    }

    /// How many chunks have memory.
    #[cfg(test)]
    pub fn chunks(&self) -> usize {
        self.chunks.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Option<LiveConnection>> {
        self.chunks.iter().flat_map(Chunk::slots)
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Option<LiveConnection>> {
        self.chunks.iter_mut().flat_map(Chunk::slots_mut)
    }
}
